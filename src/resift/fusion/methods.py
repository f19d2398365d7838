"""Method names (as in registries, configuration and on the command line) to fusion functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable

from resift.errors import InputError, did_you_mean
from resift.fusion.installed import installed_method
from resift.fusion.lists import ListOptions
from resift.fusion.rank_based import borda, isr, rbc, rrf
from resift.fusion.score_based import (
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
from resift.fusion.weighted import weighted
from resift.plugins import available_fusions
from resift.types import Fused

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
    installed = available_fusions()
    if known not in installed:
        raise InputError(f"Unknown fusion method {name!r}. {did_you_mean(str(name), {*METHODS, *installed})}")
    return installed_method(known)


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
