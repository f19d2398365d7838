"""The significance tests against SciPy's: another implementation, the same numbers."""

from __future__ import annotations

import random

import pytest

from resift.evaluation.measures import bootstrap_interval, holm, randomization_p
from tests.lazy import LazyModule

stats = LazyModule("scipy.stats")
np = pytest.importorskip("numpy", reason="needs resift[eval]")


def differences(size: int, shift: float, seed: int) -> list[float]:
    """Differences as they are between runs: many zeros, few sizes, so that ties are frequent."""
    source = random.Random(seed)
    return [source.choice([0.0, 0.0, 0.1, -0.1, 0.25, -0.25, 0.5]) + shift for _ in range(size)]


def permutation(values: list[float], rounds) -> float:
    return stats.permutation_test(
        (np.array(values),),
        lambda sample, axis: np.mean(sample, axis=axis),
        permutation_type="samples",
        n_resamples=rounds,
        vectorized=True,
        rng=np.random.default_rng(1),
    ).pvalue


@pytest.mark.parametrize("seed", range(12))
def test_small_samples_are_exact(seed):
    """All sign patterns are counted: the p is SciPy's to the last digits."""
    values = [value for value in differences(12, 0.05, seed) if value]
    assert randomization_p(values) == pytest.approx(permutation(values, np.inf), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.08])
def test_large_samples_agree_within_sampling_error(shift):
    """Sampled p-values of both lie within four standard errors of each other."""
    values = differences(60, shift, 7)
    ours, theirs = randomization_p(values), permutation(values, 50_000)
    error = (max(theirs, 1e-4) * (1 - theirs) / 50_000) ** 0.5
    assert abs(ours - theirs) <= 4 * 2**0.5 * error + 1e-4


def test_the_interval_is_scipys_percentile_bootstrap():
    """Two seeds, one interval: the ends differ by less than a twentieth of its width."""
    values = differences(80, 0.02, 3)
    low, high = bootstrap_interval(values)
    theirs = stats.bootstrap(
        (np.array(values),), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(2)
    ).confidence_interval
    assert abs(low - theirs.low) < 0.05 * (high - low)
    assert abs(high - theirs.high) < 0.05 * (high - low)


def test_holm_rejects_what_the_step_down_rule_rejects():
    """SciPy has no Holm: the rule itself, step by step with its own correction for each place."""
    source = random.Random(5)
    for _ in range(200):
        p_values = [source.choice([0.001, 0.01, 0.02, 0.04, 0.3, 1.0]) for _ in range(source.randint(1, 8))]
        corrected = holm(p_values)
        for level in (0.01, 0.05, 0.1):
            rejected = set()
            for place, at in enumerate(np.argsort(p_values, kind="stable")):
                if p_values[at] * (len(p_values) - place) > level:
                    break
                rejected.add(int(at))
            assert {at for at, p in enumerate(corrected) if p <= level} == rejected
