"""Searches with a deadline wait for a free slot, at most until their deadline."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resift import Index
from resift.deadline import Deadline
from resift.pipeline import search_slots
from resift.pipeline.search_slots import SearchSlots


async def test_a_search_waits_for_a_slot_until_its_deadline():
    slots = SearchSlots(1)
    first = await slots.acquire(Deadline.after(1))
    assert first is not None
    assert await slots.acquire(Deadline.after(0.02)) is None
    waiting = asyncio.create_task(slots.acquire(Deadline.after(5)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    first.release()
    second = await waiting
    assert second is not None
    first.release()  # the second release frees nothing
    assert await slots.acquire(Deadline.after(0.02)) is None
    second.release()
    assert await slots.acquire(Deadline.after(0.02)) is not None


async def test_a_search_with_too_little_time_left_does_not_take_the_next_slot():
    slots = SearchSlots(1)
    slots._usual_s = 10.0
    first = await slots.acquire(Deadline.after(60))
    assert first is not None
    hopeless = asyncio.create_task(slots.acquire(Deadline.after(0.05)))
    patient = asyncio.create_task(slots.acquire(Deadline.after(60)))
    await asyncio.sleep(0)
    first.release()
    assert await patient is not None
    assert await hopeless is None


async def test_a_cancelled_search_keeps_no_slot():
    slots = SearchSlots(1)
    first = await slots.acquire(Deadline.after(1))
    assert first is not None
    waiting = asyncio.create_task(slots.acquire(Deadline.after(5)))
    await asyncio.sleep(0)
    first.release()
    waiting.cancel()  # in the moment in which it gets the slot
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await slots.acquire(Deadline.after(1)) is not None


def test_searches_of_other_event_loops_share_the_slots():
    slots = SearchSlots(1)
    used = [0]
    most = [0]

    async def search() -> None:
        for _ in range(20):
            slot = await slots.acquire(Deadline.after(20))
            assert slot is not None
            used[0] += 1
            most[0] = max(most[0], used[0])
            await asyncio.sleep(0)
            used[0] -= 1
            slot.release()

    threads = [threading.Thread(target=asyncio.run, args=(search(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert slots._used == 0


def test_an_index_search_without_a_slot_is_empty_and_says_why(tmp_path, monkeypatch):
    slots = SearchSlots(1)
    monkeypatch.setattr("resift.pipeline.pipeline.search_slots", slots)
    with Index(tmp_path / "docs.db", text_only=True, rerank=False) as index:
        index.add(["a lamp", "a ship"])
        assert len(index.search("lamp", deadline_s=5)) == 1
        assert slots._used == 0
        slots._used = 1
        ranking = index.search("lamp", deadline_s=0.05)
        assert (len(ranking), ranking.degraded) == (0, True)
        assert "waiting for other searches" in (ranking.reason or "")
        assert len(index.search("lamp")) == 1  # without a deadline no slot is needed


def test_a_forked_child_starts_with_all_slots_free():
    slots = search_slots.SearchSlots(1)
    slots._used = 1
    slots.reset_after_fork()
    assert slots._used == 0
