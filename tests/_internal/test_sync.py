"""Synchronous calls with a deadline."""

from __future__ import annotations

import asyncio

import pytest

from resift._internal import sync


def test_a_call_leaves_the_time_by_which_earlier_ones_were_late(monkeypatch):
    """Many busy threads delay results, so later calls stop earlier, at most by half."""
    monkeypatch.setattr(sync, "_lateness_s", 0.0)
    limits: list[float] = []

    async def asearch(late_s: float, *, deadline_s: float) -> None:
        limits.append(deadline_s)
        await asyncio.sleep(deadline_s + late_s)

    search = sync.sync_method(asearch)
    search(0.08, deadline_s=0.02)
    search(0.0, deadline_s=0.4)
    search(-0.01, deadline_s=0.02)
    assert limits[0] <= 0.02
    assert limits[1] <= 0.33
    assert 0 <= limits[2] <= 0.01


def test_a_failed_call_keeps_its_error(monkeypatch):
    monkeypatch.setattr(sync, "_lateness_s", 0.0)

    async def afail(*, deadline_s: float) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sync.sync_method(afail)(deadline_s=1)
    assert sync._lateness_s == 0.0
