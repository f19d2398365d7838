"""Source precedence: who goes first when scores are as good as equal. Never more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from resift.errors import InputError
from resift.events import Sink
from resift.shape.shaped import Shaped, told
from resift.types import Hit, Step, draft

STAGE = "precedence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """Source types in order, and the margin from which on a difference of scores is real.

    The i-th of n types is boosted by scale × margin × (n − 1 − i) / n, so boosts differ by less than the
    margin; other types get none. `scales` shrinks both for providers whose scores lie closer together.
    """

    order: tuple[str, ...] = ("USER", "EXCEL", "COSTAR", "PDF")
    margin: float = 0.01
    key: str = "source_type"
    scales: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"semantic-bm25": 0.5}))

    def __post_init__(self) -> None:
        if self.margin < 0 or any(scale < 0 for scale in self.scales.values()):
            raise InputError("Precedence needs a margin ≥ 0 and scales ≥ 0.")
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
    value is in the ledger.
    """
    rules = policy or Precedence()
    boosts: dict[tuple[str, str | None], float] = {}
    keyed = []
    for hit in hits:
        kind = str(hit.metadata.get(rules.key, ""))
        provider = hit.rerank_provider
        boost = boosts.get((kind, provider))
        if boost is None:
            boost = boosts[kind, provider] = rules.boost(kind, provider)
        # The plain score comes second: where a huge score swallows the boosts, a real gap still decides.
        keyed.append((-(hit.score + boost), -hit.score, rules.rank(kind), hit.id, kind, boost, hit))
    keyed.sort(key=_by_place)
    kept = tuple(
        _stepped(row[6], rank, -row[0], f"{row[4]} +{row[5]:.4g}" if row[5] else "")
        for rank, row in enumerate(keyed, start=1)
    )
    return told(STAGE, hits, Shaped(kept), sink)


def _by_place(row: tuple[float, float, int, str, str, float, Hit]) -> tuple[float, float, int, str]:
    return row[:4]


def _stepped(hit: Hit, rank: int, boosted: float, note: str) -> Hit:
    ledger = hit.ledger.then(Step(STAGE, "", rank, boosted, note))
    return draft(hit.id, hit.text, hit.score, hit.source, hit.metadata, ledger)
