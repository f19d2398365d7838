"""Ranked lists made ready for fusion: checked, without duplicates, in their declared order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict, TypeVar

from resift.errors import InputError, InvalidHitError, did_you_mean
from resift.types import Hit
from resift.validation import check_list, check_number

Identity = Literal["id", "content", "id-source"] | Callable[[Hit], str]
Weights = Sequence[float] | Mapping[str, float]
Rankings = Sequence[Sequence[Hit]]
T = TypeVar("T")


class ListOptions(TypedDict, total=False):
    """What every fusion method takes beside its own options.

    k          how many of the fused hits to return; all of them unless given
    weights    how much each list counts, by position or by source name; 0 leaves a list out
    sources    whose text and metadata win where several lists hold a hit, the first one first; lists that
               are not named follow in the order given
    identity   what makes two hits the same: id (default), content, id-source, or a function
    """

    k: int | None
    weights: Weights | None
    sources: Sequence[str] | None
    identity: Identity


class RankedList(NamedTuple):
    """One source's hits by what makes them the same, best first; duplicates are counted, not kept.

    `ranks` are places in the list as it was given; `searched` is how a store looked for the list.
    """

    name: str
    hits: Mapping[str, Hit]
    ranks: Sequence[int]
    weight: float
    duplicates: Mapping[str, int]
    by_id: bool = True
    searched: str = ""

    def scores(self) -> list[float]:
        """Return the hits' scores; one that nobody judged counts as the lowest of its list, or as 0."""
        found = [hit.score for hit in self.hits.values()]
        if None not in found:
            return found  # type: ignore[return-value]
        lowest = min((score for score in found if score is not None), default=0.0)
        return [lowest if score is None else score for score in found]


def prepare(
    rankings: Rankings,
    *,
    k: int | None = None,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
    searched: Sequence[str] = (),
) -> list[RankedList]:
    """Check the lists and put them into their declared order; lists of weight 0 are absent."""
    # Named before any list is left out: weights are given for all of them.
    names = list_names(rankings)
    factors = list_weights(weights, names)
    key_of = key_function(identity)
    lists = [
        _ranked_list(name, hits, factor, key_of, kind)
        for name, hits, factor, kind in zip(
            names, rankings, factors, searched or [""] * len(names), strict=True
        )
        if factor > 0
    ]
    return declared_order(lists, [ranked.name for ranked in lists], sources)


def declared_order(lists: list[T], names: Sequence[str], sources: Sequence[str] | None) -> list[T]:
    """Return the lists, whose names stand beside them, in the order of the declared sources."""
    if sources is None or sources == []:
        return lists
    declared = {str(name): place for place, name in enumerate(check_list(sources, "sources", "names"))}
    # Python's sort is stable: lists that are not declared stay in the order given.
    places = sorted(range(len(lists)), key=lambda at: declared.get(names[at], len(declared)))
    return [lists[at] for at in places]


def key_function(identity: Identity) -> Callable[[Hit], str] | None:
    """Return what makes two hits the same; None stands for the plain id."""
    if callable(identity):
        return identity
    if identity == "id":
        return None
    if identity == "content":
        return content_key
    if identity == "id-source":
        return lambda hit: f"{hit.id}\0{hit.source}"
    raise InputError(
        f"Unknown identity {identity!r}. {did_you_mean(str(identity), ['id', 'content', 'id-source'])} "
        "A function from a hit to a string works too."
    )


def content_key(hit: Hit) -> str:
    """Return a hash of the text, or the id where there is no text to hash."""
    if not hit.text.strip():
        return f"id:{hit.id}"
    # Half a character (a lone surrogate) is no valid text, but it must not stop a fusion.
    return "sha256:" + hashlib.sha256(hit.text.encode("utf-8", "surrogatepass")).hexdigest()


