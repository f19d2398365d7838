"""The words of a question: which of them a text has, which are names, and what kind of answer they want."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from resift.text import Analyzer, words
from resift.text.plurals import variants

_CAPITAL = re.compile(r"(?<=[\w,;:'’)\"”] )[^\W\d_a-z][\w'’-]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

# Words that a question is made of, whatever it asks about.
_FRAME = frozenset(
    """
    a about again all also an and another any are as at be because been before between both but by came
    can come could did do does done during each end ever find first for found from gave get give given
    go good had has have he her here him his how i if in into is it its just kind known last like long
    made make many may me mean means more most much must my name named new no not now of off on one only or
    other our out over own part people place say see she should show since so some such take tell than that
    the their them then there these they thing things this those through time to too two under up us use
    used very was way we well were what when where whether which while who whom whose why will with work
    would year years you your
    """.split()  # noqa: SIM905 - a hundred quoted words are harder to read
)

_LENGTH = r"\b(?:mm|cm|m|km|millimet|centimet|met(?:er|re)|kilomet|inch|feet|foot|ft|yards?|miles?|fathom)"
_DURATION = (
    r"\b(?:seconds?|minutes?|hours?|days?|nights?|weeks?|fortnight|months?|years?|decades?|centur|lifetime"
    r"|ms|min)\b"
)
_NUMERAL = (
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twent|thirt|fort(?:y|ies)"
    r"|fift|sixt|sevent|eight|ninet|hundred|thousand|million|billion|dozen|half|halves|third|quarter|once|twice"
    r"|double|triple|single|none|no|never|every|each|all|both|several|pair|free|unlimited)\w*"
)
_DATE = (
    r"\b(?:1\d{3}|20\d{2})\b|\b(?:january|february|march|april|may|june|july|august|september|october|november"
    r"|december|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|morning|noon|afternoon|evening|night|midnight|today"
    r"|tomorrow|yesterday|daily|weekly|monthly|yearly|annual|spring|summer|autumn|winter|century|christmas"
    r"|easter)\b|\d{1,2}[:.]\d{2}\b|\d{1,2} ?(?:am|pm|o'clock)\b|\b(?:when|whenever|once|until|before|after"
    r"|during|within|every|by the time|as soon as"
    r"|at (?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve))\b"
)
_PERSON = (
    r"\b\w{2,}(?:ists?|ers?|ors?|men|man|women|woman|ians?|ees?|ants?)\b|\b(?:head|chief|chair|staff|team|boy"
    r"|girl|people|person|anyone|anybody|everyone|everybody|nobody|child|children|company|board|king|queen"
    r"|mother|father|brother|sister|wife|husband|cook|mechanics?|police|army|society|government|department"
    r"|desk|you|we|he|she|they)\b"
)
_MONEY = (
    r"[$€£¥%]|\b(?:euros?|pounds?|dollars?|pence|penn|cents?|francs?|marks?|shilling|crowns?|free|percent"
    r"|guineas?)\b"
)
_PAYING = r"\b(?:cost|pay|paid|price|fee|charge|fine|earn|salary|worth|money|profit|spend)"
_LONG_THINGS = r"\b(?:cord|cable|rope|bridge|canal|tunnel|river|wall|road|ship|wire)\b"

# A pattern of the question, and what a sentence that answers it has. The first that fits counts.
_KINDS = (
    ("price", r"\bhow much\b.*" + _PAYING, _MONEY),
    ("price", r"\bwhat\b.*\b(?:costs?|price|fee|charge|salary|fine)\b", r"[$€£¥]|\bfree\b|" + _NUMERAL),
    ("age", r"\bhow old\b", r"\d|\b(?:age|aged|years?|born|centur)"),
    ("length", r"\bhow (?:tall|high|deep|wide|far|thick)\b", _LENGTH + r"|\d ?m\b"),
    (
        "weight",
        r"\bhow (?:heavy|much\b.*\bweigh)",
        r"\b(?:kg|g|kilo|grams?|tons?|tonnes?|pounds?|ounces?|lb)",
    ),
    ("volume", r"\bhow loud\b", r"\b(?:decibel|db|loud|quiet|silent|noise)"),
    ("length", r"\bhow long (?:is|are|was|were)\b.*" + _LONG_THINGS, _LENGTH),
    (
        "time",
        r"\bhow (?:long|soon|quickly|often|frequently)\b",
        "|".join((_DURATION, _LENGTH, _DATE, r"\btimes?\b")),
    ),
    ("number", r"\bhow (?:many|much|large|big|small|fast|hot|cold|warm|close)\b", _NUMERAL),
    (
        "number",
        r"\b(?:what|which) (?:percent|share|number|temperature|size|age|height|speed|weight|distance)",
        _NUMERAL,
    ),
    ("date", r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|time|weekday|season)\b", _DATE),
    ("person", r"\bwho(?:m|se)?\b", _PERSON),
)
_COMPILED = tuple((kind, re.compile(asked), re.compile(found)) for kind, asked, found in _KINDS)
_COUNTED = re.compile(r"\bhow (?:many|much) ((?:[a-z-]+ )?[a-z-]+)")


def coverage(question: str, text: str) -> float:
    """Return the share of the question's content words that the text has, in singular or plural."""
    asked = content_words(question)
    if not asked:
        return 0.0
    present = set(words(text))
    return sum(any(form in present for form in variants(word)) for word in asked) / len(asked)


