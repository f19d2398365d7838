"""Significance of differences: paired randomization test, bootstrap interval, Holm's correction.

Everything is seeded, so the same values always give the same result. SciPy's tests agree (see the tests),
but draw other samples, so they would change published p-values.
"""

from __future__ import annotations

from collections.abc import Sequence

from resift._internal.arrays import Array, np
from resift.errors import InputError, require

SEED = 20090719
ROUNDS = 50_000
EXACT_UP_TO = 16
"""Up to this many differences, all 2ⁿ sign patterns are counted instead of sampled."""

# Rounds per batch, so that memory does not grow with the number of rounds.
_BATCH = 2_000
_NOISE = 1e-12


def randomization_p(differences: Sequence[float], *, rounds: int = ROUNDS, seed: int = SEED) -> float:
    """Return the two-sided p of a paired randomization test on the mean (Smucker et al., CIKM 2007).

    Under the null hypothesis the sign of each difference is random. Without any difference p is 1. Sampled
    p-values count the observed pattern too, so they are never 0.
    """
    require("numpy", extra="eval")
    values = np.array([value for value in differences if value != 0.0])
    if not len(values):
        return 1.0
    # Equal sums may differ in the last bit.
    observed = abs(float(values.sum())) - _NOISE
    if len(values) <= EXACT_UP_TO:
        # Each value doubles the patterns: once with its sign, once with the opposite one.
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean())
    generator = np.random.default_rng(seed)
    exceeded = 0
    for start in range(0, rounds, _BATCH):
        size = min(_BATCH, rounds - start)
        signs = generator.integers(0, 2, size=(size, len(values)), dtype=np.int8) * 2 - 1
        exceeded += int((np.abs(signs @ values) >= observed).sum())
    return (exceeded + 1) / (rounds + 1)


def format_p(p: float) -> str:
    """Return a p-value with four digits, or "<0.0001"."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def bootstrap_interval(
    differences: Sequence[float], *, level: float = 0.95, rounds: int = 10_000, seed: int = SEED
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean difference (Efron, 1979)."""
    if not 0 < level < 1 or rounds < 1 or seed < 0:
        raise InputError(
            f"level {level}, rounds {rounds}, seed {seed}: pass 0 < level < 1, rounds ≥ 1, seed ≥ 0."
        )
    require("numpy", extra="eval")
    values = np.array(differences, dtype=float)
    if not len(values):
        return 0.0, 0.0
    generator = np.random.default_rng(seed)
    means: list[Array] = []
    for start in range(0, rounds, _BATCH):
        size = min(_BATCH, rounds - start)
        means.append(values[generator.integers(0, len(values), size=(size, len(values)))].mean(axis=1))
    edge = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [edge, 1 - edge])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests, in the same order (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        # At least the corrected value of every smaller p.
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = highest
    return corrected
