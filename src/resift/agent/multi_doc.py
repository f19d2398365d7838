"""MultiDocSynthesizer: one answer from several documents. Every sentence cites its passages."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Protocol

from resift.agent.answerability import CROSS_ENCODER, AbsentNames, measure_evidence
from resift.agent.pack import STAGE as CENTRALITY
from resift.agent.pack import article_id
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, redact
from resift.text import words
from resift.text.snippets import one_line, snippet
from resift.text.tokenization import sentences
from resift.types import Hit, JsonObject, Ranking
from resift.validation import check_text

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
        """The title of the article."""
        return str(self.hit.metadata.get("title", ""))

    @property
    def heading(self) -> str:
        """The headings above the passage, starting with the title."""
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
    """Probability that the first sentence answers the question; None if the writer does not estimate it."""
    extractive: bool = False
    reason: str | None = None
    """Why the configured writer was replaced by the extractive one; None if it was not."""

    @property
    def text(self) -> str:
        """The answer with its citations."""
        return " ".join(map(str, self.sentences))


class Writer(Protocol):
    """Writes an answer from numbered passages; raises if it cannot."""

    name: str

    async def write(self, question: str, passages: Sequence[Passage], *, deadline: Deadline) -> WrittenAnswer:
        """Return an answer that cites only the numbers of these passages."""


class MultiDocSynthesizer:
    """Writes an answer from the hits with the configured writer. Without one, or if it fails, sentences are quoted.

    At most `max_documents` articles are used, with at most `per_document` passages each, numbered by rank.
    """

    def __init__(
        self, extractive: Writer, *, writer: Writer | None = None, max_documents: int = 5, per_document: int = 3
    ) -> None:
        if max_documents < 1 or per_document < 1:
            raise InputError("max_documents and per_document must be 1 or more.")
        self.extractive = extractive
        self.writer = writer
        self.max_documents = max_documents
        self.per_document = per_document

    def passages(self, hits: Sequence[Hit]) -> list[Passage]:
        """Return the passages that an answer may use."""
        passage_counts: Counter[str] = Counter()
        passages: list[Passage] = []
        for number, hit in enumerate(hits, start=1):
            article = article_id(hit)
            is_new = passage_counts[article] == 0
            if (is_new and len(passage_counts) >= self.max_documents) or passage_counts[article] >= self.per_document:
                continue
            passage_counts[article] += 1
            passages.append(Passage(number, hit))
        return passages

    async def synthesize(self, question: str, hits: Sequence[Hit], *, deadline: Deadline) -> WrittenAnswer:
        """Return an answer that cites only the hits. If the configured writer fails, sentences are quoted."""
        passages = self.passages(hits)
        reason = None
        if self.writer is not None:
            try:
                return await self._write(self.writer, question, passages, deadline)
            except Exception as exc:
                reason = f"extractive answer, because {self.writer.name} failed: {redact(exc)}"
                log.warning("answer degraded: %s", reason)
        answer = await self._write(self.extractive, question, passages, deadline)
        return replace(answer, extractive=True, reason=reason)

    @staticmethod
    async def _write(writer: Writer, question: str, passages: list[Passage], deadline: Deadline) -> WrittenAnswer:
        answer = await writer.write(question, passages, deadline=deadline)
        unknown = unknown_citations(answer.sentences, {passage.number for passage in passages})
        if unknown or any(not sentence.sources for sentence in answer.sentences):
            raise ResiftError(f"{writer.name} cited passages that it did not receive")
        return answer


def parse_citations(text: str) -> list[Sentence]:
    """Split an answer into sentences with the numbers that they cite."""
    # A citation after the full stop belongs to the preceding sentence.
    tidy = _CITATION_AFTER_STOP.sub(lambda match: f" {match[2].strip()}{match[1]} ", text)
    parsed = []
    for sentence in sentences(tidy):
        plain = " ".join(_CITATION.sub("", sentence).split())
        numbers: dict[int, None] = {}
        parts = [re.split("[,;]", mark.strip("[] ")) for mark in _CITATION.findall(sentence)]
        for part in chain.from_iterable(parts):
            ends = [int(end) for end in re.split("[–-]", part) if end.strip()]
            # If a range is too long, its ends are enough to reveal that it is wrong.
            is_span = len(ends) == 2 and 0 < ends[1] - ends[0] <= _MAX_SPAN
            numbers.update(dict.fromkeys(range(ends[0], ends[1] + 1) if is_span else ends))
        parsed.append(Sentence(re.sub(" ([.,;:!?…])", r"\1", plain), tuple(numbers)))
    return parsed


def unknown_citations(cited: Sequence[Sentence], allowed: Collection[int]) -> list[int]:
    """Return the cited numbers that do not belong to any passage."""
    return sorted({number for sentence in cited for number in sentence.sources} - set(allowed))


def is_unsupported(sentence: Sentence, passages: Iterable[Passage], question: str) -> bool:
    """Return whether a sentence has a number that is missing from its passages, or shares no word with them."""
    texts = [f"{passage.heading} {passage.text}" for passage in passages if passage.number in sentence.sources]
    numbers = {_normalize_number(number) for number in _NUMBER.findall(" ".join([*texts, question]))}
    if any(_normalize_number(number) not in numbers for number in _NUMBER.findall(sentence.text)):
        return True
    return not {word for word in words(sentence.text) if len(word) > 2} & set(words(" ".join(texts)))


def _normalize_number(number: str) -> str:
    return number.replace(",", "").rstrip(".")


def _round_brackets(text: str) -> str:
    """Put reference marks in round brackets, so that none of them looks like a citation."""
    return _CITATION.sub(lambda mark: f"({mark[0][1:-1].strip()})", text)


MAX_QUESTION_CHARS = 1000
NOT_FOUND = "Not found: nothing here answers the question."


def clean_question(question: str) -> tuple[str, list[str]]:
    """Return the question as one printable line of limited length ("" if it has no letter or digit), and notes."""
    check_text(question, "The question")
    cleaned = one_line(question[: MAX_QUESTION_CHARS * 2])[:MAX_QUESTION_CHARS]
    note = f"only the first {MAX_QUESTION_CHARS} characters of the question were read"
    cleaned = cleaned if any(map(str.isalnum, cleaned)) else ""
    return cleaned, [note] if len(question) > MAX_QUESTION_CHARS else []


async def answer_from_ranking(
    question: str,
    ranking: Ranking,
    synthesizer: MultiDocSynthesizer,
    *,
    embedder: str,
    deadline: Deadline,
    notes: Sequence[str] = (),
    find_absent_names: Callable[[], Awaitable[AbsentNames]] | None = None,
    explain: bool = False,
) -> JsonObject:
    """Return the answer as plain data; `embedder` is the model of the ranking's cosines."""
    evidence = measure_evidence(ranking, question, embedder=embedder)
    # The extractive writer scores each sentence with the cross-encoder, which is more accurate than passages.
    checks_sentences = synthesizer.writer is None and evidence.scorer == CROSS_ENCODER
    if not ranking.hits or not (evidence.is_enough or checks_sentences):
        reason = f"no passage is close enough to the question ({evidence.scorer})"
        return not_found(ranking, [*notes, reason], explain=explain)
    absent = AbsentNames(False, []) if find_absent_names is None else await find_absent_names()
    all_notes = [*notes, *absent.notes]
    if absent.unknown:
        return not_found(ranking, all_notes, explain=explain)
    answer = await synthesizer.synthesize(question, ranking, deadline=deadline)
    if not answer.sentences:
        return not_found(ranking, [*all_notes, *answer.notes], answer, explain=explain)
    confidence = evidence.confidence if answer.confidence is None else answer.confidence
    cited: dict[int, list[str]] = {}
    for sentence in answer.sentences:
        for number in sentence.sources:
            cited.setdefault(number, []).append(sentence.text)
    data: JsonObject = {
        "answer": answer.text,
        "found": True,
        "confidence": round(confidence * (0.5 if absent.notes else 1.0), 3),
        "sources": [_describe_source(number, hit, cited) for number, hit in enumerate(ranking.hits, start=1)],
        "sentences": [{"text": sentence.text, "sources": list(sentence.sources)} for sentence in answer.sentences],
    }
    return _add_details(data, ranking, [*all_notes, *answer.notes], answer, explain=explain)


