"""The default order end to end beside its single stages: nDCG@10 and processor time on every collection.

    python -m benchmarks.default_table [--work FOLDER] [--questions 150] [--only scifact …] [--scores FOLDER]

RESIFT_DATA is where the collections lie.

What `resift eval` does, on a part of the questions: the first by a digest of their ids, the same for every
pipeline. Answers and indexes are kept in WORK, so it goes on where it was stopped; processor time is that of
the whole process while a question is answered. With --scores every reranker has a score cache there, so that
a pair is read once for all pipelines and runs; then no times are told.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.harness import option_parser, report
from resift.evaluation.evaluated_systems import System, find_system
from resift.evaluation.measures import Judge, bootstrap_interval
from resift.evaluation.readers import Collection, read_collection
from resift.evaluation.runner import Outcome, build_index, evaluate
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Rerank
from resift.rerankers.score_cache import CachedScorer, SQLiteScores

MEASURE = "nDCG@10"
WORK = Path(tempfile.gettempdir()) / "resift-default-table"
COLLECTIONS = (
    "scifact",
    "nfcorpus",
    "cranfield",
    "chunkeval-multisource",
    "cosqa",
    "npl-vaswani",
    "squad2-dev-passages",
    "hotpotqa-distractor-1k",
)
SINGLE = ("bm25", "dense", "rrf", "linear", "cross-encoder")


def part_of(collection: Collection, most: int) -> Collection:
    """Return the collection with the first questions by digest: chosen by no property of theirs."""
    ids = sorted(collection.queries, key=lambda query: hashlib.sha256(query.encode()).digest())[:most]
    return replace(
        collection,
        queries={query: collection.queries[query] for query in ids},
        qrels={query: collection.qrels[query] for query in ids},
    )


def timed(subject: System, out: Path) -> System:
    """Return the subject whose pipeline writes down the processor time of each search but the first."""

    def opened(path: Path | None) -> Pipeline:
        pipeline = subject.open(path)
        search, searches = pipeline.search, count()

        async def measured(text: str, **options: Any) -> Any:
            before = time.process_time()
            ranking = await search(text, **options)
            if next(searches):  # the first loads models
                with out.open("a", encoding="utf-8") as file:
                    file.write(f"{(time.process_time() - before) * 1000:.3f}\n")
            return ranking

        pipeline.search = measured  # type: ignore[method-assign]
        return pipeline

    return replace(subject, open=opened)


def cached(subject: System, scores: Path) -> System:
    """Return the subject whose reranker asks the cache first."""

    def opened(path: Path | None) -> Pipeline:
        pipeline = subject.open(path)
        for stage in pipeline.stages:
            if isinstance(stage, Rerank):
                stage.scorer = CachedScorer(stage.scorer, SQLiteScores(scores, wait_s=30))  # type: ignore[arg-type]
        return pipeline

    return replace(subject, open=opened)


def whole(ask: Callable[[], Outcome]) -> Outcome:
    """Return an outcome without degraded answers: those are asked for again, on a machine that was busy."""
    for _ in range(3):
        outcome = ask()
        if not outcome.degraded:
            return outcome
    raise SystemExit(f"{outcome.name}: {len(outcome.degraded)} answers are degraded: {outcome.degraded}")


def measured(data: Path, work: Path, most: int, scores: Path | None = None) -> dict[str, Any]:
    """Return one collection's row: means, intervals of the default against each, processor times."""
    collection = part_of(read_collection(data), most)
    index = build_index(collection, work)
    judge = Judge(collection.qrels, [MEASURE])
    values: dict[str, list[float]] = {}
    times: dict[str, float] = {}
    for name in (*SINGLE, "default"):
        told = work / f"ms-{data.name}-{name}.txt"
        plain = find_system(name)
        subject = timed(plain, told) if scores is None else cached(plain, scores / f"scores-{data.name}.db")
        outcome = whole(partial(evaluate, subject, collection, judge, index=index, cache=work))
        per_query = outcome.quality.per_query[MEASURE]
        values[name] = [per_query.get(query, 0.0) for query in collection.queries]
        spent = [float(line) for line in told.read_text().split()] if told.exists() else []
        times[name] = round(sum(spent) / len(spent), 1) if spent else 0.0
        print(f"{data.name} {name} {sum(values[name]) / len(values[name]):.4f} {times[name]} ms", flush=True)
    mine = values["default"]
    against = {}
    for name in SINGLE:
        low, high = bootstrap_interval([a - b for a, b in zip(mine, values[name], strict=True)])
        against[name] = [round(low, 4), round(high, 4)]
    return {
        "questions": len(mine),
        "nDCG@10": {name: round(sum(row) / len(row), 4) for name, row in values.items()},
        "against": against,
        **({"processor ms per question": times} if scores is None else {}),
    }


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("default_table", __doc__, parts=COLLECTIONS)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for indexes and answers")
    parser.add_argument("--questions", type=int, default=150, help="of each collection, at the most")
    parser.add_argument("--scores", type=Path, help="a folder of score caches")
    args = parser.parse_args(argv)
    data = Path(os.environ.get("RESIFT_DATA", "../shared/data"))
    args.work.mkdir(parents=True, exist_ok=True)
    kept = args.work / "default_table.json"
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    for name in ("cranfield",) if args.quick else args.only:
        rows[name] = measured(data / name, args.work, 3 if args.quick else args.questions, args.scores)
        if not args.quick:
            kept.write_text(json.dumps(rows))
    report(args, {"collections": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
