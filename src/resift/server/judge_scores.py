"""The running score of two settings: nDCG@10 on what was rated so far, with intervals, and blind wins."""

from __future__ import annotations

import math
from collections.abc import Mapping

from resift.evaluation.measures import Judge
from resift.evaluation.significance import bootstrap_interval
from resift.server.interleaving import credit
from resift.server.judgements import Judged, Session
from resift.types import JsonMapping, JsonObject

MEASURE = "nDCG@10"
ROUNDS = 2_000


def running_score(judged: Judged, settings: JsonMapping | None = None) -> JsonObject:
    """Return scores of the two settings over the questions with a rating, the last session of each.

    With `settings` only sessions that compared exactly these; else those of the newest session.
    """
    rated = [one for one in judged.sessions.values() if judged.grades.get(one.query)]
    wanted = settings if settings is not None else (rated[-1].settings if rated else None)
    sessions = {one.query: one for one in rated if one.settings == wanted}
    per_team = {team: _per_question(sessions, judged, team) for team in ("a", "b")}
    differences = [a - b for a, b in zip(per_team["a"], per_team["b"], strict=True)]
    return {
        "measure": MEASURE,
        "questions": len(sessions),
        "ratings": judged.ratings,
        "settings": wanted,
        "a": _mean(per_team["a"]),
        "b": _mean(per_team["b"]),
        "difference": _mean(differences),
        "blind": _wins(sessions, judged),
    }


def _per_question(sessions: Mapping[str, Session], judged: Judged, team: str) -> list[float]:
    if not sessions:
        return []
    qrels = {query: judged.grades[query] for query in sessions}
    quality = Judge(qrels, [MEASURE]).quality({query: one.lists[team] for query, one in sessions.items()})
    return [quality.per_query[MEASURE].get(query, 0.0) for query in sessions]


def _mean(values: list[float]) -> JsonObject:
    if not values:
        return {"mean": None, "interval": None}
    mean = math.fsum(values) / len(values)
    # One question says nothing about the next one.
    interval = list(bootstrap_interval(values, rounds=ROUNDS)) if len(values) > 1 else None
    return {"mean": mean, "interval": interval}


def _wins(sessions: Mapping[str, Session], judged: Judged) -> dict[str, int]:
    """Count for the blind sessions whose picks were rated higher."""
    wins = {"a": 0, "b": 0, "tie": 0}
    for query, session in sessions.items():
        if session.blind:
            found = credit(session.shown, judged.grades[query])
            wins["tie" if found["a"] == found["b"] else "a" if found["a"] > found["b"] else "b"] += 1
    return wins