def not_found(
    ranking: Ranking, notes: Sequence[str], answer: WrittenAnswer | None = None, *, explain: bool = False
) -> JsonObject:
    """Return the result for a question without an answer: no sources, confidence 0."""
    data: JsonObject = {"answer": NOT_FOUND, "found": False, "confidence": 0.0, "sources": [], "sentences": []}
    return _add_details(data, ranking, notes, answer, explain=explain)


def _add_details(
    data: JsonObject, ranking: Ranking, notes: Sequence[str], answer: WrittenAnswer | None, *, explain: bool
) -> JsonObject:
    graph_notes = {record.note for record in ranking.trace if record.name == CENTRALITY and record.note}
    data |= {
        "degraded": ranking.degraded or bool(answer and answer.reason),
        "reason": "; ".join(filter(None, [ranking.reason, answer.reason if answer else None])) or None,
        "extractive": answer.extractive if answer else False,
        "writer": answer.writer if answer else None,
        "notes": [*notes, *sorted(graph_notes)],
        "warnings": list(ranking.warnings),
    }
    if explain:
        data["explanation"] = [{"title": Passage(0, hit).title, "why": ranking.why(hit.id)} for hit in ranking.hits]
    return data


def _describe_source(number: int, hit: Hit, cited: Mapping[int, Sequence[str]]) -> JsonObject:
    passage = Passage(number, hit)
    line = " ".join(passage.text.split())
    # A quoted sentence is its own excerpt. For a written sentence, show the best matching part of the passage.
    excerpts = [quote if quote in line else snippet(passage.text, quote).text for quote in cited.get(number, [])]
    page = hit.metadata.get("page")
    return {
        "number": number,
        "id": hit.id,
        "article": hit.metadata.get("article"),
        "title": passage.title,
        "heading": passage.heading,
        "text": passage.text,
        "cited": number in cited,
        "excerpt": " … ".join(dict.fromkeys(excerpts)),
        **({"page": page} if page is not None else {}),
    }
