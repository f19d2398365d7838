"""Code that all fusion methods share: validate ranked lists, and build the fused list.

A method calls `prepare_lists`, computes one value per hit and list, and passes both to `fuse_values`, which
adds up the values and records the parts of each total.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Literal, NamedTuple, TypedDict, TypeVar, cast

from resift.errors import InputError, InvalidHitError, did_you_mean
from resift.types import FusedHits, Hit, StageKind, StageRecord, cut_record, with_scores
from resift.types.trace import LazyParts
from resift.validation import check_k, check_list, check_number

Identity = Literal["id", "content", "id-source"] | Callable[[Hit], str]
Weights = Sequence[float] | Mapping[str, float]
Rankings = Sequence[Sequence[Hit]]
Total = Callable[[list[float]], float]
T = TypeVar("T")

TOO_LARGE = "The scores are too large to add up. Normalize them: normalize='min-max'."


class ListOptions(TypedDict, total=False):
    """Options of all fusion methods.

    weights    the weight of each list, by position or by source name; 0 ignores a list
    sources    the precedence of sources: if several lists contain a hit, the text and metadata of the first
               source are kept; other lists follow in the order given
    identity   how hits are identified: id (default), content, id-source, or a function
    """

    weights: Weights | None
    sources: Sequence[str] | None
    identity: Identity


class RankedList(NamedTuple):
    """The hits of one source by identity key, best first. Duplicates are counted and dropped.

    `ranks` are positions in the original list. `retrieval_mode` is how the store retrieved the list.
    """

    name: str
    hits: Mapping[str, Hit]
    ranks: Sequence[int]
    weight: float
    duplicates: Mapping[str, int]
    by_id: bool = True
    retrieval_mode: str = ""

    def scores(self) -> list[float]:
        """Return the scores; an unscored hit gets the lowest score in the list, or 0 without any score."""
        scores = [hit.score for hit in self.hits.values()]
        if None not in scores:
            return cast("list[float]", scores)
        lowest = min((score for score in scores if score is not None), default=0.0)
        return [lowest if score is None else score for score in scores]


def prepare_lists(
    rankings: Rankings,
    *,
    weights: Weights | None = None,
    sources: Sequence[str] | None = None,
    identity: Identity = "id",
    retrieval_modes: Sequence[str] = (),
) -> list[RankedList]:
    """Validate the lists and sort them by declared source; lists with weight 0 are dropped."""
    names = list_names(rankings)
    factors = [1.0] * len(names) if weights is None else check_weights(weights, names)
    key_of = None if identity == "id" else key_function(identity)
    lists: list[RankedList] = []
    for name, hits, factor, mode in zip(names, rankings, factors, retrieval_modes or [""] * len(names), strict=True):
        if not factor:
            continue
        try:
            if key_of is None:
                by_key = {hit.id: hit for hit in hits}
            else:
                keys = list(map(key_of, hits))
                if not all(isinstance(key, str) for key in keys):
                    raise InputError("The identity function must return a string for every hit.")
                by_key = dict(zip(keys, hits, strict=True))
        except AttributeError:
            invalid = next((hit for hit in hits if not isinstance(hit, Hit)), None)
            if invalid is None:  # the identity function failed
                raise
            raise InvalidHitError(f"A ranked list contains a {type(invalid).__name__}; pass Hits.") from None
        # For ranks without gaps this is a range, so that RRF can take the reciprocals from a cache.
        ranks: Sequence[int] = range(1, len(hits) + 1)
        repeats: dict[str, int] = {}
        if len(by_key) < len(hits):
            # A repeated hit leaves a gap in the ranks, so that they match the list that users see.
            if key_of is None:
                keys = [hit.id for hit in hits]
            firsts = dict(zip(reversed(keys), zip(reversed(ranks), reversed(hits), strict=True), strict=True))
            by_key = {key: firsts[key][1] for key in by_key}
            ranks = [firsts[key][0] for key in by_key]
            repeats = {key: count - 1 for key, count in Counter(keys).items() if count > 1}
        lists.append(RankedList(name, by_key, ranks, factor, repeats, key_of is None, mode))
    return declared_order(lists, [ranked.name for ranked in lists], sources) if sources else lists


def declared_order(lists: list[T], names: Sequence[str], sources: Sequence[str] | None) -> list[T]:
    """Return the lists, which have these names, in the order of the declared sources."""
    if sources is None or sources == []:
        return lists
    declared = {str(name): i for i, name in enumerate(check_list(sources, "sources", "names"))}
    # The sort is stable: undeclared lists keep their order.
    order = sorted(range(len(lists)), key=lambda i: declared.get(names[i], len(declared)))
    return [lists[i] for i in order]


def key_function(identity: Identity) -> Callable[[Hit], str] | None:
    """Return the function that computes the identity key of a hit; None for the plain id."""
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
        "You can also pass a function that takes a hit and returns a string."
    )


def content_key(hit: Hit) -> str:
    """Return a hash of the text, or the id if the hit has no text."""
    if not hit.text.strip():
        return f"id:{hit.id}"
    # A lone surrogate is invalid text, but fusion must not fail because of it.
    return "sha256:" + hashlib.sha256(hit.text.encode("utf-8", "surrogatepass")).hexdigest()


def list_names(rankings: Rankings) -> list[str]:
    """Return the source of each list's first hit; raises InputError if an argument is not a list of hits."""
    if isinstance(rankings, (str, Mapping)) or not isinstance(rankings, Sequence):
        raise InputError(f"rankings is a {type(rankings).__name__}; pass a list of lists of Hits, or use resift.fuse.")
    names = []
    for number, hits in enumerate(rankings):
        if isinstance(hits, (str, Mapping)) or not isinstance(hits, Sequence):
            raise InputError(f"List {number} is a {type(hits).__name__}; pass a list of Hits.")
        try:
            names.append(hits[0].source if hits else "")
        except AttributeError:
            raise InvalidHitError(
                f"List {number} starts with a {type(hits[0]).__name__}; pass Hits, or use resift.fuse, "
                "which also accepts ids and dicts."
            ) from None
    return names


