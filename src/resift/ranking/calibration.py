"""Calibrate scores as probabilities: Platt, isotonic and temperature scaling in plain Python, saved as JSON.

A calibrator that is fitted to judged pairs (`fit`) returns the probability of relevance. One that is fitted to
the score history of a provider (`from_history`) returns how unusual a score is for that provider. This is not
a probability of relevance, but a common scale for several providers.

`calibrations.json` contains the calibrators of the pinned models. `python -m benchmarks.calibration --write`
creates it.
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from resift._internal.files import atomic_write
from resift.errors import DataFormatError, InputError, did_you_mean
from resift.events import Sink
from resift.ranking.blend import ShapeResult, shape_result
from resift.ranking.evidence import evidence
from resift.types import Hit, JsonObject, Ranking, StageKind, Trace, get_trace, make_record, to_finite_float, to_json
from resift.validation import check_mapping, check_number

CALIBRATIONS_FILE = Path(__file__).with_name("calibrations.json")

_LOGISTIC_IQR = 2 * math.log(3)  # interquartile range of the standard logistic distribution


@runtime_checkable
class Calibrator(Protocol):
    """Maps a score to a number from 0 to 1 that never decreases as the score increases."""

    def probability(self, score: float) -> float:
        """Return the probability for a score."""


class _Saveable:
    """Mixin that saves a calibrator; all three kinds use it."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, object]:
        """Return plain data; `calibrator_from` turns it back into an equal calibrator."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def save(self, path: str | Path) -> None:
        """Write the calibrator as JSON, atomically."""
        atomic_write(path, to_json(self.to_dict(), indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Platt(_Saveable):
    """sigmoid(slope × score + intercept) (Platt, 1999; fitted with the method of Lin, Lin and Weng, 2007)."""

    kind: ClassVar[str] = "platt"
    slope: float
    intercept: float

    def probability(self, score: float) -> float:
        """Return the probability for a score."""
        return sigmoid(self.slope * score + self.intercept)

    @classmethod
    def fit(cls, scores: Sequence[float], relevant: Sequence[bool]) -> Platt:
        """Fit to judged pairs; the slope is never negative, so the order of hits is never reversed."""
        values, targets = _judged_pairs(scores, relevant)
        center = statistics.fmean(values)
        spread = statistics.pstdev(values) or 1.0
        slope, intercept = _fit_logistic([(value - center) / spread for value in values], targets)
        slope = max(0.0, slope) / spread
        return cls(slope, intercept - slope * center if slope else _logit(statistics.fmean(targets)))

    @classmethod
    def from_history(cls, scores: Sequence[float], *, base_rate: float = 0.5) -> Platt:
        """Fit to a provider's score history: its quartiles are mapped to those of a logistic curve.

        A score at the (1 − base_rate) quantile of the history gets 0.5.
        """
        if not 0 < base_rate < 1:
            raise InputError(f"base_rate is {base_rate}; pass the share of relevant hits, between 0 and 1.")
        ordered = _score_history(scores)
        slope = 1.0 / _logistic_scale(ordered)
        return cls(slope, -slope * _quantile(ordered, 1.0 - base_rate))


@dataclass(frozen=True, slots=True)
class Temperature(_Saveable):
    """sigmoid(score / temperature), for logits, which need no shift (Guo et al., 2017)."""

    kind: ClassVar[str] = "temperature"
    temperature: float

    def __post_init__(self) -> None:
        if not self.temperature > 0 or math.isinf(self.temperature):
            raise InputError(f"temperature is {self.temperature}; it must be above 0 and finite.")

    def probability(self, score: float) -> float:
        """Return the probability for a score."""
        return sigmoid(score / self.temperature)

    @classmethod
    def fit(cls, scores: Sequence[float], relevant: Sequence[bool]) -> Temperature:
        """Fit to judged pairs; a golden-section search finds the temperature with the lowest log loss."""
        values, targets = _judged_pairs(scores, relevant, smooth=False)
        size = max(1e-9, *(abs(value) for value in values))

        def loss(log_t: float) -> float:
            t = math.exp(log_t)
            return math.fsum(_log_loss(value / t, target) for value, target in zip(values, targets, strict=True))

        return cls(math.exp(_golden_section(loss, math.log(size / 1000), math.log(size * 1000))))

    @classmethod
    def from_history(cls, scores: Sequence[float]) -> Temperature:
        """Fit to a provider's score history: its interquartile range is mapped to that of a logistic curve."""
        return cls(_logistic_scale(_score_history(scores)))


