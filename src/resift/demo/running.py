"""Index the sample, ask every question, and measure each way of ranking."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resift.demo.quality import ndcg, reciprocal_rank
from resift.demo.sample import SHOWN, Question, passages, questions
from resift.errors import ResiftError, require
from resift.pipeline.pipeline import Pipeline
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonObject, Ranking, StageKind

K = 10
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Row:
    """What one way of ranking is worth on the sample."""

    name: str
    ndcg: float
    mrr: float
    p50_ms: float
    per_question: tuple[float, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class Shown:
    """The outcome of the demo: one question in full, all questions in numbers."""

    question: str
    grades: dict[str, int]
    ranking: Ranking
    rows: tuple[Row, ...]
    passages: int
    questions: tuple[Question, ...]
    index_s: float
    total_s: float
    missing: str = ""


class Answers:
    """The orders and times that one way of ranking gave."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.orders: list[list[str]] = []
        self.times_ms: list[float] = []

    def add(self, ids: list[str], ms: float) -> None:
        """Note one answer."""
        self.orders.append(ids)
        self.times_ms.append(ms)

    def row(self, asked: Sequence[Question]) -> Row:
        """Return the means."""
        pairs = list(zip(self.orders, asked, strict=True))
        values = tuple(ndcg(ids, question.grades, k=K) for ids, question in pairs)
        ranks = [reciprocal_rank(ids[:K], question.grades) for ids, question in pairs]
        return Row(
            self.name,
            statistics.fmean(values),
            statistics.fmean(ranks),
            statistics.median(self.times_ms),
            values,
        )


async def run_demo(
    *, question: str = SHOWN, limit: int | None = None, progress: Progress = lambda *_: None
) -> Shown:
    """Run everything in a temporary folder; without the extra `local`, words alone are searched."""
    missing = missing_models()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="resift-demo-") as folder:
        store = _store(Path(folder) / "sample.db", with_models=not missing)
        try:
            documents = passages()
            await _indexed(store, documents, progress)
            index_s = time.perf_counter() - started
            asked = questions()[:limit]
            ways = _ways(store, with_models=not missing)
            rows = await _measured(ways, asked, progress)
            ranking = await ways[-1][1].search(question, k=K)
        finally:
            await store.close()
    grades = next((dict(one.grades) for one in questions() if one.text == question), {})
    total_s = time.perf_counter() - started
    return Shown(
        question, grades, ranking, tuple(rows), len(documents), tuple(asked), index_s, total_s, missing
    )


def missing_models() -> str:
    """Return why the models cannot run here, with the line that helps, or an empty string."""
    try:
        for module in ("numpy", "tokenizers"):
            require(module, extra="local")
        from resift.models.embedder import DEFAULT_EMBEDDER
        from resift.models.locate import resolve
        from resift.models.session import onnx_runtime
        from resift.native.library import native_kernel
        from resift.rerankers.cross_encoder import DEFAULT_MODEL

        if native_kernel().name is None:
            onnx_runtime()
        for model in (DEFAULT_EMBEDDER, DEFAULT_MODEL):
            resolve(model, check=False, download=False)
    except ResiftError as exc:
        return str(exc)
    return ""


def _store(path: Path, *, with_models: bool) -> SQLiteStore:
    if not with_models:
        return SQLiteStore(path, create=True)
    from resift.models.embedder import DEFAULT_EMBEDDER, Embedder

    return SQLiteStore(path, embedder=Embedder(DEFAULT_EMBEDDER), create=True)


async def _indexed(store: SQLiteStore, documents: list[JsonObject], progress: Progress) -> None:
    size = 32
    for start in range(0, len(documents), size):
        await store.add(documents[start : start + size])
        progress("indexing", min(start + size, len(documents)), len(documents))


def _ways(store: SQLiteStore, *, with_models: bool) -> list[tuple[str, Pipeline]]:
    """Return the pipelines from the plainest to the default one."""
    if not with_models:
        return [("BM25 (words)", Pipeline(store))]
    return [
        ("BM25 (words)", Pipeline(store.text)),
        ("dense (vectors)", Pipeline(store.vectors)),
        ("both, fused by RRF", Pipeline([store.text, store.vectors])),
        ("default pipeline", Pipeline.default(store)),
    ]


async def _measured(
    ways: list[tuple[str, Pipeline]], asked: Sequence[Question], progress: Progress
) -> list[Row]:
    answers = [Answers(name) for name, _ in ways]
    reranked = Answers("fused, cross-encoder only")
    for _, pipeline in ways:
        await pipeline.search("are you awake?", k=K)  # models load at the first question
    for done, question in enumerate(asked, start=1):
        for noted, (_, pipeline) in zip(answers, ways, strict=True):
            ranking, ms = await _timed(pipeline, question.text)
            noted.add(ranking.ids, ms)
        if len(ways) > 1:
            # The default pipeline's trace holds the order that the reranker alone gave.
            alone = ranking.trace.of(StageKind.RERANK)[-1].order
            reranked.add(list(alone), ms - ranking.timings.get("guard", 0.0))
        progress("asking", done, len(asked))
    rows = [noted.row(asked) for noted in answers]
    return [*rows[:-1], reranked.row(asked), rows[-1]] if len(ways) > 1 else rows


async def _timed(pipeline: Pipeline, query: str) -> tuple[Ranking, float]:
    started = time.perf_counter()
    ranking = await pipeline.search(query, k=K)
    return ranking, (time.perf_counter() - started) * 1000
