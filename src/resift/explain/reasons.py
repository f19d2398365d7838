"""A hit's path in words: why it stands where it stands, or why it is absent. Pure functions on values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from resift.types import Ranking, StageKind, Step


def why(ranking: Ranking, id: str) -> str:
    """Say why the hit of that id stands where it stands, or why it is absent."""
    steps = ranking.path(id)
    for place, hit in enumerate(ranking.hits, start=1):
        if hit.id == id:
            return _placed(ranking, id, place, steps)
    pool = len(ranking.hits) + len(ranking.cut)
    if any(hit.id == id for hit in ranking.cut):
        return _absent(id, steps, kept=len(ranking.hits), pool=pool)
    return _unknown(ranking, id, pool=pool)


def why_all(ranking: Ranking) -> dict[str, str]:
    """Say of every hit why it stands where it stands, by id; the trace is read once."""
    paths = ranking.trace.paths(ranking.ids)
    places = {hit.id: place for place, hit in enumerate(ranking.hits, start=1)}
    return {id: _placed(ranking, id, place, paths[id]) for id, place in places.items()}


def _placed(ranking: Ranking, id: str, place: int, steps: Sequence[Step]) -> str:
    kept, pool = len(ranking.hits), len(ranking.hits) + len(ranking.cut)
    flag = " No scorer judged it, so it stands after those that were." if id in ranking.unscored else ""
    return f"{id!r} is {ordinal(place)} of {kept}, chosen from {pool}.{sentences(steps)}{flag}"


@lru_cache(maxsize=1024)
def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, … 11th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def format_score(score: float | None) -> str:
    """Return a score as people read it: four significant digits."""
    return "no score" if score is None else f"{score:.4g}"


def sentences(steps: Sequence[Step]) -> str:
    """Return a sentence per stage, the lists of the first stage in one."""
    parts: list[str] = []
    for first_stage, group in groupby(steps, key=lambda step: step.kind is StageKind.RETRIEVE):
        met = list(group)
        parts += [_found(met)] if first_stage else [_judged(step) for step in met]
    return "".join(f" {sentence}" for sentence in parts)


def _found(steps: Sequence[Step]) -> str:
    lists = ", ".join(
        f"{step.source or 'a list'} had it {ordinal(step.rank)}{_brackets(step)}" for step in steps
    )
    notes = "; ".join(step.note for step in steps if step.note)
    return f"Found: {lists}{f' ({notes})' if notes else ''}."


def _brackets(step: Step) -> str:
    return "" if step.score is None else f" ({format_score(step.score)})"


def evidence_in_words(step: Step) -> str:
    """Return what a hit's score in a stage was made of, "" where the stage does not say."""
    added = _added(step)
    return f"{added} ({step.note})" if added and step.note else added


def _added(step: Step) -> str:
    said = ""
    for part, value in step.parts:
        # Only the first may stand with its own sign: "0.2 + -0.1" is hard to read.
        said += f" {'−' if value < 0 else '+'} " if said else ""
        said += f"{format_score(abs(value) if said else value)} from {part}"
    return said


def _judged(step: Step) -> str:
    note = f" ({step.note})" if step.note else ""
    if step.score is None and not step.source:
        return f"{step.name}: {ordinal(step.rank)}{note}."
    added = _added(step)
    by = f" by {step.source}" if step.source and not added else ""
    return (
        f"{step.name}: {f'{added} = ' if added else ''}{format_score(step.score)}{by}, "
        f"{ordinal(step.rank)}{note}."
    )


def _absent(id: str, steps: Sequence[Step], *, kept: int, pool: int) -> str:
    before = [step for step in steps if not step.cut]
    last = steps[-1] if steps else None
    if last is None:
        return f"{id!r} is not among the {kept}; the trace does not say why."
    cause = f": {last.note}" if last.cut and last.note else ""
    return (
        f"{id!r} is not among the {kept}: it was {ordinal(last.rank)} of {pool} and was cut{cause}."
        f"{sentences(before)}"
    )


def _unknown(ranking: Ranking, id: str, *, pool: int) -> str:
    for record in ranking.trace:
        if id in record.merged:
            return f"{id!r} was found to be the same as {record.merged[id]!r}, which stands for both."
    failed = ", ".join(f"{store} ({reason})" for store, reason in ranking.failures.items())
    cause = f" These stores gave nothing: {failed}." if failed else ""
    rough = [one.source for one in ranking.trace.of(StageKind.RETRIEVE) if one.note == "approximate"]
    if rough:
        cause += f" Searched approximately, so that it may have been passed over: {', '.join(rough)}."
    return (
        f"{id!r} was not among the {pool} candidates, so there was nothing to rank.{cause}"
        " Check the id, or let the first stage fetch more."
    )
