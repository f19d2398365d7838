"""Rerank routes of all dialects, and vLLM's `/score`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from resift.deadline import Deadline
from resift.external.records import read_text
from resift.protocols import Scorer, describe_scorer
from resift.rerankers.rescore import rescore
from resift.server.admission import count_pairs
from resift.server.api_dialects import ROUTES, RankedDocument, RerankRequest, ServedDialect, Span, SpanOptions, Usage
from resift.server.endpoint import Operation, Outcome, Request, Response
from resift.server.schema import OPENAI, Milliseconds, ModelName, RequestFailed, RequestReader, is_true, parse_json
from resift.server.state import ServerState
from resift.text.tokenization import sentence_spans
from resift.types import Hit, JsonObject, Ranking, Scores, StageKind

SENTENCES_PER_DOCUMENT = 8  # pairs that admission control counts for the spans of one document
MAX_ON_LOOP = 500  # objects whose texts are extracted on the event loop; more are handled in a thread
MAX_SENTENCES = 32  # sentences per document that are scored individually; longer documents are reduced first
BLOCKS, BEST_BLOCKS = 16, 4  # blocks that a long document is scored in, and best blocks that are searched further
DEFAULT_THRESHOLD = 0.1

Position = tuple[int, int]
Normalizer = Callable[[float | None], float]


def rerank_operations(server: ServerState) -> list[Operation]:
    """Return the operations of this module."""
    return [*(_rerank_operation(server, path) for path in ROUTES), _score_operation(server)]


def _rerank_operation(server: ServerState, path: str) -> Operation:
    dialects, options = ROUTES[path], server.options
    readers: dict[str, RequestReader[RerankRequest]] = {}
    for dialect in dialects:
        struct = dialect.request
        if options.zero_means_all and dialect.cutoff_field:
            cutoff = (dialect.cutoff_field, Annotated[int, Meta(ge=0)] | None, None)
            struct = msgspec.defstruct(struct.__name__, [cutoff], bases=(struct,), kw_only=True)  # type: ignore[assignment]
        readers[dialect.name] = RequestReader(struct, options.limits, strict=options.strict)

    async def run(request: Request) -> Response:
        dialect = dialects[0]

        def parse(data: bytes) -> RerankRequest:
            nonlocal dialect
            if len(dialects) == 1:
                return readers[dialect.name].read(data)
            value = parse_json(data, unique_keys=options.strict)
            fields = value.keys() if isinstance(value, dict) else ()
            dialect = next((other for other in dialects if not other.marks.isdisjoint(fields)), dialect)
            request.errors, request.dialect = dialect.errors, dialect.name
            return readers[dialect.name].convert(value)

        body = await request.read(parse, dialect=dialect.name)
        return await rerank(request, dialect, body)

    types, answers = [reader.type for reader in readers.values()], [dialect.answer for dialect in dialects]
    errors, summary = [dialect.errors for dialect in dialects], f"Rerank documents ({' or '.join(readers)})"
    return Operation("POST", path, summary, run, types, answers, errors=errors)


async def rerank(request: Request, dialect: ServedDialect, body: RerankRequest) -> Response:
    """Rerank the documents of a request and return a response in its dialect."""
    model, scorer = request.server.model(body.model)
    documents: Sequence[str | JsonObject] = getattr(body, dialect.documents_field)
    rank_fields = getattr(body, "rank_fields", None)
    if len(documents) > MAX_ON_LOOP and not isinstance(documents[0], str):
        texts = await asyncio.to_thread(read_texts, documents, rank_fields)
    else:
        texts = read_texts(documents, rank_fields)
    cutoff = getattr(body, dialect.cutoff_field, None) if dialect.cutoff_field else None
    result_count = min(cutoff or len(texts), len(texts))
    spans: SpanOptions | None = getattr(body, "relevant_spans", None)
    if spans is not None and spans.mode != "enabled":
        spans = None
    deadline = request.deadline(body.deadline_ms)
    pairs = count_pairs(texts, body.query) + (result_count * SENTENCES_PER_DOCUMENT if spans else 0)
    counter = TokenCounter(scorer)
    async with request.admit(pairs, len(texts), deadline):
        hits = [Hit(str(i), text) for i, text in enumerate(texts)]
        ranking = await rescore(counter, body.query, hits, k=len(hits), deadline=deadline)
        normalize = score_normalizer(ranking)
        span_rows: Mapping[str, list[Span]] = {}
        if spans:
            best = ranking.hits[:result_count]
            span_rows = await find_relevant_spans(scorer, body.query, best, spans, deadline, normalize=normalize)
    outcome = Outcome.from_ranking(ranking)
    indices, scores = ranking.indices()[:result_count], ranking.scores()
    if is_true(getattr(body, "raw_scores", None)):
        # Unscored documents get the lowest score, because clients sort by score and logits are often negative.
        lowest = min((score for score in scores if score is not None), default=0.0)
        normalize = lambda score: lowest if score is None else score  # noqa: E731
    rows = [RankedDocument(i, normalize(score)) for i, score in zip(indices, scores[:result_count], strict=True)]
    for row in rows if dialect.returns_documents(body) else ():
        document, text = documents[row.index], texts[row.index]
        fields = document if isinstance(document, dict) else {}
        row.document = text if dialect.plain_documents else {"text": text, **fields}
    if spans:
        for row, hit in zip(rows, ranking.hits, strict=False):
            row.relevant_spans = span_rows.get(hit.id, [])
    warnings = [*filter(None, (outcome.degraded, outcome.note))]
    if ranking.unscored and (empty := sum(not text.strip() for text in texts)):
        warnings.append(f"{empty} of {len(texts)} documents have no text and are ranked last")
    values = {"id": request.id, "model": model, "created": int(time.time()), "warnings": warnings}
    answer = dialect.make_answer(rows, values, count_tokens=counter.total, candidates=len(texts))
    return Response(answer, outcome=outcome)


def read_texts(documents: Sequence[str | JsonObject], rank_fields: Sequence[str] | None = None) -> list[str]:
    """Return the text of each document: the string itself, or the text fields (or `rank_fields`) of an object."""
    fields = rank_fields or None
    return [item if isinstance(item, str) else read_text(item, fields).text for item in documents]


def score_normalizer(ranking: Ranking) -> Normalizer:
    """Return a function that maps scores to the range 0 to 1 and keeps their order. Unscored documents get 0."""
    records = ranking.trace.by_kind(StageKind.RERANK)
    if records and records[-1].score_scale in ("probability", "cosine"):
        return lambda score: min(1.0, max(0.0, score or 0.0))
    return _sigmoid


def _sigmoid(score: float | None) -> float:
    if score is None:
        return 0.0
    # Each branch keeps exp() from overflowing.
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


class TokenCounter:
    """A scorer that counts the tokens processed by its model."""

    def __init__(self, scorer: Scorer) -> None:
        self.info = describe_scorer(scorer)
        self.name = self.info.name
        self._scorer = scorer
        self._calls: list[tuple[str, Sequence[Hit], int]] = []

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the scorer's scores."""
        scores = await self._scorer.score(query, hits, deadline=deadline)
        self._calls.append((query, hits, scores.tokens or 0))
        return scores

    def total(self) -> int:
        """Return the token count. For scorers that do not count tokens, estimate four characters per token."""
        return sum(
            tokens or sum(len(query) + len(hit.text) for hit in hits) // 4 for query, hits, tokens in self._calls
        )


