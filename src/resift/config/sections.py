"""The sections of a pipeline file: the keys that belong to the file itself.

What a store, a scorer, a fusion method, a gate profile or a stage can be set to stands beside it
(`resift.validation`) and joins the section that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from resift.external.candidates import MissingText
from resift.pipeline.defaults import FETCH
from resift.pipeline.gating import GateOptions
from resift.pipeline.over_fetch import OverFetch
from resift.pipeline.pipeline import TIMEOUT_S
from resift.plugins import (
    FUSION,
    GATE_PROFILES,
    RERANKERS,
    STAGES,
    STORES,
    available_fusions,
    available_gate_profiles,
    available_scorers,
    available_stages,
    available_stores,
)
from resift.ranking.gate.profiles import Profile
from resift.ranking.shape.blending import Blend
from resift.ranking.shape.composing import ShapePolicy
from resift.ranking.shape.guarding import Guard
from resift.resilience.budget import BudgetOptions
from resift.resilience.circuit import BreakerOptions
from resift.types import JsonMapping
from resift.validation import Options, option

_FREE = "Further arguments for the constructor, where it declares no option for them."


@dataclass(frozen=True, kw_only=True)
class StoreSection(Options):
    """One store, and how it is asked."""

    name: str = option("Name of the store in rankings, weights and capabilities.")
    kind: str = option("The engine.", plugins=STORES, choices=available_stores)
    k: int | None = option("How many hits to ask this store for; else see `fetch`.", default=None, min=1)
    timeout_s: float | None = option("Longest wait for this store, in seconds.", default=None, gt=0)
    cypher: str | None = option(
        "For graph stores: the statement to run; the question is its parameter `$query`.", default=None
    )
    parameters: JsonMapping | None = option("Further parameters of `cypher`.", default=None)
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class FusionSection(Options):
    """How the stores' lists become one."""

    method: str = option(
        "The method; `rrf` where the section has `k_param` or `dialect`.",
        default="weighted",
        plugins=FUSION,
        choices=available_fusions,
    )
    weights: Mapping[str, float] | None = option(
        "Weight per store, 1 unless given; 0 leaves a store out. A store asked by words and by vectors has "
        "two more names: docs.text and docs.vectors.",
        default=None,
        min=0,
    )
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class GateSection(Options):
    """Which hits go on to the reranker."""

    includes: ClassVar[tuple[type, ...]] = (Profile, GateOptions)
    profile: str = option(
        "Floors to start from.", default="neutral", plugins=GATE_PROFILES, choices=available_gate_profiles
    )


@dataclass(frozen=True, kw_only=True)
class TierSection(Options):
    """One scorer of several."""

    kind: str = option("The scorer.", plugins=RERANKERS, choices=available_scorers)
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class RerankSection(Options):
    """Who puts the best hits into their final order."""

    kind: str | None = option("The scorer.", default=None, plugins=RERANKERS, choices=available_scorers)
    options: JsonMapping | None = option(_FREE, default=None)
    depth: int | None = option(
        "How many of the best hits are reranked: 20, or by evidence after `weighted` fusion.",
        default=None,
        min=1,
    )
    missing_text: MissingText = option("What happens to a hit without text.", default="last")
    tiers: tuple[TierSection, ...] | None = option(
        "Several scorers, the best first, the surest last: the first that can answer in time scores the "
        "pool, and exactly one does.",
        default=None,
    )
    breaker: BreakerOptions | None = option(
        "The first tier's circuit breaker: when to stop asking a tier that fails.", default=None
    )
    budget: BudgetOptions | None = option("Time that a tier needs to be asked at all.", default=None)


@dataclass(frozen=True, kw_only=True)
class GuardSection(Options):
    """Keeps one reranker's opinion from doing harm."""

    includes: ClassVar[tuple[type, ...]] = (Blend, Guard)
    blend: bool = option("Blend the reranker's scores with the first stage's.", default=True)
    do_no_harm: bool = option("A strong first-stage hit cannot fall out of the answer.", default=True)


@dataclass(frozen=True, kw_only=True)
class ShapeSection(Options):
    """Who comes out."""

    includes: ClassVar[tuple[type, ...]] = (ShapePolicy,)
    section: str | None = option("The section where a search names none.", default=None)


@dataclass(frozen=True, kw_only=True)
class StageSection(Options):
    """One stage of another package."""

    kind: str = option("The stage.", plugins=STAGES, choices=available_stages)
    after: Literal["fusion", "gate", "rerank", "shape"] = option(
        "Which section's work it goes on with, whether or not that section is there.", default="rerank"
    )
    options: JsonMapping | None = option(_FREE, default=None)


@dataclass(frozen=True, kw_only=True)
class PipelineFile(Options):
    """A pipeline: stores, fusion, gate, rerank, guard, shape. Only `stores` is needed."""

    stores: tuple[StoreSection, ...] = option(
        "The stores to ask, all at the same time. Their order decides whose text and metadata a hit keeps "
        "when several stores have it."
    )
    k: int = option("How many hits a search returns.", default=10, min=1, max=10_000)
    deadline_s: float | None = option("Seconds for a whole search; none unless given.", default=None, gt=0)
    timeout_s: float = option(
        "Longest wait for a store that has no `timeout_s` of its own, in seconds.", default=TIMEOUT_S, gt=0
    )
    capabilities: tuple[str, ...] | None = option(
        "What is granted, such as db.docs:read or net.voyage; all unless given.", default=None
    )
    fetch: OverFetch | None = option(
        "How many hits each store is asked for: factor × k, at least `minimum`, at most `cap`.",
        default=None,
        defaults_from=FETCH,
    )
    fusion: FusionSection | None = option(
        "How the stores' lists become one. Without this section: `weighted`, as in the default pipeline, "
        "or `rrf` if the file has a `gate` that names no store as its `signal`.",
        default=None,
    )
    gate: GateSection | None = option(
        "Which hits go on to the reranker: floors per section, relaxed or tightened by grade.", default=None
    )
    rerank: RerankSection | None = option(
        "Who puts the best hits into their final order: one `kind`, or `tiers`.", default=None
    )
    guard: GuardSection | None = option(
        "Keeps one reranker's opinion from doing harm. With `rerank` it is on unless switched off.",
        default=None,
    )
    shape: ShapeSection | None = option(
        "Who comes out: precedence, folding, diversity, recovery and quotas, before the cut to k.",
        default=None,
    )
    stages: tuple[StageSection, ...] | None = option(
        "Stages of other packages, each after the section it names, in the order given.", default=None
    )
