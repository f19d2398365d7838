"""The section `fusion`: how the stores' lists become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resift.config.schema import Key, Section, Settings
from resift.fusion.dialects import DIALECTS
from resift.fusion.methods import METHODS
from resift.fusion.rerankers import FusionReranker, RRFReranker
from resift.protocols import Reranker
from resift.retrieval.stages import Fuse

SECTION = Section(
    name="fusion",
    about="How the stores' lists become one. Without this section: RRF with k_param 60.",
    keys=(
        Key(name="method", kind="text", default="rrf", about="The method.", choices=sorted(METHODS)),
        Key(name="k_param", kind="number", above=0, about="RRF's constant: 60 unless given."),
        Key(
            name="weights",
            kind="weights",
            least=0,
            about="Weight per store, 1 unless given; 0 leaves a store out. A store asked by words and by "
            "vectors has two more names: docs.text and docs.vectors.",
        ),
        Key(
            name="dialect",
            kind="text",
            about="Compute RRF exactly as this engine does.",
            choices=sorted(DIALECTS),
        ),
        Key(
            name="identity",
            kind="text",
            about="What makes two hits the same.",
            choices=("id", "content", "id-source"),
        ),
        Key(
            name="normalize",
            kind="text",
            about="For methods that add up scores: how each list's scores are put on one scale.",
        ),
    ),
)

_RRF_ONLY = ("k_param", "dialect")


def build(settings: Settings) -> Fuse:
    """Return the fusing stage."""
    make(settings, [])  # refuses options that the method does not know, now rather than at a search
    return Fuse(make=lambda names: make(settings, names))


def _weight(weights: Mapping[str, float], name: str) -> float:
    # docs.text has the weight of docs unless it has its own.
    return weights.get(name, weights.get(name.rpartition(".")[0], 1.0))


def make(settings: Settings, names: Sequence[str]) -> Reranker:
    """Return the reranker for stores of these names, in declared order."""
    options: dict[str, Any] = settings.given("identity", "normalize", *_RRF_ONLY)
    if settings["weights"] and names:
        # By position: a store that gave nothing has no name in its empty list.
        options["weights"] = [_weight(settings["weights"], name) for name in names]
    if settings["method"] == "rrf":
        return RRFReranker(sources=list(names), **options)
    return FusionReranker(settings["method"], sources=list(names), **options)
