"""Marks of users, good or bad: how far lists and reranker are followed, fitted on a handful, safely."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from resift.errors import DataFormatError
from resift.evaluation.readers import Collection, json_rows
from resift.evaluation.recording import Recording
from resift.evaluation.replay import Replay, Setting, default_setting
from resift.evaluation.running import asked_digest
from resift.ranking.scaling import mean_and_deviation
from resift.validation import check_arguments

ENOUGH = 10
"""Questions with a mark below which nothing is moved."""

STEP_COST = 0.1
"""What each step away from the default must earn in all: the part of one question answered from nowhere."""

VECTORS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
WEIGHTS = (0.3, 0.5, 0.65, 0.75, None, 0.87, 0.95)
"""Steps on both ladders; None is the default weight, which follows the evidence between its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What clicks say: the setting, and its gain over the default on questions that it was not fitted on.

    `reason` says why the default stays, "" where it does not.
    """

    best: Setting
    questions: int
    good: int
    bad: int
    gain: float = 0.0
    error: float = 0.0
    reason: str = ""


@check_arguments
def read_clicks(path: Path | str) -> Collection:
    """Read a JSONL of {"question", "id", "good"}; of two marks on one hit the later counts."""
    path = Path(path)
    queries: dict[str, str] = {}
    marks: dict[str, dict[str, int]] = {}
    for line, row in json_rows(path, expected='lines like {"question": "…", "id": "…", "good": true}'):
        question, id, good = (row.get(name) for name in ("question", "id", "good"))
        texts = isinstance(question, str) and question.strip() and isinstance(id, str) and id
        if not texts or not isinstance(good, bool | str) or good not in _GOOD:
            message = 'needs "question" and "id" as strings, and "good" as true or false (or "good", "bad")'
            raise DataFormatError(message, file=str(path), line=line)
        query = asked_digest(str(question))
        queries[query] = str(question)
        marks.setdefault(query, {})[str(id)] = _GOOD[good]
    return Collection(path, "clicks", queries, marks)


_GOOD: Mapping[object, int] = {True: 1, "good": 1, False: 0, "bad": 0}


def fit(recording: Recording) -> Fitted:
    """Return the weights of vectors and reranker that put what was marked good before what was marked bad.

    Every step away from the default must earn its cost, and the whole must be better than the default, by
    more than its standard error, on questions that it was not fitted on. Otherwise the default stays.
    """
    start = replace(default_setting(recording.header), guard=False)
    marks = [grade for one in recording.queries for grade in one.qrels.values()]
    kept = Fitted(best=start, questions=len(recording.queries), good=sum(marks), bad=len(marks) - sum(marks))
    if kept.questions < ENOUGH:
        return replace(kept, reason=f"{kept.questions} questions are too few: below {ENOUGH} nothing moves")
    steps = _steps(start, reranked=recording.header.depth > 0)
    gains = _gains(recording, start, list(steps))
    best = _best(gains, steps)
    # Each question by a setting that was fitted without it.
    held_out = []
    for at in range(kept.questions):
        others = {setting: [*row[:at], *row[at + 1 :]] for setting, row in gains.items()}
        held_out.append(gains[_best(others, steps)][at])
    gain, deviation = mean_and_deviation(held_out)
    fitted = replace(kept, gain=gain, error=deviation / math.sqrt(kept.questions))
    if best == start:
        return replace(fitted, reason="no other setting earns more than the default")
    if fitted.gain <= fitted.error:
        return replace(fitted, reason="on questions it was not fitted on it is not surely better")
    return replace(fitted, best=best)


def _steps(start: Setting, *, reranked: bool) -> dict[Setting, int]:
    """Return the settings that are tried, each with its steps from the default."""
    weights = WEIGHTS if reranked else (None,)
    at = VECTORS.index(start.vectors), weights.index(None)
    return {
        replace(start, vectors=vectors, blend_weight=weight): abs(one - at[0]) + abs(other - at[1])
        for one, vectors in enumerate(VECTORS)
        for other, weight in enumerate(weights)
    }


def _gains(recording: Recording, start: Setting, tried: Sequence[Setting]) -> dict[Setting, Sequence[float]]:
    """Return per setting what each question gains over the default."""
    replay = Replay(recording)
    values = {setting: _values(recording, replay.run(setting)) for setting in tried}
    return {
        setting: [value - base for value, base in zip(row, values[start], strict=True)]
        for setting, row in values.items()
    }


def _values(recording: Recording, run: Mapping[str, Sequence[str]]) -> list[float]:
    """Return per question the mean over its marks of 1 / log2(rank + 1), less where the mark is bad."""
    values = []
    for one in recording.queries:
        ranks = {id: rank for rank, id in enumerate(run[one.query], start=1)}
        met = [(grade, ranks[id]) for id, grade in one.qrels.items() if id in ranks]
        total = math.fsum((1 if grade else -1) / math.log2(rank + 1) for grade, rank in met)
        values.append(total / len(one.qrels))
    return values


def _best(gains: Mapping[Setting, Sequence[float]], steps: Mapping[Setting, int]) -> Setting:
    """Return the setting that earns most after the cost of its steps; the default where none earns any."""
    return max(
        gains, key=lambda setting: (math.fsum(gains[setting]) - STEP_COST * steps[setting], -steps[setting])
    )
