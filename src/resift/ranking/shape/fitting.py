"""The numerics behind calibration: logistic fit, golden section, pooled staircase, quantiles. No policy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from resift.errors import InputError
from resift.types import finite

_LOGISTIC_IQR = 2 * math.log(3)  # interquartile range of the standard logistic distribution


def sigmoid(value: float) -> float:
    """Return 1 / (1 + e^−value) without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    small = math.exp(value)
    return small / (1.0 + small)


def logit(p: float) -> float:
    """Return log(p / (1 − p))."""
    return math.log(p / (1 - p))


def log_loss(value: float, target: float) -> float:
    """Return the log loss of a logit for a target from 0 to 1."""
    # log(1 + e^v) − target·v, written so that neither end overflows.
    return max(value, 0.0) + math.log1p(math.exp(-abs(value))) - target * value


def judged(
    scores: Sequence[float], relevant: Sequence[bool], *, smooth: bool = True
) -> tuple[list[float], list[float]]:
    """Return scores and targets of judged pairs, checked; both kinds must be present."""
    if len(scores) != len(relevant):
        raise InputError(
            f"{len(scores)} scores for {len(relevant)} judgements; give one judgement per score."
        )
    values = [finite(score, of="A judged pair") for score in scores]
    good = sum(map(bool, relevant))
    bad = len(values) - good
    if not good or not bad:
        raise InputError(
            f"{good} relevant and {bad} other pairs; calibration needs at least one of each. "
            "Judge more pairs, or use from_history."
        )
    # Lin, Lin and Weng: targets short of 0 and 1 keep separable data from an endless slope.
    high, low = ((good + 1) / (good + 2), 1 / (bad + 2)) if smooth else (1.0, 0.0)
    return values, [high if yes else low for yes in relevant]


def history(scores: Sequence[float]) -> list[float]:
    """Return the scores in order, checked."""
    values = sorted(finite(score, of="A score history") for score in scores)
    if len(values) < 2 or values[0] == values[-1]:
        raise InputError("A score history needs at least two different scores.")
    return values


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the value below which that part of the ordered values lies, with straight lines between."""
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def scale(ordered: Sequence[float]) -> float:
    """Return the scale of the logistic curve with the same interquartile range."""
    spread = quantile(ordered, 0.75) - quantile(ordered, 0.25)
    return (spread or ordered[-1] - ordered[0]) / _LOGISTIC_IQR


def logistic_fit(values: Sequence[float], targets: Sequence[float]) -> tuple[float, float]:
    """Return slope and intercept of least log loss by damped Newton steps."""
    slope, intercept = 0.0, logit(statistics.fmean(targets))

    def loss(a: float, b: float) -> float:
        return math.fsum(log_loss(a * x + b, t) for x, t in zip(values, targets, strict=True))

    best = loss(slope, intercept)
    for _ in range(100):
        fitted = [sigmoid(slope * x + intercept) for x in values]
        ga = math.fsum((p - t) * x for p, t, x in zip(fitted, targets, values, strict=True))
        gb = math.fsum(p - t for p, t in zip(fitted, targets, strict=True))
        haa = math.fsum(p * (1 - p) * x * x for p, x in zip(fitted, values, strict=True)) + 1e-12
        hab = math.fsum(p * (1 - p) * x for p, x in zip(fitted, values, strict=True))
        hbb = math.fsum(p * (1 - p) for p in fitted) + 1e-12
        determinant = haa * hbb - hab * hab
        step_a, step_b = (hbb * ga - hab * gb) / determinant, (haa * gb - hab * ga) / determinant
        # Halved until the loss falls: a full Newton step overshoots where nearly all are of one kind.
        size = 1.0
        while size > 1e-10 and loss(slope - size * step_a, intercept - size * step_b) > best:
            size /= 2
        slope, intercept = slope - size * step_a, intercept - size * step_b
        previous, best = best, loss(slope, intercept)
        if previous - best < 1e-10:
            break
    return slope, intercept


def golden(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one valley is least."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-7:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return (low + high) / 2


def staircase(
    values: Sequence[float], targets: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Pool adjacent violators; each block is kept as its first and last score."""
    totals: dict[float, list[float]] = {}
    for value, target in zip(values, targets, strict=True):
        totals.setdefault(value, []).append(target)
    blocks: list[list[float]] = []  # first score, last score, sum, count
    for value in sorted(totals):
        blocks.append([value, value, math.fsum(totals[value]), len(totals[value])])
        while len(blocks) > 1 and blocks[-2][2] * blocks[-1][3] >= blocks[-1][2] * blocks[-2][3]:
            later = blocks.pop()
            blocks[-1] = [blocks[-1][0], later[1], blocks[-1][2] + later[2], blocks[-1][3] + later[3]]
    points: list[tuple[float, float]] = []
    for first, last, total, count in blocks:
        points += (
            [(first, total / count)] if first == last else [(first, total / count), (last, total / count)]
        )
    return tuple(score for score, _ in points), tuple(p for _, p in points)