@dataclass(frozen=True, slots=True)
class Isotonic(_Saveable):
    """A non-decreasing step function, linear between its steps (pool adjacent violators; Barlow et al., 1972)."""

    kind: ClassVar[str] = "isotonic"
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(map(float, self.scores)))
        object.__setattr__(self, "probabilities", tuple(map(float, self.probabilities)))
        rising = list(self.scores) == sorted(set(self.scores))
        if not self.scores or len(self.scores) != len(self.probabilities) or not rising:
            raise InputError("Isotonic needs increasing scores with one probability each.")
        if list(self.probabilities) != sorted(self.probabilities):
            raise InputError("Isotonic probabilities must not decrease.")

    def probability(self, score: float) -> float:
        """Return the probability for a score; it is constant beyond the first and last step."""
        i = bisect.bisect_left(self.scores, score)
        if i == 0:
            return self.probabilities[0]
        if i == len(self.scores):
            return self.probabilities[-1]
        low, high = self.scores[i - 1], self.scores[i]
        part = (score - low) / (high - low)
        return self.probabilities[i - 1] + part * (self.probabilities[i] - self.probabilities[i - 1])

    @classmethod
    def fit(cls, scores: Sequence[float], relevant: Sequence[bool]) -> Isotonic:
        """Fit to judged pairs; equal scores share one step."""
        values, targets = _judged_pairs(scores, relevant, smooth=False)
        return cls(*_pool_adjacent_violators(values, targets))

    @classmethod
    def from_history(cls, scores: Sequence[float]) -> Isotonic:
        """Fit to a provider's score history: the probability is the share of scores at or below a score."""
        ordered = _score_history(scores)
        steps = sorted(set(ordered))
        return cls(tuple(steps), tuple(bisect.bisect_right(ordered, step) / len(ordered) for step in steps))


_KINDS: dict[str, Callable[..., Platt | Temperature | Isotonic]] = {
    kind.kind: kind for kind in (Platt, Temperature, Isotonic)
}


def calibrator_from(data: Mapping[str, object]) -> Platt | Temperature | Isotonic:
    """Return the calibrator for the output of `to_dict`."""
    check_mapping(data, "data")
    kind = str(data.get("kind", ""))
    if kind not in _KINDS:
        raise InputError(f"Unknown calibrator kind {kind!r}. {did_you_mean(kind, _KINDS)}")
    rest: JsonObject = {key: value for key, value in data.items() if key != "kind"}
    try:
        return _KINDS[kind](**rest)
    except TypeError as exc:
        raise InputError(f"A {kind} calibrator cannot be built from {', '.join(rest) or 'nothing'}.") from exc


def load_calibrator(path: str | Path) -> Platt | Temperature | Isotonic:
    """Read a calibrator from a file that was written by `save`."""
    try:
        return calibrator_from(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as exc:
        cause = exc.strerror or type(exc).__name__
        raise DataFormatError(
            f"cannot be read: {cause}; pass a file written by `resift calibrate`", file=str(path)
        ) from exc
    except (ValueError, AttributeError, TypeError, RecursionError) as exc:
        raise DataFormatError(f"not a calibrator: {exc}", file=str(path)) from exc


@functools.cache
def shipped_calibrator(digest: str) -> Platt | Temperature | Isotonic | None:
    """Return the calibrator of the model with this SHA-256 digest, or None if none ships with the package."""
    entry = json.loads(CALIBRATIONS_FILE.read_text(encoding="utf-8")).get(digest)
    return None if entry is None else calibrator_from(entry["calibrator"])


def calibrate(
    hits: Sequence[Hit], calibrators: Calibrator | Mapping[str, Calibrator], *, trace: Trace | None = None
) -> tuple[Hit, ...]:
    """Return the hits with metadata["probability"], computed by the calibrator of the provider that scored them.

    The score of the provider is read from the trace, which a ranking already has, so earlier blending does not
    matter. Hits that no provider scored use their own score and the calibrator with the name "". Hits without
    a calibrator or a score are unchanged.
    """
    known = evidence(get_trace(hits) if trace is None else trace, [hit.id for hit in hits])
    calibrated = []
    for hit, last in zip(hits, known.last_scores(), strict=True):
        provider, score = last or ("", hit.score)
        calibrator = calibrators.get(provider) if isinstance(calibrators, Mapping) else calibrators
        if calibrator is not None and score is not None:
            hit = hit.with_metadata(probability=calibrator.probability(score))  # noqa: PLW2901
        calibrated.append(hit)
    return tuple(calibrated)


def above(hits: Sequence[Hit], threshold: float, *, sink: Sink | None = None) -> ShapeResult:
    """Keep the hits whose probability reaches the threshold; hits without a probability are kept and noted."""
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold}; pass a probability from 0 to 1.")
    probabilities = [hit.metadata.get("probability") for hit in hits]
    values = [None if value is None else float(value) for value in probabilities]
    kept = [hit for hit, value in zip(hits, values, strict=True) if value is None or value >= threshold]
    below = {
        hit.id: f"probability {value:.3g} < {threshold:.3g}"
        for hit, value in zip(hits, values, strict=True)
        if value is not None and value < threshold
    }
    unknown = values.count(None)
    notes = (f"{unknown} hits have no probability and were kept",) if unknown else ()
    cut = [hit for hit in hits if hit.id in below]
    return shape_result("threshold", hits, kept, cut, notes=notes, hit_notes=below, sink=sink)


