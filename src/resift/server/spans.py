"""Cohere's `relevant_spans`: the sentences of a document that answer the query, by the scorer that ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from resift.deadline import Deadline
from resift.protocols import Scorer
from resift.rerankers.rescore import rescore
from resift.server.dialects import Span, SpanOptions
from resift.text.sentences import sentence_spans
from resift.types import Hit

MAX_SENTENCES = 32
"""Sentences of one document that are scored one by one. Longer documents are narrowed down to this many."""

BLOCKS, BEST_BLOCKS = 16, 4
"""A long document is scored in this many blocks, and only the best of them are searched further."""

DEFAULT_THRESHOLD = 0.1

Position = tuple[int, int]


async def find_relevant_spans(
    scorer: Scorer,
    query: str,
    hits: Sequence[Hit],
    options: SpanOptions,
    *,
    normalize: Callable[[float | None], float],
    deadline: Deadline,
) -> dict[str, list[Span]]:
    """Return per hit the sentences that score at least the threshold, in the order of the text."""
    texts = {hit.id: hit.text for hit in hits}
    sentences = {id: sentence_spans(text) for id, text in texts.items()}
    while long := [id for id, spans in sentences.items() if len(spans) > MAX_SENTENCES]:
        blocks = {id: _split_into_blocks(sentences[id]) for id in long}
        edges = {id: [(block[0][0], block[-1][1]) for block in blocks[id]] for id in long}
        block_scores = await _score_parts(scorer, query, texts, edges, deadline)
        for id in long:
            ranked = sorted((-block_scores.get((id, i), -math.inf), i) for i in range(len(blocks[id])))
            best = sorted(i for _, i in ranked[:BEST_BLOCKS])
            sentences[id] = [span for i in best for span in blocks[id][i]]
    scores = await _score_parts(scorer, query, texts, sentences, deadline)
    threshold = DEFAULT_THRESHOLD if options.threshold is None else options.threshold
    relevant = {}
    for id, spans in sentences.items():
        scored = [
            Span(start, end, normalize(scores[id, i]))
            for i, (start, end) in enumerate(spans)
            if (id, i) in scores
        ]
        relevant_spans = sorted(
            (span for span in scored if span.score >= threshold), key=lambda span: (-span.score, span.start)
        )
        relevant[id] = sorted(relevant_spans[: options.max_spans], key=lambda span: span.start)
    return relevant


def _split_into_blocks(spans: Sequence[Position]) -> list[Sequence[Position]]:
    size = -(-len(spans) // BLOCKS)
    return [spans[i : i + size] for i in range(0, len(spans), size)]


async def _score_parts(
    scorer: Scorer,
    query: str,
    texts: Mapping[str, str],
    parts: Mapping[str, Sequence[Position]],
    deadline: Deadline,
) -> dict[tuple[str, int], float]:
    """Return the score of each part of each text, by id and number of the part."""
    keys = [(id, i) for id in parts for i in range(len(parts[id]))]
    passages = [texts[id][slice(*parts[id][i])] for id, i in keys]
    hits = [Hit(str(i), passage) for i, passage in enumerate(passages)]
    ranking = await rescore(scorer, query, hits, k=len(hits), deadline=deadline)
    return {
        keys[i]: score
        for i, score in zip(ranking.indices(), ranking.scores(), strict=True)
        if score is not None
    }
