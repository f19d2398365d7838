"""Method names (as in registries, configuration and on the command line) to fusion functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable

from resift.errors import InputError, did_you_mean
from resift.ranking.fusion.lists import ListOptions, Rankings, list_names
from resift.ranking.fusion.rank_based import borda, isr, rbc, rrf
from resift.ranking.fusion.score_based import (
    comb_anz,
    comb_max,
    comb_min,
    comb_mnz,
    comb_sum,
    dbsf,
    linear,
    log_odds,
    relative_score,
)
from resift.ranking.fusion.weighted import weighted
from resift.types import Fused, StageKind, record_of

METHODS: dict[str, Callable[..., Fused]] = {
    "borda": borda,
    "comb-anz": comb_anz,
    "comb-max": comb_max,
    "comb-min": comb_min,
    "comb-mnz": comb_mnz,
    "comb-sum": comb_sum,
    "dbsf": dbsf,
    "isr": isr,
    "linear": linear,
    "log-odds": log_odds,
    "rbc": rbc,
    "relative-score": relative_score,
    "rrf": rrf,
    "weighted": weighted,
}


def fusion_method(name: str) -> Callable[..., Fused]:
    """Return the fusion function of that name; dashes and underscores are the same."""
    known = name.replace("_", "-") if isinstance(name, str) else ""
    if known in METHODS:
        return METHODS[known]
    # Here and below, not at the top: asyncio and the metadata of packages take half of a first fuse's time.
    from resift.plugins import available_fusions

    installed = available_fusions()
    if known not in installed:
        raise InputError(f"Unknown fusion method {name!r}. {did_you_mean(str(name), {*METHODS, *installed})}")
    return _installed(known)


def method_with_options(name: str, options: Iterable[str]) -> Callable[..., Fused]:
    """Return the fusion function of that name; refuses options that it does not have."""
    method = fusion_method(name)
    if name.replace("_", "-") not in METHODS:
        return method  # of another package, which checks its own
    allowed = options_of(method) - {"k"}
    for option in options:
        if option not in allowed:
            raise InputError(f"{name} has no option {option!r}. {did_you_mean(option, allowed)}")
    return method


@functools.cache  # a pipeline without a reranker of its own makes one for each search
def options_of(method: Callable[..., Fused]) -> frozenset[str]:
    """Return the names of a method's options: its own, and those that all methods take."""
    own = {one.name for one in inspect.signature(method).parameters.values() if one.kind is one.KEYWORD_ONLY}
    return frozenset(own | set(ListOptions.__annotations__))


def _installed(name: str) -> Callable[..., Fused]:
    """Return the method of another package, as a function like our own."""
    from resift._internal.sync import run_sync
    from resift.plugins import FUSION, built_by, load_plugin

    plugin = load_plugin(FUSION, name)
    takes_sources = "sources" in inspect.signature(plugin).parameters

    def fused(rankings: Rankings, *, k: int | None = None, **options: object) -> Fused:
        list_names(rankings)  # refuses anything but lists of hits
        if not takes_sources:
            options.pop("sources", None)
        every = sum(map(len, rankings))  # a stranger's method needs a k, ours may leave it out
        method = built_by(plugin, name, options)
        # The protocol is async, fusion functions are not.
        hits = run_sync(method.fuse([list(hits) for hits in rankings], k=every if k is None else k))
        return (
            hits
            if isinstance(hits, Fused)
            else Fused(hits, record_of(StageKind.FUSE, name, hits, scored=True))
        )

    return fused
