"""A hit's path in words: why it has its rank, or why it is absent. Pure functions on values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from resift.types import Ranking, StageKind, StageRecord, Step, Trace

_LABELS = {
    "doc": "Keyword search",
    "vector": "Vector search",
    "graph": "Graph search",
    "hybrid": "Hybrid search",
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def why(ranking: Ranking, id: str) -> str:
    """Explain the rank of a hit in words, or why it is absent."""
    if any(hit.id == id for hit in ranking.hits):
        return _explain_hits(ranking, [id])[id]
    pool = len(ranking.hits) + len(ranking.cut)
    if any(hit.id == id for hit in ranking.cut):
        return _absent(ranking, id, pool=pool)
    return _unknown(ranking, id, pool=pool)


def why_all(ranking: Ranking) -> dict[str, str]:
    """Return `why` of every hit by id; reads the trace once."""
    return _explain_hits(ranking, ranking.ids)


def _explain_hits(ranking: Ranking, ids: Sequence[str]) -> dict[str, str]:
    ranks = {hit.id: rank for rank, hit in enumerate(ranking.hits, start=1)}
    paths = ranking.trace.paths(ids)
    decided = deciding_parts(ranking.trace, ids)
    weights = _weight_notes(ranking.trace)
    pool = len(ranking.hits) + len(ranking.cut)
    explained = {}
    for id in ids:
        head = f"Ranked {ordinal(ranks[id])} of {len(ranking.hits)} ({_candidates(pool)})."
        unscored = (
            ["No reranker scored it, so it follows the hits with a score."] if id in ranking.unscored else []
        )
        explained[id] = " ".join([head, *sentences(paths[id], decided.get(id, ""), skip=weights), *unscored])
    return explained


@lru_cache(maxsize=1024)
def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, … 11th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def format_score(score: float | None) -> str:
    """Return a score for people: two decimals, more for small ones, never an exponent."""
    if score is None:
        return "no score"
    if abs(score) >= 1:
        return f"{score:.2f}"
    return f"{score:.4g}" if abs(score) >= 0.0001 else "0"


def sentences(steps: Sequence[Step], decided: str = "", *, skip: Collection[str] = ()) -> list[str]:
    """Return a sentence per stage, without the notes in `skip`.

    `decided` is the part of the blended score that moved the hit.
    """
    lists = Counter(_list_label(step) for step in steps if step.kind is StageKind.RETRIEVE)
    said: list[str] = []
    start = rank = 0
    for step in steps:
        if step.kind is StageKind.RETRIEVE:
            label = _list_label(step)
            label = f"{label} in {step.source}" if lists[label] > 1 and label != step.source else label
            said.append(f"{label}: {ordinal(step.rank)}{_in_brackets(step.note)}.")
            start = rank = step.rank if len(said) == 1 else 0
            continue
        blended = step.kind is StageKind.GUARD and bool(step.parts)
        # The blend weighs the evidence again from the start; every other stage changes the order before it.
        moved = (start if blended else rank) - step.rank if rank else 0
        note = "" if step.note in skip else step.note
        said += _stage_sentence(replace(step, note=note), moved, decided if blended else "", first=not rank)
        if step.kind is StageKind.FUSE or not start:
            start = step.rank
        rank = step.rank
    return said


def _list_label(step: Step) -> str:
    if step.source == "input":
        return "Input order"
    return _LABELS.get(step.searched) or step.source or "List"


def _weight_notes(trace: Trace) -> set[str]:
    """Return the notes that tell how much each side of a fusion or blend counted: the same for all hits."""
    return {record.note for record in trace if record.weights}


def _candidates(count: int) -> str:
    return "1 candidate" if count == 1 else f"{count} candidates"


def _stage_sentence(step: Step, moved: int, decided: str, *, first: bool) -> list[str]:
    name = step.source or step.name
    label = name[:1].upper() + name[1:]
    if step.kind is StageKind.FUSE:
        return [f"Fused: {ordinal(step.rank)} ({'; '.join(filter(None, (step.name, step.note)))})."]
    if step.kind is StageKind.RERANK:
        if step.score is None:
            return [f"{label}: not scored{_in_brackets(step.note)}."]
        return [f"{label}: {ordinal(step.rank)} ({_score_and_note(step)})."]
    if not moved:
        if step.score is not None and not step.parts:
            return [f"{label}: {_score_and_note(step)}."]
        told = "" if step.parts else step.note or (ordinal(step.rank) if first else "")
        return [f"{label}: {told}."] if told else []
    count = _NUMBERS[abs(moved)] if abs(moved) < len(_NUMBERS) else str(abs(moved))
    places = f"{count} place{'s' if abs(moved) > 1 else ''}"
    by = f"the {step.name}" if step.name in ("blend", "guard", "gate") else step.name
    cause = f", because of its {decided}" if decided else ""
    return [f"Moved {'up' if moved > 0 else 'down'} {places} by {by}{cause}{_in_brackets(step.note)}."]


def _score_and_note(step: Step) -> str:
    return "; ".join(filter(None, (format_score(step.score), step.note)))


def _in_brackets(note: str) -> str:
    return f" ({note})" if note else ""


def deciding_parts(trace: Trace, ids: Iterable[str]) -> dict[str, str]:
    """Return, for each hit that the blend moved, the part of its score that decided, in words.

    A hit is compared with the hits that it passed, or that passed it: the part in which they differ most in
    the direction of the move decided it.
    """
    blends = [record for record in trace.of(StageKind.GUARD) if record.parts]
    orders = trace.of(StageKind.FUSE) or trace.of(StageKind.RETRIEVE)[:1]
    if not blends or not orders:
        return {}
    blend, before, after = blends[-1], orders[-1].places(), blends[-1].places()
    return {
        id: part
        for id in ids
        if id in before and id in after and (part := _deciding_part(blend, id, before, after))
    }


def _deciding_part(blend: StageRecord, id: str, before: Mapping[str, int], after: Mapping[str, int]) -> str:
    up = after[id] < before[id]
    others = [
        other
        for other, place in after.items()
        if other != id
        and other in before
        and (place > after[id]) == up
        and (before[other] < before[id]) == up
    ]
    if not others or after[id] == before[id]:
        return ""
    sign = 1 if up else -1
    gains = {
        name: sign
        * (column.get(id, 0.0) - math.fsum(column.get(other, 0.0) for other in others) / len(others))
        for name, column in blend.parts.items()
    }
    name = max(gains, key=lambda part: gains[part])
    degree = "higher" if up else "lower"
    if name == "neighbours":
        return f"{degree}-scoring similar hits"
    return f"{degree} {name.replace('first stage', 'first-stage')} score"


def evidence_in_words(step: Step) -> str:
    """Return the parts of a score, the largest first; "" where the stage has none."""
    added = ""
    for part, value in sorted(step.parts, key=lambda one: -abs(one[1])):
        # Only the first keeps its own sign: "0.2 + -0.1" is hard to read.
        added += f" {'−' if value < 0 else '+'} " if added else ""
        added += f"{format_score(abs(value) if added else value)} from {part}"
    return f"{added} ({step.note})" if added and step.note else added


def _absent(ranking: Ranking, id: str, *, pool: int) -> str:
    steps = ranking.path(id)
    hits = "1 hit" if len(ranking.hits) == 1 else f"{len(ranking.hits)} hits"
    head = f"{id!r} is not among the {hits}"
    if not steps:
        return f"{head}; the trace does not tell why."
    last = steps[-1]
    cause = f": {last.note}" if last.cut and last.note else ""
    before = sentences([step for step in steps if not step.cut], skip=_weight_notes(ranking.trace))
    return " ".join(
        [f"{head}: it was {ordinal(last.rank)} of {_candidates(pool)} and was cut{cause}.", *before]
    )


def _unknown(ranking: Ranking, id: str, *, pool: int) -> str:
    for record in ranking.trace:
        if id in record.merged:
            return f"{id!r} was found to be the same as {record.merged[id]!r}, which stands for both."
    if not ranking.trace:
        return (
            f"{id!r} is not among the {len(ranking.hits)} hits, and this ranking has no trace of the other "
            "candidates. Save it with its trace, as search --json and Ranking.to_json do."
        )
    failed = ", ".join(f"{store} ({reason})" for store, reason in ranking.failures.items())
    cause = f" These stores gave nothing: {failed}." if failed else ""
    rough = [one.source for one in ranking.trace.of(StageKind.RETRIEVE) if one.note == "approximate"]
    if rough:
        cause += f" Searched approximately, so that it may have been passed over: {', '.join(rough)}."
    return (
        f"{id!r} was not among the {pool} candidates, so there was nothing to rank.{cause}"
        " Check the id, or let the first stage fetch more."
    )
