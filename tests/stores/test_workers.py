"""Threads of one store: bounded, dropped when nobody waits, there again after close."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resift.stores.base import Workers


def test_work_waits_its_turn_and_is_dropped_when_its_caller_gives_up() -> None:
    """One thread is busy; what was cancelled while waiting never runs."""

    async def body() -> None:
        workers, gate, ran = Workers("t", threads=1), threading.Event(), []
        busy = asyncio.ensure_future(workers.run(gate.wait))
        await asyncio.sleep(0)  # let it begin
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await workers.run(lambda: ran.append("late"))
        gate.set()
        assert await busy
        assert await workers.run(lambda: "next") == "next"
        assert ran == []
        workers.close()
        assert await workers.run(lambda: "again") == "again"
        workers.close()

    asyncio.run(body())


def test_errors_come_back_to_the_caller() -> None:
    """As they were raised."""

    async def body() -> None:
        workers = Workers("t", threads=2)
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        workers.close()

    asyncio.run(body())
