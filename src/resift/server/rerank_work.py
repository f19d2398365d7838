"""From a checked rerank request to an answer: admission, scoring by the shared scorer, scores from 0 to 1."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resift.deadline import Deadline
from resift.external.candidates import hits_from
from resift.external.records import read_text
from resift.protocols import Scorer, describe_scorer, name_of
from resift.rerankers.rescore import rescore
from resift.server.admission import pairs_in
from resift.server.dialects import ServedDialect
from resift.server.endpoint import Call
from resift.server.rerank_answers import Answer, Row
from resift.server.spans import SpanOptions, relevant_spans
from resift.types import Hit, JsonMapping, JsonValue, Ranking, ScorerInfo, Scores, StageKind

SENTENCES = 8
"""Pairs that the spans of one document are counted for before they are known."""


async def rerank(call: Call, dialect: ServedDialect, request: JsonMapping) -> Answer:
    """Return the answer to a request that its dialect's schema has passed."""
    words = dialect.words
    name, scorer = call.serving.model(request.get("model"))
    documents = request[words.documents_field]
    texts = texts_of(documents, request.get("rank_fields"))
    deadline = call.deadline(request.get("deadline_ms"))
    call.info.documents = len(texts)
    options = _span_options(request)
    most = min(request.get(words.cutoff_field or "") or len(texts), len(texts))
    query = request["query"]
    call.info.pairs = pairs_in(texts, query) + (most * SENTENCES if options else 0)
    async with call.admitted(deadline):
        hits = hits_from(texts)
        counter = TokenCounter(scorer, name_of(scorer))
        ranking = await rescore(counter, query, hits, k=len(hits), deadline=deadline)
        shown = ranking.hits[:most]
        spans: JsonMapping = {}
        if options is not None:
            spans = await relevant_spans(
                scorer, query, shown, options, unit=score_normalizer(ranking), deadline=deadline
            )
    note_ranking(call, ranking)
    unit = _raw(ranking) if request.get("raw_scores") else score_normalizer(ranking)
    wanted = dialect.returns_documents(request)

    def row(hit: Hit, at: int, score: float | None) -> Row:
        document = _document(documents[at], texts[at], dialect) if wanted else None
        return Row(index=at, score=unit(score), document=document, spans=spans.get(hit.id) if spans else None)

    return Answer(
        id=call.info.id,
        model=name,
        rows=[*map(row, shown, ranking.indices(), ranking.scores())],
        tokens=counter.tokens,
        documents=len(texts),
        created=int(time.time()),
        warnings=_warnings(call, texts),
    )


def texts_of(documents: Sequence[JsonValue], rank_fields: Sequence[str] | None = None) -> list[str]:
    """Return the text of each document: a string, or the text fields of an object (or its `rank_fields`)."""
    return [
        document if isinstance(document, str) else read_text(document, rank_fields or None).text
        for document in documents
    ]


def note_ranking(call: Call, ranking: Ranking) -> None:
    """Keep what headers, log and metrics say of a ranking."""
    call.info.tier = ranking.tier or ""
    if ranking.degraded:
        call.info.degraded = ranking.reason or "degraded"
    if ranking.unscored and ranking.degraded:
        call.info.answer_headers["x-resift-unscored"] = str(len(ranking.unscored))
    said = (record.note for record in ranking.trace if record.kind is StageKind.RERANK)
    call.info.note = call.info.note or "; ".join(filter(None, said))


def score_normalizer(ranking: Ranking) -> Callable[[float | None], float]:
    """Return how scores of this ranking become numbers from 0 to 1, in the same order; 0 if unscored."""
    scales = [record.score_scale for record in ranking.trace.of(StageKind.RERANK)]
    return _clamp if scales and scales[-1] in ("probability", "cosine") else _sigmoid


def _sigmoid(score: float | None) -> float:
    if score is None:
        return 0.0
    # Both forms keep exp() from overflowing.
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


def _clamp(score: float | None) -> float:
    return 0.0 if score is None else min(1.0, max(0.0, score))


def _raw(ranking: Ranking) -> Callable[[float | None], float]:
    """Return the scorer's own scores; the lowest for what was not judged, since logits are often below 0."""
    lowest = min((score for score in ranking.scores() if score is not None), default=0.0)
    return lambda score: lowest if score is None else score


def _warnings(call: Call, texts: Sequence[str]) -> list[str]:
    empty = sum(not text.strip() for text in texts)
    reasons = [f"{empty} of {len(texts)} documents have no text and stand last"] if empty else []
    return [*filter(None, (call.info.degraded, call.info.note)), *reasons]


def _document(given: object, text: str, dialect: ServedDialect) -> JsonValue:
    if dialect.plain_document:
        return text
    return {"text": text, **given} if isinstance(given, dict) else {"text": text}


def _span_options(request: JsonMapping) -> SpanOptions | None:
    given = request.get("relevant_spans")
    if not given or given.get("mode") != "enabled":
        return None
    return SpanOptions(threshold=given.get("threshold", 0.1), most=given.get("max_spans"))


@dataclass(slots=True)
class TokenCounter:
    """A scorer that adds up how many tokens its model read."""

    scorer: Scorer
    name: str
    tokens: int = 0

    @property
    def info(self) -> ScorerInfo:
        """Description of the scorer whose tokens are counted."""
        return describe_scorer(self.scorer)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the scorer's scores."""
        scores = await self.scorer.score(query, hits, deadline=deadline)
        # An estimate for scorers that do not count, such as hosted ones: four characters per token.
        characters = len(query) * len(hits) + sum(len(hit.text) for hit in hits)
        self.tokens += scores.tokens or characters // 4
        return scores
