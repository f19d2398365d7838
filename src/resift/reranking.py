"""The one-call door: `resift.rerank`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from resift._internal.sync import synced
from resift.deadline import Deadline
from resift.external.candidates import Candidates, MissingText, hits_from
from resift.external.records import check_text_keys, list_documents, no_text, text_from
from resift.models.pairs import Progress
from resift.protocols import Scorer
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.probability import (
    Calibration,
    ScoreFormat,
    as_probabilities,
    calibrator_for,
    check_scale,
)
from resift.rerankers.rescore import rescore
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace, record_of
from resift.validation import check_query


async def arerank(
    query: str,
    documents: Candidates,
    *,
    k: int | None = None,
    model: str = DEFAULT_MODEL,
    scorer: Scorer | None = None,
    folder: Path | str | None = None,
    deadline_s: float | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] | str | None = None,
    on_progress: Progress | None = None,
    scores: ScoreFormat = "raw",
    calibration: Calibration | None = None,
) -> Ranking:
    """Order documents by a cross-encoder on this machine; keep the best k, or all.

    Documents are strings, dicts, Hits, or the rows of a DataFrame or an Arrow table. The text of a dict or a
    row is its title and every other text field, joined; `text_keys` names the fields to read instead, with
    dots for nested ones (`["title", "_source.body"]`). The first step of the trace notes which were read.

    Works in scripts, threads and notebooks. The model is loaded at the first call and then shared. Never
    raises for a model that is missing or fails: the order stays and the ranking says `degraded` and why,
    with the line that installs what is missing. `scorer` replaces the model by any other scorer: a hosted
    one, tiers, your own. Raises ValueError for a model that is not allowed and for unusable documents.

    Scores are what the model says, logits of a cross-encoder, unless `scores="probability"` asks for numbers
    from 0 to 1: by the calibration that ships with the model, or by `calibration`, a file of
    `resift calibrate`. The order is the same; a hit that was not judged has no score then.
    """
    deadline = Deadline.after(deadline_s)
    scorer = scorer or CrossEncoderReranker(model, folder=folder, on_progress=on_progress, lazy=True)
    check_query(query, allow_empty=True)
    wanted = check_scale(scores, calibration)
    calibrator = calibrator_for(scorer, calibration) if wanted else None
    flags: dict[str, str] = {}
    keys = check_text_keys(text_keys)
    fields: dict[str, None] = {}
    given = list_documents(documents, "documents")
    hits = hits_from(
        given,
        name="documents",
        text_keys=keys,
        missing_text=missing_text,
        flags=flags,
        fields=fields,
    )
    ranking = await rescore(
        scorer,
        query,
        hits,
        k=len(hits) if k is None else k,
        trace=documents.trace if isinstance(documents, Ranking) else Trace((_as_given(hits, flags, fields),)),
        deadline=deadline,
        missing_text=missing_text,
        text_keys=keys,
    )
    ranking = replace(ranking, inputs=tuple(given))
    if (
        hits
        and missing_text == "last"
        and len(ranking.unscored) == len(hits)
        and not any(hit.text for hit in hits)
    ):
        why = no_text((hit.metadata for hit in hits), keys, "text_keys=")
        ranking = replace(ranking, reason=f"{ranking.reason}: {why}")
    return ranking if calibrator is None else as_probabilities(ranking, calibrator)


rerank = synced(arerank)


def _as_given(hits: Sequence[Hit], flags: Mapping[str, str], fields: Mapping[str, None]) -> StageRecord:
    """Return the record of the caller's own order, from which moves are counted."""
    note = text_from(fields) if [*fields] != ["text"] else ""
    return record_of(
        StageKind.RETRIEVE, "retrieve", hits, scored=True, source="input", note=note, notes=flags
    )
