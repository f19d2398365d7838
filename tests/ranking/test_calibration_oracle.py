"""Calibration against scikit-learn's: another implementation, the same curves."""

from __future__ import annotations

import random

import pytest

from resift.ranking.calibration import _judged_pairs, _log_loss, sigmoid
from resift.ranking.shape import Isotonic, Platt, Temperature
from tests.lazy import LazyModule

np = pytest.importorskip("numpy", reason="needs resift[local]")
optimize = LazyModule("scipy.optimize")


def pairs(seed: int, count: int = 200) -> tuple[list[float], list[bool]]:
    """Scores with ties, whose relevance follows a logistic curve."""
    source = random.Random(seed)
    scores = [round(source.gauss(-2, 3), 1) for _ in range(count)]
    return scores, [source.random() < sigmoid(0.8 * score + 0.5) for score in scores]


@pytest.mark.parametrize("seed", range(6))
def test_platt_is_scikit_learns_sigmoid(seed):
    """Both fit A and B of Platt (1999) with the targets of Lin, Lin and Weng (2007)."""
    from sklearn.calibration import _sigmoid_calibration

    scores, relevant = pairs(seed)
    a, b = _sigmoid_calibration(np.array(scores), np.array(relevant, dtype=float))
    ours = Platt.fit(scores, relevant)
    for score in (-10.0, -3.3, 0.0, 1.7, 8.0):
        assert ours.probability(score) == pytest.approx(sigmoid(-(a * score + b)), abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_isotonic_is_scikit_learns_at_every_score(seed):
    """The pooled staircase has the same steps, ties included, and ends flat on both sides."""
    from sklearn.isotonic import IsotonicRegression

    scores, relevant = pairs(seed)
    _, targets = _judged_pairs(scores, relevant, smooth=False)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, targets)
    ours = Isotonic.fit(scores, relevant)
    for score in [*sorted(set(scores)), -50.0, 50.0]:
        assert ours.probability(score) == pytest.approx(float(theirs.predict([score])[0]), abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_temperature_is_where_scipy_finds_the_least_loss(seed):
    """One number, found by another search."""
    scores, relevant = pairs(seed)
    values, targets = _judged_pairs(scores, relevant, smooth=False)

    def loss(log_t: float) -> float:
        return sum(_log_loss(x / np.exp(log_t), t) for x, t in zip(values, targets, strict=True))

    best = optimize.minimize_scalar(loss, bounds=(-7, 7), method="bounded", options={"xatol": 1e-8}).x
    ours = Temperature.fit(scores, relevant)
    assert ours.probability(1.0) == pytest.approx(sigmoid(1.0 / np.exp(best)), abs=1e-4)
