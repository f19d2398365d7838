"""Weighted fusion, the first stage of the default order: a weighted mean of z-scores with fitted weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, repeat
from typing import Literal, NamedTuple, Unpack

from resift.ranking import order_model
from resift.ranking.evidence import list_z_scores
from resift.ranking.fusion.lists import (
    ListOptions,
    RankedList,
    Rankings,
    fuse_values,
    list_names,
    prepare_lists,
    unique_labels,
)
from resift.ranking.order_model import (
    CODE_DENSITY,
    MAX_PROSE_DENSITY,
    OTHER_LANGUAGE,
    OrderModel,
    language_fit,
    list_facts,
    text_facts,
)
from resift.types import FusedHits, Hit, Languages
from resift.types.trace import RETRIEVAL_MODES
from resift.validation import Options, check_k, check_list, check_number, option

NAME = "weighted"

MAX_SCALE_RATIO = 20
"""Largest ratio between the best scores of two lists of one retrieval mode; beyond it, their scales differ."""

TEXTS_PER_LIST = 10  # number of texts per list from which the facts about texts are computed

MIN_FIT = 0.001
"""Weight of a list whose model was not trained on the script: it only orders hits that no other list has."""


def weighted(
    rankings: Rankings,
    *,
    k: int | None = None,
    query: str = "",
    retrieval_modes: Sequence[str] = (),
    languages: Sequence[Languages] = (),
    dense_weight: float | None = None,
    model: OrderModel | None = None,
    facts: Mapping[str, float] | None = None,
    **options: Unpack[ListOptions],
) -> FusedHits:
    """Fuse by the weighted mean of each list's z-scores over the pool.

    The fitted weight of a list depends on its retrieval mode (one per list) and on facts about the
    candidates, which are computed unless given. `dense_weight` replaces the fitted weight. A list is ignored
    if its model (`languages`, one entry per list) was not trained on the script of the query and the texts.
    Lists of the same retrieval mode that have no hit in common and the same score scale are parts of one
    collection: their scores are compared directly, so the source that matches the query ranks first. Equal
    lists count as one. `weights` are additional factors.
    """
    modes = [RETRIEVAL_MODES.get(mode, mode) for mode in retrieval_modes]
    if not isinstance(rankings, list):
        rankings = check_list(rankings, "rankings", "ranked lists")
    prepared = prepare_lists(rankings, retrieval_modes=modes, **options)
    lists = [ranked for ranked in prepared if ranked.hits]
    if facts is None:
        first: dict[str, Hit] = {}
        for ranked in lists:
            first |= {hit.id: hit for hit in islice(ranked.hits.values(), TEXTS_PER_LIST)}
        # Sorted by id, so that the order of the lists does not matter.
        facts = text_facts([first[id].text for id in sorted(first)], query)
    known = dict(facts)
    languages_by_name = dict(zip(list_names(rankings), languages, strict=True)) if languages else {}
    fits = [language_fit(languages_by_name.get(ranked.name, "any"), known) for ranked in lists]
    english_vectors = any(
        languages_by_name.get(ranked.name) == ("en",) for ranked in lists if ranked.retrieval_mode == "dense"
    )
    values, weights, measured = _weighted_values(
        lists,
        model or order_model.default_model(),
        known if english_vectors else {**known, OTHER_LANGUAGE: 0.0},
        fits=[max(MIN_FIT, fit) for fit in fits],
        dense_weight=dense_weight,
    )
    labels = unique_labels([ranked.name for ranked in lists])
    by_label = dict(zip(labels, weights, strict=True))
    foreign = [label for label, fit in zip(labels, fits, strict=True) if not fit]
    shown = {label: 0.0 if label in foreign else weight for label, weight in by_label.items()}
    note = ", ".join(f"{label} weight {weight:.2g}" for label, weight in shown.items())
    if foreign:
        note += f": the model of {', '.join(foreign)} was not trained on this script"
    elif known.get(CODE_DENSITY, 0.0) > MAX_PROSE_DENSITY:
        note += f": {known[CODE_DENSITY]:.2g} signs of code per word"
    return fuse_values(lists, values, name=NAME, k=k, weights=by_label, evidence={**known, **measured}, note=note)


@dataclass(frozen=True, kw_only=True)
class WeightedOptions(Options):
    """Options of weighted fusion in pipeline files."""

    identity: Literal["id", "content", "id-source"] | None = option(
        "How hits are identified; by id by default.", default=None
    )
    dense_weight: float | None = option(
        "Weight of vector search relative to keyword search; fitted by default.",
        default=None,
        min=0,
        max=1,
        aliases=["vectors"],
    )
    dense_shift: float = option(
        "Value added to the fitted weight of vector search; resift tune finds it.", default=0.0, min=-1, max=1
    )


class WeightedReranker:
    """Weighted fusion as a Reranker; a pipeline passes the query, retrieval modes and languages."""

    name = NAME
    requires: tuple[str, ...] = ()
    Options = WeightedOptions

    def __init__(
        self,
        *,
        dense_weight: float | None = None,
        dense_shift: float = 0.0,
        model: OrderModel | None = None,
        **options: Unpack[ListOptions],
    ) -> None:
        self.dense_weight = dense_weight
        self.model = (model or order_model.default_model()).shifted(dense=check_number(dense_shift, "dense_shift"))
        self.options = options

    async def fuse(
        self,
        per_store: Sequence[Sequence[Hit]],
        *,
        k: int,
        query: str | None = None,
        retrieval_modes: Sequence[str] = (),
        languages: Sequence[Languages] = (),
    ) -> FusedHits:
        """Return the best k hits of the fused lists."""
        return weighted(
            per_store,
            k=check_k(k),
            query=query or "",
            retrieval_modes=retrieval_modes,
            languages=languages,
            dense_weight=self.dense_weight,
            model=self.model,
            **self.options,
        )


class _Group(NamedTuple):
    """Lists that are parts of one collection. A part has the index of a list, or of several equal lists."""

    retrieval_mode: str
    parts: list[list[int]]


def _weighted_values(
    lists: Sequence[RankedList],
    model: OrderModel,
    facts: Mapping[str, float],
    *,
    fits: Sequence[float],
    dense_weight: float | None,
) -> tuple[list[list[float]], list[float], dict[str, float]]:
    """Return the weighted z-scores of each list's hits, the weight of each list, and facts about the lists."""
    groups = _group_lists(lists)
    pool_size = len(set().union(*[ranked.hits for ranked in lists]))
    sizes = [sum(len(lists[part[0]].hits) for part in group.parts) for group in groups]
    columns: list[list[list[float]]] = []  # per group and part
    for group, size in zip(groups, sizes, strict=True):
        # A keyword search that returned fewer hits than others has no further matches.
        exhausted = group.retrieval_mode == "lexical" and size < max(sizes)
        members = [lists[part[0]] for part in group.parts]
        ranks = [rank for ranked in members for rank in ranked.ranks]
        scores = [hit.score for ranked in members for hit in ranked.hits.values()]
        z_scores = list_z_scores(ranks, scores, ended=exhausted, absent=pool_size - size)
        # Relative to the lowest value, so that a list without the hit adds nothing.
        lowest = min(z_scores)
        values = iter([value - lowest for value in z_scores])
        columns.append([list(islice(values, len(ranked.hits))) for ranked in members])
    measured: dict[str, float] = {}
    if facts.get(CODE_DENSITY, 0.0) > MAX_PROSE_DENSITY:  # in prose, no weight depends on the agreement of the lists
        measured = _list_facts(lists, groups, columns, facts)
    group_weights = model.list_weights(
        [group.retrieval_mode for group in groups],
        {**facts, **measured},
        fits=[max(fits[i] for part in group.parts for i in part) for group in groups],
        dense_weight=dense_weight,
    )
    weighted_columns: list[list[float]] = [[] for _ in lists]
    weights = [0.0] * len(lists)
    for group, weight, group_columns in zip(groups, group_weights, columns, strict=True):
        for part, column in zip(group.parts, group_columns, strict=True):
            for i in part:
                weights[i] = factor = lists[i].weight * weight / len(part)  # equal lists share one weight
                weighted_columns[i] = [factor * value for value in column]
    return weighted_columns, weights, measured


