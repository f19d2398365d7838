"""How long searches take: percentiles, by the nearest rank, so that each is a time that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

PERCENTILES = (50, 95, 99)


def percentile(times_ms: Sequence[float], percent: float) -> float:
    """Return the smallest measured time that at least `percent` % of the times do not exceed."""
    ordered = sorted(times_ms)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def latency(times_ms: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 in milliseconds; nothing for no times."""
    if not times_ms:
        return {}
    return {f"p{percent}": round(percentile(times_ms, percent), 3) for percent in PERCENTILES}
