"""What every stage must keep: no candidate invented, doubled or changed, and none lost without a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from resift.errors import ResiftError
from resift.retrieval.pool import Pool
from resift.types import Hit, StageKind, Trace, record_of


def validate_stage_output(before: Pool, after: Pool, *, kind: StageKind, name: str) -> Pool:
    """Return the stage's result with its record in the trace and what it dropped silently in `cut`.

    Raises ResiftError for hits that are not from the input, doubled, or changed, and for a shortened trace.
    """
    if not isinstance(after, Pool):
        raise ResiftError(f"returned {type(after).__name__}, not a Pool")
    # Cheap: the records are the same objects, which is seen before any field is compared.
    if after.trace[: len(before.trace)] != before.trace:
        raise ResiftError("removed records from the trace")
    dropped = _dropped(before, after)
    done = after.reorder(after.hits, cut=dropped) if dropped or after.cut else after
    # The question and the limits are the caller's; a stage only moves candidates.
    return replace(
        _recorded(before, done, dropped, kind=kind, name=name),
        query=before.query, k=before.k, lists=before.lists, where=before.where, section=before.section,
        deadline=before.deadline, sink=before.sink, breaker_closed=before.breaker_closed,
    )  # fmt: skip


def _dropped(before: Pool, after: Pool) -> list[Hit]:
    """Return the candidates that the result does not mention any more."""
    given = _given(before)
    # Before the first order a candidate is an id, of which stores may have several hits.
    first = not (before.hits or before.cut)
    by_source = not first and len({hit.id for hit in given}) < len(given)
    candidates = _keys(given, by_source=by_source)
    known = dict(zip(reversed(candidates), reversed(given), strict=True))  # of several the first
    if len(set(_keys(after.hits, by_source=True))) != len(after.hits):
        raise ResiftError("returned a hit twice")
    mentioned = [*after.hits, *after.cut]
    keys = _keys(mentioned, by_source=by_source)
    if not known.keys() >= set(keys):
        raise ResiftError("returned a hit that was not among its input")
    # Nearly always the very same string: that is seen without reading it.
    for key, text in [
        (key, hit.text) for key, hit in zip(keys, mentioned, strict=True) if hit.text is not known[key].text
    ]:
        if text not in [hit.text for one, hit in zip(candidates, given, strict=True) if one == key]:
            raise ResiftError("changed the text of a hit")
    gone = known.keys() - set(keys)
    return [known[key] for key in dict.fromkeys(candidates) if key in gone] if gone else []


def _keys(hits: Iterable[Hit], *, by_source: bool) -> list[object]:
    return [(hit.id, hit.source) for hit in hits] if by_source else [hit.id for hit in hits]


def _recorded(before: Pool, after: Pool, dropped: Sequence[Hit], *, kind: StageKind, name: str) -> Pool:
    """Return the pool with a record of what the stage did, unless its own records say all of it."""
    own = after.trace[len(before.trace) :]
    order = tuple([hit.id for hit in after.hits])
    lost = [hit for hit in dropped if not any(hit.id in record.left_out for record in own)]
    changed = not own and _rescored(before, after)
    before_order = after.trace.order() if own else tuple([hit.id for hit in before.hits])
    if not lost and not changed and order == before_order:
        return after
    merged = {other: id for record in own for other, id in record.merged.items()}
    notes = {
        hit.id: f"the same as {merged[hit.id]!r}" if hit.id in merged else f"dropped by {name}"
        for hit in lost
    }
    if own and order == before_order:
        # The stage's own record, with what it passed over in silence.
        last = own[-1]
        whole = replace(
            last,
            ids=(*last.ids, *(hit.id for hit in lost)),
            scores=(*last.scores, *(None for _ in lost)) if last.scores else (),
            kept=len(order),
            notes={**last.notes, **notes},
        )
        return replace(after, trace=Trace((*after.trace[:-1], whole)))
    return after.recorded(record_of(kind, name, after.hits, lost, scored=changed, notes=notes))


def _rescored(before: Pool, after: Pool) -> bool:
    old = {(hit.id, hit.source): hit.score for hit in before.hits}
    return any(old.get((hit.id, hit.source)) != hit.score for hit in after.hits)


def _given(pool: Pool) -> list[Hit]:
    if pool.hits or pool.cut:
        return [*pool.hits, *pool.cut]
    # Before the first order there are only the stores' lists.
    return [hit for hits in pool.lists.values() for hit in hits]
