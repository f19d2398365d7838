"""Weighted fusion, the default order's first stage: z-scores over the pool, each list by its trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Unpack

from resift.ranking.adaptive_weights import (
    CODE_DENSITY,
    MEAN_WORD_LENGTH,
    Trust,
    list_weights,
    text_evidence,
    weights_in_words,
)
from resift.ranking.fusion.fusion_options import WeightedOptions
from resift.ranking.fusion.lists import ListOptions, RankedList, Rankings, labels, prepare
from resift.ranking.fusion.totals import fuse_values
from resift.ranking.scaling import list_z_scores
from resift.types import Fused, Hit
from resift.validation import check_k, check_list

NAME = "weighted"

ONE_SCALE = 20
"""Best scores of two lists of one kind that differ by more than this factor are of different scales."""

_TRUST = Trust()  # made once: its numbers are checked whenever one is made

SAMPLED = 10
"""How many of the first hits of each list are looked at to tell prose from code."""


def weighted(
    rankings: Rankings,
    *,
    searched: Sequence[str] = (),
    trust: Trust | None = None,
    marks: float | None = None,
    letters: float | None = None,
    **options: Unpack[ListOptions],
) -> Fused:
    """Fuse by the weighted mean of each list's z-scores over the pool.

    How much a list counts follows from how it was found (`searched`: "doc", "vector" or anything else, one
    per list) and from what kind of texts these are (`marks` per word, read from the texts unless given; their
    `letters` per word go into the record, where the blend finds them).
    Lists found in the same way that share no hit, and whose scores are of one scale, are parts of one
    collection: their scores are compared as they are, so the source that answers the question comes forward.
    Lists that are equal count as one. `weights` are factors of one's own on top.
    """
    rules = trust or _TRUST
    lists = prepare(
        check_list(rankings, "rankings", "ranked lists"),
        weights=options.get("weights"),
        sources=options.get("sources"),
        identity=options.get("identity", "id"),
        searched=searched,
    )
    lists = [ranked for ranked in lists if ranked.hits]
    if marks is None or letters is None:
        measured_marks, measured_letters = text_evidence(_first_texts(lists))
        marks = measured_marks if marks is None else marks
        letters = measured_letters if letters is None else letters
    groups = _groups(lists)
    by_group = list_weights([group.searched for group in groups], rules, marks=marks)
    values: list[list[float]] = [[] for _ in lists]
    counts = [0.0] * len(lists)
    ids: dict[str, Hit] = {}
    for ranked in lists:
        ids |= ranked.hits
    lengths = [len({key for at in group.copies for key in lists[at].hits}) for group in groups]
    for group, weight, length in zip(groups, by_group, lengths, strict=True):
        # Words that found less than others have nothing more that matches.
        ended = group.searched == "doc" and length < max(lengths)
        column = _column([lists[at] for at in group.copies], list(ids), ended=ended)
        for at, copies in group.copies.items():
            # Equal lists share one weight.
            count = counts[at] = lists[at].weight * weight / copies
            values[at] = [count * column[key] for key in lists[at].hits]
    counted = dict(zip(labels([ranked.name for ranked in lists]), counts, strict=True))
    evidence = {CODE_DENSITY: marks}
    if letters is not None:  # None: too little text to tell how long words are
        evidence[MEAN_WORD_LENGTH] = letters
    return fuse_values(
        lists,
        values,
        name=NAME,
        k=options.get("k"),
        weights=counted,
        evidence=evidence,
        note=weights_in_words(counted, rules, marks=marks),
    )


class WeightedReranker:
    """Weighted fusion behind the Reranker protocol; a pipeline says how each list was found.

    `marks` and `letters` per word of the texts are for callers who know them without the texts.
    """

    name = NAME
    requires: tuple[str, ...] = ()
    Options = WeightedOptions

    def __init__(
        self,
        *,
        vectors: float | None = None,
        trust: Trust | None = None,
        **options: Unpack[ListOptions],
    ) -> None:
        rules = trust or Trust()
        self.trust = rules if vectors is None else replace(rules, vectors=vectors)
        self.options = options
        self.marks: float | None = None
        self.letters: float | None = None

    async def fuse(
        self,
        per_store: Sequence[Sequence[Hit]],
        *,
        k: int,
        query: str | None = None,
        searched: Sequence[str] = (),
    ) -> Fused:
        """Return the best k of the fused lists; the query is not needed."""
        options: ListOptions = {**self.options, "k": check_k(k)}
        return weighted(
            per_store,
            searched=searched,
            trust=self.trust,
            marks=self.marks,
            letters=self.letters,
            **options,
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """Lists, by place, that are parts of one collection, and how often each of them is there."""

    searched: str
    copies: Mapping[int, int]


def _groups(lists: Sequence[RankedList]) -> list[_Group]:
    groups: list[_Group] = []
    for kind in dict.fromkeys(ranked.searched for ranked in lists):
        places = [at for at, ranked in enumerate(lists) if ranked.searched == kind]
        if len(places) == 1:
            groups.append(_Group(kind, {places[0]: 1}))
            continue
        alike: dict[object, list[int]] = {}
        for at in places:
            # A store that is declared twice must not count twice.
            hits = lists[at].hits
            content = (tuple(hits), tuple([hit.score for hit in hits.values()]))
            alike.setdefault(content, []).append(at)
        copies = [dict.fromkeys(same, len(same)) for same in alike.values()]
        pairs = combinations([lists[same[0]] for same in alike.values()], 2)
        # What was found in an unknown way has an unknown scale.
        if kind and all(_apart(*pair) for pair in pairs):
            copies = [{at: count for one in copies for at, count in one.items()}]
        groups += [_Group(kind, one) for one in copies]
    return groups


def _apart(one: RankedList, other: RankedList) -> bool:
    """Whether two lists found in the same way share no hit and their scores are of one scale, as far as told.

    The best scores of two sources differ where one of them answers; by more than a factor of 20 they differ
    between scales.
    """
    scores = [[hit.score for hit in ranked.hits.values() if hit.score is not None] for ranked in (one, other)]
    if any(len(known) < len(ranked.hits) for known, ranked in zip(scores, (one, other), strict=True)):
        return False
    if not one.hits.keys().isdisjoint(other.hits):
        return False
    less, more = sorted([max(scores[0]), max(scores[1])])
    return less > 0 and more <= ONE_SCALE * less


def _column(lists: Sequence[RankedList], ids: Sequence[str], *, ended: bool) -> dict[str, float]:
    """Return per id how many standard deviations it is above what the lists lack."""
    scores: dict[str, float | None] = {}
    ranks: dict[str, int] = {}
    for ranked in lists:
        scores |= {key: hit.score for key, hit in ranked.hits.items()}
        ranks |= zip(ranked.hits, ranked.ranks, strict=True)
    values = list_z_scores([ranks.get(id) for id in ids], [scores.get(id) for id in ids], ended=ended)
    # Counted from the lowest, so that a list adds nothing to a hit that it lacks.
    floor = min(values)
    return {id: value - floor for id, value in zip(ids, values, strict=True)}


def _first_texts(lists: Sequence[RankedList]) -> list[str]:
    found: dict[str, Hit] = {}
    for ranked in lists:
        found |= {hit.id: hit for hit in islice(ranked.hits.values(), SAMPLED)}
    # By id, so that the order of the lists changes no float of the sums over texts.
    return [found[id].text for id in sorted(found)]
