"""What approximate search costs in quality: the default pipeline with an exact scan and with bit codes.

The part `quality` of `python -m benchmarks.scale`, half an hour for SciFact, NFCorpus and Cranfield.

`resift eval DATA --pipeline default:exact --pipeline default:approximate` does the same for one collection;
here both share the cross-encoder's scores, since it judges a text the same whoever found it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE
from resift.evaluation.measures import Judge
from resift.evaluation.readers import Collection, read_collection
from resift.evaluation.runner import build_index, hits_beyond_k
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.defaults import default_options
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import AdaptiveDepth, Rerank
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.score_cache import CachedScorer, SQLiteScores
from resift.stores.sqlite import SQLiteStore
from resift.types import StageKind

COLLECTIONS = ("scifact", "nfcorpus", "cranfield")
LIMIT = 0.001


async def ranked(collection: Collection, index: Path, *, exact: bool, scorer: Any, questions: int) -> Any:
    """Return query -> ids of the default pipeline, and how many vector lists were approximate."""
    store = SQLiteStore(index, embedder=Embedder(), exact=exact, read_only=True)
    options = {**default_options(store, rerank=True), "rerank": Rerank(scorer, depth=AdaptiveDepth())}
    pipeline = Pipeline(**options)
    run, approximate = {}, 0
    for query, text in list(collection.queries.items())[:questions]:
        ranking = await pipeline.search(text)
        assert not ranking.degraded, ranking.reason
        notes = [record.note for record in ranking.trace.by_kind(StageKind.RETRIEVE)]
        approximate += "approximate" in notes
        run[query] = tuple(hit.id for hit in hits_beyond_k(ranking))
    await pipeline.close()
    return run, approximate


def compare(name: str, cache: Path, questions: int) -> dict[str, Any]:
    """Return nDCG@10 both ways."""
    data = Path(os.environ.get("RESIFT_DATA") or HERE.parent.parent / "shared" / "data")
    collection = read_collection(data / name)
    index = build_index(collection, cache, embedder=DEFAULT_EMBEDDER)
    scorer = CachedScorer(CrossEncoderReranker(lazy=True), SQLiteScores(cache / f"scores-{name}.db"))
    judge = Judge(collection.qrels, ("nDCG@10",))
    found = {}
    for how, exact in (("exact", True), ("approximate", False)):
        found[how] = asyncio.run(ranked(collection, index, exact=exact, scorer=scorer, questions=questions))
    means = {how: judge.quality(run).means(complete=False)["nDCG@10"] for how, (run, _) in found.items()}
    (exact_run, _), (coded_run, coded) = found["exact"], found["approximate"]
    same = sum(coded_run[query][:10] == ids[:10] for query, ids in exact_run.items())
    return {
        "questions": len(exact_run),
        "found_by_codes": coded,
        "ndcg_10_exact": round(means["exact"], 5),
        "ndcg_10_approximate": round(means["approximate"], 5),
        "difference": round(means["approximate"] - means["exact"], 5),
        "same_first_ten": round(same / len(exact_run), 4),
    }


def compare_all(cache: Path, *, quick: bool) -> dict[str, Any]:
    """Compare both searches on each collection; a quick run asks two queries of one collection."""
    rows = {}
    for name in ("cranfield",) if quick else COLLECTIONS:
        rows[name] = compare(name, cache, 2 if quick else 10**6)
        print(name, rows[name], file=sys.stderr, flush=True)
    return {"collections": rows, "met": all(abs(row["difference"]) <= LIMIT for row in rows.values())}
