"""MultiDocSynthesizer: one answer from several documents. Every sentence cites its passages."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from resift.agent.graph_reranker import article_id
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, redact
from resift.text import words
from resift.text.sentences import sentences
from resift.types import Hit

_MARK = r"\[\s*\d{1,4}(?:\s*[,;–-]\s*\d{1,4})*\s*\]"
_CITATION = re.compile(_MARK)
_CITATION_AFTER_STOP = re.compile(rf"([.!?…])\s*((?:{_MARK}\s*)+)")
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")
_MAX_SPAN = 20

log = logging.getLogger("resift.agent")


class Passage(NamedTuple):
    """A hit with its number in the list of sources."""

    number: int
    hit: Hit

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
        """The text without the headings."""
        heading = f"{self.hit.metadata.get('heading', '')}\n"
        return _round_brackets(self.hit.text.removeprefix(heading).lstrip("\n"))


class Sentence(NamedTuple):
    """A sentence of an answer and the numbers of the passages that support it."""

    text: str
    sources: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.text} {''.join(f'[{number}]' for number in self.sources)}"


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The output of a writer. It has no sentences if the passages do not answer the question."""

    sentences: tuple[Sentence, ...]
    writer: str
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    """Probability that the first sentence answers the question; None if the writer does not know."""

    @property
    def text(self) -> str:
        """The answer with its citations."""
        return " ".join(map(str, self.sentences))


class Writer(Protocol):
    """Writes an answer from numbered passages; raises if it cannot."""

    name: str

    async def write(self, question: str, passages: Sequence[Passage], *, deadline: Deadline) -> WrittenAnswer:
        """Return an answer that cites only numbers of the passages."""
        ...


@dataclass(frozen=True, slots=True)
class Synthesis:
    """An answer, and whether the extractive writer had to replace the configured one."""

    answer: WrittenAnswer
    extractive: bool
    degraded: bool = False
    reason: str | None = None


class MultiDocSynthesizer:
    """Calls the writer. Without one, or if it fails, sentences are quoted.

    Passages are numbered by rank. At most `per_document` passages of an article are used, and at most
    `max_documents` articles.
    """

    def __init__(
        self,
        extractive: Writer,
        *,
        writer: Writer | None = None,
        max_documents: int = 5,
        per_document: int = 3,
    ) -> None:
        if max_documents < 1 or per_document < 1:
            raise InputError("max_documents and per_document must be 1 or more.")
        self.extractive = extractive
        self.writer = writer
        self.max_documents = max_documents
        self.per_document = per_document

    def passages(self, hits: Sequence[Hit]) -> list[Passage]:
        """Return the passages to answer from."""
        used: Counter[str] = Counter()
        passages: list[Passage] = []
        for number, hit in enumerate(hits, start=1):
            article = article_id(hit)
            is_new = used[article] == 0
            if (is_new and len(used) >= self.max_documents) or used[article] >= self.per_document:
                continue
            used[article] += 1
            passages.append(Passage(number, hit))
        return passages

    async def synthesize(self, question: str, hits: Sequence[Hit], *, deadline: Deadline) -> Synthesis:
        """Return an answer that cites only the hits. A writer that fails is replaced, never raised."""
        passages = self.passages(hits)
        reason = None
        if self.writer is not None:
            try:
                answer = await self._write(self.writer, question, passages, deadline)
                return Synthesis(answer, extractive=False)
            except Exception as exc:
                reason = f"extractive answer, because {self.writer.name} failed: {redact(exc)}"
                log.warning("answer degraded: %s", reason)
        answer = await self._write(self.extractive, question, passages, deadline)
        return Synthesis(answer, extractive=True, degraded=reason is not None, reason=reason)

    @staticmethod
    async def _write(
        writer: Writer, question: str, passages: list[Passage], deadline: Deadline
    ) -> WrittenAnswer:
        answer = await writer.write(question, passages, deadline=deadline)
        unknown = unknown_citations(answer.sentences, {passage.number for passage in passages})
        if unknown or any(not sentence.sources for sentence in answer.sentences):
            raise ResiftError(f"{writer.name} cited passages that it did not receive")
        return answer


def parse_citations(text: str) -> list[Sentence]:
    """Split an answer into sentences with the numbers that they cite."""
    # A mark after the full stop belongs to the sentence before it.
    tidy = _CITATION_AFTER_STOP.sub(lambda match: f" {match[2].strip()}{match[1]} ", text)
    parsed = []
    for sentence in sentences(tidy):
        plain = " ".join(_CITATION.sub("", sentence).split())
        parsed.append(Sentence(re.sub(" ([.,;:!?…])", r"\1", plain), _cited_numbers(sentence)))
    return parsed


def _cited_numbers(sentence: str) -> tuple[int, ...]:
    numbers: dict[int, None] = {}
    for mark in _CITATION.findall(sentence):
        for part in re.split(r"[,;]", mark.strip("[] ")):
            ends = [int(end) for end in re.split(r"[–-]", part) if end.strip()]
            # Of a span that is too long, the ends are enough to show that it is wrong.
            is_span = len(ends) == 2 and 0 < ends[1] - ends[0] <= _MAX_SPAN
            numbers.update(dict.fromkeys(range(ends[0], ends[1] + 1) if is_span else ends))
    return tuple(numbers)


def unknown_citations(cited: Sequence[Sentence], allowed: Collection[int]) -> list[int]:
    """Return the cited numbers that no passage has."""
    return sorted({number for sentence in cited for number in sentence.sources} - set(allowed))


def is_unsupported(sentence: Sentence, passages: Iterable[Passage], question: str) -> bool:
    """Return whether a sentence has a number, or only words, that its passages do not contain."""
    texts = [
        f"{passage.heading} {passage.text}" for passage in passages if passage.number in sentence.sources
    ]
    numbers = {_normalize_number(number) for number in _NUMBER.findall(" ".join([*texts, question]))}
    if any(_normalize_number(number) not in numbers for number in _NUMBER.findall(sentence.text)):
        return True
    sentence_words = {word for word in words(sentence.text) if len(word) > 2}
    return not sentence_words & set(words(" ".join(texts)))


def _normalize_number(number: str) -> str:
    return number.replace(",", "").rstrip(".")


def _round_brackets(text: str) -> str:
    """Put reference marks of the source in round brackets, so that none looks like a citation."""
    return _CITATION.sub(lambda mark: f"({mark[0][1:-1].strip()})", text)
