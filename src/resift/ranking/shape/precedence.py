"""Source precedence: who goes first when scores are as good as equal. Never more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from resift.errors import InputError
from resift.events import Sink
from resift.ranking.shape.shaped import Shaped, shaped
from resift.types import Hit, StageKind, StageRecord
from resift.validation import check_options, option

STAGE = "precedence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """Source types in order, and the margin from which on a difference of scores is real.

    The i-th of n types is boosted by scale × margin × (n − 1 − i) / n, so boosts differ by less than the
    margin; other types get none. `scales` shrinks both for providers whose scores lie closer together.
    """

    order: tuple[str, ...] = option(
        "Source types, the most trusted first.", default=("USER", "EXCEL", "COSTAR", "PDF")
    )
    margin: float = option("From this gap on, scores are never flipped.", default=0.01, min=0)
    key: str = option("Metadata key of the source type.", default="source_type")
    scales: Mapping[str, float] = option(
        "Smaller margin per provider.",
        default_factory=lambda: MappingProxyType({"semantic-bm25": 0.5}),
        min=0,
    )

    def __post_init__(self) -> None:
        check_options(self)
        if len(set(self.order)) != len(self.order):
            raise InputError(f"Precedence order names a type twice: {', '.join(self.order)}.")

    def margin_for(self, provider: str | None) -> float:
        """Return the smallest gap that counts as real in that provider's scores."""
        return self.margin * self.scales.get(provider or "", 1.0)

    def boost(self, source_type: str, provider: str | None) -> float:
        """Return what is added to a score of that type from that provider."""
        size = len(self.order)
        place = self.order.index(source_type) if source_type in self.order else size - 1
        return self.margin_for(provider) * (size - 1 - place) / size if size else 0.0

    def rank(self, source_type: str) -> int:
        """Return the place of a type; types that are not named come after all that are."""
        return self.order.index(source_type) if source_type in self.order else len(self.order)


def precede(hits: Sequence[Hit], *, policy: Precedence | None = None, sink: Sink | None = None) -> Shaped:
    """Order by score plus boost; equal scores follow the precedence, a gap ≥ the margin is never flipped.

    `Hit.score` stays the relevance that was measured (so running it twice changes nothing); the boosted
    value is in the record. Hits that nobody judged stay behind, in their order.
    """
    rules = policy or Precedence()
    known: dict[tuple[str, str | None], tuple[float, int]] = {}
    keyed = []
    notes: dict[str, str] = {}
    for at, hit in enumerate(hits):
        if hit.score is None:
            keyed.append((True, 0.0, 0.0, 0, "", at))
            continue
        kind, provider = str(hit.metadata.get(rules.key, "")), hit.metadata.get("rerank_provider")
        found = known.get((kind, provider))
        if found is None:
            found = known[kind, provider] = rules.boost(kind, provider), rules.rank(kind)
        if found[0]:
            notes[hit.id] = f"{kind} +{found[0]:.4g}"
        # The plain score comes second: where a huge score swallows the boosts, a real gap still decides.
        # The old place comes last: what is equal in all else stays as it stood.
        keyed.append((False, -(hit.score + found[0]), -hit.score, found[1], hit.id, at))
    keyed.sort()
    kept = [hits[row[-1]] for row in keyed]
    record = StageRecord(
        kind=StageKind.SHAPE,
        name=STAGE,
        ids=tuple(hit.id for hit in kept),
        scores=tuple(None if unjudged else -boosted for unjudged, boosted, *_ in keyed),
        notes=notes,
    )
    return shaped(STAGE, hits, kept, record=record, sink=sink)
