"""Fusion methods of other packages, as functions like our own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from resift.fusion.lists import Rankings, list_names
from resift.plugins import FUSION, built_by, load_plugin
from resift.sync import run_sync
from resift.types import Fused, StageKind, record_of


def installed_method(name: str) -> Callable[..., Fused]:
    """Return the method of that name from its entry point; raises RerankerNotFound with a suggestion."""
    plugin = load_plugin(FUSION, name)
    takes_sources = "sources" in inspect.signature(plugin).parameters

    def fused(rankings: Rankings, *, k: int | None = None, **options: Any) -> Fused:
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