def _list_facts(
    lists: Sequence[RankedList],
    groups: Sequence[_Group],
    columns: Sequence[Sequence[Sequence[float]]],
    facts: Mapping[str, float],
) -> dict[str, float]:
    """Return the facts about the agreement of keyword and vector search, if there are both."""
    by_mode: dict[str, dict[str, float]] = {}
    for group, group_columns in zip(groups, columns, strict=True):
        known = by_mode.setdefault(group.retrieval_mode, {})
        for part, column in zip(group.parts, group_columns, strict=True):
            known.update(zip(lists[part[0]].hits, column, strict=True))
    if "lexical" not in by_mode or "dense" not in by_mode:
        return {}
    lexical, dense = by_mode["lexical"], by_mode["dense"]
    # The order of the ids does not matter, because the sums are exact before they are rounded.
    only_dense = [value for id, value in dense.items() if id not in lexical]
    in_lexical = [*lexical.values(), *[0.0] * len(only_dense)]
    in_dense = [*map(dense.get, lexical, repeat(0.0)), *only_dense]
    return list_facts(in_lexical, in_dense, facts)


def _group_lists(lists: Sequence[RankedList]) -> list[_Group]:
    groups: list[_Group] = []
    for mode in dict.fromkeys(ranked.retrieval_mode for ranked in lists):
        indexes = [i for i, ranked in enumerate(lists) if ranked.retrieval_mode == mode]
        if len(indexes) == 1:
            groups.append(_Group(mode, [indexes]))
            continue
        # A store that is declared twice must not count twice.
        equal_lists: dict[object, list[int]] = {}
        for i in indexes:
            hits = lists[i].hits
            content = (tuple(hits), tuple([hit.score for hit in hits.values()]))
            equal_lists.setdefault(content, []).append(i)
        parts = list(equal_lists.values())
        pairs = combinations([lists[part[0]] for part in parts], 2)
        # If the retrieval mode is unknown, so is the score scale.
        if mode and all(_same_collection(*pair) for pair in pairs):
            groups.append(_Group(mode, parts))
        else:
            groups += [_Group(mode, [part]) for part in parts]
    return groups


def _same_collection(first: RankedList, second: RankedList) -> bool:
    """Whether two lists of one retrieval mode have no hit in common and, judging by their best scores, one scale.

    The best scores of two sources differ if only one of them matches the query. If they differ by more than a
    factor of 20, the scales differ.
    """
    scores = [[hit.score for hit in ranked.hits.values()] for ranked in (first, second)]
    if any(None in column for column in scores) or not first.hits.keys().isdisjoint(second.hits):
        return False
    low, high = sorted(max(column) for column in scores)  # type: ignore[type-var]
    return low > 0 and high <= MAX_SCALE_RATIO * low  # type: ignore[operator]
