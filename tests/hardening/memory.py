"""Memory of a process that searches all the time: flat after the first tenth."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resift._internal.sync import run_sync
from tests.hardening.overload import WORDS, make_texts
from tests.hardening.report import Outcome
from tests.hardening.soak import rss_mb

DOCUMENTS = 100
MB_PER_TIMES_TEN = 6.0
"""What the process may grow between a tenth of the searches and all of them."""


def attack(seed: int, count: int) -> Outcome:
    """Search an index `count` times with the default stages, without models."""
    from resift.pipeline.defaults import default_options
    from resift.pipeline.pipeline import Pipeline
    from resift.pipeline.stages import AdaptiveDepth, Rerank
    from resift.stores.sqlite import SQLiteStore
    from resift.testing import OverlapScorer
    from tests.stores.factories import HashingEmbedder

    outcome = Outcome("searches of one process with the default stages and stubs of the models")
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "docs.db", embedder=HashingEmbedder(), create=True)
        run_sync(store.add({"id": str(i), "text": text} for i, text in enumerate(make_texts(draw, DOCUMENTS, 60))))
        rerank = Rerank(OverlapScorer(), depth=AdaptiveDepth())
        pipeline = Pipeline(**{**default_options(store, rerank=True), "rerank": rerank})
        _search(outcome, draw, count, lambda query: run_sync(pipeline.search(query)))
        run_sync(pipeline.close())
        run_sync(store.close())
    return outcome


def attack_real(seed: int, count: int) -> Outcome:
    """Search an index `count` times with the default stages and models."""
    import resift

    outcome = Outcome("searches of one process with the default stages and models")
    if resift.rerank("warm up", ["a b c"]).degraded:
        outcome.absent = "no local model"
        return outcome
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, resift.Index(Path(folder) / "docs.db") as index:
        index.add(make_texts(draw, DOCUMENTS, 30))
        _search(outcome, draw, count, index.search)
    return outcome


def _search(outcome: Outcome, draw: random.Random, count: int, search: Callable[[str], Any]) -> None:
    memory: dict[int, float] = {}
    for number in range(1, count + 1):
        ranking = search(" ".join(draw.choices(WORDS, k=4)))
        outcome.check(len(ranking) == 10 and not ranking.degraded, f"search {number}: {ranking!r}")
        if number in (count // 10, count // 2, count):
            gc.collect()
            memory[number] = rss_mb()
    outcome.tried = count
    outcome.figures = {f"rss_mb_after_{number}": mb for number, mb in memory.items()}
    grown = memory[count] - memory[count // 10]
    outcome.check(grown <= MB_PER_TIMES_TEN, f"memory grew by {grown:.1f} MB after the first tenth")
