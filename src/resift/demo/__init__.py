"""The demo: index the bundled passages, search for every question, and measure each ranking method."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from resift.errors import ResiftError, require
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.models.locate import resolve
from resift.models.session import onnx_runtime
from resift.native.library import native_kernel
from resift.pipeline.pipeline import Pipeline
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonObject, Ranking, StageKind

EXAMPLE_QUESTION = "how much notice must I give after two years here?"
"""The question whose rank flow the demo shows by default."""

K, _BATCH = 10, 32
Progress = Callable[[str, int, int], None]  # called with (phase, done, total)


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question with judgments: passages that answer it (2) or help (1), and what makes it hard."""

    id: str
    text: str
    trap: str
    grades: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MethodResult:
    """Quality and latency of a ranking method on the sample."""

    name: str
    ndcg: float
    mrr: float
    p50_ms: float
    per_question: tuple[float, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The ranking of one question, and the results of all methods over all questions."""

    question: str
    grades: dict[str, int]
    ranking: Ranking
    rows: tuple[MethodResult, ...]
    passages: int
    questions: tuple[DemoQuestion, ...]
    index_s: float
    total_s: float
    missing: str = ""
    """Reason why the models cannot run; empty if they can."""


def passages() -> list[JsonObject]:
    """Return the passages as documents for a store."""
    rows = _read_rows("passages.jsonl")
    return [{"id": row["id"], "text": row["text"], "metadata": {"source_type": row["source"]}} for row in rows]


def questions() -> list[DemoQuestion]:
    """Return the judged questions."""
    return [DemoQuestion(**row) for row in _read_rows("questions.jsonl")]


def _read_rows(name: str) -> list[JsonObject]:
    text = (files("resift.demo") / "data" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


async def run_demo(
    *, question: str = EXAMPLE_QUESTION, limit: int | None = None, progress: Progress = lambda *_: None
) -> DemoResult:
    """Run the demo in a temporary folder. Without the extra `local`, only keyword search runs."""
    missing = missing_models()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="resift-demo-") as folder:
        embedder = None if missing else Embedder(DEFAULT_EMBEDDER)
        store = SQLiteStore(Path(folder) / "sample.db", embedder=embedder, create=True)
        try:
            documents = passages()
            for start in range(0, len(documents), _BATCH):
                await store.add(documents[start : start + _BATCH])
                progress("indexing", min(start + _BATCH, len(documents)), len(documents))
            index_s = time.perf_counter() - started
            selected = questions()[:limit]
            methods = _ranking_methods(store, with_models=not missing)
            rows = await _measure_methods(methods, selected, progress)
            ranking = await methods[-1][1].search(question, k=K)
        finally:
            await store.close()
    grades = next((dict(judged.grades) for judged in questions() if judged.text == question), {})
    times = index_s, time.perf_counter() - started
    return DemoResult(question, grades, ranking, tuple(rows), len(documents), tuple(selected), *times, missing)


def missing_models() -> str:
    """Return the reason why the models cannot run here, with the fix, or an empty string."""
    try:
        for module in ("numpy", "tokenizers"):
            require(module, extra="local")
        if native_kernel().name is None:
            onnx_runtime()
        for model in (DEFAULT_EMBEDDER, DEFAULT_MODEL):
            resolve(model, check=False, download=False)
    except ResiftError as exc:
        return str(exc)
    return ""


def _ranking_methods(store: SQLiteStore, *, with_models: bool) -> list[tuple[str, Pipeline]]:
    if not with_models:
        return [("BM25 (words)", Pipeline(store))]
    return [
        ("BM25 (words)", Pipeline(store.text)),
        ("dense (vectors)", Pipeline(store.vectors)),
        ("both, fused by RRF", Pipeline([store.text, store.vectors])),
        ("default pipeline", Pipeline.default(store)),
    ]


async def _measure_methods(
    methods: list[tuple[str, Pipeline]], selected: Sequence[DemoQuestion], progress: Progress
) -> list[MethodResult]:
    runs: dict[str, list[tuple[list[str], float]]] = {name: [] for name, _ in methods[:-1]}
    if len(methods) > 1:
        runs["fused, cross-encoder only"] = []
    runs[methods[-1][0]] = []
    for _, pipeline in methods:
        await pipeline.search("warm up", k=K)  # the first search loads the models
    for done, question in enumerate(selected, start=1):
        for name, pipeline in methods:
            started = time.perf_counter()
            ranking = await pipeline.search(question.text, k=K)
            ms = (time.perf_counter() - started) * 1000
            runs[name].append((ranking.ids, ms))
        if len(methods) > 1:
            # The trace of the default pipeline contains the order of the cross-encoder alone.
            order = list(ranking.trace.by_kind(StageKind.RERANK)[-1].order)
            runs["fused, cross-encoder only"].append((order, ms - ranking.timings.get("guard", 0.0)))
        progress("searching", done, len(selected))
    return [_summarize(name, run, selected) for name, run in runs.items()]


def _summarize(name: str, run: Sequence[tuple[list[str], float]], selected: Sequence[DemoQuestion]) -> MethodResult:
    judged = [(ids, question.grades) for (ids, _), question in zip(run, selected, strict=True)]
    values = tuple(ndcg(ids, grades, k=K) for ids, grades in judged)
    mrr = statistics.fmean(reciprocal_rank(ids[:K], grades) for ids, grades in judged)
    return MethodResult(name, statistics.fmean(values), mrr, statistics.median(ms for _, ms in run), values)


def ndcg(ids: Sequence[str], grades: Mapping[str, int], *, k: int = 10) -> float:
    """Return nDCG@k with linear gains, as trec_eval does (Järvelin and Kekäläinen, 2002)."""
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return _dcg([grades.get(id, 0) for id in ids[:k]]) / ideal if ideal else 0.0


def reciprocal_rank(ids: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return 1 / rank of the first relevant hit, or 0."""
    return next((1 / rank for rank, id in enumerate(ids, start=1) if grades.get(id, 0) > 0), 0.0)


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