def unique_labels(names: Sequence[str]) -> list[str]:
    """Return a unique label for each list: its source, with a number if the source is empty or repeated."""
    return [
        name if name and names.count(name) == 1 else f"{name} list {number}".strip()
        for number, name in enumerate(names, start=1)
    ]


def check_weights(weights: Weights | None, names: Sequence[str]) -> list[float]:
    """Return one weight per list, given by position or by source name; the default is 1.0."""
    if weights is None:
        return [1.0] * len(names)
    if isinstance(weights, Mapping):
        for name in weights:
            if name not in names:
                hint = did_you_mean(str(name), filter(None, names))
                raise InputError(f"A weight is given for {name!r}, which is not a list. {hint}")
        weights = [weights.get(name, 1.0) for name in names]
    factors = [check_number(weight, "A weight") for weight in check_list(weights, "weights", "numbers")]
    if len(factors) != len(names):
        raise InputError(f"{len(factors)} weights for {len(names)} lists; pass one weight per list.")
    for factor in factors:
        if factor < 0:
            raise InputError(f"A weight is {factor}; weights must be finite and 0 or more (0 ignores the list).")
    if names and not any(factors):
        raise InputError("Every weight is 0, so there is no list to fuse; give at least one list a weight above 0.")
    return factors


def fuse_values(
    lists: Sequence[RankedList],
    values: Sequence[Sequence[float]],
    *,
    name: str,
    k: int | None = None,
    total: Total = fsum,
    totals: dict[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    evidence: Mapping[str, float] | None = None,
    note: str = "",
) -> FusedHits:
    """Add up one value per list and hit, and sort by (-total, id).

    The default total is fsum, because plain addition depends on the order of the lists and breaks exact ties.
    `totals` are the totals by key if the caller has them already. `weights`, `evidence` and `note` are stored
    in the record.
    """
    firsts: dict[str, Hit] = {}
    for ranked in reversed(lists):  # so that the first list with a key provides its hit
        firsts.update(ranked.hits)
    if totals is None:
        totals = _add_up(lists, values, total)
    by_id = not lists or lists[0].by_id
    # The sort is stable, so sorting by id and then by total is equivalent to sorting by (-total, id).
    keys = sorted(totals) if by_id else sorted(totals, key=lambda key: (firsts[key].id, key))
    keys.sort(key=totals.__getitem__, reverse=True)
    hits = list(map(firsts.__getitem__, keys))
    labels = unique_labels([ranked.name for ranked in lists])
    merged: dict[str, str] = {}
    notes: dict[str, str] = {}
    for ranked, label in zip(lists, labels, strict=True):
        if not by_id:
            merged |= {hit.id: firsts[key].id for key, hit in ranked.hits.items() if hit.id != firsts[key].id}
        for key, repeats in ranked.duplicates.items():
            id, repeated = firsts[key].id, f"listed {repeats + 1} times by {label}, counted once"
            notes[id] = f"{notes[id]}; {repeated}" if id in notes else repeated

    def parts() -> dict[str, dict[str, float]]:
        """Return list -> id -> the value from the list."""
        ids = [ranked.hits if by_id else [firsts[key].id for key in ranked.hits] for ranked in lists]
        columns = [dict(zip(keys, column, strict=True)) for keys, column in zip(ids, values, strict=True)]
        return dict(zip(labels, columns, strict=True))

    record = StageRecord(
        kind=StageKind.FUSE,
        name=name,
        ids=tuple(keys) if by_id else tuple([hit.id for hit in hits]),
        scores=tuple(map(totals.__getitem__, keys)),
        parts=LazyParts(parts),
        notes=notes,
        merged=merged,
        weights=weights or {},
        evidence=evidence or {},
        note=note,
    )
    limit = len(hits) if k is None else check_k(k)
    copies = with_scores(hits[:limit], record.scores[:limit])
    # Take a missing text from another list. `_text` loads nothing, because stores return empty texts loaded.
    if "" in [hit._text for hit in copies]:  # type: ignore[attr-defined]
        texts = {key: hit.text for ranked in reversed(lists) for key, hit in ranked.hits.items() if hit.text}
        copies = [
            copy if copy.text or key not in texts else replace(copy, text=texts[key])
            for copy, key in zip(copies, keys, strict=False)
        ]
    return FusedHits(copies, record, *cut_record(record.ids, limit))


def _add_up(lists: Sequence[RankedList], values: Sequence[Sequence[float]], total: Total) -> dict[str, float]:
    """Return a mapping from key to the total of its values in all lists."""
    parts: dict[str, list[float]] = {}
    for ranked, column in zip(lists, values, strict=True):
        for key, value in zip(ranked.hits, column, strict=True):
            if key in parts:
                parts[key].append(value)
            else:
                parts[key] = [value]
    try:
        totals = dict(zip(parts, map(total, parts.values()), strict=True))
    except OverflowError:
        raise InputError(TOO_LARGE) from None
    if not all(map(math.isfinite, totals.values())):
        raise InputError(TOO_LARGE)
    return totals
