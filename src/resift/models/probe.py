"""Check the scores of a model before it is pinned: known answers, an obvious order, int8 against fp32.

Scores that are wrong but look right are the worst failure of a reranker: a missing head, the wrong pooling or
the wrong template still give numbers. Twelve pairs with an obvious order catch all of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from resift.errors import ModelProbeError
from resift.types import Languages

Score = Callable[[str, Sequence[str]], Sequence[float]]
"""Returns one raw score per document of a query."""

MIN_ORDERED = 7
"""How many of eight comparisons of a relevant with an unrelated document must be right. Random scores reach
this in 3.5 % of all cases."""

MIN_SPREAD = 1e-4
"""Standard deviation of the scores below which a model is taken for degenerate."""

MAX_INT8_ERROR = 0.15
"""Largest difference of int8 and fp32 scores, as a share of the standard deviation of the fp32 scores."""

KNOWN_ANSWER_TOLERANCE = 0.35
"""Known answers were published for fp32 or fp16; int8 differs by a few tenths of a logit."""

ENGLISH: Mapping[str, tuple[str, str, str]] = {
    "How many people live in Berlin?": (
        "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "The recipe needs two eggs, a cup of flour and a pinch of salt.",
        "Guitar strings should be replaced every few months.",
    ),
    "what is the boiling point of water": (
        "Water boils at 100 degrees Celsius, or 212 degrees Fahrenheit, at sea level.",
        "The museum is closed on Mondays and public holidays.",
        "He scored two goals in the second half of the match.",
    ),
    "who wrote Romeo and Juliet": (
        "Romeo and Juliet is a tragedy written by William Shakespeare early in his career.",
        "The train to the airport leaves every fifteen minutes.",
        "Photosynthesis turns light into chemical energy.",
    ),
    "how to reset my password": (
        "To reset your password, click 'Forgot password' on the login page and follow the link in the email.",
        "Penguins live almost exclusively in the Southern Hemisphere.",
        "The bridge was opened in 1932 after nine years of construction.",
    ),
}
"""Query -> the relevant document, then two unrelated ones."""

OTHER_LANGUAGES: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "de": {
        "Wie viele Menschen leben in Berlin?": (
            "Berlin hat rund 3,7 Millionen Einwohner und ist die größte Stadt Deutschlands.",
            "Für das Rezept braucht man zwei Eier, Mehl und etwas Salz.",
            "Das Museum ist montags geschlossen.",
        ),
    },
    "es": {
        "¿Quién escribió Don Quijote?": (
            "Don Quijote de la Mancha fue escrito por Miguel de Cervantes.",
            "El tren al aeropuerto sale cada quince minutos.",
            "La receta lleva dos huevos y harina.",
        ),
    },
    "fr": {
        "Quelle est la capitale de la France ?": (
            "Paris est la capitale de la France.",
            "La recette demande deux œufs et de la farine.",
            "Les manchots vivent dans l'hémisphère sud.",
        ),
    },
    "zh": {
        "北京有多少人口？": (
            "北京市常住人口约为两千一百多万人。",
            "这道菜需要两个鸡蛋和一些面粉。",
            "博物馆每周一闭馆。",
        ),
    },
    "ru": {
        "Кто написал роман «Война и мир»?": (
            "Роман «Война и мир» написал Лев Толстой.",
            "Поезд в аэропорт отправляется каждые пятнадцать минут.",
            "Музей закрыт по понедельникам.",
        ),
    },
    "ar": {
        "ما هي عاصمة مصر؟": (
            "القاهرة هي عاصمة جمهورية مصر العربية.",
            "تحتاج الوصفة إلى بيضتين وبعض الدقيق.",
            "المتحف مغلق يوم الاثنين.",
        ),
    },
}

KNOWN_ANSWERS: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    "cross-encoder/ms-marco-MiniLM-L6-v2": (
        (
            "How many people live in Berlin?",
            "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square "
            "kilometers.",
            8.607,
        ),
        ("How many people live in Berlin?", "Berlin is well known for its museums.", -4.320),
    ),
    "BAAI/bge-reranker-v2-m3": (
        ("query", "passage", -5.65),
        ("what is panda?", "hi", -8.19),
        (
            "what is panda?",
            "The giant panda (Ailuropoda melanoleuca), sometimes called a panda bear or simply panda, is a "
            "bear species endemic to China.",
            5.26,
        ),
    ),
}
"""Model id -> (query, document, raw score), as published with the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The outcome of a probe; `problems` is empty if the model passed."""

    ordered: int
    comparisons: int
    spread: float
    known_answers: int = 0
    int8_error: float | None = None
    problems: tuple[str, ...] = ()
    languages: Mapping[str, bool] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the model may be pinned."""
        return not self.problems

    def require_passed(self, model: str) -> None:
        """Raise ModelProbeError with all problems if there are any."""
        if self.problems:
            raise ModelProbeError(
                f"{model!r} does not pass the probe: {'; '.join(self.problems)}. It is not pinned. "
                "Check that its files are complete; use --no-probe for weights without meaning."
            )


def probe_scores(
    score: Score, *, model_id: str = "", languages: Languages = ("en",), check_order: bool = True
) -> ProbeReport:
    """Score the probe pairs and report what looks wrong.

    Without `check_order`, only damaged and constant scores count: an NLI model compares statements.
    """
    ordered = comparisons = 0
    values: list[float] = []
    by_language: dict[str, bool] = {}
    tests = [("en", ENGLISH)] if languages == "any" or "en" in languages else []
    tests += [
        (code, pairs) for code, pairs in OTHER_LANGUAGES.items() if languages == "any" or code in languages
    ]
    for code, queries in tests or [("en", ENGLISH)]:
        right = total = 0
        for query, documents in queries.items():
            relevant, *others = score(query, documents)
            values += [relevant, *others]
            right += sum(relevant > other for other in others)
            total += len(others)
        by_language[code] = right == total
        # A model for many languages may be weak in one of them; English or its only language decides.
        if code == "en" or len(tests) <= 1:
            ordered, comparisons = ordered + right, comparisons + total
    problems = []
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    if not all(math.isfinite(value) for value in values):
        problems.append("some scores are NaN or infinite, so its weights are damaged")
    elif spread < MIN_SPREAD:
        problems.append("all scores are the same; the scoring head is missing or its weights are")
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
    return ProbeReport(
        ordered=ordered,
        comparisons=comparisons,
        spread=spread,
        known_answers=len(known),
        problems=tuple(problems),
        languages=by_language,
    )


def compare_precisions(int8: Score, fp32: Score) -> float:
    """Return the largest difference of int8 and fp32 scores as a share of the spread of the fp32 scores."""
    exact: list[float] = []
    error = 0.0
    for query, documents in ENGLISH.items():
        reference, rounded = list(fp32(query, documents)), list(int8(query, documents))
        exact += reference
        error = max(error, *(abs(a - b) for a, b in zip(reference, rounded, strict=True)))
    mean = math.fsum(exact) / len(exact)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in exact) / len(exact))
    return error / spread if spread > 0 else math.inf
