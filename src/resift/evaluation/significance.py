"""Is a difference more than chance: paired randomisation test, bootstrap interval, Holm's correction.

All seeded: the same values give the same answer every time.
"""

from __future__ import annotations

from collections.abc import Sequence

from resift._internal.arrays import Array, np
from resift.errors import InputError, require

SEED = 20090719
ROUNDS = 50_000
EXACT_UP_TO = 16
"""With this many queries that differ, or fewer, all 2ⁿ sign patterns are counted instead of sampled."""

# So many rounds at a time: memory then grows with the queries, not with the rounds.
_CHUNK = 2_000
_NOISE = 1e-12


def randomisation_p(differences: Sequence[float], *, rounds: int = ROUNDS, seed: int = SEED) -> float:
    """Return the two-sided p of a paired randomisation test on the mean (Smucker et al., CIKM 2007).

    Under the null hypothesis each difference could as well have the other sign. Without any difference
    p is 1. Sampled p-values count the observed pattern itself, so they are never 0.
    """
    require("numpy", extra="eval")
    values = np.array([value for value in differences if value != 0.0])
    if not len(values):
        return 1.0
    # Sums that are equal on paper differ in the last bit, and must count as reached.
    observed = abs(float(values.sum())) - _NOISE
    if len(values) <= EXACT_UP_TO:
        sums = _all_sums(values)
        return float((np.abs(sums) >= observed).mean())
    generator = np.random.default_rng(seed)
    reached = 0
    for start in range(0, rounds, _CHUNK):
        size = min(_CHUNK, rounds - start)
        signs = generator.integers(0, 2, size=(size, len(values)), dtype=np.int8) * 2 - 1
        reached += int((np.abs(signs @ values) >= observed).sum())
    return (reached + 1) / (rounds + 1)


def format_p(p: float) -> str:
    """Return a p-value with four digits, and what these cannot show as a bound."""
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
    for start in range(0, rounds, _CHUNK):
        size = min(_CHUNK, rounds - start)
        means.append(values[generator.integers(0, len(values), size=(size, len(values)))].mean(axis=1))
    edge = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [edge, 1 - edge])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are, in the order given (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for place, at in enumerate(order):
        # Never below that of a smaller p: the order of the p-values must stay.
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[at]))
        corrected[at] = highest
    return corrected


def _all_sums(values: Array) -> Array:
    # Each value doubles the patterns: once with its own sign, once with the other.
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums
