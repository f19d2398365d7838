"""Numbered passages and the citations of an answer. Pure functions on text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from resift.text import words
from resift.text.sentences import sentences
from resift.types import Hit

_MARK = r"\[\s*\d{1,4}(?:\s*[,;–-]\s*\d{1,4})*\s*\]"
_CITATION = re.compile(_MARK)
_AFTER_STOP = re.compile(rf"([.!?…])\s*((?:{_MARK}\s*)+)")
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")


class Passage(NamedTuple):
    """What may be cited: a hit with its number in the list of sources."""

    number: int
    hit: Hit
    judged: Mapping[str, float] = MappingProxyType({})
    """What each judge said of it."""

    @property
    def title(self) -> str:
        """The title of its article."""
        return str(self.hit.metadata.get("title", ""))

    @property
    def heading(self) -> str:
        """The headings above it, the title first."""
        return _round_brackets(str(self.hit.metadata.get("heading", "")))

    @property
    def text(self) -> str:
        """Its own words, without the headings."""
        heading = f"{self.hit.metadata.get('heading', '')}\n"
        return _round_brackets(self.hit.text.removeprefix(heading).lstrip("\n"))


class Sentence(NamedTuple):
    """One sentence of an answer and the numbers of the passages that it rests on."""

    text: str
    sources: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.text} {''.join(f'[{number}]' for number in self.sources)}"


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """What a writer made of the passages: nothing, when they do not answer the question."""

    sentences: tuple[Sentence, ...]
    writer: str
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    """Probability that the first sentence answers the question; None if the writer does not know."""

    @property
    def text(self) -> str:
        """The answer with its citations."""
        return " ".join(map(str, self.sentences))


def cited_sentences(text: str) -> list[Sentence]:
    """Split an answer into sentences, each with the numbers that it cites."""
    tidy = _AFTER_STOP.sub(lambda match: f" {match[2].strip()}{match[1]} ", text)
    return [Sentence(_bare(one), _numbers(one)) for one in sentences(tidy)]


def unsupported(sentence: Sentence, passages: Iterable[Passage], question: str) -> bool:
    """Whether a sentence says what its passages cannot have told: foreign numbers, or no word of theirs."""
    texts = [
        f"{passage.heading} {passage.text}" for passage in passages if passage.number in sentence.sources
    ]
    known = " ".join([*texts, question])
    numbers = {_digits(number) for number in _NUMBER.findall(known)}
    if any(_digits(number) not in numbers for number in _NUMBER.findall(sentence.text)):
        return True
    said = {word for word in words(sentence.text) if len(word) > 2}
    return not said & set(words(" ".join(texts)))


def unknown_citations(cited: Sequence[Sentence], allowed: Collection[int]) -> list[int]:
    """Return the numbers cited that no passage has."""
    return sorted({number for one in cited for number in one.sources} - set(allowed))


def _round_brackets(text: str) -> str:
    """Return the text with its own reference marks in round brackets, so that none looks like ours."""
    return _CITATION.sub(lambda mark: f"({mark[0][1:-1].strip()})", text)


def _bare(sentence: str) -> str:
    without = _CITATION.sub("", sentence)
    return re.sub(" ([.,;:!?…])", r"\1", " ".join(without.split()))


def _numbers(sentence: str) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for mark in _CITATION.findall(sentence):
        for part in re.split(r"[,;]", mark.strip("[] ")):
            ends = [int(end) for end in re.split(r"[–-]", part) if end.strip()]
            # A span of thousands of sources is no citation, but its ends show that it is wrong.
            wide = len(ends) == 2 and 0 < ends[1] - ends[0] <= 20
            found.update(dict.fromkeys(range(ends[0], ends[1] + 1) if wide else ends))
    return tuple(found)


def _digits(number: str) -> str:
    return number.replace(",", "").rstrip(".")
