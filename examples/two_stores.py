"""Two stores, one of them down: the search answers in time and says what is missing."""

import asyncio

from resift import Pipeline
from resift.events import ListSink
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
    events = ListSink()
    stores = [handbook, StoreRef(name="archive", store=archive, timeout_s=0.5)]
    ranking = await Pipeline(stores, k=2, deadline_s=2.0, sink=events).search("who signs off travel costs?")
    print(ranking.ids)
    print("degraded:", ranking.reason)
    for event in events.named("stargraph.transition"):
        told = event.fields()
        print(f"{told['store']}: {told['status']}, {told['n_hits']} hits, {told['ms']:.1f} ms")


if __name__ == "__main__":
    asyncio.run(main())
