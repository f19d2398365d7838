"""How quick evaluation is: replaying settings on a recording, and RRF on SciFact with cached embeddings.

python -m research.evaluation            # RESIFT_DATA: where scifact lies
python -m research.evaluation --quick    # a small made-up recording, a smoke test
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

from benchmarks.harness import versions, write_results

TARGET_REPLAY_S, TARGET_SCIFACT_S = 10.0, 20.0


def made_recording(queries: int, candidates: int):
    """Return made-up lists and scores for that many queries."""
    from resift.evaluation.recording import Header, RecordedQuery, Recording

    draw = random.Random(4)
    rows = []
    for number in range(queries):
        names = [f"d{at:05}" for at in draw.sample(range(50_000), candidates * 3 // 2)]
        lists = {
            store: tuple(
                (name, 30.0 - place / 4) for place, name in enumerate(draw.sample(names, candidates))
            )
            for store in ("text", "vectors")
        }
        rerank = {name: draw.gauss(0, 4) for name in names}
        rows.append(RecordedQuery(f"q{number}", "test", lists, rerank, dict.fromkeys(draw.sample(names, 3), 1)))
    return Recording(Header(stores=("text", "vectors"), reranker="r", depth=20, k=10), tuple(rows))


class Clock:
    """Wall and processor time of a block: they part where other work shares the cores."""

    def __enter__(self):
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu

    def told(self) -> dict[str, float]:
        return {"seconds": round(self.wall, 2), "processor_seconds": round(self.cpu, 2)}


def replay(queries: int, candidates: int, settings: int) -> dict:
    """Return the time to measure that many settings, with everything that `resift tune` does for it."""
    from resift.evaluation.tuning import tune

    recording = made_recording(queries, candidates)
    with Clock() as clock:
        tried = tune(recording, budget=settings).tried
    return {**clock.told(), "queries": queries, "candidates": candidates, "settings": tried}


def scifact(cache: Path | None) -> dict | None:
    """Return time and quality of `resift eval scifact --pipeline rrf` with the index in the cache."""
    from resift.cache_folders import cache_folder
    from resift.evaluation.readers import read_collection
    from resift.evaluation.measures import Judge
    from resift.evaluation.running import evaluate, index_for
    from resift.evaluation.systems import find_system

    folder = Path(os.environ.get("RESIFT_DATA", "../shared/data")) / "scifact"
    if not folder.is_dir():
        return None
    subject, where = find_system("rrf"), cache or cache_folder("evaluation")
    where.mkdir(parents=True, exist_ok=True)
    index_for([subject], read_collection(folder), where)
    with Clock() as clock:
        collection = read_collection(folder)
        index = index_for([subject], collection, where)
        outcome = evaluate(subject, collection, Judge(collection.qrels), index=index, cache=where, fresh=True)
    quality = round(outcome.quality.mean("nDCG@10"), 4)
    return {**clock.told(), "nDCG@10": quality, **{f"{n}_ms": ms for n, ms in outcome.latency.items()}}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.evaluation", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cache", type=Path, default=None, help="where the index of SciFact is kept")
    args = parser.parse_args(argv)
    if args.quick:
        print(replay(20, 20, 10))
        return 0
    data = {"replay": {**replay(300, 100, 100), "target_s": TARGET_REPLAY_S}}
    found = scifact(args.cache)
    if found:
        data["scifact_rrf"] = {**found, "target_s": TARGET_SCIFACT_S}
    print(data)
    told = {**data, "versions": versions(["resift", "ir_measures", "numpy"])}
    print("written:", write_results("evaluation", told).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
