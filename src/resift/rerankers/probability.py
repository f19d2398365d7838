"""Scores from 0 to 1: the calibrated probability of the reranker, and the relevance that people see.

The order of a ranking never changes here, only the number next to each hit, and the numbers never rise with
the rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from resift.deadline import Deadline
from resift.errors import InputError
from resift.protocols import HasModelName, Scorer, describe_scorer, display_name
from resift.ranking.calibration import Calibrator, load_calibrator, shipped_calibrator, sigmoid
from resift.ranking.evidence import evidence
from resift.rerankers.rescore import rescore
from resift.text.analysis import Analyzer
from resift.types import Hit, Ranking, StageKind, StageRecord, with_scores

ScoreFormat = Literal["raw", "probability"]
"""`raw` is what the model says, a cross-encoder's logit; `probability` lies between 0 and 1."""

Calibration = Calibrator | str | os.PathLike[str]
"""A calibrator, or the file of one that `resift calibrate` wrote."""


def check_scale(scores: str, calibration: Calibration | None) -> bool:
    """Return whether probabilities are wanted; refuse any other word, and a calibration without them."""
    if scores not in get_args(ScoreFormat):
        raise InputError(f"scores is {scores!r}; write 'raw' or 'probability'.")
    if calibration is not None and scores != "probability":
        raise InputError("A calibration was given, but not scores='probability', which uses it.")
    return scores == "probability"


def calibrator_for(scorer: Scorer, calibration: Calibration | None) -> Calibrator:
    """Return the calibration given, or the one that ships with the scorer's model; one must be there."""
    if isinstance(calibration, (str, os.PathLike)):
        return load_calibrator(os.fspath(calibration))
    known = calibration or shipped_calibrator_for(scorer)
    if known is None:
        name = scorer.model_name if isinstance(scorer, HasModelName) else display_name(scorer)
        raise InputError(
            f"No calibration ships for {name!r}. Make one of judged scores with: "
            "resift calibrate judged.jsonl -o calibration.json; then give that file as the calibration."
        )
    return known


def shipped_calibrator_for(scorer: Scorer | None) -> Calibrator | None:
    """Return the calibration that ships with the scorer's model, if there is one."""
    digest = "" if scorer is None else describe_scorer(scorer).model_digest
    return shipped_calibrator(digest) if digest else None


def relevance(ranking: Ranking, calibrator: Calibrator | None = None) -> tuple[float, ...]:
    """Return one number from 0 to 1 per hit that never rises with the rank: how well it answers the query.

    It is the probability of the last reranker, by `calibrator`; without one, logits go through the logistic
    function, probabilities and cosines count as they are, and scores of an unknown scale count as
    probabilities if they all lie between 0 and 1, else as logits. Where the final order differs from the
    reranker's, probabilities of neighboring ranks are averaged until they fall (isotonic regression, which
    keeps their mean). A hit that the reranker did not score has the number of the hit above it as an upper
    bound. Without any reranker it is the share of the query's words that a hit contains, averaged in the
    same way.
    """
    judged = evidence(ranking.trace, ranking.ids).last_scores()
    raw = [None if said is None else said[1] for said in judged]
    known = [score for score in raw if score is not None]
    if not known:
        return tuple(never_rising(_word_shares(ranking)))
    if calibrator is not None:
        known = [calibrator.probability(score) for score in known]
    else:
        scale = [record.score_scale for record in ranking.trace.by_kind(StageKind.RERANK) if record.scores][
            -1
        ]
        bounded = min(known) >= 0 and max(known) <= 1 if scale in (None, "unknown") else scale != "logit"
        known = [min(1.0, max(0.0, score)) if bounded else sigmoid(score) for score in known]
    fitted = iter(never_rising(known))
    values: list[float | None] = [None if score is None else next(fitted) for score in raw]
    last = next(value for value in values if value is not None)
    filled = []
    for value in values:
        last = last if value is None else value
        filled.append(last)
    return tuple(filled)


def never_rising(values: Sequence[float]) -> list[float]:
    """Return the closest values, by least squares, that never rise (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean, count
    for value in values:
        block = (value, 1)
        while blocks and blocks[-1][0] < block[0]:
            mean, count = blocks.pop()
            total = count + block[1]
            block = ((mean * count + block[0] * block[1]) / total, total)
        blocks.append(block)
    return [mean for mean, count in blocks for _ in range(count)]


def _word_shares(ranking: Ranking) -> list[float]:
    analyzer = Analyzer()
    shares = []
    for hit in ranking:
        text = analyzer.analyze(hit.text)
        terms = set(text.terms)
        words = analyzer.query_words(ranking.query, languages=text.languages)
        found = sum(not terms.isdisjoint(spellings) for spellings in words)
        shares.append(found / len(words) if words else 0.0)
    return shares


def as_probabilities(
    ranking: Ranking, calibrator: Calibrator, *, read: Mapping[str, float] | None = None
) -> Ranking:
    """Return the ranking with probabilities as scores, None where no reranker judged a hit.

    Where the order differs from the reranker's, probabilities are averaged as in `relevance`.
    `read` are scores of hits that the reranker read after the ranking was made.
    """
    later = read or {}
    every = [*ranking.hits, *ranking.cut]
    judged = evidence(ranking.trace, [hit.id for hit in every]).last_scores()
    raw = [later.get(hit.id, said[1] if said else None) for hit, said in zip(every, judged, strict=True)]
    kept = len(ranking.hits)
    fitted = iter(never_rising([calibrator.probability(score) for score in raw[:kept] if score is not None]))
    shown = [None if score is None else next(fitted) for score in raw[:kept]]
    dropped = [None if score is None else calibrator.probability(score) for score in raw[kept:]]
    values = (*shown, *dropped)
    hits = tuple(with_scores(every, values))
    # A record of its own: the reranker's has the raw scores, and both can be read.
    record = StageRecord(
        kind=StageKind.SHAPE,
        name="probability",
        ids=tuple(ranking.ids),
        scores=values[:kept],
        notes={id: f"read for this: {score:.4g}" for id, score in later.items()},
    )
    return replace(ranking, hits=hits[:kept], cut=hits[kept:], trace=ranking.trace.append(record))


async def read_and_calibrate(
    ranking: Ranking, scorer: Scorer, calibrator: Calibrator, *, deadline: Deadline
) -> Ranking:
    """Do what `as_probabilities` does, after the scorer has read the hits that it has not judged yet.

    A scorer that fails or is late costs only these hits their number; the ranking says `degraded` and why.
    """
    judged = evidence(ranking.trace, ranking.ids).last_scores()
    unread: list[Hit] = [hit for hit, said in zip(ranking.hits, judged, strict=True) if said is None]
    if not unread:
        return as_probabilities(ranking, calibrator)
    said = await rescore(scorer, ranking.query, unread, k=len(unread), deadline=deadline)
    read = {id: score for id, score in zip(said.ids, said.scores(), strict=True) if score is not None}
    done = as_probabilities(ranking, calibrator, read=read)
    if not said.degraded:
        return done
    reasons = dict.fromkeys(reason for reason in (ranking.reason, said.reason) if reason)
    return replace(done, degraded=True, reason="; ".join(reasons) or None)
