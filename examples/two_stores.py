"""Query two stores, one of them down: the search returns in time and reports what is missing."""

import asyncio

from resift import Pipeline
from resift.pipeline import StoreRef
from resift.stores import MemoryStore
from resift.testing import FakeStore


async def main() -> None:
    handbook = MemoryStore(name="handbook")
    await handbook.add(
        [
            {"id": "travel", "text": "Travel costs are signed off by the head of your team."},
            {"id": "receipts", "text": "Receipts for travel must be handed in within four weeks."},
        ]
    )
    archive = FakeStore(name="archive", fails=True)  # stands in for a server that is down
    stores = [handbook, StoreRef(name="archive", store=archive, timeout_s=0.5)]
    ranking = await Pipeline(stores, k=2, deadline_s=2.0).search("who signs off travel costs?")
    print(ranking.ids)
    print("degraded:", ranking.reason)
    print(dict(ranking.failures))


if __name__ == "__main__":
    asyncio.run(main())
