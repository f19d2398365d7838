"""`resift.fuse`: ids, dicts or hits in, a Ranking out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from resift.candidates import Candidate, hits_from
from resift.errors import InputError
from resift.fusion.lists import checked_k
from resift.fusion.methods import fusion_method
from resift.types import Hit, Ledger, Ranking, Step, cut_to

Lists = Mapping[str, Iterable[Candidate]] | Sequence[Iterable[Candidate]]


def fuse(lists: Lists, *, k: int | None = None, method: str = "rrf", **options: Any) -> Ranking:
    """Fuse ranked lists into one Ranking; `cut` keeps what k leaves out.

    Lists are given as {source: candidates} or as a list of lists; strings in them are ids.
    """
    started = time.perf_counter()
    limit = checked_k(k)
    rankings, names = _hits(lists)
    if names and "sources" not in options and options.get("dialect") is None:
        options["sources"] = names
    fused = fusion_method(method)(rankings, **options)
    kept, cut = cut_to(fused, len(fused) if limit is None else limit)
    elapsed_ms = (time.perf_counter() - started) * 1000
    return Ranking(kept, cut=cut, timings={"fuse": elapsed_ms})


def _hits(lists: Lists) -> tuple[list[list[Hit]], list[str]]:
    if isinstance(lists, Mapping):
        return [_ranked(candidates, name) for name, candidates in lists.items()], list(lists)
    if isinstance(lists, str) or not isinstance(lists, Sequence):
        kind = type(lists).__name__
        raise InputError(f"Lists are a {kind}; pass {{source: candidates}} or a list of lists.")
    return [_ranked(candidates, "") for candidates in lists], []


def _ranked(candidates: Iterable[Candidate], name: str) -> list[Hit]:
    given = candidates if isinstance(candidates, (str, Mapping)) else list(candidates)
    hits = hits_from(given, source=name, strings_are="id", unique=False, bad_score="raise")
    return [
        _told(hit, name or hit.source, rank, has_score=_has_score(candidate))
        for rank, (candidate, hit) in enumerate(zip(given, hits, strict=True), start=1)
    ]


def _has_score(candidate: Candidate) -> bool:
    return isinstance(candidate, Hit) or (
        isinstance(candidate, Mapping) and candidate.get("score") is not None
    )


def _told(hit: Hit, name: str, rank: int, *, has_score: bool) -> Hit:
    """Name the hit's source after its list, and say where it stood there."""
    steps = hit.ledger or Ledger([Step("retrieve", name, rank, hit.score if has_score else None)])
    return replace(hit, source=name, ledger=steps)
