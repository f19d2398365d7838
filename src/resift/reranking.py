"""The one-call door: `resift.rerank`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from resift.candidates import TEXT_KEYS, Candidate, MissingText, hits_from
from resift.deadline import Deadline
from resift.errors import DeadlineExceeded
from resift.forking import ForkSafeLock
from resift.models.loading import check_kind
from resift.models.pairs import Progress
from resift.protocols import Scorer
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.sync import run_sync
from resift.types import Hit, Ranking, Scores, StageKind, StageRecord, Trace, record_of


def rerank(
    query: str,
    documents: Iterable[Candidate],
    *,
    k: int | None = None,
    model: str = DEFAULT_MODEL,
    scorer: Scorer | None = None,
    folder: Path | str | None = None,
    deadline_s: float | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] = TEXT_KEYS,
    on_progress: Progress | None = None,
) -> Ranking:
    """Order documents (strings, dicts or Hits) by a cross-encoder on this machine; keep the best k, or all.

    Works in scripts, threads and notebooks. The model is loaded at the first call and then shared. Never
    raises for a model that is missing or fails: the order stays and the ranking says `degraded` and why,
    with the line that installs what is missing. `scorer` replaces the model by any other scorer: a hosted
    one, tiers, your own. Raises ValueError for a model that is not allowed and for unusable documents.
    """
    work = arerank(
        query,
        documents,
        k=k,
        model=model,
        scorer=scorer,
        folder=folder,
        deadline_s=deadline_s,
        missing_text=missing_text,
        text_keys=text_keys,
        on_progress=on_progress,
    )
    return run_sync(work)


async def arerank(
    query: str,
    documents: Iterable[Candidate],
    *,
    k: int | None = None,
    model: str = DEFAULT_MODEL,
    scorer: Scorer | None = None,
    folder: Path | str | None = None,
    deadline_s: float | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] = TEXT_KEYS,
    on_progress: Progress | None = None,
) -> Ranking:
    """Do what `rerank` does, from async code."""
    deadline = Deadline.after(deadline_s)
    if scorer is None:
        check_kind(model, "cross-encoder")
    flags: dict[str, str] = {}
    hits = hits_from(documents, text_keys=text_keys, missing_text=missing_text, flags=flags)
    return await rescore(
        scorer or _Shared(model, folder, on_progress),
        query,
        hits,
        k=len(hits) if k is None else k,
        trace=documents.trace if isinstance(documents, Ranking) else Trace((_as_given(hits, flags),)),
        deadline=deadline,
        missing_text=missing_text,
        text_keys=text_keys,
    )


def _as_given(hits: Sequence[Hit], flags: Mapping[str, str]) -> StageRecord:
    """Return the record of the caller's own order, where each place in the answer is reckoned from."""
    return record_of(StageKind.RETRIEVE, "retrieve", hits, scored=True, source="input", notes=flags)


class _Shared:
    """The process's reranker of one model, loaded on first use, with one caller's progress callback."""

    name = CrossEncoderReranker.name

    def __init__(self, model: str, folder: Path | str | None, on_progress: Progress | None) -> None:
        self._model = model
        self._folder = folder
        self._on_progress = on_progress

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        reranker = _known(self._model, self._folder)
        if reranker is None:
            loading = asyncio.to_thread(_load, self._model, self._folder)
            try:
                reranker = await asyncio.wait_for(loading, deadline.timeout_s)
            except TimeoutError:
                # The thread goes on, so that a later call finds the model ready.
                raise DeadlineExceeded("the deadline passed while the model was loading") from None
        return await reranker.score(query, hits, deadline=deadline, on_progress=self._on_progress)


_lock = ForkSafeLock()
_rerankers: dict[tuple[str, str], CrossEncoderReranker] = {}


def _known(model: str, folder: Path | str | None) -> CrossEncoderReranker | None:
    found = _rerankers.get((model, str(folder)))
    # One that failed to load is tried again: its files may be there by now.
    return None if found is None or found.failure else found


def _load(model: str, folder: Path | str | None) -> CrossEncoderReranker:
    with _lock:
        found = _known(model, folder)
        if found is None:
            found = _rerankers[model, str(folder)] = CrossEncoderReranker(model, folder=folder)
        return found