async def find_relevant_spans(
    scorer: Scorer, query: str, hits: Sequence[Hit], options: SpanOptions, deadline: Deadline, *, normalize: Normalizer
) -> dict[str, list[Span]]:
    """Return the sentences of each hit that reach the threshold, in text order."""
    texts = {hit.id: hit.text for hit in hits}
    sentences = await asyncio.to_thread(lambda: {id: sentence_spans(text) for id, text in texts.items()})
    while long := [id for id, spans in sentences.items() if len(spans) > MAX_SENTENCES]:
        blocks: dict[str, list[Sequence[Position]]] = {}
        for id in long:
            size = -(-len(sentences[id]) // BLOCKS)
            blocks[id] = [sentences[id][i : i + size] for i in range(0, len(sentences[id]), size)]
        edges = {id: [(block[0][0], block[-1][1]) for block in blocks[id]] for id in long}
        block_scores = await _score_parts(scorer, query, texts, edges, deadline)
        for id in long:
            ranked_blocks = sorted((-block_scores.get((id, i), -math.inf), i) for i in range(len(blocks[id])))
            best = sorted(i for _, i in ranked_blocks[:BEST_BLOCKS])
            sentences[id] = [span for i in best for span in blocks[id][i]]
    scores = await _score_parts(scorer, query, texts, sentences, deadline)
    threshold = DEFAULT_THRESHOLD if options.threshold is None else options.threshold
    relevant = {}
    for id, spans in sentences.items():
        scored_spans = [Span(*span, normalize(scores[id, i])) for i, span in enumerate(spans) if (id, i) in scores]
        best_first = sorted(scored_spans, key=lambda span: (-span.score, span.start))
        best_spans = [span for span in best_first if span.score >= threshold][: options.max_spans]
        relevant[id] = sorted(best_spans, key=lambda span: span.start)
    return relevant


async def _score_parts(
    scorer: Scorer, query: str, texts: Mapping[str, str], parts: Mapping[str, Sequence[Position]], deadline: Deadline
) -> dict[tuple[str, int], float]:
    """Return the score of each part of each text, by document id and part number."""
    keys = [(id, i) for id in parts for i in range(len(parts[id]))]
    passages = [texts[id][slice(*parts[id][i])] for id, i in keys]
    hits = [Hit(str(i), passage) for i, passage in enumerate(passages)]
    ranking = await rescore(scorer, query, hits, k=len(hits), deadline=deadline)
    return {keys[i]: score for i, score in zip(ranking.indices(), ranking.scores(), strict=True) if score is not None}


Side = Annotated[list[str], Meta(min_length=1)]


class ScoreRequest(Struct, kw_only=True):
    """Pairs of texts for vLLM's `/score`. A single text on the left is paired with every text on the right."""

    model: ModelName | None = None
    deadline_ms: Milliseconds | None = None


class PairScore(Struct):
    """Score of one pair."""

    index: int
    object: str
    score: float


class ScoreAnswer(Struct):
    """Response of vLLM's `/score`."""

    id: str
    object: str
    created: int
    model: str
    data: list[PairScore]
    usage: Usage


_SIDES: Mapping[tuple[str, str], type[ScoreRequest]] = {
    pair: msgspec.defstruct(name, [(side, str | Side) for side in pair], bases=(ScoreRequest,), kw_only=True)  # type: ignore[misc]  # a subclass of its base
    for name, pair in (
        ("QueriesAndDocuments", ("queries", "documents")),
        ("QueriesAndItems", ("queries", "items")),
        ("TextPairs", ("text_1", "text_2")),
        ("DataPairs", ("data_1", "data_2")),
    )
}
"""Field names that vLLM clients use for the two sides."""


def _score_operation(server: ServerState) -> Operation:
    options = server.options
    readers = {sides: RequestReader(struct, options.limits, strict=options.strict) for sides, struct in _SIDES.items()}

    def parse(data: bytes) -> tuple[tuple[str, str], ScoreRequest]:
        value = parse_json(data, unique_keys=options.strict)
        fields = value if isinstance(value, dict) else {}
        # If no pair of names is complete, the first pair is reported as missing.
        complete = [pair for pair in _SIDES if all(fields.get(name) is not None for name in pair)]
        sides = complete[0] if complete else ("queries", "documents")
        return sides, readers[sides].convert(value)

    async def run(request: Request) -> Response:
        sides, body = await request.read(parse, dialect="vllm-score")
        texts: list[str | list[str]] = [getattr(body, name) for name in sides]
        left, right = ([side] if isinstance(side, str) else side for side in texts)
        if len(left) == 1:
            left = left * len(right)
        if len(left) != len(right):
            raise RequestFailed("invalid", f"{sides[0]} has {len(left)} texts, but {sides[1]} has {len(right)}")
        return await _score_pairs(request, left, right, body)

    types, paths = [reader.type for reader in readers.values()], "/score /v1/score /vllm/score"
    return Operation("POST", paths, "Score pairs of texts (vLLM)", run, types, [ScoreAnswer], errors=[OPENAI])


async def _score_pairs(request: Request, left: Sequence[str], right: Sequence[str], body: ScoreRequest) -> Response:
    model, scorer = request.server.model(body.model)
    deadline = request.deadline(body.deadline_ms)
    pairs = sum(count_pairs([text], query) for query, text in zip(left, right, strict=True))
    scores = [0.0] * len(right)
    counter = TokenCounter(scorer)
    outcome = Outcome()
    positions: dict[str, list[int]] = {}
    for i, query in enumerate(left):
        positions.setdefault(query, []).append(i)
    async with request.admit(pairs, len(right), deadline):
        for query, indices in positions.items():
            hits = [Hit(str(i), right[i]) for i in indices]
            ranking = await rescore(counter, query, hits, k=len(hits), deadline=deadline)
            outcome = outcome.merge(Outcome.from_ranking(ranking))
            # A list of scores has no fallback order, so the request fails if no pair was scored.
            if len(ranking.unscored) == len(hits) and any(hit.text.strip() for hit in hits):
                raise RequestFailed("upstream", f"No pair was scored: {ranking.reason}")
            normalize = score_normalizer(ranking)
            for i, score in zip(ranking.indices(), ranking.scores(), strict=True):
                scores[indices[i]] = normalize(score)
    tokens = counter.total()
    rows = [PairScore(i, "score", score) for i, score in enumerate(scores)]
    answer = ScoreAnswer(request.id, "list", int(time.time()), model, rows, Usage(tokens, tokens))
    return Response(answer, outcome=outcome)
