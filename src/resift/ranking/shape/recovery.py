"""Recovery: hits that must not vanish because a reranker put them below the cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from resift.events import Sink
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import Hit
from resift.validation import check_k, check_options, option

STAGE = "recover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Which hits come back, and how many.

    A hit is protected when metadata[`key`] is one of `values`. `survivors` gives, per section, how many hits
    of a source type the result needs: {"financial_analysis": {"EXCEL": 2}}.
    """

    limit: int = option("Most hits that come back.", default=8, min=0)
    key: str = option("Metadata key that marks protected hits.", default="stage")
    values: tuple[str, ...] = option("Its values that protect.", default=("B",))
    survivors: Mapping[str, Mapping[str, int]] = option(
        "Per section, how many hits of a source type it needs: {financial_analysis: {EXCEL: 2}}.",
        default_factory=lambda: MappingProxyType({}),
    )
    source_type: str = option("Metadata key of the source type.", default="source_type")

    def __post_init__(self) -> None:
        check_options(self)

    def protects(self, hit: Hit) -> bool:
        """Whether the hit is one of those that may come back."""
        return str(hit.metadata.get(self.key, "")) in self.values

    def type_of(self, hit: Hit) -> str:
        """Return the hit's source type, or its source where it has none."""
        return str(hit.metadata.get(self.source_type) or hit.source)


def recoverable(
    hits: Sequence[Hit], *, k: int, policy: Recovery, section: str | None = None
) -> dict[str, str]:
    """Return the ids that a cut to k must spare, each with the reason."""
    spared: dict[str, str] = {}
    for hit in hits[k:]:
        if len(spared) < policy.limit and policy.protects(hit):
            spared[hit.id] = f"recovered: protected by {policy.key}={hit.metadata[policy.key]}"
    # Also those already within k: a later cut must not take them for fillers.
    for kind, number in policy.survivors.get(section or "", {}).items():
        of_kind = [hit for hit in hits if policy.type_of(hit) == kind]
        for hit in of_kind[:number]:
            spared.setdefault(hit.id, f"survivor: {section} needs {number} of {kind}")
    return spared


def recover(
    hits: Sequence[Hit],
    *,
    k: int,
    policy: Recovery | None = None,
    section: str | None = None,
    sink: Sink | None = None,
) -> Shaped:
    """Keep the first k and, behind them, what comes back; the result may be longer than k.

    Bring in the whole reranked pool. `protected` names the spared ids, so that a later cut can make room.
    """
    check_k(k)
    spared = recoverable(hits, k=k, policy=policy or Recovery(), section=section)
    kept = [hit for place, hit in enumerate(hits) if place < k or hit.id in spared]
    cut = [hit for hit in hits[k:] if hit.id not in spared]
    notes = {hit.id: spared[hit.id] for hit in kept[k:]} | {hit.id: f"k={k}" for hit in cut}
    return shaped(STAGE, hits, kept, cut, by_id=notes, protected=frozenset(spared), sink=sink)
