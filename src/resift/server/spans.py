"""Which sentences of a document answer the query: Cohere's `relevant_spans`, from the scorer that ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from resift.deadline import Deadline
from resift.protocols import Scorer
from resift.rerankers.rescore import rescore
from resift.text.sentences import sentence_spans
from resift.types import Hit, JsonObject

MOST_SENTENCES = 32
"""Sentences of one document that are scored one by one. Longer documents are narrowed down to as many."""

BLOCKS, KEPT_BLOCKS = 16, 4
"""A long document is read in so many blocks, and only the best of them are looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanOptions:
    """Least score of a span, and how many at most per document."""

    threshold: float = 0.1
    most: int | None = None


Span = tuple[int, int]


async def relevant_spans(
    scorer: Scorer,
    query: str,
    hits: Sequence[Hit],
    options: SpanOptions,
    *,
    unit: Callable[[float | None], float],
    deadline: Deadline,
) -> Mapping[str, list[JsonObject]]:
    """Return for each hit its sentences that score at least the threshold, in the order of the text."""
    candidates = {hit.id: sentence_spans(hit.text) for hit in hits}
    by_id = {hit.id: hit for hit in hits}
    while long := [id for id, spans in candidates.items() if len(spans) > MOST_SENTENCES]:
        blocks = {id: _blocks(candidates[id]) for id in long}
        wholes = {id: [(block[0][0], block[-1][1]) for block in blocks[id]] for id in long}
        scored = await _scores(scorer, query, by_id, wholes, deadline)
        for id in long:
            candidates[id] = _narrowed(id, blocks[id], scored)
    found = await _scores(scorer, query, by_id, candidates, deadline)
    return {id: _chosen(id, spans, found, options, unit) for id, spans in candidates.items()}


def _chosen(
    id: str,
    spans: Sequence[Span],
    found: Mapping[tuple[str, int], float],
    options: SpanOptions,
    unit: Callable[[float | None], float],
) -> list[JsonObject]:
    scored = [
        {"start": start, "end": end, "score": unit(found[id, at])}
        for at, (start, end) in enumerate(spans)
        if (id, at) in found
    ]
    good = [span for span in scored if span["score"] >= options.threshold]
    best = sorted(good, key=lambda span: (-span["score"], span["start"]))[: options.most]
    return sorted(best, key=lambda span: span["start"])


async def _scores(
    scorer: Scorer,
    query: str,
    hits: Mapping[str, Hit],
    spans: Mapping[str, Sequence[Span]],
    deadline: Deadline,
) -> dict[tuple[str, int], float]:
    parts = [(id, at, hits[id].text[start:end]) for id in spans for at, (start, end) in enumerate(spans[id])]
    asked = [Hit(str(number), text) for number, (_, _, text) in enumerate(parts)]
    ranking = await rescore(scorer, query, asked, k=len(asked), deadline=deadline)
    return {
        parts[at][:2]: score
        for at, score in zip(ranking.indices(), ranking.scores(), strict=True)
        if score is not None
    }


def _blocks(spans: Sequence[Span]) -> list[Sequence[Span]]:
    size = -(-len(spans) // BLOCKS)
    return [spans[at : at + size] for at in range(0, len(spans), size)]


def _narrowed(
    id: str, blocks: Sequence[Sequence[Span]], scored: Mapping[tuple[str, int], float]
) -> list[Span]:
    best = sorted(range(len(blocks)), key=lambda at: (-scored.get((id, at), -math.inf), at))
    return [span for at in sorted(best[:KEPT_BLOCKS]) for span in blocks[at]]
