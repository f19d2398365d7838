"""Evidence that a passage or a sentence answers the question: shared words, types of answers, and model scores.

The thresholds and weights were fitted for the bundled models, as described in research/agent.md.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from operator import mul
from typing import NamedTuple

from resift.agent.pack import Pack, scores_by_kind
from resift.text import Analyzer, words
from resift.text.analysis import plural_variants
from resift.types import Ranking, StageKind

CROSS_ENCODER, VECTORS, WORDS = "cross-encoder", "vectors", "words"

# A passage is rejected below the first threshold. From the second upward, it is accepted without other evidence.
LOGITS = (-7.0, 0.0)
COSINES = {"BAAI/bge-small-en-v1.5": (0.6, 0.72)}
"""Cosine thresholds by embedder. Cosines of other embedders are not used."""
SUPPORTING_COSINE, SUPPORTING_COVERAGE = 0.63, 0.75
"""A cosine, or a share of the question's words, that supports an uncertain cross-encoder."""
MIN_COVERAGE, SUFFICIENT_COVERAGE = 0.15, 0.5
"""Share of the question's words that is sufficient with a model, and without one."""
MIN_PROBABILITY = {CROSS_ENCODER: 0.25, VECTORS: 0.55, WORDS: 0.45}  # sentences with a lower probability are not quoted
MEAN_HEADING_LOGIT = -7.3  # logit of a typical heading, used for sentences without a heading score

