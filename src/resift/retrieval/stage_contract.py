"""What every stage must keep: no candidate invented, doubled or changed, and none lost without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from resift.errors import ResiftError
from resift.retrieval.pool import Pool
from resift.types import CUT, Hit


def settle(before: Pool, after: Pool, stage: str) -> Pool:
    """Return the stage's result with everything it dropped silently moved to `cut`.

    Raises ResiftError for hits that are not from the input, doubled, or changed.
    """
    if not isinstance(after, Pool):
        raise ResiftError(f"returned {type(after).__name__}, not a Pool")
    identify = _key if before.hits or before.cut else _fusing_key
    known: dict[object, list[Hit]] = {}
    for hit in _given(before):
        known.setdefault(identify(hit), []).append(hit)
    if len({_key(hit) for hit in after.hits}) != len(after.hits):
        raise ResiftError("returned a hit twice")
    told = set()
    for hit in (*after.hits, *after.cut):
        key = identify(hit)
        _refuse_stranger(hit, known.get(key))
        told.add(key)
    silent = [variants[0] for key, variants in known.items() if key not in told]
    dropped = [
        hit.step(CUT, "", rank=rank, score=None, note=f"dropped by {stage}")
        for rank, hit in enumerate(silent, start=len(after.hits) + 1)
    ]
    # The question and the limits are the caller's; a stage only moves candidates.
    fixed = replace(
        after, query=before.query, k=before.k, lists=before.lists, where=before.where, section=before.section,
        deadline=before.deadline, sink=before.sink,
    )  # fmt: skip
    return fixed.reorder(after.hits, cut=dropped)


def _key(hit: Hit) -> tuple[str, str]:
    return hit.id, hit.source


def _fusing_key(hit: Hit) -> str:
    # Fusing makes one hit of several stores' hits of one id.
    return hit.id


def _given(pool: Pool) -> Iterator[Hit]:
    if not pool.hits and not pool.cut:
        # Before the first order there are only the stores' lists.
        for hits in pool.lists.values():
            yield from hits
    yield from pool.hits
    yield from pool.cut


def _refuse_stranger(hit: Hit, variants: list[Hit] | None) -> None:
    if not variants:
        raise ResiftError("returned a hit that was not among its input")
    old = variants[0]
    if hit is old:
        return
    if hit.text is not old.text and not any(hit.text == each.text for each in variants):
        raise ResiftError("changed the text of a hit")
    # Several variants are several stores' hits of one id, whose ledgers fusing puts together.
    if len(variants) == 1 and len(hit.ledger) < len(old.ledger):
        raise ResiftError("removed steps from a hit's ledger")
