"""The neighbourhood of some articles: bounded by hops and by nodes, the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from resift.agent.pack import Pack
from resift.errors import InputError

MAX_HOPS = 3
MAX_NODES = 100


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Articles with their distance in hops from the first ones, and the links among them."""

    distance: dict[str, int] = field(default_factory=dict)
    links: tuple[tuple[str, str, int], ...] = ()

    @property
    def mean_degree(self) -> float:
        """Links per article, counted at both ends; two directions between the same two count once."""
        pairs = {frozenset((one, other)) for one, other, _ in self.links if one != other}
        return 2 * len(pairs) / len(self.distance) if self.distance else 0.0


def expand(
    pack: Pack, articles: Sequence[str], *, hops: int = 1, max_nodes: int = MAX_NODES
) -> Neighbourhood:
    """Follow links in both directions; where there are too many, those met most often come first."""
    check_bounds(hops, max_nodes)
    distance = dict.fromkeys(list(dict.fromkeys(articles))[:max_nodes], 0)
    frontier = list(distance)
    for hop in range(1, hops + 1):
        met = Counter(other for _, other in pack.neighbours(frontier) if other not in distance)
        order = sorted(met, key=lambda id: (-met[id], id))
        frontier = order[: max_nodes - len(distance)]
        distance.update(dict.fromkeys(frontier, hop))
        if not frontier:
            break
    return Neighbourhood(distance, tuple(pack.links_among(distance)))


def check_bounds(hops: int, max_nodes: int) -> None:
    """Raise InputError for an expansion that is not bounded."""
    if isinstance(hops, bool) or not isinstance(hops, int) or not 0 <= hops <= MAX_HOPS:
        raise InputError(f"hops is {hops!r}; pass 0 to {MAX_HOPS}.")
    if isinstance(max_nodes, bool) or not isinstance(max_nodes, int) or not 1 <= max_nodes <= MAX_NODES:
        raise InputError(f"max_nodes is {max_nodes!r}; pass 1 to {MAX_NODES}.")
