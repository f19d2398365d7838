"""MultiDocSynthesizer: several documents, one answer, every sentence with the passage it rests on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from resift.agent.evidence import CROSS_ENCODER, VECTORS, WORDS, judgements
from resift.agent.graph_reranker import article_of
from resift.agent.passages import Passage, WrittenAnswer, unknown_citations
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, redacted
from resift.types import Hit, trace_of

log = logging.getLogger("resift.agent")


class Writer(Protocol):
    """Turns numbered passages into an answer; raises when it cannot."""

    name: str

    async def write(self, question: str, passages: Sequence[Passage], *, deadline: Deadline) -> WrittenAnswer:
        """Return the answer; every number that it cites is one of the passages'."""
        ...


@dataclass(frozen=True, slots=True)
class Synthesis:
    """An answer, and whether it is the one that was wanted."""

    answer: WrittenAnswer
    extractive: bool
    degraded: bool = False
    reason: str | None = None


class MultiDocSynthesizer:
    """Asks the writer, and quotes sentences where there is none or it fails.

    Passages are numbered by their place in the ranking. At most `per_document` passages of one
    article are used, of at most `max_documents` articles; one document is what `enable_multidoc=False` means.
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
        """Return the passages to answer from, numbered by rank."""
        trace = trace_of(hits)
        said = {judge: judgements(trace, judge) for judge in (CROSS_ENCODER, VECTORS, WORDS)}
        used: Counter[str] = Counter()
        chosen: list[Passage] = []
        for number, hit in enumerate(hits, start=1):
            article = article_of(hit)
            fresh = used[article] == 0
            if (fresh and len(used) >= self.max_documents) or used[article] >= self.per_document:
                continue
            used[article] += 1
            judged = {judge: known[hit.id] for judge, known in said.items() if hit.id in known}
            chosen.append(Passage(number, hit, judged))
        return chosen

    async def synthesize(self, question: str, hits: Sequence[Hit], *, deadline: Deadline) -> Synthesis:
        """Return an answer whose every citation is one of the hits; never raises for a writer that fails."""
        passages = self.passages(hits)
        reason = None
        if self.writer is not None:
            try:
                return Synthesis(
                    await self._written(self.writer, question, passages, deadline), extractive=False
                )
            except Exception as exc:
                reason = f"extractive answer, because {self.writer.name} failed: {redacted(exc)}"
                log.warning("answer degraded: %s", reason)
        answer = await self._written(self.extractive, question, passages, deadline)
        return Synthesis(answer, extractive=True, degraded=reason is not None, reason=reason)

    @staticmethod
    async def _written(
        writer: Writer, question: str, passages: list[Passage], deadline: Deadline
    ) -> WrittenAnswer:
        answer = await writer.write(question, passages, deadline=deadline)
        unknown = unknown_citations(answer.sentences, {passage.number for passage in passages})
        if unknown or any(not sentence.sources for sentence in answer.sentences):
            raise ResiftError(f"{writer.name} cited what was not given to it")
        return answer
