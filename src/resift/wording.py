"""Ledgers in words, and ledgers replayed into an order. Pure functions on values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resift.types import CUT, Hit, Step

if TYPE_CHECKING:
    from resift.types import Ranking


def why(ranking: Ranking, id: str) -> str:
    """Say why the hit of that id stands where it stands, or why it is absent."""
    pool = len(ranking.hits) + len(ranking.cut)
    for place, hit in enumerate(ranking.hits, start=1):
        if hit.id == id:
            told = _path(hit.ledger.steps)
            flag = (
                " No scorer judged it, so it stands after those that were." if id in ranking.unscored else ""
            )
            return f"{id!r} is {ordinal(place)} of {len(ranking.hits)}, chosen from {pool}.{told}{flag}"
    for hit in ranking.cut:
        if hit.id == id:
            return _absent(hit, kept=len(ranking.hits), pool=pool)
    return _unknown(ranking, id, pool=pool)


def replay(hits: Sequence[Hit]) -> list[str]:
    """Return ids in the order that the hits' last steps give.

    Ranks decide; where a stage added up parts, its total must follow from them or the ledger is wrong.
    """
    placed = [(_last(hit), hit.id) for hit in hits]
    return [name for _, name in sorted(placed)]


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, … 11th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def show(score: float | None) -> str:
    """Return a score as people read it: four significant digits."""
    return "no score" if score is None else f"{score:.4g}"


def _last(hit: Hit) -> int:
    return hit.ledger[-1].rank if len(hit.ledger) else 0


def _path(steps: Sequence[Step]) -> str:
    """Tell the steps, parts of one stage in one sentence."""
    sentences: list[str] = []
    at = 0
    while at < len(steps):
        stage = steps[at].stage
        end = at + 1
        while end < len(steps) and steps[end].stage == stage:
            end += 1
        sentences.append(_sentence(stage, steps[at:end]))
        at = end
    return "".join(f" {sentence}" for sentence in sentences)


def _sentence(stage: str, steps: Sequence[Step]) -> str:
    parts = [step for step in steps[:-1] if step.source]
    total = steps[-1]
    if stage == "retrieve":
        found = ", ".join(
            f"{s.source or 'a list'} had it {ordinal(s.rank)}{_in_brackets(s.score)}" for s in steps
        )
        return f"Found: {found}{_notes(steps)}."
    added = " + ".join(f"{show(step.score)} from {step.source}" for step in parts)
    if total.score is None and not total.source:
        return f"{stage}: {ordinal(total.rank)}{_notes(steps)}."
    head = f"{stage}: {added} = " if added else f"{stage}: "
    by = f" by {total.source}" if total.source and not added else ""
    return f"{head}{show(total.score)}{by}, {ordinal(total.rank)}{_notes(steps)}."


def _in_brackets(score: float | None) -> str:
    return "" if score is None else f" ({show(score)})"


def _notes(steps: Sequence[Step]) -> str:
    notes = [step.note for step in steps if step.note]
    return f" ({'; '.join(notes)})" if notes else ""


def _absent(hit: Hit, *, kept: int, pool: int) -> str:
    last = hit.ledger[-1]
    cause = f": {last.note}" if last.stage == CUT and last.note else ""
    told = _path([step for step in hit.ledger if step.stage != CUT])
    return (
        f"{hit.id!r} is not among the {kept}: it was {ordinal(last.rank)} of {pool} and was cut{cause}.{told}"
    )


def _unknown(ranking: Ranking, id: str, *, pool: int) -> str:
    failed = ", ".join(f"{store} ({why})" for store, why in ranking.failures.items())
    cause = f" These stores gave nothing: {failed}." if failed else ""
    return (
        f"{id!r} was not among the {pool} candidates, so there was nothing to rank.{cause}"
        " Check the id, or let the first stage fetch more."
    )
