"""`resift.fuse`: ids, dicts or hits in, a Ranking out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from resift.errors import InputError
from resift.external.candidates import Candidates, hits_from
from resift.ranking.fusion.lists import Identity, Weights, labels
from resift.ranking.fusion.methods import method_with_options
from resift.ranking.fusion.normalize import Normalization
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace, cut_record
from resift.validation import check_k

Lists = Mapping[str, Candidates] | Sequence[Candidates]


class FuseOptions(TypedDict, total=False):
    """The options of the fusion methods; each method refuses those that it does not have."""

    weights: Weights | None
    sources: Sequence[str] | None
    identity: Identity
    k_param: float
    dialect: str | None
    normalize: Normalization
    phi: float
    epsilon: float


def fuse(
    lists: Lists, *, k: int | None = None, method: str = "rrf", **options: Unpack[FuseOptions]
) -> Ranking:
    """Fuse ranked lists into one Ranking; `cut` keeps what k leaves out.

    Lists are given as {source: candidates} or as a list of lists; strings in them are ids.
    """
    started = time.perf_counter()
    limit = None if k is None else check_k(k)
    rankings, names = _hits(lists)
    if names and "sources" not in options:
        options["sources"] = names
    # All are fused and cut here, so that what k leaves out keeps its place and score in `cut`.
    fused = method_with_options(method, options)(rankings, **options)
    kept = len(fused) if limit is None else min(limit, len(fused))
    records = [*_retrieved(rankings), *fused.records, *cut_record(fused.records[0].ids, kept)]
    return Ranking(
        tuple(fused[:kept]),
        cut=tuple(fused[kept:]),
        trace=Trace(tuple(records)),
        timings={"fuse": (time.perf_counter() - started) * 1000},
    )


def _retrieved(rankings: Sequence[Sequence[Hit]]) -> list[StageRecord]:
    """Return the record of each list as it came in."""
    names = labels([hits[0].source if hits else "" for hits in rankings])
    return [
        StageRecord(
            kind=StageKind.RETRIEVE,
            name="retrieve",
            source=name,
            ids=tuple([hit.id for hit in hits]),
            scores=tuple([hit.score for hit in hits]),
        )
        for name, hits in zip(names, rankings, strict=True)
    ]


def _hits(lists: Lists) -> tuple[list[list[Hit]], list[str]]:
    if isinstance(lists, Mapping):
        return [_ranked(candidates, name) for name, candidates in lists.items()], list(lists)
    if isinstance(lists, str) or not isinstance(lists, Sequence):
        kind = type(lists).__name__
        raise InputError(f"Lists are a {kind}; pass {{source: candidates}} or a list of lists.")
    return [_ranked(candidates, "") for candidates in lists], []


def _ranked(candidates: Candidates, name: str) -> list[Hit]:
    hits = hits_from(
        candidates,
        name=f"The list {name!r}" if name else "A list",
        source=name,
        strings_are="id",
        unique=False,
    )
    if not name or {hit.source for hit in hits} <= {name}:
        return hits
    # A list's name is what its hits are from, whatever they were called before.
    return [hit if hit.source == name else replace(hit, source=name) for hit in hits]
