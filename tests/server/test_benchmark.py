"""A smoke run of the benchmark's own parts: bad requests do no harm, a drain loses nothing."""

from __future__ import annotations

from benchmarks.server import bad, drain


def test_bad_requests_do_no_harm():
    """Five hundred of the twenty-five thousand: no 5xx, no hang, little memory."""
    found = bad(quick=True)
    assert found["failures"] == []
    assert not any(status.startswith("5") or status == "hang" for status in found["statuses"])
    assert found["rss_after_mb"] - found["rss_before_mb"] < 50


def test_a_drain_under_load_loses_nothing():
    """Every request that was accepted gets its answer, and the exit code is 0."""
    found = drain(quick=True)
    assert found["answers"]["lost"] == 0
    assert found["exit_codes"] == [0]
