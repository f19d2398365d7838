"""`resift.fuse`, the table of fusion methods by name, and a comparison of engines."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from resift.errors import InputError, did_you_mean
from resift.external.candidates import Candidates, read_hits
from resift.external.records import check_fields
from resift.ranking.fusion import score_based
from resift.ranking.fusion.dialects import DIALECTS, fuse_as
from resift.ranking.fusion.lists import ListOptions, Rankings, Weights, list_names, unique_labels
from resift.ranking.fusion.rank_based import borda, isr, rbc, rrf
from resift.ranking.fusion.weighted import weighted
from resift.types import FusedHits, Hit, Ranking, StageKind, StageRecord, Trace, cut_record, make_record, set_original
from resift.validation import DEFAULT_K, check_k

Lists = Mapping[str, Candidates] | Sequence[Candidates]
FusionMethod = Callable[..., FusedHits]

METHODS: dict[str, FusionMethod] = {
    "borda": borda,
    "comb-anz": score_based.comb_anz,
    "comb-max": score_based.comb_max,
    "comb-min": score_based.comb_min,
    "comb-mnz": score_based.comb_mnz,
    "comb-sum": score_based.comb_sum,
    "dbsf": score_based.dbsf,
    "isr": isr,
    "linear": score_based.linear,
    "log-odds": score_based.log_odds,
    "rbc": rbc,
    "relative-score": score_based.relative_score,
    "rrf": rrf,
    "weighted": weighted,
}
"""Fusion functions by the names used in entry points, in pipeline files and on the command line."""
_BY_RANK = frozenset({"borda", "isr", "rbc", "rrf"})


class FuseOptions(ListOptions, total=False):
    """The options of all fusion methods; each method rejects options that it does not support."""

    k_param: float
    dialect: str | None
    normalize: score_based.Normalization
    phi: float
    epsilon: float


def fuse(
    lists: Lists,
    *,
    k: int | None = None,
    method: str = "rrf",
    fields: Sequence[str] | Mapping[str, float] | None = None,
    **options: Unpack[FuseOptions],
) -> Ranking:
    """Fuse ranked lists into one Ranking; `cut` contains the hits beyond k.

    Pass {source: candidates} or a list of lists. Strings in the lists are ids. A list may also be the
    unchanged response of a search system; `ranking.originals()` returns its objects in the new order.
    `fields` names the fields that contain the text of documents, as in `rerank`.
    """
    started = time.perf_counter()
    limit = None if k is None else check_k(k)
    keys = check_fields(fields)
    if isinstance(lists, Mapping):
        rankings = [_read_list(candidates, name, keys) for name, candidates in lists.items()]
        if lists and "sources" not in options:
            options["sources"] = list(lists)
    elif isinstance(lists, str) or not isinstance(lists, Sequence):
        kind = type(lists).__name__
        raise InputError(f"lists is of type {kind}; pass {{source: candidates}} or a list of lists.")
    else:
        rankings = [_read_list(candidates, "", keys) for candidates in lists]
    # Fuse without k, so that the hits beyond k keep their rank and score in `cut`.
    fused = method_with_options(method, options)(rankings, **options)
    kept = len(fused) if limit is None else min(limit, len(fused))
    labels = unique_labels([hits[0].source if hits else "" for hits in rankings])
    retrieved = [
        StageRecord(
            kind=StageKind.RETRIEVE,
            name="retrieve",
            source=label,
            ids=tuple([hit.id for hit in hits]),
            scores=tuple([hit.score for hit in hits]),
        )
        for label, hits in zip(labels, rankings, strict=True)
    ]
    rising = [] if method.replace("_", "-") in _BY_RANK else filter(_has_rising_scores, rankings)
    return Ranking(
        tuple(fused[:kept]),
        cut=tuple(fused[kept:]),
        warnings=tuple(
            f"Scores of {hits[0].source or 'a list'} rise from {hits[0].score:g} to {hits[-1].score:g}, and "
            f"{method} treats higher scores as better. Negate them if they are distances."
            for hits in rising
        ),
        trace=Trace((*retrieved, *fused.records, *cut_record(fused.records[0].ids, kept))),
        timings={"fuse": (time.perf_counter() - started) * 1000},
    )


def _has_rising_scores(hits: Sequence[Hit]) -> bool:
    scores = [hit.score for hit in hits]
    return len(set(scores)) > 2 and None not in scores and scores == sorted(scores)  # type: ignore[type-var]


def _read_list(candidates: Candidates, name: str, keys: Sequence[str] | None) -> list[Hit]:
    hits = read_hits(
        candidates,
        name=f"The list {name!r}" if name else "A list",
        source=name,
        strings_are="id",
        unique=False,
        text_keys=keys,
    )
    if not name or {hit.source for hit in hits} <= {name}:
        return hits
    # The list's name replaces the source that the hits had before.
    return [hit if hit.source == name else set_original(replace(hit, source=name), hit.original) for hit in hits]


def fusion_method(name: str) -> FusionMethod:
    """Return the fusion function with this name; dashes and underscores are equivalent."""
    key = name.replace("_", "-") if isinstance(name, str) else ""
    if key in METHODS:
        return METHODS[key]
    # Imported here, because asyncio and importlib.metadata take half the time of the first `fuse`.
    from resift.plugins import available_fusions

    installed = available_fusions()
    if key not in installed:
        raise InputError(f"Unknown fusion method {name!r}. {did_you_mean(str(name), {*METHODS, *installed})}")
    return _load_method(key)


def method_with_options(name: str, options: Iterable[str]) -> FusionMethod:
    """Return the fusion function with this name; raises InputError for options that it does not have."""
    method = fusion_method(name)
    if name.replace("_", "-") not in METHODS:
        return method  # methods from other packages check their options themselves
    allowed = method_options(method) - {"k"}
    for option in options:
        if option not in allowed:
            raise InputError(f"{name} has no option {option!r}. {did_you_mean(option, allowed)}")
    return method


@functools.cache
def method_options(method: FusionMethod) -> frozenset[str]:
    """Return the option names of a method, including those that all methods share."""
    parameters = inspect.signature(method).parameters.values()
    names = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    return frozenset(names | set(ListOptions.__annotations__))


def _load_method(name: str) -> FusionMethod:
    """Return a method from another package as a function with the interface of the built-in ones."""
    from resift._internal.sync import run_sync
    from resift.plugins import FUSION, build_plugin, load_plugin

    plugin = load_plugin(FUSION, name)
    takes_sources = "sources" in inspect.signature(plugin).parameters

    def fuse_installed(rankings: Rankings, *, k: int | None = None, **options: object) -> FusedHits:
        list_names(rankings)  # raises unless all arguments are lists of hits
        if not takes_sources:
            options.pop("sources", None)
        limit = sum(map(len, rankings)) if k is None else k  # the protocol requires a k
        method = build_plugin(plugin, name, options)
        hits = run_sync(method.fuse([list(hits) for hits in rankings], k=limit))
        if isinstance(hits, FusedHits):
            return hits
        return FusedHits(hits, make_record(StageKind.FUSE, name, hits, scored=True))

    return fuse_installed


@dataclass(frozen=True, slots=True)
class Comparison:
    """One fused order per engine; Resift's own (`resift`) comes first."""

    orders: Mapping[str, Sequence[Hit]]

    def ids(self, engine: str) -> list[str]:
        """Return the ids in the order of this engine."""
        return [hit.id for hit in self.orders[engine]]

    def ranks(self) -> dict[str, dict[str, int | None]]:
        """Return id -> engine -> rank; None if the engine does not return the hit."""
        ranks = {
            engine: {hit.id: rank for rank, hit in enumerate(hits, start=1)} for engine, hits in self.orders.items()
        }
        ids = dict.fromkeys(hit.id for hits in self.orders.values() for hit in hits)
        return {id: {engine: ranks[engine].get(id) for engine in self.orders} for id in ids}

    def disagreements(self) -> list[str]:
        """Return the ids whose rank differs between engines, with the widest spread first."""
        ranks = self.ranks()
        absent = len(ranks) + 1  # a hit that an engine does not return ranks below all others
        spread = {}
        for id, row in ranks.items():
            known = [rank or absent for rank in row.values()]
            spread[id] = max(known) - min(known)
        return sorted((id for id, width in spread.items() if width), key=lambda id: (-spread[id], id))


def compare(rankings: Rankings, *, k: int = DEFAULT_K, weights: Weights | None = None) -> Comparison:
    """Fuse the lists with Resift and with the dialect of each engine; engines without weights ignore them."""
    orders: dict[str, Sequence[Hit]] = {"resift": rrf(rankings, k=k, weights=weights)}
    for name, dialect in DIALECTS.items():
        orders[name] = fuse_as(name, rankings, k=k, weights=None if dialect.weighting == "none" else weights)
    return Comparison(orders)
