"""`resift.rerank`: rerank a list of documents with one call."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resift._internal.sync import sync_method
from resift.deadline import Deadline
from resift.external.candidates import Candidates, MissingText, list_documents, read_hits
from resift.external.records import check_fields, no_text, text_from
from resift.models.pairs import Progress
from resift.protocols import Scorer
from resift.ranking.context import PassageReader
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.rescore import Calibration, ScoreFormat, as_probabilities, calibrator_for, check_scale, rescore
from resift.types import Ranking, StageKind, Trace, make_record
from resift.validation import check_query


async def arerank(
    query: str,
    documents: Candidates,
    *,
    k: int | None = None,
    model: str = DEFAULT_MODEL,
    scorer: Scorer | None = None,
    instruction: str | None = None,
    folder: Path | str | None = None,
    deadline_s: float | None = None,
    missing_text: MissingText = "last",
    fields: Sequence[str] | Mapping[str, float] | None = None,
    text_keys: Sequence[str] | str | None = None,
    on_progress: Progress | None = None,
    scores: ScoreFormat = "raw",
    calibration: Calibration | None = None,
) -> Ranking:
    """Rerank documents with a local cross-encoder; keep the best k, or all.

    Documents are strings, dicts, Hits, the rows of a DataFrame, an Arrow table or a cursor, or unchanged
    results of a search system (docs/rerank-your-results.md). `ranking.originals()` returns the objects that
    were passed, in the new order. The text of a dict or a row is its title and all other text fields, joined.
    `fields` names the fields to read instead, with dots for nested ones; each is labeled with its name. With
    weights (`{"title": 3, "body": 1}`) the heaviest field comes first. `text_keys` joins fields without
    labels. The first step of the trace lists the fields that were read.

    Works in scripts, threads and notebooks. The model is loaded at the first call and then shared. If the
    model is missing or fails, the documents keep their order, and the ranking is `degraded` with the reason
    and the command that installs the model. `scorer` replaces the model: a hosted reranker, tiers, or your
    own. Raises ValueError for a model that is not allowed and for unusable documents.

    `instruction` adds a preference to the query, such as "Prefer official manuals.". If the scorer does not
    follow instructions, `ranking.warnings` reports that it was not used.

    Scores come from the model; a cross-encoder returns logits. `scores="probability"` returns probabilities
    instead, from the calibration that ships with the model or from `calibration`, a file written by
    `resift calibrate`. The order is the same, and an unscored hit then has no score.
    """
    deadline = Deadline.after(deadline_s)
    scorer = scorer or CrossEncoderReranker(model, folder=folder, on_progress=on_progress, lazy=True)
    check_query(query)
    as_probability = check_scale(scores, calibration)
    calibrator = calibrator_for(scorer, calibration) if as_probability else None
    flags: dict[str, str] = {}
    keys = check_fields(fields, text_keys)
    names: dict[str, None] = {}
    items = list_documents(documents, "documents")
    hits = read_hits(items, name="documents", text_keys=keys, missing_text=missing_text, flags=flags, fields=names)
    if isinstance(documents, Ranking):
        trace = documents.trace
    else:
        note = text_from(names) if [*names] != ["text"] else ""
        trace = Trace(
            [make_record(StageKind.RETRIEVE, "retrieve", hits, scored=True, source="input", note=note, notes=flags)]
        )
    ranking = await rescore(
        scorer,
        query,
        hits,
        k=len(hits) if k is None else k,
        instruction=instruction,
        trace=trace,
        deadline=deadline,
        missing_text=missing_text,
        text_keys=keys,
    )
    # `ranking.context` reads neighbors from the stores of the search and scores sentences with this scorer.
    search_reader = documents.reader if isinstance(documents, Ranking) else None
    reader = PassageReader(search_reader.stores if search_reader else (), scorer)
    ranking = replace(ranking, inputs=tuple(items), reader=reader)
    blank = [hit for hit in hits if not hit.text.strip()] if missing_text == "last" else []
    if blank and len(blank) == len(hits):
        why = no_text((hit.metadata for hit in hits), keys, "fields= or text_keys=")
        ranking = replace(ranking, reason=f"{ranking.reason}: {why}")
    elif blank:
        ids = ", ".join(f"'{hit.id}'" for hit in blank[:3]) + (", …" if len(blank) > 3 else "")
        warning = f"{len(blank)} of {len(hits)} documents have no text and rank last: {ids}"
        ranking = replace(ranking, warnings=(*ranking.warnings, warning))
    return ranking if calibrator is None else as_probabilities(ranking, calibrator)


_rerank = sync_method(arerank)


if TYPE_CHECKING:
    rerank = _rerank
else:

    @functools.wraps(_rerank)
    def rerank(query: str, documents: Candidates, *args: object, **options: object) -> Ranking:
        """Run `arerank` and wait for its result."""
        if hasattr(documents, "fetchall"):
            # A SQLite cursor can only be used in the thread that created it.
            documents = list_documents(documents, "documents")
        return _rerank(query, documents, *args, **options)