def drop_below(ranking: Ranking, min_score: float, *, shown: Sequence[float] | None = None) -> Ranking:
    """Drop the hits after the last one that reaches `min_score`; they are moved to `cut` with the reason.

    This way, no hit is dropped while a lower-ranked one is kept, even if a later stage reordered the hits.
    `shown` are the displayed scores, by default those of the hits. Unscored hits never reach `min_score`; a
    ranking without any score is unchanged.
    """
    threshold = check_number(min_score, "min_score")
    scores = [hit.score for hit in ranking] if shown is None else list(shown)
    passing = [rank for rank, score in enumerate(scores, start=1) if score is not None and score >= threshold]
    count = max(passing, default=0)
    if count == len(scores) or all(score is None for score in scores):
        return ranking
    kept, cut = ranking.hits[:count], ranking.hits[count:]
    notes = {
        hit.id: "no score" if score is None else f"score {score:.3g} < {threshold:.3g}"
        for hit, score in zip(cut, scores[count:], strict=True)
    }
    record = make_record(StageKind.CUT, "cut", kept, cut, notes=notes)
    return replace(ranking, hits=kept, cut=(*cut, *ranking.cut), trace=ranking.trace.append(record))


def sigmoid(value: float) -> float:
    """Return 1 / (1 + e^−value) without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    small = math.exp(value)
    return small / (1.0 + small)


def _logit(p: float) -> float:
    """Return log(p / (1 − p))."""
    return math.log(p / (1 - p))


def _log_loss(value: float, target: float) -> float:
    """Return the log loss of a logit for a target from 0 to 1."""
    # This is log(1 + e^v) − target·v, written so that large positive and negative values do not overflow.
    return max(value, 0.0) + math.log1p(math.exp(-abs(value))) - target * value


def _judged_pairs(
    scores: Sequence[float], relevant: Sequence[bool], *, smooth: bool = True
) -> tuple[list[float], list[float]]:
    """Return the validated scores and targets of judged pairs; both relevant and other pairs must be present."""
    if len(scores) != len(relevant):
        raise InputError(f"{len(scores)} scores for {len(relevant)} judgments; pass one judgment per score.")
    values = [to_finite_float(score, of="A judged pair") for score in scores]
    good = sum(map(bool, relevant))
    bad = len(values) - good
    if not good or not bad:
        raise InputError(
            f"{good} relevant and {bad} other pairs; calibration needs at least one of each. "
            "Judge more pairs, or use from_history."
        )
    # Lin, Lin and Weng: with targets slightly inside 0 and 1, separable data does not give an infinite slope.
    high, low = ((good + 1) / (good + 2), 1 / (bad + 2)) if smooth else (1.0, 0.0)
    return values, [high if yes else low for yes in relevant]


def _score_history(scores: Sequence[float]) -> list[float]:
    """Return the validated scores in ascending order."""
    values = sorted(to_finite_float(score, of="A score history") for score in scores)
    if len(values) < 2 or values[0] == values[-1]:
        raise InputError("A score history needs at least two different scores.")
    return values


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Return the q quantile of ordered values, with linear interpolation."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _logistic_scale(ordered: Sequence[float]) -> float:
    """Return the scale of the logistic curve with the same interquartile range."""
    spread = _quantile(ordered, 0.75) - _quantile(ordered, 0.25)
    return (spread or ordered[-1] - ordered[0]) / _LOGISTIC_IQR


def _fit_logistic(values: Sequence[float], targets: Sequence[float]) -> tuple[float, float]:
    """Return the slope and intercept with the lowest log loss, found by damped Newton steps."""
    slope, intercept = 0.0, _logit(statistics.fmean(targets))

    def loss(a: float, b: float) -> float:
        return math.fsum(_log_loss(a * x + b, t) for x, t in zip(values, targets, strict=True))

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
        # The step is halved until the loss falls: a full Newton step overshoots if nearly all targets are equal.
        size = 1.0
        while size > 1e-10 and loss(slope - size * step_a, intercept - size * step_b) > best:
            size /= 2
        slope, intercept = slope - size * step_a, intercept - size * step_b
        previous, best = best, loss(slope, intercept)
        if previous - best < 1e-10:
            break
    return slope, intercept


def _golden_section(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return the position of the minimum of a function that has only one."""
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


def _pool_adjacent_violators(
    values: Sequence[float], targets: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Pool adjacent violators; each block is represented by its first and last score."""
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
        points += [(first, total / count)] if first == last else [(first, total / count), (last, total / count)]
    return tuple(score for score, _ in points), tuple(p for _, p in points)
