"""Comparing outcomes: a thing compared with itself, wins and losses, and the reason in the path."""

from __future__ import annotations

import pytest

from resift.evaluation.measures import Judge
from resift.evaluation.runner import Answer, Outcome, PathStep, differences, moved_queries

QRELS = {"1": {"a": 1}, "2": {"b": 1}, "3": {"c": 1}}
BASE = {"1": ["a", "x"], "2": ["x", "b"], "3": ["x", "c"]}
OTHER = {"1": ["x", "a"], "2": ["b", "x"], "3": ["c", "x"]}
MADE_OF = "0.31 from first stage + 0.84 from cross-encoder"
PATH = [
    PathStep("retrieve", "text", 4),
    PathStep("retrieve", "vectors", 9),
    PathStep("fuse", "rrf", 6, "0.2 from text + 0.1 from vectors"),
    PathStep("rerank", "rerank", 2),
    PathStep("guard", "blend", 1, MADE_OF),
]


def outcome(name, run, paths=None):
    answers = {query: Answer(query, "", tuple(ids), 1.0, paths=paths or {}) for query, ids in run.items()}
    return Outcome(name, Judge(QRELS, ["RR", "P@1"]).quality(run), run, answers)


def test_an_outcome_compared_with_itself_shows_no_difference():
    base = outcome("a", BASE)
    for row in differences([base, outcome("b", BASE)], ["RR", "P@1"]):
        assert (row.mean, row.p, row.p_holm, row.wins, row.ties, row.losses) == (0.0, 1.0, 1.0, 0, 3, 0)
        assert (row.low, row.high) == (0.0, 0.0)
    assert moved_queries(base, outcome("b", BASE), "RR", QRELS) == []


def test_wins_losses_and_the_mean():
    (row,) = differences([outcome("a", BASE), outcome("b", OTHER)], ["RR"])
    assert (row.wins, row.ties, row.losses) == (2, 0, 1)
    assert row.mean == pytest.approx(0.5 / 3)
    assert row.p == 1.0  # three equal steps, one of them back: as likely as can be


def test_only_queries_that_both_answered_are_compared():
    half = {query: ids for query, ids in OTHER.items() if query != "1"}
    (row,) = differences([outcome("a", BASE), outcome("b", half)], ["RR"])
    assert (row.queries, row.wins, row.losses) == (2, 2, 0)


def test_many_comparisons_are_corrected():
    rows = differences([outcome("a", BASE), *(outcome(f"b{n}", OTHER) for n in range(3))], ["RR", "P@1"])
    assert len(rows) == 6
    assert all(row.p_holm >= row.p for row in rows)


def test_the_largest_move_is_explained_from_the_path():
    shifts = moved_queries(outcome("a", BASE), outcome("b", OTHER, {"b": PATH}), "RR", QRELS)
    assert [one.query for one in shifts] == ["1", "2", "3"]
    document = shifts[1].documents[0]
    assert (document.id, document.before, document.after) == ("b", 2, 1)
    places = "text 4, vectors 9, rrf 6, rerank 2, blend 1"
    assert document.why == f"{places}; moved up most by rerank and blend: {MADE_OF}"
    assert "not found by any store" in shifts[0].documents[0].why
