"""Weighted fusion, the first stage of the default order: z-scores over the pool, with adaptive weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Literal, Unpack

from resift.ranking.adaptive_weights import (
    CODE_DENSITY,
    MEAN_WORD_LENGTH,
    AdaptiveWeights,
    describe_weights,
    list_weights,
    text_evidence,
)
from resift.ranking.fusion.lists import (
    ListOptions,
    RankedList,
    Rankings,
    fuse_values,
    prepare_lists,
    unique_labels,
)
from resift.ranking.scaling import list_z_scores
from resift.types import FusedHits, Hit
from resift.types.trace import RETRIEVAL_MODES
from resift.validation import Options, check_k, check_list, option

NAME = "weighted"

MAX_SCALE_RATIO = 20
"""Lists of one retrieval mode whose best scores differ by a larger factor have different scales."""

TEXTS_PER_LIST = 10
"""How many of the first texts of each list are read to distinguish prose from code."""

_DEFAULTS = AdaptiveWeights()  # made once: every construction checks its numbers


def weighted(
    rankings: Rankings,
    *,
    k: int | None = None,
    retrieval_modes: Sequence[str] = (),
    adaptive_weights: AdaptiveWeights | None = None,
    code_density: float | None = None,
    mean_word_length: float | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse by the weighted mean of each list's z-scores over the pool.

    The weight of a list depends on its retrieval mode (one per list) and on the kind of texts: on their
    `code_density`, which is measured unless given. Their `mean_word_length` goes into the record for the
    blend. Lists of the same retrieval mode that share no hit and have one score scale are parts of one
    collection: their scores are compared directly, so the source that matches the query ranks first. Equal
    lists count as one. `weights` are additional factors.
    """
    rules = adaptive_weights or _DEFAULTS
    modes = [RETRIEVAL_MODES.get(mode, mode) for mode in retrieval_modes]
    prepared = prepare_lists(
        check_list(rankings, "rankings", "ranked lists"), retrieval_modes=modes, **options
    )
    lists = [ranked for ranked in prepared if ranked.hits]
    if code_density is None or mean_word_length is None:
        measured_density, measured_length = text_evidence(_first_texts(lists))
        code_density = measured_density if code_density is None else code_density
        mean_word_length = measured_length if mean_word_length is None else mean_word_length
    values, weights = _weighted_values(lists, rules, code_density)
    by_label = dict(zip(unique_labels([ranked.name for ranked in lists]), weights, strict=True))
    evidence = {CODE_DENSITY: code_density}
    if mean_word_length is not None:  # None: too little text to measure it
        evidence[MEAN_WORD_LENGTH] = mean_word_length
    return fuse_values(
        lists,
        values,
        name=NAME,
        k=k,
        weights=by_label,
        evidence=evidence,
        note=describe_weights(by_label, rules, code_density=code_density),
    )


@dataclass(frozen=True, kw_only=True)
class WeightedOptions(Options):
    """Options of weighted fusion in pipeline files."""

    identity: Literal["id", "content", "id-source"] | None = option(
        "What makes two hits the same; by default the id.", default=None
    )
    dense_weight: float | None = option(
        f"Weight of vector search next to keyword search; {AdaptiveWeights().dense_weight:g} by default.",
        default=None,
        min=0,
        max=1,
        aliases=["vectors"],
    )


class WeightedReranker:
    """Weighted fusion behind the Reranker protocol; a pipeline passes the retrieval mode of each list.

    Set `code_density` and `mean_word_length` if they are known without the texts.
    """

    name = NAME
    requires: tuple[str, ...] = ()
    Options = WeightedOptions

    def __init__(
        self,
        *,
        dense_weight: float | None = None,
        adaptive_weights: AdaptiveWeights | None = None,
        **options: Unpack[ListOptions],
    ) -> None:
        rules = adaptive_weights or _DEFAULTS
        self.adaptive_weights = rules if dense_weight is None else replace(rules, dense_weight=dense_weight)
        self.options = options
        self.code_density: float | None = None
        self.mean_word_length: float | None = None

    async def fuse(
        self,
        per_store: Sequence[Sequence[Hit]],
        *,
        k: int,
        query: str | None = None,
        retrieval_modes: Sequence[str] = (),
    ) -> FusedHits:
        """Return the best k of the fused lists; the query is not used."""
        return weighted(
            per_store,
            k=check_k(k),
            retrieval_modes=retrieval_modes,
            adaptive_weights=self.adaptive_weights,
            code_density=self.code_density,
            mean_word_length=self.mean_word_length,
            **self.options,
        )


