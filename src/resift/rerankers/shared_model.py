"""One cross-encoder per process and model, loaded when it is first asked, inside the deadline of who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.errors import DeadlineExceeded
from resift.models.pairs import MAX_WINDOWS, Progress
from resift.models.registry import ModelSpec, check_kind
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.types import Hit, Scores


class SharedCrossEncoder:
    """The process's reranker of one model, loaded on first use, with one caller's progress callback."""

    name = CrossEncoderReranker.name
    pointwise = CrossEncoderReranker.pointwise

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        folder: Path | str | None = None,
        max_windows: int = MAX_WINDOWS,
        skim: int | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        spec = check_kind(model, "cross-encoder")
        self.model_name = model
        self.model_digest = spec.pin(spec.onnx).sha256
        self.info = spec.scorer_info(self.name)
        # As of the reranker that is shared.
        self.revision = f"{spec.revision} max {max_windows}{'' if skim is None else f' {skim}'}"
        self._key = (model, spec, str(folder) if folder is not None else "", max_windows, skim)
        self._on_progress = on_progress

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Do what `CrossEncoderReranker.score` does; raises DeadlineExceeded while the model is loading."""
        reranker = _known(self._key)
        if reranker is None:
            loading = asyncio.to_thread(_load, self._key)
            try:
                reranker = await asyncio.wait_for(loading, deadline.timeout_s)
            except TimeoutError:
                # The thread goes on, so that a later call finds the model ready.
                raise DeadlineExceeded("the deadline passed while the model was loading") from None
        return await reranker.score(query, hits, deadline=deadline, on_progress=self._on_progress)


_lock = ForkSafeLock()
Key = tuple[str, ModelSpec, str, int, int | None]
_rerankers: dict[Key, CrossEncoderReranker] = {}


def _known(key: Key) -> CrossEncoderReranker | None:
    found = _rerankers.get(key)
    # One that failed to load is tried again: its files may be there by now.
    return None if found is None or found.failure else found


def _load(key: Key) -> CrossEncoderReranker:
    # Looked up again inside: whoever waited for the lock finds what the other loaded.
    with _lock:
        found = _known(key)
        if found is None:
            model, _, folder, windows, skim = key
            found = _rerankers[key] = CrossEncoderReranker(
                model, folder=folder or None, max_windows=windows, skim=skim
            )
        return found