def content_words(question: str) -> list[str]:
    """Return the words of a question that say what it is about, each once."""
    return [word for word in dict.fromkeys(words(question)) if word not in _FRAME]


def names_in(question: str) -> list[str]:
    """Return the words that are written like names: capital letters inside a sentence of small ones."""
    found = [word.partition("'")[0].partition("’")[0] for word in _CAPITAL.findall(question)]
    return found if len(found) * 2 <= len(question.split()) else []


def missing_from(names: list[str], present: set[str] | frozenset[str]) -> list[str]:
    """Return the names of which no word is among the words that are there."""
    return [
        name for name in names if not any(form in present for word in words(name) for form in variants(word))
    ]


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a sentence fits a question, apart from any model's score. All values are from 0 to 1."""

    missing: float
    """Share of the question's content words that neither the sentence nor its headings have."""
    missing_nearby: float
    """The same for the whole passage with its headings."""
    missing_predicate: float
    """Share of the content words that are not in the headings, so not the topic, that the sentence lacks."""
    wrong_kind: float
    """1 if the question asks for a date, number, price or person and the sentence has none."""
    missing_count: float
    """1 if the sentence lacks the noun that is counted after "how many"."""
    missing_number: float
    """1 if the sentence and its headings lack a number of the question."""


class Question:
    """A question, analyzed once and compared with many sentences."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = content_words(text)
        self._names = {part for name in names_in(text) for part in words(name)}
        self._numbers = set(_NUMBER.findall(text))
        lowered = text.lower()
        self.kind = ""
        self._answer: re.Pattern[str] | None = None
        for kind, asked, found in _COMPILED:
            if asked.search(lowered):
                self.kind, self._answer = kind, found
                break
        counted = _COUNTED.search(lowered)
        self._counted = [word for word in words(counted[1]) if word not in _FRAME][:2] if counted else []

    def fit(self, sentence: str, heading: str, passage: str) -> Fit:
        """Compare the question with a sentence, the headings above it and the passage around it."""
        near, around = stems(f"{heading} {sentence}"), stems(f"{heading} {passage}")
        return Fit(
            missing=_missing_share(self._words, near),
            missing_nearby=_missing_share(self._words, around),
            missing_predicate=_missing_share(self._predicate(heading), stems(sentence)),
            wrong_kind=float(self._answer is not None and not self._has_answer(sentence)),
            missing_count=float(bool(self._counted) and _missing_share(self._counted, near) == 1),
            missing_number=float(not self._numbers <= set(_NUMBER.findall(f"{heading} {sentence}"))),
        )

    def _predicate(self, heading: str) -> list[str]:
        """Return what is asked about the topic: content words that are neither names nor in the headings."""
        topic = stems(heading)
        return [word for word in self._words if word not in self._names and not _is_in(word, topic)]

    def _has_answer(self, sentence: str) -> bool:
        assert self._answer is not None  # noqa: S101 - only called with a kind
        if self.kind == "person" and _new_names(sentence, self.text):
            return True
        # The question's own words are no answer to it: "in 2022" does not tell how many.
        rest = sentence.lower()
        for number in self._numbers:
            rest = rest.replace(number, " ")
        if self.kind == "person":
            known = set(words(self.text))
            rest = " ".join(word for word in words(sentence) if word not in known)
        return self._answer.search(rest) is not None


def _new_names(sentence: str, question: str) -> bool:
    """Say whether a sentence has a capitalized word that the question has not, apart from its first word."""
    known = set(words(question))
    return any(words(name)[:1] and words(name)[0] not in known for name in _CAPITAL.findall(sentence)) or (
        # Two capitals at the beginning are a name: "Ferdinand de Lesseps led", "Isaac Newton explained".
        bool(re.match(r"\b[^\W\d_a-z]\w+ (?:(?:de|von|van|of|the) )?[^\W\d_a-z]\w+", sentence))
        and not set(words(sentence)[:2]) <= known
    )


@lru_cache(maxsize=512)
def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words."""
    return frozenset(Analyzer().analyze(text).terms) | frozenset(words(text))


def _missing_share(wanted: list[str], present: frozenset[str]) -> float:
    return sum(not _is_in(word, present) for word in wanted) / len(wanted) if wanted else 0.0


def _is_in(word: str, present: frozenset[str]) -> bool:
    return word in present or any(term in present for term in _terms(word))


@lru_cache(maxsize=4096)
def _terms(word: str) -> tuple[str, ...]:
    return tuple(Analyzer().query_terms(word))
