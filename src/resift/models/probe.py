"""Check a model's scores before it is pinned: known scores, an obvious order, and int8 against fp32.

Wrong scores that look plausible are the worst failure of a reranker. A model with a missing head, the wrong
pooling or the wrong template still returns numbers. Twelve pairs with an obvious order detect all of these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resift.errors import ModelProbeError
from resift.types import Languages

Score = Callable[[str, Sequence[str]], Sequence[float]]
"""Function that takes a query and documents and returns one raw score per document."""

MIN_ORDERED = 7
"""Minimum number of correct comparisons, out of eight, between a relevant and an unrelated document. Random
scores reach it in 3.5 % of cases."""

MIN_SPREAD = 1e-4
"""Minimum standard deviation of the scores; below it, a model counts as degenerate."""

MAX_INT8_ERROR = 0.15
"""Maximum difference between int8 and fp32 scores, as a share of the standard deviation of the fp32 scores."""

KNOWN_ANSWER_TOLERANCE = 0.35
"""Known scores were published for fp32 or fp16; int8 scores differ by a few tenths of a logit."""

_TEXTS = json.loads(Path(__file__).with_name("probe_texts.json").read_text(encoding="utf-8"))

PROBES: Mapping[str, Mapping[str, Sequence[str]]] = _TEXTS["probes"]
"""Language -> query -> the relevant document, then two unrelated ones."""

ENGLISH = PROBES["en"]

KNOWN_ANSWERS: Mapping[str, Sequence[tuple[str, str, float]]] = _TEXTS["known_answers"]
"""Model id -> (query, document, raw score), as published with the model."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The outcome of a probe; `problems` is empty if the model passed."""

    ordered: int
    comparisons: int
    spread: float
    known_answers: int = 0
    problems: tuple[str, ...] = ()
    languages: Mapping[str, bool] = field(default_factory=dict)
    int8_error: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the model may be pinned."""
        return not self.problems

    def require_passed(self, model: str) -> None:
        """Raise ModelProbeError with all problems if there are any."""
        if self.problems:
            raise ModelProbeError(
                f"{model!r} does not pass the probe: {'; '.join(self.problems)}. It is not pinned. "
                "Check that its files are complete; use --no-probe for random weights."
            )


def probe_scores(
    score: Score, *, model_id: str = "", languages: Languages = ("en",), check_order: bool = True
) -> ProbeReport:
    """Score the probe pairs and report problems.

    Without `check_order`, only damaged and constant scores are problems. It is off for NLI models, which compare
    statements.
    """
    ordered = comparisons = 0
    values: list[float] = []
    by_language: dict[str, bool] = {}
    codes = [code for code in PROBES if languages == "any" or code in languages] or ["en"]
    for code in codes:
        correct = total = 0
        for query, documents in PROBES[code].items():
            relevant, *others = score(query, documents)
            values += [relevant, *others]
            correct += sum(relevant > other for other in others)
            total += len(others)
        by_language[code] = correct == total
        # A multilingual model may be weak in one language, so only English or the sole language decides.
        if code == "en" or len(codes) == 1:
            ordered, comparisons = ordered + correct, comparisons + total
    problems = []
    spread = _standard_deviation(values)
    if not all(math.isfinite(value) for value in values):
        problems.append("some scores are NaN or infinite, so its weights are damaged")
    elif spread < MIN_SPREAD:
        problems.append("all scores are the same; the scoring head or its weights are missing")
    elif check_order and comparisons and ordered / comparisons < MIN_ORDERED / 8:
        problems.append(
            f"it ranks unrelated documents above the answer in {comparisons - ordered} of {comparisons} "
            "comparisons; the head is missing, or the pooling or the pair template is wrong"
        )
    known = KNOWN_ANSWERS.get(model_id, ())
    for query, document, expected in known:
        actual = score(query, [document])[0]
        if abs(actual - expected) > KNOWN_ANSWER_TOLERANCE:
            problems.append(f"it scores a known pair {actual:.2f} instead of {expected:.2f}")
    return ProbeReport(ordered, comparisons, spread, len(known), tuple(problems), by_language)


def compare_precisions(int8: Score, fp32: Score) -> float:
    """Return the maximum difference between int8 and fp32 scores, as a share of the fp32 scores' spread."""
    exact: list[float] = []
    error = 0.0
    for query, documents in ENGLISH.items():
        reference, rounded = list(fp32(query, documents)), list(int8(query, documents))
        exact += reference
        error = max(error, *(abs(a - b) for a, b in zip(reference, rounded, strict=True)))
    spread = _standard_deviation(exact)
    return error / spread if spread > 0 else math.inf


def _standard_deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
