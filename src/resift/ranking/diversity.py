"""Diversity of the top k: maximal marginal relevance, duplicates, and quotas per document or source."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from resift._internal.arrays import Vector
from resift.errors import InputError
from resift.events import Sink
from resift.ranking.blend import ShapeResult, shape_result
from resift.text import jaccard
from resift.text.tokenization import words
from resift.types import Hit
from resift.validation import check_k, check_options, option

_OPENING_WORDS = 2


def mmr(
    hits: Sequence[Hit],
    *,
    k: int,
    trade_off: float = 0.7,
    vectors: Mapping[str, Vector] | None = None,
    sink: Sink | None = None,
) -> ShapeResult:
    """Choose k hits by trade_off × relevance − (1 − trade_off) × similarity (Carbonell and Goldstein, 1998).

    Relevance is the score, scaled to 0–1 over the hits. Similarity is the cosine of the vectors (at least 0),
    or the Jaccard similarity of the words if a vector is missing. The other hits follow in their previous
    order. A trade_off of 1 changes nothing.
    """
    check_k(k)
    if not 0 <= trade_off <= 1:
        raise InputError(f"trade_off is {trade_off}; pass a number from 0 (novelty only) to 1 (relevance only).")
    similarity = _similarity_function(hits, vectors or {})
    scores = [hit.score for hit in hits if hit.score is not None]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    relevance = [1.0] * len(hits)
    if high > low:
        relevance = [0.0 if hit.score is None else (hit.score - low) / (high - low) for hit in hits]
    chosen = list(range(len(hits)))[:k] if trade_off == 1 else _choose(relevance, k, trade_off, similarity)
    chosen_set = set(chosen)
    order = [*chosen, *(i for i in range(len(hits)) if i not in chosen_set)]
    return shape_result("mmr", hits, [hits[i] for i in order], sink=sink)


def _choose(relevance: Sequence[float], k: int, trade_off: float, similarity: Callable[[int, int], float]) -> list[int]:
    """Return the positions of k hits, chosen greedily."""
    # Similarity never decreases with further choices, so a value from an earlier round is an upper bound, and
    # most candidates are never compared again (lazy greedy; Minoux, 1978).
    bound = [trade_off * value for value in relevance]
    similarities = [0.0] * len(relevance)
    compared = [0] * len(relevance)
    remaining = list(range(len(relevance)))
    chosen: list[int] = []
    while remaining and len(chosen) < k:
        remaining.sort(key=lambda i: -bound[i])  # stable, so equal values keep their order
        best, best_value = -1, -math.inf
        for i in remaining:
            if bound[i] < best_value:
                break
            similarities[i] = max([similarities[i], *(similarity(i, other) for other in chosen[compared[i] :])])
            compared[i] = len(chosen)
            bound[i] = trade_off * relevance[i] - (1 - trade_off) * similarities[i]
            if bound[i] > best_value or (bound[i] == best_value and i < best):
                best, best_value = i, bound[i]
        chosen.append(best)
        remaining.remove(best)
    return chosen


def _similarity_function(hits: Sequence[Hit], vectors: Mapping[str, Vector]) -> Callable[[int, int], float]:
    units = [_unit(vectors.get(hit.id)) for hit in hits]
    bags: dict[int, frozenset[str]] = {}

    def bag(i: int) -> frozenset[str]:
        if i not in bags:
            bags[i] = frozenset(words(hits[i].text))
        return bags[i]

    def similarity(first: int, second: int) -> float:
        left, right = units[first], units[second]
        if left is None or right is None:
            return jaccard(bag(first), bag(second))
        # Opposite vectors are not more novel than orthogonal ones.
        return max(0.0, _dot(left, right))

    return similarity


def _dot(left: Vector, right: Vector) -> float:
    if isinstance(left, Sequence):
        return math.fsum(a * b for a, b in zip(left, right, strict=True))
    return float(left.dot(right))


def _unit(vector: Vector | None) -> Vector | None:
    length = 0.0 if vector is None else math.sqrt(_dot(vector, vector))
    if vector is None or length == 0:
        return None
    return [value / length for value in vector] if isinstance(vector, Sequence) else vector / length


def fold(hits: Sequence[Hit], *, threshold: float = 1.0, sink: Sink | None = None) -> ShapeResult:
    """Keep the first hit of each group with equal texts; the others are moved to `cut`.

    The kept hit lists the others in metadata["folded"], with the id, source and metadata of each. A threshold
    of 1.0 means the same words in the same order, ignoring case and spacing. A lower threshold is the Jaccard
    similarity of the word sets. Hits without text are never folded.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold is {threshold}; pass a similarity greater than 0 and at most 1.")
    leaders = _first_equal(hits) if threshold == 1 else _first_similar(hits, threshold)
    groups: dict[int, list[int]] = {}
    for i, leader in enumerate(leaders):
        groups.setdefault(leader, []).append(i)
    notes: dict[str, str] = {}
    kept: list[Hit] = []
    for first, *others in groups.values():
        hit = hits[first]
        if others:
            notes[hit.id] = f"represents {len(others)} more with the same text"
            notes |= {hits[i].id: f"same text as {hit.id!r}" for i in others}
            duplicates = [hits[i] for i in others]
            folded = [{"id": each.id, "source": each.source, "metadata": dict(each.metadata)} for each in duplicates]
            hit = hit.with_metadata(folded=[*hit.metadata.get("folded", ()), *folded])
        kept.append(hit)
    cut = [hit for i, hit in enumerate(hits) if leaders[i] != i]
    return shape_result("fold", hits, kept, cut, hit_notes=notes, sink=sink)


