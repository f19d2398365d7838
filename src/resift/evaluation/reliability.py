"""How far a calibrator's probabilities can be believed, measured on pairs that it was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resift.ranking.shape import Calibrator

FOLDS, BINS = 5, 10

Fit = Callable[[Sequence[float], Sequence[bool]], Calibrator]


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs whose probability lies in one tenth: how many, what was said, what was true."""

    low: float
    high: float
    count: int
    said: float
    true: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """The bins, the expected calibration error (Naeini et al., 2015), Brier score and log loss."""

    bins: tuple[Bin, ...]
    error: float
    brier: float
    log_loss: float
    held_out: bool


def reliability(fit: Fit, scores: Sequence[float], relevant: Sequence[bool]) -> Reliability:
    """Measure by cross-fitting: each pair is judged by a calibrator that did not see it.

    With fewer than two pairs of either kind there is nothing to hold out; `held_out` says so.
    """
    folds = min(FOLDS, sum(relevant), len(relevant) - sum(relevant))
    if folds < 2:
        calibrator = fit(scores, relevant)
        said = [calibrator.probability(score) for score in scores]
    else:
        said = _cross_fitted(fit, scores, relevant, folds)
    return measured(said, relevant, held_out=folds >= 2)


def _cross_fitted(fit: Fit, scores: Sequence[float], relevant: Sequence[bool], folds: int) -> list[float]:
    fold = _stratified(relevant, folds)
    said = [0.0] * len(scores)
    for one in range(folds):
        seen = [at for at in range(len(scores)) if fold[at] != one]
        calibrator = fit([scores[at] for at in seen], [relevant[at] for at in seen])
        for at in range(len(scores)):
            if fold[at] == one:
                said[at] = calibrator.probability(scores[at])
    return said


def _stratified(relevant: Sequence[bool], folds: int) -> list[int]:
    """Deal relevant and other pairs round the folds separately, so that each fold has both."""
    dealt = {True: 0, False: 0}
    fold = []
    for yes in relevant:
        fold.append(dealt[bool(yes)] % folds)
        dealt[bool(yes)] += 1
    return fold


def measured(said: Sequence[float], relevant: Sequence[bool], *, held_out: bool) -> Reliability:
    """Compare the probabilities that were said with what was relevant."""
    bins = []
    for number in range(BINS):
        inside = [at for at, value in enumerate(said) if min(BINS - 1, int(value * BINS)) == number]
        if inside:
            mean = math.fsum(said[at] for at in inside) / len(inside)
            true = sum(bool(relevant[at]) for at in inside) / len(inside)
            bins.append(Bin(number / BINS, (number + 1) / BINS, len(inside), mean, true))
    count = len(said)
    pairs = list(zip(said, relevant, strict=True))
    return Reliability(
        tuple(bins),
        math.fsum(one.count * abs(one.said - one.true) for one in bins) / count,
        math.fsum((value - bool(yes)) ** 2 for value, yes in pairs) / count,
        -math.fsum(math.log(max(1e-15, value if yes else 1 - value)) for value, yes in pairs) / count,
        held_out,
    )
