"""Keep the sentences that answer the query, scored by a reranker, with their offsets.

Each sentence of the passages is scored like a document. A sentence is kept if its relevance is at least
`threshold` times that of the best sentence, and if it fits into the budget. The order of the text is preserved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from resift.deadline import Deadline
from resift.errors import redact
from resift.protocols import Scorer, describe_scorer, display_name
from resift.ranking import context
from resift.ranking.context import Passage, PassageReader, Piece, PromptContext, TokenCounter, estimate_tokens
from resift.text.tokenization import sentence_spans
from resift.types import Hit, Ranking, ScoreScale
from resift.validation import check_callable, check_k, check_seconds, option

MAX_SENTENCES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """Options of pruning."""

    max_tokens: int | None = option(
        "Maximum number of tokens in all kept sentences; no limit by default.", default=None, min=1
    )
    threshold: float = option(
        "Keep sentences with at least this fraction of the best sentence's relevance.", default=0.1, min=0, max=1
    )
    max_sentences: int = option(
        "Maximum number of sentences that are scored; passages after them are not shortened.",
        default=MAX_SENTENCES,
        min=1,
    )


async def prune(
    query: str,
    passages: Sequence[Passage],
    scorer: Scorer,
    *,
    options: PruneOptions | None = None,
    count: TokenCounter = estimate_tokens,
    deadline: Deadline | None = None,
) -> tuple[list[Passage], str | None]:
    """Return passages with only the sentences that answer the query, and the reason if some could not be scored."""
    policy = options or PruneOptions()
    units, n_split = _split(passages, policy.max_sentences)
    if not units:
        return list(passages), None
    sentences = [Hit(f"{i}", unit.piece.text[unit.start : unit.end]) for i, unit in enumerate(units)]
    name = display_name(scorer)
    try:
        scores = await scorer.score(query, sentences, deadline=deadline or Deadline.never())
    # Catches all exceptions: the scorer may be third-party code, and complete passages are better than none.
    except Exception as exc:
        return list(passages), f"prune: {name} failed: {redact(exc)}"
    if len(scores.values) != len(units) or any(value is None or not math.isfinite(value) for value in scores.values):
        return list(passages), f"prune: {scores.reason or f'{name} did not score every sentence'}"
    scale = (scores.scorer or describe_scorer(scorer)).score_scale
    relevance = to_relevance([value or 0.0 for value in scores.values], scale)
    limit = policy.threshold * max(relevance)
    best_first = sorted(range(len(units)), key=lambda i: (-relevance[i], i))
    kept: set[int] = set()
    result: list[Passage] = list(passages[n_split:])
    for i in best_first:
        if kept and relevance[i] < limit:
            break
        attempt = [*_rebuild(passages, units, kept | {i}), *passages[n_split:]]
        if policy.max_tokens is None or context.passage_tokens(attempt, count) <= policy.max_tokens:
            kept.add(i)
            result = attempt
    if n_split == len(passages):
        return result, None
    return result, f"prune: {len(passages) - n_split} of {len(passages)} passages were not scored"


class _Unit(NamedTuple):
    """One sentence of a piece."""

    passage: int
    piece: Piece
    start: int
    end: int


def _split(passages: Sequence[Passage], max_sentences: int) -> tuple[list[_Unit], int]:
    """Return the sentences of as many passages as the limit allows, and the number of these passages."""
    units: list[_Unit] = []
    for i, passage in enumerate(passages):
        sentences = [
            _Unit(i, piece, start, end) for piece in passage.pieces for start, end in sentence_spans(piece.text)
        ]
        if i and len(units) + len(sentences) > max_sentences:
            return units, i
        units += sentences[:max_sentences]
    return units, len(passages)


def _rebuild(passages: Sequence[Passage], units: Sequence[_Unit], kept: set[int]) -> list[Passage]:
    """Return the passages with only these sentences; adjacent sentences of a chunk form one piece."""
    pieces: dict[int, list[Piece]] = {}
    last = -2
    for i in sorted(kept):
        unit = units[i]
        kept_pieces = pieces.setdefault(unit.passage, [])
        start = unit.start
        if kept_pieces and i == last + 1 and units[last].piece is unit.piece:
            start = kept_pieces.pop().start - unit.piece.start
        text = unit.piece.text[start : unit.end]
        kept_pieces.append(Piece(unit.piece.id, text, unit.piece.start + start, unit.piece.start + unit.end))
        last = i
    return [
        Passage(passages[i].ids, tuple(kept_pieces), passages[i].document, passages[i].title)
        for i, kept_pieces in sorted(pieces.items())
    ]


def count_sentences(before: Sequence[Passage], after: Sequence[Passage]) -> dict[str, tuple[int, int]]:
    """Return the number of sentences in the passage of each hit after and before pruning."""

    def count(passages: Sequence[Passage]) -> dict[str, int]:
        return {
            id: sum(len(sentence_spans(piece.text)) for piece in passage.pieces)
            for passage in passages
            for id in passage.ids
        }

    kept = count(after)
    return {id: (kept.get(id, 0), total) for id, total in count(before).items()}


def to_relevance(values: Sequence[float], scale: ScoreScale) -> list[float]:
    """Return scores from 0 to 1: logits through the logistic function, cosines clamped, others scaled by range."""
    if scale == "logit":
        return [1 / (1 + math.exp(-value)) if value > -700 else 0.0 for value in values]
    if scale in ("probability", "cosine"):
        return [min(max(value, 0.0), 1.0) for value in values]
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


PRUNED_SHARE = 4  # before pruning, passages may contain this many times the tokens of the context


async def make_context(
    ranking: Ranking,
    *,
    max_tokens: int,
    neighbors: int,
    parents: bool,
    prune_sentences: bool,
    count_tokens: TokenCounter | None,
    deadline_s: float | None,
) -> PromptContext:
    """Return the context of a ranking; see `Ranking.context`."""
    check_k(max_tokens, name="max_tokens", min=1)
    check_k(neighbors, name="neighbors")
    if count_tokens is not None:
        check_callable(count_tokens, "count_tokens", "a function from a text to its number of tokens")
    deadline = Deadline.after(check_seconds(deadline_s))
    reader = ranking.reader or PassageReader()
    counter = count_tokens or reader.token_counter()
    count = counter or estimate_tokens
    reason = None
    passages: Sequence[Passage] = ranking.passages
    room = max_tokens * PRUNED_SHARE if prune_sentences else max_tokens
    if not passages:
        options = context.ContextOptions(max_tokens=room, neighbors=neighbors, parents=parents)
        passages, reason = await context.read_passages(ranking.hits, reader, options, count=count, deadline=deadline)
    if prune_sentences and passages:
        if reader.scorer is None:
            reason = reason or "prune: this ranking has no reranker to score sentences with"
        else:
            rules = PruneOptions(max_tokens=max_tokens)
            passages, failure = await prune(
                ranking.query, passages, reader.scorer, options=rules, count=count, deadline=deadline
            )
            reason = failure or reason
    passages = context.shorten(passages, max_tokens=max_tokens, count=count)
    return context.render(
        passages, max_tokens=max_tokens, count=count, estimated=counter is None, hits=ranking.ids, reason=reason
    )
