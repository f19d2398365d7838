"""An answer without a writer: the best-supported sentences of the passages, word for word, cited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from resift.agent.evidence import (
    COSINES,
    CROSS_ENCODER,
    MIN_PROBABILITY,
    VECTORS,
    WORDS,
    answer_probability,
)
from resift.agent.passages import Passage, Sentence, WrittenAnswer
from resift.agent.question_words import Question
from resift.deadline import Deadline
from resift.errors import UnfamiliarTextError
from resift.protocols import Embedder, Scorer
from resift.rerankers.bm25 import PoolBM25
from resift.rerankers.cosine import cosines
from resift.stores.embedding import identity_of
from resift.text.sentences import sentences
from resift.types import Hit

MOST_SENTENCES_READ = 32
_MARGIN = {CROSS_ENCODER: 5.0, VECTORS: 0.1, WORDS: 0.15}
"""How far below the best sentence another may be and still be quoted."""

log = logging.getLogger("resift.agent")


class _Candidate(NamedTuple):
    number: int
    position: int
    text: str
    context: str
    passage: str


class ExtractiveWriter:
    """Quotes up to `max_sentences`, scored by the cross-encoder, else by vectors, else by words.

    Quotes nothing if no sentence is likely to answer what was asked.
    """

    name = "extractive"

    def __init__(
        self, *, scorer: Scorer | None = None, embedder: Embedder | None = None, max_sentences: int = 3
    ) -> None:
        self._scorer = scorer
        self._embedder = embedder
        self._max = max_sentences
        self._bm25 = PoolBM25()

    async def write(self, question: str, passages: Sequence[Passage], *, deadline: Deadline) -> WrittenAnswer:
        """Return the sentences that answer best, the best first; none if none answers."""
        candidates = _candidates(passages)
        if not candidates:
            return WrittenAnswer((), self.name)
        judge, scores, notes = await self._judged(question, candidates, deadline)
        asked = Question(question)
        measured = self._embedder is not None and identity_of(self._embedder) in COSINES
        if judge == WORDS or (judge == VECTORS and not measured):
            # These scores have no scale of their own, so the words of all sentences are compared.
            probability = {i: _probability(WORDS, 0.0, asked, one) for i, one in enumerate(candidates)}
            ranked = sorted(probability, key=lambda i: (-probability[i], -scores[i], i))[: self._max]
        else:
            ranked = sorted(range(len(candidates)), key=lambda i: (-scores[i], i))[: self._max]
            probability = {i: _probability(judge, scores[i], asked, candidates[i]) for i in ranked}
        best = ranked[0]
        if probability[best] < MIN_PROBABILITY:
            return WrittenAnswer((), self.name, (*notes, "no sentence answers what was asked"))
        lowest = scores[best] - _MARGIN[judge]
        chosen = [candidates[i] for i in ranked if scores[i] >= lowest and probability[i] >= MIN_PROBABILITY]
        quoted = tuple(Sentence(one.text, (one.number,)) for one in chosen)
        notes.append(f"sentences chosen by {judge}")
        return WrittenAnswer(quoted, self.name, tuple(notes), confidence=probability[best])

    async def _judged(
        self, question: str, candidates: Sequence[_Candidate], deadline: Deadline
    ) -> tuple[str, list[float], list[str]]:
        texts = [f"{one.context}: {one.text}" for one in candidates]
        notes: list[str] = []
        for judge, ask in ((CROSS_ENCODER, self._by_model), (VECTORS, self._by_vectors)):
            try:
                scores = await ask(question, texts, deadline)
            except UnfamiliarTextError:
                notes.append(f"the {judge} was not trained on this language and was left out")
                continue
            except Exception as exc:
                # Choosing sentences is never fatal; the type is told, since the text may quote a document.
                log.warning("sentences are not judged by %s: %s", judge, type(exc).__name__)
                continue
            if scores is not None:
                return judge, scores, notes
        return WORDS, self._bm25.scores(question, texts), notes

    async def _by_model(self, question: str, texts: list[str], deadline: Deadline) -> list[float] | None:
        if self._scorer is None:
            return None
        hits = [Hit(str(at), text) for at, text in enumerate(texts)]
        values = (await self._scorer.score(question, hits, deadline=deadline)).values
        if all(value is None for value in values):
            return None
        return [float("-inf") if value is None else float(value) for value in values]

    async def _by_vectors(self, question: str, texts: list[str], deadline: Deadline) -> list[float] | None:
        if self._embedder is None or deadline.expired:
            return None
        async with asyncio.timeout(deadline.timeout_s):
            asked = await self._embedder.embed([question], kind="query")
            return cosines(asked[0], list(await self._embedder.embed(texts, kind="document")))


def _probability(judge: str, score: float, question: Question, candidate: _Candidate) -> float:
    fit = question.fit(candidate.text, candidate.context, candidate.passage)
    return answer_probability(judge, score, fit)


def _candidates(passages: Sequence[Passage]) -> list[_Candidate]:
    """Return the sentences in order of their passages; the same words are quoted from one place only."""
    found: dict[str, _Candidate] = {}
    for passage in passages:
        for position, text in enumerate(sentences(passage.text)):
            found.setdefault(text, _Candidate(passage.number, position, text, passage.heading, passage.text))
    return list(found.values())[:MOST_SENTENCES_READ]
