"""What every stage must keep: no candidate invented, doubled or changed, and none lost without a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from resift.errors import ResiftError
from resift.retrieval.pool import Pool
from resift.types import Hit, StageKind, record_of


def checked(before: Pool, after: Pool, *, kind: StageKind, name: str) -> Pool:
    """Return the stage's result with its record in the trace and what it dropped silently in `cut`.

    Raises ResiftError for hits that are not from the input, doubled, or changed, and for a shortened trace.
    """
    if not isinstance(after, Pool):
        raise ResiftError(f"returned {type(after).__name__}, not a Pool")
    if after.trace.records[: len(before.trace)] != before.trace.records:
        raise ResiftError("removed records from the trace")
    dropped = _dropped(before, after)
    # The question and the limits are the caller's; a stage only moves candidates.
    fixed = replace(
        after, query=before.query, k=before.k, lists=before.lists, where=before.where, section=before.section,
        deadline=before.deadline, sink=before.sink,
    )  # fmt: skip
    return _recorded(before, fixed, dropped, kind=kind, name=name).reorder(after.hits, cut=dropped)


def _dropped(before: Pool, after: Pool) -> list[Hit]:
    """Return the candidates that the result does not mention any more."""
    first = not (before.hits or before.cut)
    known: dict[object, list[Hit]] = {}
    for hit in _given(before):
        known.setdefault(hit.id if first else (hit.id, hit.source), []).append(hit)
    if len({(hit.id, hit.source) for hit in after.hits}) != len(after.hits):
        raise ResiftError("returned a hit twice")
    mentioned = set()
    for hit in (*after.hits, *after.cut):
        # Fusing makes one hit of several stores' hits of one id; later a hit is known by both.
        key = hit.id if first else (hit.id, hit.source)
        _refuse_stranger(hit, known.get(key))
        mentioned.add(key)
    return [variants[0] for key, variants in known.items() if key not in mentioned]


def _recorded(before: Pool, after: Pool, dropped: Sequence[Hit], *, kind: StageKind, name: str) -> Pool:
    """Return the pool with a record of what the stage did, unless its own records say all of it."""
    own = after.trace.records[len(before.trace) :]
    order = tuple(hit.id for hit in after.hits)
    lost = [hit for hit in dropped if not any(hit.id in record.left_out for record in own)]
    changed = not own and _rescored(before, after)
    before_order = after.trace.order() if own else tuple(hit.id for hit in before.hits)
    if not lost and not changed and order == before_order:
        return after
    merged = {other: id for record in own for other, id in record.merged.items()}
    notes = {
        hit.id: f"the same as {merged[hit.id]!r}" if hit.id in merged else f"dropped by {name}"
        for hit in lost
    }
    return after.recorded(record_of(kind, name, after.hits, lost, scored=changed, notes=notes))


def _rescored(before: Pool, after: Pool) -> bool:
    old = {(hit.id, hit.source): hit.score for hit in before.hits}
    return any(old.get((hit.id, hit.source)) != hit.score for hit in after.hits)


def _given(pool: Pool) -> Iterator[Hit]:
    if not pool.hits and not pool.cut:
        # Before the first order there are only the stores' lists.
        for hits in pool.lists.values():
            yield from hits
    yield from pool.hits
    yield from pool.cut


def _refuse_stranger(hit: Hit, variants: Sequence[Hit] | None) -> None:
    if not variants:
        raise ResiftError("returned a hit that was not among its input")
    if hit.text is not variants[0].text and not any(hit.text == each.text for each in variants):
        raise ResiftError("changed the text of a hit")