def _first_equal(hits: Sequence[Hit]) -> list[int]:
    """Return for each hit the position of the first hit with the same normalized text."""
    leaders = list(range(len(hits)))
    # Equal texts start with the same words, so most texts can be distinguished without normalizing them.
    starts = [" ".join(hit.text.split(None, _OPENING_WORDS)[:_OPENING_WORDS]).casefold() for hit in hits]
    openings: dict[str, list[int]] = {}
    for i, opening in enumerate(starts):
        openings.setdefault(opening, []).append(i)
    for opening, members in openings.items():
        if not opening or len(members) == 1:
            continue
        first: dict[str, int] = {}
        for i in members:
            leaders[i] = first.setdefault(" ".join(hits[i].text.casefold().split()), i)
    return leaders


def _first_similar(hits: Sequence[Hit], threshold: float) -> list[int]:
    """Return for each hit the position of the first kept hit whose words are similar enough.

    If two sets reach the threshold, the rarest (1 − threshold) of the words of each have a word in common. So
    only hits that share such a word are compared (prefix filtering; Bayardo et al., 2007).
    """
    bags = [frozenset(words(hit.text)) for hit in hits]
    frequency: dict[str, int] = {}
    for bag in bags:
        for word in bag:
            frequency[word] = frequency.get(word, 0) + 1
    leaders = list(range(len(hits)))
    index: dict[str, list[int]] = {}
    for i, bag in enumerate(bags):
        rare = sorted(bag, key=lambda word: (frequency[word], word))
        prefix = rare[: len(rare) - int(threshold * len(rare)) + 1]
        candidates = sorted({j for word in prefix for j in index.get(word, ())})
        leader = next((j for j in candidates if jaccard(bags[j], bag) >= threshold), None)
        if leader is not None:
            leaders[i] = leader
            continue
        for word in prefix:
            index.setdefault(word, []).append(i)
    return leaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Maximum and minimum number of hits with the same value of a metadata key among the top k.

    `at_most` is a number and `share` is a fraction of k (rounded up); the smaller limit applies. `at_least`
    applies to every value among the hits, and `required` to specific values. A hit without the key counts
    under its source, under its id, or not at all (`absent`).
    """

    key: str = option("The metadata key, such as document or source_type.")
    at_most: int | None = option("Maximum number of hits with the same value.", default=None, min=1)
    share: float | None = option("Maximum share of k for one value.", default=None, gt=0, max=1)
    at_least: int = option("Minimum number of hits for each value.", default=0, min=0)
    required: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    absent: Literal["source", "id", "exempt"] = option("Value for a hit without the key.", default="source")

    def __post_init__(self) -> None:
        check_options(self)
        if any(number < 0 for number in self.required.values()):
            raise InputError("`required` of a Quota must be 0 or more for each value.")

    def value(self, hit: Hit) -> str | None:
        """Return the value that a hit counts under, or None if the quota does not apply to it."""
        value = hit.metadata.get(self.key)
        if value is not None and value != "":
            return value if type(value) is str else str(value)
        if self.absent == "source":
            return hit.source
        return f"id:{hit.id}" if self.absent == "id" else None

    def cap(self, k: int) -> int:
        """Return the maximum number of hits with the same value among k."""
        by_share = k if self.share is None else math.ceil(self.share * k)
        return min(k, by_share, k if self.at_most is None else self.at_most)


FAIRNESS = Quota(key="document", share=0.5, absent="id")  # at most half of the hits may come from one document

DIVERSITY = Quota(key="source_type", at_least=1, absent="source")  # every source type must have at least one hit


def balance(
    hits: Sequence[Hit],
    *,
    k: int,
    quotas: Sequence[Quota] = (FAIRNESS, DIVERSITY),
    protected: Collection[str] | Mapping[str, str] = (),
    sink: Sink | None = None,
) -> ShapeResult:
    """Reorder the hits so that the top k satisfy the quotas and contain the protected ids; no hit is dropped.

    Chosen hits keep their relative order, and so do the others after them. `protected` may map an id to the
    reason that is recorded if the hit moves up. A single quota, or nested quotas (each document has one source
    type), are met whenever possible. Other quotas may be relaxed; `notes` and the record list these cases.
    """
    check_k(k)
    slots = min(k, len(hits))
    table = _QuotaTable(hits, quotas, k)
    chosen = [i for i, hit in enumerate(hits) if hit.id in protected][:slots] if protected else []
    for i in chosen:
        table.take(i)
    _fill(hits, table, chosen, slots)
    chosen_set = set(chosen)
    if len(chosen) < slots:
        more = [i for i in range(len(hits)) if i not in chosen_set][: slots - len(chosen)]
        chosen_set.update(more)
    first = sorted(chosen_set)
    general, single = _notes(hits, first, quotas, k)
    if isinstance(protected, Mapping):
        single |= {hits[i].id: protected[hits[i].id] for i in first if i >= k and hits[i].id in protected}
    order = [hits[i] for i in first] + [hit for i, hit in enumerate(hits) if i not in chosen_set]
    return shape_result(
        "balance", hits, order, notes=general, hit_notes=single, protected=frozenset(protected), sink=sink
    )


class _QuotaTable:
    """Number of chosen and of still required hits per value."""

    def __init__(self, hits: Sequence[Hit], quotas: Sequence[Quota], k: int) -> None:
        columns = [[quota.value(hit) for hit in hits] for quota in quotas]
        self.values = list(zip(*columns, strict=True)) if columns else [()] * len(hits)
        self.caps = [quota.cap(k) for quota in quotas]
        self.taken: list[Counter[str | None]] = [Counter() for _ in quotas]
        self.required = [self._required(number, quota) for number, quota in enumerate(quotas)]
        self.unmet = sum(sum(counts.values()) for counts in self.required)

    def _required(self, number: int, quota: Quota) -> dict[str | None, int]:
        """Return the number of required hits per value, limited by the caps."""
        if not quota.at_least and not quota.required:
            return {}
        present = Counter(row[number] for row in self.values)
        present.pop(None, None)
        required: dict[str | None, int] = {}
        for value, size in present.items():
            wanted = min(size, self.caps[number], max(quota.at_least, quota.required.get(str(value), 0)))
            # One hit is always possible; more may exceed the cap of another quota.
            required[value] = wanted if wanted <= 1 else min(wanted, self._available(number, value))
        return required

    def _available(self, number: int, value: str | None) -> int:
        rows = [row for row in self.values if row[number] == value]
        available = len(rows)
        for other, cap in enumerate(self.caps):
            if other != number:
                sizes = Counter(row[other] for row in rows)
                available = min(available, sum(n if key is None else min(n, cap) for key, n in sizes.items()))
        return available

    def fits(self, i: int) -> bool:
        """Whether the hit can be chosen, because none of its values has reached its cap."""
        return all(
            value is None or self.taken[number][value] < self.caps[number]
            for number, value in enumerate(self.values[i])
        )

    def is_required(self, i: int) -> bool:
        """Whether more hits are required for one of the hit's values."""
        return any(self.required[number].get(value, 0) > 0 for number, value in enumerate(self.values[i]))

    def take(self, i: int) -> None:
        """Count the hit as chosen."""
        for number, value in enumerate(self.values[i]):
            self.taken[number][value] += 1
            if self.required[number].get(value, 0) > 0:
                self.required[number][value] -= 1
                self.unmet -= 1


