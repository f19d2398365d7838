"""Describe the path of a hit in words: why it has its rank, or why it is missing (`Ranking.why`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from resift.types import Ranking, StageKind, StageRecord, Step, Trace

_LIST_LABELS = {
    "lexical": "Keyword search",
    "dense": "Vector search",
    "graph": "Graph search",
    "hybrid": "Hybrid search",
    "doc": "Keyword search",
    "vector": "Vector search",
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def why(ranking: Ranking, id: str) -> str:
    """Explain the rank of a hit in words, or why it is absent."""
    if any(hit.id == id for hit in ranking.hits):
        return _explain_hits(ranking, [id])[id]
    if all(hit.id != id for hit in ranking.cut):
        return _explain_unknown(ranking, id)
    steps = ranking.path(id)
    head = f"{id!r} is not among the {len(ranking.hits)} hit{'' if len(ranking.hits) == 1 else 's'}"
    if not steps:
        return f"{head}; the trace contains no reason."
    last = steps[-1]
    cause = f": {last.note}" if last.cut and last.note else ""
    head += f": it was {ordinal(last.rank)} of {_count_candidates(ranking)} and was cut{cause}."
    before = [step for step in steps if not step.cut]
    return " ".join([head, *_describe_steps(before, skip=_weight_notes(ranking.trace))])


def why_all(ranking: Ranking) -> dict[str, str]:
    """Return the explanation of every hit by id. The trace is read once."""
    return _explain_hits(ranking, ranking.ids)


MAX_COMPARED = 200  # hits for which `why_all` names the deciding part of the score


@lru_cache(maxsize=1024)
def ordinal(number: int) -> str:
    """Return the English ordinal: 1st, 2nd, 3rd, 4th, … 11th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def format_score(score: float | None) -> str:
    """Format a score for display: two decimals, more for small scores, never an exponent."""
    if score is None:
        return "no score"
    if abs(score) >= 1:
        return f"{score:.2f}"
    return f"{score:.4g}" if abs(score) >= 0.0001 else "0"


def describe_parts(step: Step) -> str:
    """Return the parts of a score, largest first, or "" if it has none."""
    text = ""
    for part, value in sorted(step.parts, key=lambda entry: -abs(entry[1])):
        # Only the first part keeps its sign, because "0.2 + -0.1" is hard to read.
        text += f" {'−' if value < 0 else '+'} " if text else ""
        text += f"{format_score(abs(value) if text else value)} from {part}"
    return f"{text} ({step.note})" if text and step.note else text


def deciding_parts(trace: Trace, ids: Iterable[str]) -> dict[str, str]:
    """Describe the deciding part of the score for each hit that the blend moved.

    It is the part that differs most from the hits that this hit overtook, or that overtook it.
    """
    blends = [record for record in trace.by_kind(StageKind.GUARD) if record.parts]
    orders = trace.by_kind(StageKind.FUSE) or trace.by_kind(StageKind.RETRIEVE)[:1]
    if not blends or not orders:
        return {}
    blend, before, after = blends[-1], orders[-1].positions(), blends[-1].positions()
    parts = {id: _deciding_part(blend, id, before, after) for id in ids if id in before and id in after}
    return {id: part for id, part in parts.items() if part}


def _deciding_part(blend: StageRecord, id: str, before: Mapping[str, int], after: Mapping[str, int]) -> str:
    up = after[id] < before[id]
    overtaken = [
        other
        for other, rank in after.items()
        if other != id and other in before and (rank > after[id]) == up and (before[other] < before[id]) == up
    ]
    if not overtaken or after[id] == before[id]:
        return ""
    sign = 1 if up else -1
    gains = {
        name: sign * (column.get(id, 0.0) - math.fsum(column.get(other, 0.0) for other in overtaken) / len(overtaken))
        for name, column in blend.parts.items()
    }
    name = max(gains, key=lambda part: gains[part])
    degree = "higher" if up else "lower"
    if name in ("neighbors", "neighbours"):
        return f"{degree}-scoring similar hits"
    return f"{degree} {name.replace('first stage', 'first-stage')} score"


def _explain_hits(ranking: Ranking, ids: Sequence[str]) -> dict[str, str]:
    ranks = {hit.id: rank for rank, hit in enumerate(ranking.hits, start=1)}
    paths = ranking.trace.paths(ids)
    # Each of these hits is compared with all others, which would take minutes for thousands of hits.
    decided = deciding_parts(ranking.trace, ids[:MAX_COMPARED])
    unscored = frozenset(ranking.unscored)
    weight_notes = _weight_notes(ranking.trace)
    pool = _count_candidates(ranking)
    explanations = {}
    for id in ids:
        parts = [f"Ranked {ordinal(ranks[id])} of {len(ranking.hits)} ({pool})."]
        parts += _describe_steps(paths[id], decided.get(id, ""), skip=weight_notes)
        if id in unscored:
            parts.append("No reranker scored it, so it follows the scored hits.")
        explanations[id] = " ".join(parts)
    return explanations


