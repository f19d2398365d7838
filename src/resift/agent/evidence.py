"""Whether what was found says anything about the question: an honest "not found" instead of an invention.

Each judge has a limit above which it is believed alone, and a lower one above which it is believed when
another agrees. The numbers were chosen on three packs of different subjects, with questions that they do
and do not answer (docs/agent.md); they belong to the models, not to a pack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from resift.agent.pack import Pack
from resift.agent.question_words import Fit, coverage, missing_from, names_in
from resift.text import words
from resift.types import Ranking, StageKind, Trace

CROSS_ENCODER, VECTORS, WORDS = "cross-encoder", "vectors", "words"

LOGITS = (-7.0, 0.0)
COSINES = {"BAAI/bge-small-en-v1.5": (0.6, 0.72)}
"""Possible from the first number on, sure from the second. Cosines of other embedders mean nothing here."""
COSINE_RANGE = COSINES["BAAI/bge-small-en-v1.5"]
NEAR, MOSTLY = 0.63, 0.75
"""A cosine, or a share of the question's words, that backs a cross-encoder in doubt."""
COVERED = (0.15, 0.5)
"""Shares of the question's words: enough beside a model, and enough alone."""


MIN_PROBABILITY = 0.45
"""A sentence that answers with a lower probability is not quoted."""


class _Weights(NamedTuple):
    """Logistic regression over a model's score of a sentence and its fit with the question."""

    bias: float
    score: float
    missing_predicate: float
    missing_nearby: float
    wrong_kind: float
    missing_count: float
    missing_number: float


# Fitted on the development questions that docs/agent.md describes, with the bundled models.
_ANSWERS = {
    CROSS_ENCODER: _Weights(1.20, 0.306, -2.70, -0.26, -1.23, -1.08, -2.05),
    VECTORS: _Weights(-7.09, 13.2, -2.84, -0.51, -1.43, -1.24, -2.04),
}


def answer_probability(judge: str, score: float, fit: Fit) -> float:
    """Return the probability that a sentence answers the question: its score by a model, and its words."""
    if judge == WORDS:
        doubt = 0.6 if fit.wrong_kind or fit.missing_number else 1.0
        return 0.9 * (1 - fit.missing_nearby) * doubt
    weights = _ANSWERS[judge]
    total = math.fsum(
        (
            weights.bias,
            weights.score * max(-100.0, min(100.0, score)),
            weights.missing_predicate * fit.missing_predicate,
            weights.missing_nearby * fit.missing_nearby,
            weights.wrong_kind * fit.wrong_kind,
            weights.missing_count * fit.missing_count,
            weights.missing_number * fit.missing_number,
        )
    )
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The best that each judge said of any passage; None where it said nothing."""

    logit: float | None
    cosine: float | None
    covered: float

    @property
    def judge(self) -> str:
        """Whose word counts."""
        if self.logit is not None:
            return CROSS_ENCODER
        return WORDS if self.cosine is None else VECTORS

    @property
    def enough(self) -> bool:
        """Whether there is something to answer from."""
        if self.logit is not None:
            near = self.cosine is None or self.cosine >= NEAR or self.covered >= MOSTLY
            return self.logit >= LOGITS[1] or (
                self.logit >= LOGITS[0] and near and self.covered >= COVERED[0]
            )
        if self.cosine is None:
            return self.covered >= COVERED[1]
        possible, sure = COSINE_RANGE
        if self.cosine >= sure:
            return True
        needed = COVERED[0] + 0.1 if self.cosine >= possible else COVERED[1] + 0.1
        return self.covered >= needed

    @property
    def confidence(self) -> float:
        """The evidence from 0 to 1, to compare answers of one judge; no probability of being right."""
        if self.logit is not None:
            return 1 / (1 + math.exp(-max(-30.0, min(30.0, self.logit / 2))))
        if self.cosine is None:
            return self.covered
        return max(0.05, min(1.0, (self.cosine - 0.5) / 0.35))


def evidence_in(ranking: Ranking, question: str, *, embedder: str) -> Evidence:
    """Return the best evidence in a ranking, from what its trace and texts say."""
    logits = _of_hits(ranking, CROSS_ENCODER)
    cosines = _of_hits(ranking, VECTORS) if embedder in COSINES else []
    covered = max((coverage(question, hit.text) for hit in ranking.hits), default=0.0)
    return Evidence(max(logits, default=None), max(cosines, default=None), covered)


class AbsentNames(NamedTuple):
    """Names of the question that the sources lack; unknown when the whole pack has none of them."""

    unknown: bool
    notes: list[str]


def absent_names(question: str, ranking: Ranking, pack: Pack) -> AbsentNames:
    """Look for the question's names in what was found and, where they are not there, in the whole pack."""
    names = names_in(question)
    missing = missing_from(names, set(words(" ".join(hit.text for hit in ranking.hits))))
    if not missing:
        return AbsentNames(False, [])
    unknown = len(missing_from(names, pack.vocabulary())) == len(names)
    where = "the pack does not mention" if unknown else "no source mentions"
    return AbsentNames(unknown, [f"{where}: {', '.join(missing)}"])


def _of_hits(ranking: Ranking, judge: str) -> list[float]:
    said = judgements(ranking.trace, judge)
    return [said[id] for id in ranking.ids if id in said]


def judgements(trace: Trace, judge: str) -> dict[str, float]:
    """Return id -> what a judge said of a hit, for the hits of which it said anything."""
    kind = StageKind.RERANK if judge == CROSS_ENCODER else StageKind.RETRIEVE
    return {
        id: score
        for record in reversed(trace.of(kind))
        if record.source == judge or record.source.endswith(f".{judge}")  # a store's view: notes.vectors
        for id, score in zip(record.ids, record.scores, strict=True)
        if score is not None
    }
