"""Scores as probabilities: Platt, isotonic and temperature scaling, in plain Python, saved as JSON.

Fitted from judged pairs (`fit`) a calibrator says how probable relevance is. Fitted from a provider's own
score history (`from_history`) it says how unusual a score is for that provider: not a probability of
relevance, but a scale that different providers share.
"""

from __future__ import annotations

import bisect
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from resift._internal.atomic_files import atomic_write
from resift.errors import DataFormatError, InputError, did_you_mean
from resift.ranking.shape.fitting import (
    golden,
    history,
    judged,
    log_loss,
    logistic_fit,
    logit,
    quantile,
    scale,
    sigmoid,
    staircase,
)
from resift.types import JsonMapping, JsonObject, to_json
from resift.validation import check_arguments


@runtime_checkable
class Calibrator(Protocol):
    """Turns a score into a number from 0 to 1; a higher score never gets a lower one."""

    def probability(self, score: float) -> float:
        """Return the probability of a score."""
        ...


class _Saved:
    """Writing and reading, shared by the three kinds."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_dict(self) -> JsonObject:
        """Return plain data that `calibrator_from` turns back into an equal calibrator."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def save(self, path: str | Path) -> None:
        """Write the calibrator as JSON, whole or not at all."""
        atomic_write(path, to_json(self.to_dict(), indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Platt(_Saved):
    """sigmoid(slope × score + intercept) (Platt, 1999; fitted as by Lin, Lin and Weng, 2007)."""

    kind: ClassVar[str] = "platt"
    slope: float
    intercept: float

    def probability(self, score: float) -> float:
        """Return the probability of a score."""
        return sigmoid(self.slope * score + self.intercept)

    @classmethod
    def fit(cls, scores: Sequence[float], relevant: Sequence[bool]) -> Platt:
        """Fit to judged pairs; the slope is never negative, so the order of hits cannot flip."""
        values, targets = judged(scores, relevant)
        centre = statistics.fmean(values)
        spread = statistics.pstdev(values) or 1.0
        slope, intercept = logistic_fit([(value - centre) / spread for value in values], targets)
        slope = max(0.0, slope) / spread
        return cls(slope, intercept - slope * centre if slope else logit(statistics.fmean(targets)))

    @classmethod
    def from_history(cls, scores: Sequence[float], *, base_rate: float = 0.5) -> Platt:
        """Fit to a provider's score history: quartiles become those of a logistic curve.

        A score at the history's (1 − base_rate) quantile gets 0.5.
        """
        if not 0 < base_rate < 1:
            raise InputError(f"base_rate is {base_rate}; pass the share of relevant hits, between 0 and 1.")
        ordered = history(scores)
        slope = 1.0 / scale(ordered)
        return cls(slope, -slope * quantile(ordered, 1.0 - base_rate))


@dataclass(frozen=True, slots=True)
class Temperature(_Saved):
    """sigmoid(score / temperature): for logits, which need no shift (Guo et al., 2017)."""

    kind: ClassVar[str] = "temperature"
    temperature: float

    def __post_init__(self) -> None:
        if not self.temperature > 0 or math.isinf(self.temperature):
            raise InputError(f"temperature is {self.temperature}; it must be above 0 and finite.")

    def probability(self, score: float) -> float:
        """Return the probability of a score."""
        return sigmoid(score / self.temperature)

    @classmethod
    def fit(cls, scores: Sequence[float], relevant: Sequence[bool]) -> Temperature:
        """Fit to judged pairs by golden-section search for the least log loss."""
        values, targets = judged(scores, relevant, smooth=False)
        size = max(1e-9, *(abs(value) for value in values))

        def loss(log_t: float) -> float:
            heat = math.exp(log_t)
            return math.fsum(
                log_loss(value / heat, target) for value, target in zip(values, targets, strict=True)
            )

        return cls(math.exp(golden(loss, math.log(size / 1000), math.log(size * 1000))))

    @classmethod
    def from_history(cls, scores: Sequence[float]) -> Temperature:
        """Fit to a provider's score history: its interquartile range becomes that of a logistic curve."""
        return cls(scale(history(scores)))


@dataclass(frozen=True, slots=True)
class Isotonic(_Saved):
    """A rising staircase, straight between its steps (pool adjacent violators; Barlow et al., 1972)."""

    kind: ClassVar[str] = "isotonic"
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(map(float, self.scores)))
        object.__setattr__(self, "probabilities", tuple(map(float, self.probabilities)))
        rising = list(self.scores) == sorted(set(self.scores))
        if not self.scores or len(self.scores) != len(self.probabilities) or not rising:
            raise InputError("Isotonic needs rising scores with one probability each.")
        if list(self.probabilities) != sorted(self.probabilities):
            raise InputError("Isotonic probabilities must not fall.")

    def probability(self, score: float) -> float:
        """Return the probability of a score; beyond the ends it stays level."""
        at = bisect.bisect_left(self.scores, score)
        if at == 0:
            return self.probabilities[0]
        if at == len(self.scores):
            return self.probabilities[-1]
        low, high = self.scores[at - 1], self.scores[at]
        part = (score - low) / (high - low)
        return self.probabilities[at - 1] + part * (self.probabilities[at] - self.probabilities[at - 1])

    @classmethod
    def fit(cls, scores: Sequence[float], relevant: Sequence[bool]) -> Isotonic:
        """Fit to judged pairs; equal scores share one step."""
        values, targets = judged(scores, relevant, smooth=False)
        return cls(*staircase(values, targets))

    @classmethod
    def from_history(cls, scores: Sequence[float]) -> Isotonic:
        """Fit to a provider's score history: the probability is the share of scores at or below this one."""
        ordered = history(scores)
        steps = sorted(set(ordered))
        return cls(tuple(steps), tuple(bisect.bisect_right(ordered, step) / len(ordered) for step in steps))


_KINDS: dict[str, type[Platt] | type[Temperature] | type[Isotonic]] = {
    kind.kind: kind for kind in (Platt, Temperature, Isotonic)
}


@check_arguments
def calibrator_from(data: JsonMapping) -> Platt | Temperature | Isotonic:
    """Return the calibrator that `to_dict` described."""
    kind = str(data.get("kind", ""))
    if kind not in _KINDS:
        raise InputError(f"Unknown calibrator kind {kind!r}. {did_you_mean(kind, _KINDS)}")
    rest = {key: value for key, value in data.items() if key != "kind"}
    try:
        return _KINDS[kind](**rest)
    except TypeError as exc:
        raise InputError(f"A {kind} calibrator cannot be built from {', '.join(rest) or 'nothing'}.") from exc


@check_arguments
def load_calibrator(path: str | Path) -> Platt | Temperature | Isotonic:
    """Read a calibrator that `save` wrote."""
    try:
        return calibrator_from(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as exc:
        cause = exc.strerror or type(exc).__name__
        raise DataFormatError(
            f"cannot be read: {cause}; give a file of `resift calibrate`", file=str(path)
        ) from exc
    except (ValueError, AttributeError, TypeError, RecursionError) as exc:
        raise DataFormatError(f"No calibrator: {exc}", file=str(path)) from exc