def _fill(hits: Sequence[Hit], table: _QuotaTable, chosen: list[int], slots: int) -> None:
    """Choose hits in order, as long as enough slots remain for the required hits."""
    protected = set(chosen)
    waiting: deque[int] = deque()
    for i in range(len(hits)):
        if i in protected:
            continue
        waiting.append(i)
        if table.is_required(i) and table.fits(i) and len(chosen) < slots:
            waiting.pop()
            table.take(i)
            chosen.append(i)
        # Hits that were skipped come before all later hits.
        while waiting and slots - len(chosen) > table.unmet:
            first = waiting.popleft()
            if table.fits(first):
                table.take(first)
                chosen.append(first)


def _notes(
    hits: Sequence[Hit], first: Sequence[int], quotas: Sequence[Quota], k: int
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return notes on the quotas that the top k violate, in general and per hit."""
    general: list[str] = []
    single: dict[str, str] = {}
    for quota in quotas:
        cap, seen = quota.cap(k), Counter[str]()
        for i in first:
            value = quota.value(hits[i])
            if value is None:
                continue
            seen[value] += 1
            if seen[value] > cap:
                single[hits[i].id] = f"quota relaxed: more than {cap} of {quota.key} {value!r}"
        general += [f"{quota.key} {v!r}: {n} of at most {cap}" for v, n in sorted(seen.items()) if n > cap]
        wanted = dict(quota.required)
        if quota.at_least:
            for name in {quota.value(hit) for hit in hits} - {None}:
                wanted[str(name)] = max(quota.at_least, wanted.get(str(name), 0))
        general += [f"{quota.key} {v!r}: {seen[v]} of at least {n}" for v, n in sorted(wanted.items()) if seen[v] < n]
    return tuple(general), single