def _weighted_values(
    lists: Sequence[RankedList], rules: AdaptiveWeights, code_density: float
) -> tuple[list[list[float]], list[float]]:
    """Return per list the weighted z-score of each of its hits, and the weight of the list."""
    groups = _group_lists(lists)
    group_weights = list_weights([group.retrieval_mode for group in groups], rules, code_density=code_density)
    values: list[list[float]] = [[] for _ in lists]
    weights = [0.0] * len(lists)
    pool_size = len(set().union(*[ranked.hits for ranked in lists]))
    members = [[lists[i] for i in group.copies] for group in groups]
    lengths = [
        len(own[0].hits) if len(own) == 1 else len(set().union(*[ranked.hits for ranked in own]))
        for own in members
    ]
    for group, own, weight, length in zip(groups, members, group_weights, lengths, strict=True):
        # A keyword search that returned less than others has no further matches.
        exhausted = group.retrieval_mode == "lexical" and length < max(lengths)
        z_scores = _z_scores(own, pool_size, exhausted=exhausted)
        for (i, copies), column in zip(group.copies.items(), z_scores, strict=True):
            weights[i] = factor = lists[i].weight * weight / copies  # equal lists share one weight
            values[i] = [factor * value for value in column]
    return values, weights


@dataclass(frozen=True, slots=True)
class _Group:
    """Lists that are parts of one collection: list index -> how many copies of that list there are."""

    retrieval_mode: str
    copies: Mapping[int, int]


def _group_lists(lists: Sequence[RankedList]) -> list[_Group]:
    groups: list[_Group] = []
    for mode in dict.fromkeys(ranked.retrieval_mode for ranked in lists):
        indexes = [i for i, ranked in enumerate(lists) if ranked.retrieval_mode == mode]
        if len(indexes) == 1:
            groups.append(_Group(mode, {indexes[0]: 1}))
            continue
        # A store that is declared twice must not count twice.
        equal_lists: dict[object, list[int]] = {}
        for i in indexes:
            hits = lists[i].hits
            content = (tuple(hits), tuple([hit.score for hit in hits.values()]))
            equal_lists.setdefault(content, []).append(i)
        copies = [dict.fromkeys(equal, len(equal)) for equal in equal_lists.values()]
        pairs = combinations([lists[equal[0]] for equal in equal_lists.values()], 2)
        # The scale of an unknown retrieval mode is unknown.
        if mode and all(_same_collection(*pair) for pair in pairs):
            copies = [{i: count for part in copies for i, count in part.items()}]
        groups += [_Group(mode, part) for part in copies]
    return groups


def _same_collection(first: RankedList, second: RankedList) -> bool:
    """Whether two lists of one retrieval mode share no hit and, by their best scores, have one scale.

    The best scores of two sources differ if one of them matches the query; by more than a factor of 20 they
    differ in scale.
    """
    best = []
    for ranked in (first, second):
        scores = [hit.score for hit in ranked.hits.values() if hit.score is not None]
        if len(scores) < len(ranked.hits):
            return False
        best.append(max(scores))
    if not first.hits.keys().isdisjoint(second.hits):
        return False
    return min(best) > 0 and max(best) <= MAX_SCALE_RATIO * min(best)


def _z_scores(lists: Sequence[RankedList], pool_size: int, *, exhausted: bool) -> list[list[float]]:
    """Return per list the standard deviations of its hits above the lowest, over the whole pool."""
    if len(lists) == 1:
        ranks: list[int | None] = list(lists[0].ranks)
        scores = [hit.score for hit in lists[0].hits.values()]
        columns = [slice(len(ranks))]
    else:  # parts of one collection, which share no hit; equal lists are the same part
        firsts = {tuple(ranked.hits): ranked for ranked in reversed(lists)}
        ranks, scores, columns, starts = [], [], [], {}
        for key, ranked in firsts.items():
            starts[key] = slice(len(ranks), len(ranks) + len(ranked.hits))
            ranks += ranked.ranks
            scores += [hit.score for hit in ranked.hits.values()]
        columns = [starts[tuple(ranked.hits)] for ranked in lists]
    absent = [None] * (pool_size - len(ranks))
    values = list_z_scores([*ranks, *absent], [*scores, *absent], ended=exhausted)
    # Relative to the lowest, so that a list without the hit adds nothing.
    lowest = min(values)
    return [[value - lowest for value in values[column]] for column in columns]


def _first_texts(lists: Sequence[RankedList]) -> list[str]:
    hits: dict[str, Hit] = {}
    for ranked in lists:
        hits |= {hit.id: hit for hit in islice(ranked.hits.values(), TEXTS_PER_LIST)}
    # By id, so that the order of the lists changes no float of the sums over texts.
    return [hits[id].text for id in sorted(hits)]
