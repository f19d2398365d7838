"""The one-call door: `resift.rerank`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from resift.candidates import TEXT_KEYS, Candidate, MissingText, hits_from
from resift.deadline import Deadline
from resift.models.pairs import Progress
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.sync import run_sync
from resift.types import Hit, Ranking, Scores


def rerank(
    query: str,
    documents: Iterable[Candidate],
    *,
    k: int | None = None,
    model: str = DEFAULT_MODEL,
    folder: Path | str | None = None,
    deadline_s: float | None = None,
    missing_text: MissingText = "last",
    text_keys: Sequence[str] = TEXT_KEYS,
    on_progress: Progress | None = None,
) -> Ranking:
    """Order documents (strings, dicts or Hits) by a cross-encoder on this machine; keep the best k, or all.

    Works in scripts, threads and notebooks. The model is loaded at the first call and then shared. Never
    raises for a model that is missing or fails: the order stays and the ranking says `degraded` and why,
    with the line that installs what is missing. Raises ValueError for a model that is not allowed and for
    unusable documents.
    """
    deadline = Deadline.after(deadline_s)
    hits = hits_from(documents, text_keys=text_keys, missing_text=missing_text)
    scorer = _Reporting(_shared(model, folder), on_progress)
    wanted = len(hits) if k is None else k
    return run_sync(rescore(scorer, query, hits, k=wanted, deadline=deadline, missing_text=missing_text))


class _Reporting:
    """A shared reranker with one caller's progress callback."""

    def __init__(self, reranker: CrossEncoderReranker, on_progress: Progress | None) -> None:
        self.name = reranker.name
        self._reranker = reranker
        self._on_progress = on_progress

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        return await self._reranker.score(query, hits, deadline=deadline, on_progress=self._on_progress)


_lock = threading.Lock()
_rerankers: dict[tuple[str, str], CrossEncoderReranker] = {}


def _shared(model: str, folder: Path | str | None) -> CrossEncoderReranker:
    key = (model, str(folder))
    with _lock:
        known = _rerankers.get(key)
        # One that failed to load is tried again: its files may be there by now.
        if known is None or known.failure:
            known = _rerankers[key] = CrossEncoderReranker(model, folder=folder)
        return known
