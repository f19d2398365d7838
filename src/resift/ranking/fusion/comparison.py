"""How engines would disagree on the same lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resift.ranking.fusion.dialects import DIALECTS, fuse_as
from resift.ranking.fusion.lists import Rankings, Weights
from resift.ranking.fusion.rank_based import rrf
from resift.types import Hit
from resift.validation import DEFAULT_K


@dataclass(frozen=True, slots=True)
class Comparison:
    """One fused order per engine, ours (`resift`) first."""

    orders: Mapping[str, Sequence[Hit]]

    def ids(self, engine: str) -> list[str]:
        """Return the ids in that engine's order."""
        return [hit.id for hit in self.orders[engine]]

    def ranks(self) -> dict[str, dict[str, int | None]]:
        """Return per id the rank that each engine gives it, None where the engine has it not."""
        places = {
            engine: {hit.id: rank for rank, hit in enumerate(hits, start=1)}
            for engine, hits in self.orders.items()
        }
        everyone = dict.fromkeys(hit.id for hits in self.orders.values() for hit in hits)
        return {each: {engine: places[engine].get(each) for engine in self.orders} for each in everyone}

    def disagreements(self) -> list[str]:
        """Return the ids that do not have the same rank everywhere, widest spread first."""
        ranks = self.ranks()
        absent = len(ranks) + 1  # a hit that an engine does not have stands behind all that it has
        spread = {}
        for each, row in ranks.items():
            given = [rank or absent for rank in row.values()]
            spread[each] = max(given) - min(given)
        return sorted((each for each, wide in spread.items() if wide), key=lambda each: (-spread[each], each))


def compare(rankings: Rankings, *, k: int = DEFAULT_K, weights: Weights | None = None) -> Comparison:
    """Fuse the same lists as Resift and as each known engine does; weights where the engine has any."""
    orders: dict[str, Sequence[Hit]] = {"resift": rrf(rankings, k=k, weights=weights)}
    for name, dialect in DIALECTS.items():
        # A dialect refuses weights that its engine has not; here it takes part without them.
        own = None if dialect.weighing == "none" else weights
        orders[name] = fuse_as(name, rankings, k=k, weights=own)
    return Comparison(orders)
