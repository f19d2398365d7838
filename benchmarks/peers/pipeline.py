"""One version's pipeline over lists in memory, timed in its own process; runs with version 0.1 too."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
import zlib

from resift import Hit
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Rerank, Shape
from resift.types import Scores


class Listed:
    """A store that has its answer ready."""

    def __init__(self, name, ids, high):
        self.name = name
        self.hits = [
            Hit(id, f"passage {id}", high * (1 - place / 200), name, {"page": place}) for place, id in enumerate(ids)
        ]

    async def search(self, query, *, k, where=None):
        return self.hits[:k]


class Stub:
    """A scorer that answers at once, the same for an id in every process."""

    name = "cross-encoder"

    async def score(self, query, hits, *, deadline):
        return Scores([zlib.crc32(hit.id.encode()) % 97 / 9.7 - 5 for hit in hits], self.name)


def pipeline():
    source = random.Random(1)
    pool = [f"doc-{number}" for number in range(150)]
    stores = [Listed("words", source.sample(pool, 100), 20.0), Listed("dense", source.sample(pool, 100), 0.9)]
    return Pipeline(stores, rerank=Rerank(Stub(), depth=20), guard=Shape(name="guard"), k=10)


async def timed(searches):
    asked = pipeline()
    await asked.search("a question")
    times = []
    for _ in range(searches):
        started = time.process_time()
        await asked.search("a question")
        times.append((time.process_time() - started) * 1000)
    return statistics.median(times)


def median_ms(searches):
    return asyncio.run(timed(searches))


def main() -> None:
    for line in sys.stdin:
        print(json.dumps({"ms": median_ms(json.loads(line)["searches"])}), flush=True)


if __name__ == "__main__":
    main()