def _explain_unknown(ranking: Ranking, id: str) -> str:
    for record in ranking.trace:
        if id in record.merged:
            return f"{id!r} is a duplicate of {record.merged[id]!r}, which represents both."
    if not ranking.trace:
        return (
            f"{id!r} is not among the {len(ranking.hits)} hits, and this ranking has no trace of the other "
            "candidates. Save it with its trace, as search --json and Ranking.to_json do."
        )
    failed = ", ".join(f"{store} ({reason})" for store, reason in ranking.failures.items())
    cause = f" These stores failed: {failed}." if failed else ""
    lists = ranking.trace.by_kind(StageKind.RETRIEVE)
    if approximate := [record.source for record in lists if record.note == "approximate"]:
        cause += f" Approximate search may have missed it: {', '.join(approximate)}."
    reason = f"was not among the {len(ranking.hits) + len(ranking.cut)} candidates, so there was nothing to rank"
    return f"{id!r} {reason}.{cause} Check the id, or let the first stage fetch more."


def _count_candidates(ranking: Ranking) -> str:
    count = len(ranking.hits) + len(ranking.cut)
    return "1 candidate" if count == 1 else f"{count} candidates"


def _weight_notes(trace: Trace) -> set[str]:
    """Return the notes about fusion or blend weights, which are the same for all hits."""
    return {record.note for record in trace if record.weights}


def _describe_steps(steps: Sequence[Step], decided: str = "", *, skip: Collection[str] = ()) -> list[str]:
    """Return a sentence per stage, without the notes in `skip`. `decided` is the part of the score that decided."""
    labels = Counter(_list_label(step) for step in steps if step.kind is StageKind.RETRIEVE)
    sentences: list[str] = []
    start = rank = 0
    for step in steps:
        if step.kind is StageKind.RETRIEVE:
            label = _list_label(step)
            label = f"{label} in {step.source}" if labels[label] > 1 and label != step.source else label
            sentences.append(f"{label}: {ordinal(step.rank)}{_in_parentheses(step.note)}.")
            start = rank = step.rank if len(sentences) == 1 else 0
            continue
        blended = step.kind is StageKind.GUARD and bool(step.parts)
        # The blend weighs all scores from the start. Every other stage reorders the previous ranking.
        moved = (start if blended else rank) - step.rank if rank else 0
        note = "" if step.note in skip else step.note
        sentences += _describe_stage(replace(step, note=note), moved, decided if blended else "", first=not rank)
        if step.kind is StageKind.FUSE or not start:
            start = step.rank
        rank = step.rank
    return sentences


def _list_label(step: Step) -> str:
    if step.source == "input":
        return "Input order"
    return _LIST_LABELS.get(step.retrieval_mode) or step.source or "List"


def _describe_stage(step: Step, moved: int, decided: str, *, first: bool) -> list[str]:
    name = step.source or step.name
    label = name[:1].upper() + name[1:]
    score_and_note = "; ".join(filter(None, (format_score(step.score), step.note)))
    if step.kind is StageKind.FUSE:
        return [f"Fused: {ordinal(step.rank)} ({'; '.join(filter(None, (step.name, step.note)))})."]
    if step.kind is StageKind.RERANK:
        if step.score is None:
            return [f"{label}: not scored{_in_parentheses(step.note)}."]
        return [f"{label}: {ordinal(step.rank)} ({score_and_note})."]
    if not moved:
        if step.score is not None and not step.parts:
            return [f"{label}: {score_and_note}."]
        blended = step.kind is StageKind.GUARD and bool(step.parts)
        text = "" if blended else step.note or (ordinal(step.rank) if first else "")
        return [f"{label}: {text}."] if text else []
    count = _NUMBERS[abs(moved)] if abs(moved) < len(_NUMBERS) else str(abs(moved))
    places = f"{count} place{'s' if abs(moved) > 1 else ''}"
    stage = f"the {step.name}" if step.name in ("blend", "guard", "gate") else step.name
    cause = f", because of its {decided}" if decided else ""
    return [f"Moved {'up' if moved > 0 else 'down'} {places} by {stage}{cause}{_in_parentheses(step.note)}."]


def _in_parentheses(note: str) -> str:
    return f" ({note})" if note else ""
