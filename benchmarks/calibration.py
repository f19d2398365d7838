"""The calibration that ships with a cross-encoder, and how far it can be believed on data it has not seen.

    python -m benchmarks.calibration [--questions 40] [--write]
    python -m benchmarks.calibration --quick

Of each judged collection so many questions are searched by words and vectors, and the model scores the best
20 hits. Platt scaling is fitted to all these pairs; the error is measured on each collection with numbers
fitted to the others alone. A hit that nobody judged counts as not relevant, as is usual in retrieval.
`--write` puts the numbers into the package, under the digest of the model's file.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import option_parser, report
from resift._internal.files import cache_folder
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.demo import passages, questions
from resift.evaluation.measures import Reliability, measure_reliability
from resift.evaluation.readers import Collection, read_collection
from resift.evaluation.runner import build_index
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.models.registry import check_kind
from resift.pipeline.pipeline import Pipeline
from resift.ranking.calibration import FILE
from resift.ranking.shape import Platt
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.stores.memory import MemoryStore
from resift.stores.sqlite import SQLiteStore

DATA = Path(os.environ.get("RESIFT_DATA", "../shared/data"))
COLLECTIONS = (
    "scifact", "nfcorpus", "cranfield", "chunkeval-multisource", "cosqa", "npl-vaswani",
    "squad2-dev-passages", "hotpotqa-distractor-1k",
)  # fmt: skip
DEPTH = 20

Pairs = list[tuple[float, bool]]
"""Logit, and whether the hit is relevant."""


async def pairs_of(
    pipeline: Pipeline, scorer: CrossEncoderReranker, asked: dict[str, str], qrels: dict[str, Any]
) -> Pairs:
    """Return what the model says of the best hits of each question."""
    pairs: Pairs = []
    for query, text in asked.items():
        hits = (await pipeline.search(text, k=DEPTH)).hits
        said = await scorer.score(text, hits, deadline=Deadline.never())
        pairs += [
            (value, qrels[query].get(hit.id, 0) > 0)
            for hit, value in zip(hits, said.values, strict=True)
            if value is not None
        ]
    return pairs


def some(texts: dict[str, str], count: int) -> dict[str, str]:
    """Return so many questions, chosen by the digest of their id."""
    chosen = sorted(texts, key=lambda query: hashlib.sha256(query.encode()).digest())[:count]
    return {query: texts[query] for query in chosen}


async def of_collection(collection: Collection, index: Path, scorer: CrossEncoderReranker, count: int) -> Pairs:
    """Return the pairs of one collection."""
    store = SQLiteStore(index, embedder=Embedder(DEFAULT_EMBEDDER), read_only=True)
    pipeline = Pipeline.default(store, rerank=False)
    try:
        return await pairs_of(pipeline, scorer, some(dict(collection.queries), count), collection.qrels)
    finally:
        await pipeline.close()


async def of_sample(scorer: CrossEncoderReranker) -> Pairs:
    """Return pairs of the shipped sample, for a smoke run."""
    store = MemoryStore()
    await store.add(passages())
    asked = questions()[:6]
    return await pairs_of(
        Pipeline(store), scorer, {one.id: one.text for one in asked}, {one.id: one.grades for one in asked}
    )


def error_on(pairs: Pairs, calibrator: Platt) -> Reliability:
    """Return how far a calibrator can be believed on pairs it was not fitted to."""
    return measure_reliability(
        [calibrator.probability(score) for score, _ in pairs], [yes for _, yes in pairs], held_out=True
    )


def fitted(collections: dict[str, Pairs], *, without: str = "") -> Platt:
    """Fit to the pairs of all collections but one."""
    pairs = [pair for name, some in collections.items() if name != without for pair in some]
    return Platt.fit([score for score, _ in pairs], [yes for _, yes in pairs])


def table_of(collections: dict[str, Pairs]) -> dict[str, Any]:
    """Return per collection the error of numbers fitted to the others, and of a plain sigmoid."""
    rows = {}
    for name, pairs in collections.items():
        others = fitted(collections, without=name) if len(collections) > 1 else fitted(collections)
        held_out, sigmoid = error_on(pairs, others), error_on(pairs, Platt(1.0, 0.0))
        rows[name] = {
            "pairs": len(pairs),
            "relevant": round(statistics.fmean(yes for _, yes in pairs), 3),
            "error": round(held_out.error, 3),
            "brier": round(held_out.brier, 3),
            "sigmoid_error": round(sigmoid.error, 3),
            "sigmoid_brier": round(sigmoid.brier, 3),
        }
    return rows


def write_shipped(calibrator: Platt, rows: dict[str, Any]) -> None:
    """Put the numbers into the package."""
    spec = check_kind(DEFAULT_MODEL, "cross-encoder")
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    known[spec.pin(spec.onnx).sha256] = {
        "model": spec.id,
        "calibrator": {
            "kind": "platt",
            "slope": round(calibrator.slope, 4),
            "intercept": round(calibrator.intercept, 4),
        },
        "collections": sorted(rows),
        "pairs": sum(row["pairs"] for row in rows.values()),
    }
    FILE.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Score, fit, show and write."""
    parser = option_parser("calibration", __doc__)
    parser.add_argument("--questions", type=int, default=40, help="questions of each collection")
    parser.add_argument("--cache", type=Path, default=None, help="where indexes of the collections are kept")
    parser.add_argument("--write", action="store_true", help="put the numbers into the package")
    args = parser.parse_args(argv)
    scorer = CrossEncoderReranker()
    collections: dict[str, Pairs] = {}
    if args.quick:
        collections["sample"] = run_sync(of_sample(scorer))
    for name in () if args.quick else COLLECTIONS:
        collection = read_collection(DATA / name)
        index = build_index(collection, args.cache or cache_folder("evaluation"))
        collections[name] = run_sync(of_collection(collection, index, scorer, args.questions))
        print(name, len(collections[name]), file=sys.stderr, flush=True)
    calibrator, rows = fitted(collections), table_of(collections)
    mean = {key: round(statistics.fmean(row[key] for row in rows.values()), 3) for key in next(iter(rows.values()))}
    for name, row in {**rows, "mean": mean}.items():
        print(f"{name:<24}", "  ".join(f"{key} {value}" for key, value in row.items()), file=sys.stderr)
    print(calibrator, file=sys.stderr)
    report(args, {"model": DEFAULT_MODEL, "collections": rows, "mean": mean})
    if args.write and not args.quick:
        write_shipped(calibrator, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
