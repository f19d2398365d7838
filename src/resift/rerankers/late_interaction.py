"""Late interaction: token vectors of query and document compared by MaxSim; documents' are kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from resift._internal.arrays import Array
from resift.deadline import Deadline
from resift.models.engine import Task, shared_engine
from resift.models.loading import Lazy, ModelFolder, load, model_option
from resift.models.pairs import MAX_WINDOWS, Progress, report_progress
from resift.models.registry import check_kind
from resift.models.token_vectors import GiveUp, TokenEncoder, VectorCache, max_sim
from resift.models.tokenizer import check_language
from resift.rerankers.fusing import fuse_then_rescore
from resift.types import Hit, JsonObject, Scores
from resift.validation import check_arguments, check_number, check_path

DEFAULT_MODEL = "answerdotai/answerai-colbert-small-v1"


@dataclass(frozen=True, kw_only=True)
class LateInteractionOptions(ModelFolder):
    """What a pipeline file can say of late interaction."""

    model_name: str = model_option("late-interaction", default=DEFAULT_MODEL)


class LateInteractionReranker:
    """Orders hits by MaxSim. Vectors of documents seen before cost nothing; `save` keeps them for later.

    The model is loaded at the first use. Raises ValueError for a model that is not allowed.
    """

    Options = LateInteractionOptions
    name = "late-interaction"
    pointwise = True

    @check_arguments
    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        folder: Path | str | None = None,
        max_windows: int = MAX_WINDOWS,
        cache_mb: float = 128,
        on_progress: Progress | None = None,
    ) -> None:
        spec = check_kind(model_name, "late-interaction")
        check_number(max_windows, "max_windows", gt=0)
        check_number(cache_mb, "cache_mb", gt=-1, lt=1e9)
        self.model_name = model_name
        self.on_progress = on_progress
        self.info = spec.scorer_info(self.name)
        self.revision = f"{spec.revision} {max_windows}"
        self.vectors = VectorCache(cache_mb, model=f"{spec.id}@{spec.pin(spec.onnx).sha256[:16]}")
        self._max_windows = max_windows
        self._loaded = Lazy(
            lambda: TokenEncoder(
                load(model_name, kind="late-interaction", folder=folder), max_windows=max_windows
            )
        )

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one MaxSim per hit; None where the deadline came first."""
        encoder = await asyncio.to_thread(self._loaded)
        call = _Call(deadline, self.on_progress, total=len({hit.text for hit in hits}))
        texts = list(dict.fromkeys(hit.text for hit in hits))
        check_language(encoder.model.tokenizer, self.model_name, query, texts)
        await self._run(encoder, call, query, texts)
        values = [call.scores.get(hit.text) for hit in hits]
        missing = sum(value is None for value in values)
        reason = f"deadline: {len(values) - missing} of {len(values)} hits scored" if missing else None
        note = f"longest texts: their first {self._max_windows} windows were read" if call.cut else ""
        tokens = sum(call.sizes.get(hit.text, 0) for hit in hits) + (
            0 if call.query is None else len(call.query)
        )
        return Scores(
            values,
            self.name,
            degraded=missing > 0,
            reason=reason,
            note=note,
            tokens=tokens,
            scorer=self.info,
        )

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the best k of the pool by this model."""
        return await fuse_then_rescore(self, per_store, k=k, query=query)

    @check_arguments
    def encode_documents(self, texts: Sequence[str]) -> list[Array]:
        """Return each text's token vectors, float32 of shape (tokens, width), and keep them."""
        encoder = self._loaded()
        made: JsonObject = {}

        def encode(text: str) -> None:
            made[text] = self._document(encoder, text)

        tasks: list[Task] = [partial(encode, text) for text in dict.fromkeys(texts)]
        shared_engine().submit(tasks).future.result()
        return [made[text] for text in texts]

    def save(self, path: Path | str) -> None:
        """Write all kept document vectors to one .npz file."""
        self.vectors.save(check_path(path, "path"))

    def restore(self, path: Path | str) -> int:
        """Take over the document vectors of a file and return how many; refuses those of another model."""
        return self.vectors.load(check_path(path, "path"))

    async def _run(self, encoder: TokenEncoder, call: _Call, query: str, texts: list[str]) -> None:
        def ask() -> list[Task]:
            call.query = encoder.encode(query, "query")
            order = texts if deadline_set else sorted(texts, key=len, reverse=True)
            return [partial(self._compare, encoder, call, text) for text in order]

        deadline_set = call.deadline.timeout_s is not None
        await shared_engine().run([ask], deadline=call.deadline)

    def _compare(self, encoder: TokenEncoder, call: _Call, text: str) -> None:
        vectors = self._document(encoder, text, give_up=lambda: call.deadline.expired)
        if vectors is None or call.query is None:
            return
        score = max_sim(call.query, vectors)
        with call.lock:
            call.scores[text] = score
            call.sizes[text] = len(vectors)
            call.cut = call.cut or len(vectors) >= encoder.most_tokens
            done = len(call.scores)
        report_progress(call.on_progress, done, call.total)

    def _document(self, encoder: TokenEncoder, text: str, *, give_up: GiveUp | None = None) -> Array | None:
        vectors = self.vectors.get(text)
        if vectors is None:
            vectors = encoder.encode(text, "document", give_up=give_up)
            if vectors is not None:
                self.vectors.put(text, vectors)
        return vectors


@dataclass(slots=True, repr=False)
class _Call:
    """One call under way, filled in by the workers. Its repr shows no text."""

    deadline: Deadline
    on_progress: Progress | None
    total: int
    query: Array | None = None
    scores: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    cut: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