def list_names(rankings: Rankings) -> list[str]:
    """Return the source of each list's first hit; raise InputError for anything but lists of hits."""
    if isinstance(rankings, (str, Mapping)) or not isinstance(rankings, Sequence):
        raise InputError(
            f"Rankings are a {type(rankings).__name__}; pass a list of lists of Hits, or use resift.fuse."
        )
    return [_name(hits, number) for number, hits in enumerate(rankings)]


def labels(names: Sequence[str]) -> list[str]:
    """Return a different name for each list: its source, or its number where that says too little."""
    # The record has a column per list: two lists of one source must not share one.
    return [
        name if name and names.count(name) == 1 else f"{name} list {number}".strip()
        for number, name in enumerate(names, start=1)
    ]


def list_weights(weights: Weights | None, names: Sequence[str]) -> list[float]:
    """Return one weight per list: 1.0 by default, by position, or by source name."""
    if weights is None:
        return [1.0] * len(names)
    given = _by_name(weights, names) if isinstance(weights, Mapping) else weights
    factors = [check_number(each, "A weight") for each in check_list(given, "weights", "numbers")]
    if len(factors) != len(names):
        raise InputError(f"{len(factors)} weights for {len(names)} lists; give one weight per list.")
    for factor in factors:
        if factor < 0:
            raise InputError(f"A weight is {factor}; weights are finite and ≥ 0 (0 leaves the list out).")
    if names and not any(factors):
        raise InputError("Every weight is 0, which leaves no list to fuse; give one list a weight above 0.")
    return factors


def _name(hits: Sequence[Hit], number: int) -> str:
    if isinstance(hits, (str, Mapping)) or not isinstance(hits, Sequence):
        raise InputError(f"List {number} is a {type(hits).__name__}; pass a list of Hits.")
    try:
        return hits[0].source if hits else ""
    except AttributeError:
        raise InvalidHitError(
            f"List {number} starts with a {type(hits[0]).__name__}; pass Hits, or use resift.fuse, "
            "which also takes ids and dicts."
        ) from None


def _by_name(weights: Mapping[str, float], names: Sequence[str]) -> list[float]:
    for name in weights:
        if name not in names:
            raise InputError(
                f"A weight is given for {name!r}. {did_you_mean(str(name), filter(None, names))}"
            )
    return [weights.get(name, 1.0) for name in names]


def _ranked_list(
    name: str, hits: Sequence[Hit], weight: float, key_of: Callable[[Hit], str] | None, searched: str
) -> RankedList:
    try:
        by_key = {hit.id: hit for hit in hits}
    except AttributeError:
        wrong = next(hit for hit in hits if not isinstance(hit, Hit))
        raise InvalidHitError(f"A ranked list holds a {type(wrong).__name__}; pass Hits.") from None
    if key_of is not None:
        by_key = dict(zip(_keys(hits, key_of), hits, strict=True))
    if len(by_key) < len(hits):
        return _without_duplicates(name, hits, weight, key_of, searched)
    # A range, where ranks have no gaps, lets RRF take its reciprocals from a table.
    return RankedList(name, by_key, range(1, len(hits) + 1), weight, {}, key_of is None, searched)


def _keys(hits: Sequence[Hit], key_of: Callable[[Hit], str]) -> list[str]:
    keys = [key_of(hit) for hit in hits]
    if not all(isinstance(key, str) for key in keys):
        raise InputError("The identity function must return a string for every hit.")
    return keys


def _without_duplicates(
    name: str, hits: Sequence[Hit], weight: float, key_of: Callable[[Hit], str] | None, searched: str
) -> RankedList:
    first: dict[str, Hit] = {}
    ranks: list[int] = []
    repeats: dict[str, int] = {}
    for rank, hit in enumerate(hits, start=1):
        key = hit.id if key_of is None else key_of(hit)
        if key in first:
            repeats[key] = repeats.get(key, 0) + 1
        else:
            first[key] = hit
            # Its own rank, with a gap for the repeated hit: whoever reads the list sees that one, too.
            ranks.append(rank)
    return RankedList(name, first, ranks, weight, repeats, key_of is None, searched)