_CAPITAL = re.compile(r"(?<=[\w,;:'’)\"”] )[^\W\d_a-z][\w'’-]+")
_NAME_AT_START = re.compile(r"\b[^\W\d_a-z]\w+ (?:(?:de|von|van|of|the) )?[^\W\d_a-z]\w+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

_COUNTED_NOUN = re.compile(r"\bhow (?:many|much) ((?:[a-z-]+ )?[a-z-]+)")


class AnswerType(NamedTuple):
    """A type of answer: the pattern of questions that ask for it, and of sentences that can contain it."""

    name: str
    question: re.Pattern[str]
    answer: re.Pattern[str]


@cache
def _load_tables() -> tuple[frozenset[str], tuple[AnswerType, ...]]:
    """Return the stop words of questions and the types of answers."""
    tables = tomllib.loads(resources.files("resift.agent").joinpath("answer_types.toml").read_text(encoding="utf-8"))
    types = []
    for row in tables["types"]:
        answer = row["answer"]
        for name, part in tables["parts"].items():
            answer = answer.replace(f"<{name}>", part.replace("\n", ""))
        types.append(AnswerType(row["name"], re.compile(row["question"]), re.compile(answer)))
    return frozenset(tables["stop_words"].split()), tuple(types)


def content_words(question: str) -> list[str]:
    """Return the distinct words of a question that carry its topic."""
    stop_words, _ = _load_tables()
    return [word for word in dict.fromkeys(words(question)) if word not in stop_words]


def coverage(question: str, text: str) -> float:
    """Return the share of the question's content words that occur in the text, in singular or plural."""
    wanted = content_words(question)
    if not wanted:
        return 0.0
    present = set(words(text))
    return sum(any(form in present for form in plural_variants(word)) for word in wanted) / len(wanted)


def find_names(question: str) -> list[str]:
    """Return the capitalized words within a question, or nothing if more than half of its words are capitalized."""
    names = [word.partition("'")[0].partition("’")[0] for word in _CAPITAL.findall(question)]
    return names if len(names) * 2 <= len(question.split()) else []


def missing_names(names: list[str], known: set[str] | frozenset[str]) -> list[str]:
    """Return the names that share no word with the known ones."""
    return [name for name in names if not any(form in known for word in words(name) for form in plural_variants(word))]


class Fit(NamedTuple):
    """What a sentence lacks to answer a question: three shares of the content words, then flags that are 0 or 1.

    `missing_predicate` ignores names and words in the headings. The passage and its headings lack the words counted
    in `missing_nearby`. The flags are for the type of answer (such as a date), the noun after "how many", and numbers.
    """

    missing_predicate: float
    missing_nearby: float
    wrong_type: float
    missing_count: float
    missing_number: float


class Question:
    """A question, analyzed once and compared with many sentences."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = content_words(text)
        self._names = {part for name in find_names(text) for part in words(name)}
        self._numbers = set(_NUMBER.findall(text))
        lowered = text.lower()
        _, answer_types = _load_tables()
        self.answer_type = next((type for type in answer_types if type.question.search(lowered)), None)
        noun = _COUNTED_NOUN.search(lowered)
        self._counted = content_words(noun[1])[:2] if noun else []

    def fit(self, sentence: str, heading: str, passage: str) -> Fit:
        """Compare the question with a sentence, the headings above it and the passage around it."""
        sentence_stems, passage_stems = stems(f"{heading} {sentence}"), stems(f"{heading} {passage}")
        topic = stems(heading)
        predicate = [word for word in self._words if word not in self._names and not _contains(topic, word)]
        return Fit(
            missing_nearby=_missing_share(self._words, passage_stems),
            missing_predicate=_missing_share(predicate, stems(sentence)),
            wrong_type=float(self.answer_type is not None and not self._has_answer(sentence, self.answer_type)),
            missing_count=float(bool(self._counted) and _missing_share(self._counted, sentence_stems) == 1),
            missing_number=float(not self._numbers <= set(_NUMBER.findall(f"{heading} {sentence}"))),
        )

    def _has_answer(self, sentence: str, answer_type: AnswerType) -> bool:
        if answer_type.name == "person":
            question_words = set(words(self.text))
            if any(words(name)[:1] and words(name)[0] not in question_words for name in _CAPITAL.findall(sentence)):
                return True
            # Two capitalized words at the start are a name: "Isaac Newton explained".
            if _NAME_AT_START.match(sentence) and not set(words(sentence)[:2]) <= question_words:
                return True
            others = " ".join(word for word in words(sentence) if word not in question_words)
            return answer_type.answer.search(others) is not None
        # Numbers in the question are not the answer: "in 2022" does not say how many.
        rest = sentence.lower()
        for number in self._numbers:
            rest = rest.replace(number, " ")
        return answer_type.answer.search(rest) is not None


@lru_cache(maxsize=512)
def stems(text: str) -> frozenset[str]:
    """Return the words of a text and their stems."""
    return frozenset(Analyzer().analyze(text).terms) | frozenset(words(text))


def _missing_share(wanted: list[str], present: frozenset[str]) -> float:
    return sum(not _contains(present, word) for word in wanted) / len(wanted) if wanted else 0.0


def _contains(present: frozenset[str], word: str) -> bool:
    return word in present or any(term in present for term in _query_terms(word))


@lru_cache(maxsize=4096)
def _query_terms(word: str) -> tuple[str, ...]:
    return tuple(Analyzer().query_terms(word))


# Logistic regression: the bias, then the weights of the features in `answer_probability`. Fitted with the
# bundled models on the development questions (research/agent.md).
_WEIGHTS = {
    CROSS_ENCODER: (-0.98, 0.20, 0.25, -2.23, 0.0, -4.31, -1.63, -3.25),
    VECTORS: (-1.82, 6.75, 0.0, -2.17, -1.67, -3.33, -2.92, -3.90),
}


def answer_probability(scorer: str, score: float, fit: Fit, *, above_heading: float = 0.0) -> float:
    """Return the probability that a sentence answers the question.

    `above_heading` is its score minus that of its heading, which is small if it only shares the topic.
    """
    if scorer == WORDS:
        doubt = 0.6 if fit.wrong_type or fit.missing_number else 1.0
        return 0.9 * (1 - fit.missing_nearby) * doubt
    bias, *weights = _WEIGHTS[scorer]
    features = (max(-100.0, min(100.0, score)), max(-100.0, min(100.0, above_heading)), *fit)
    return _sigmoid(math.fsum((bias, *map(mul, weights, features))))


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, value))))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The best passage score of each scorer; None if the scorer was not used."""

    logit: float | None
    cosine: float | None
    coverage: float

    @property
    def scorer(self) -> str:
        """The most reliable scorer that was used."""
        if self.logit is not None:
            return CROSS_ENCODER
        return WORDS if self.cosine is None else VECTORS

    @property
    def is_enough(self) -> bool:
        """Whether the evidence suffices for an answer: one certain scorer, or two that agree."""
        if self.logit is not None:
            supported = (
                self.cosine is None or self.cosine >= SUPPORTING_COSINE or self.coverage >= SUPPORTING_COVERAGE
            ) and self.coverage >= MIN_COVERAGE
            return self.logit >= LOGITS[1] or (self.logit >= LOGITS[0] and supported)
        if self.cosine is None:
            return self.coverage >= SUFFICIENT_COVERAGE
        (possible, certain), *_ = COSINES.values()
        if self.cosine >= certain:
            return True
        return self.coverage >= 0.1 + (MIN_COVERAGE if self.cosine >= possible else SUFFICIENT_COVERAGE)

    @property
    def confidence(self) -> float:
        """Strength of the evidence from 0 to 1. Comparable only for the same scorer; not a probability."""
        if self.logit is not None:
            return _sigmoid(self.logit / 2)
        if self.cosine is None:
            return self.coverage
        return max(0.05, min(1.0, (self.cosine - 0.5) / 0.35))


def measure_evidence(ranking: Ranking, question: str, *, embedder: str) -> Evidence:
    """Return the best evidence in a ranking, from its trace and texts."""
    logits = scores_by_kind(ranking.trace, StageKind.RERANK, CROSS_ENCODER)
    cosines = scores_by_kind(ranking.trace, StageKind.RETRIEVE, VECTORS) if embedder in COSINES else {}
    return Evidence(
        max((logits[id] for id in ranking.ids if id in logits), default=None),
        max((cosines[id] for id in ranking.ids if id in cosines), default=None),
        max((coverage(question, hit.text) for hit in ranking.hits), default=0.0),
    )


class AbsentNames(NamedTuple):
    """Notes about names in the question that the sources lack. `unknown` is set if the pack lacks all names."""

    unknown: bool
    notes: list[str]


def find_absent_names(question: str, ranking: Ranking, pack: Pack) -> AbsentNames:
    """Look up the names from the question in the hits and, if they are missing there, in the pack."""
    names = find_names(question)
    missing = missing_names(names, set(words(" ".join(hit.text for hit in ranking.hits))))
    if not missing:
        return AbsentNames(False, [])
    unknown = len(missing_names(names, pack.vocabulary())) == len(names)
    subject = "the pack does not mention" if unknown else "no source mentions"
    return AbsentNames(unknown, [f"{subject}: {', '.join(missing)}"])
