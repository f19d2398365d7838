"""Traces read into columns, places and moves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from resift.explain.flow import find_move, make_layout, read_flow
from resift.explain.reasons import ordinal
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace, make_record
from tests.explain.rankings import blended, fused_and_reranked


def test_columns_are_lists_then_stages():
    """Lists of the first stage come first, by their short names, then each stage with its judge."""
    columns = read_flow(fused_and_reranked()).columns
    assert [(column.label, column.by) for column in columns] == [
        ("text", "db.text"),
        ("vectors", "db.vectors"),
        ("rrf", ""),
        ("rerank", "wise"),
    ]


def test_positions_are_the_ranks_and_parts_of_the_trace():
    flow = read_flow(fused_and_reranked())
    first = flow.kept[0]
    assert first.id == "f"
    labels = {column.key: column.label for column in flow.columns}
    assert {labels[key]: place.rank for key, place in first.places.items()} == {"vectors": 4, "rrf": 5, "rerank": 1}
    fused = next(column.key for column in flow.columns if column.label == "rrf")
    assert [name for name, _ in flow.kept[1].places[fused].parts] == ["db.text", "db.vectors"]


def test_a_move_names_the_stage_that_caused_it():
    flow = read_flow(fused_and_reranked())
    rose = find_move(flow.kept[0], flow)
    assert (rose.sign, rose.kind) == ("▲4", "rose")
    assert rose.reason == "moved up from 5th to 1st by rerank: wise 9.00"
    gone = {path.id: find_move(path, flow) for path in flow.cut}["a"]
    assert (gone.sign, gone.reason) == ("✕", "left out: k=3")


def test_an_unmoved_hit_of_one_list_names_the_list():
    ranking = fused_and_reranked(k=6)
    flow = read_flow(ranking)
    stayed = [find_move(path, flow) for path in flow.kept if path.id == "b"]
    assert stayed[0].reason == "kept its rank; in all lists"


def test_stages_that_change_nothing_share_a_column():
    hits = (Hit("a", score=1.0), Hit("b", score=1.0))
    fused = make_record(StageKind.FUSE, "rrf", hits, scored=True)
    ranking = Ranking(hits, trace=Trace((fused, make_record(StageKind.GUARD, "guard", hits))))
    assert [column.label for column in read_flow(ranking).columns] == ["rrf, guard"]


def test_a_final_column_is_added_if_the_trace_ends_with_another_order():
    """A ranking whose last record is not its order still ends in its true order."""
    hits = (Hit("b"), Hit("a"))
    flow = read_flow(Ranking(hits, trace=Trace((make_record(StageKind.SHAPE, "x", hits[::-1]),))))
    assert [column.label for column in flow.columns] == ["x", "final"]
    assert [path.places[flow.columns[-1].key].rank for path in flow.kept] == [1, 2]


@pytest.mark.parametrize("ranking", [Ranking(), Ranking((Hit("a"),)), Ranking(cut=(Hit("a"),))])
def test_rankings_without_a_trace_can_be_explained(ranking):
    shown = ranking.explain()
    for form in (shown.text(), shown.svg(), shown.html(), repr(shown)):
        assert form


def test_every_column_has_each_row_once():
    layout = make_layout(read_flow(fused_and_reranked()), top=3)
    for at in range(len(layout.columns)):
        rows = [node.row for line in layout.lines for node in line.nodes if node.column == at]
        assert sorted(rows) == list(range(len(rows)))
    assert [line.path.id for line in layout.lines][:3] == ["f", "b", "c"]


def test_a_blend_after_the_reranker_explains_the_move():
    """The reranker's place is evidence there: blend weighs it with the first stage and decides."""
    flow = read_flow(blended())
    assert [column.label for column in flow.columns if column.weighs] == ["blend, guard"]
    moves = {path.id: find_move(path, flow) for path in flow.kept}
    moved = [move for move in moves.values() if move.kind in ("rose", "fell")]
    assert moved
    for move in moved:
        assert move.reason.startswith("higher" if move.kind == "rose" else "lower")
        assert f"(blend: {ordinal(move.start)} to {ordinal(move.end)})" in move.reason


def test_the_deciding_part_of_the_score_comes_first():
    """Not the largest part: the one in which a hit differs most from the hits that it passed."""
    ids = ("a", "b", "c")
    fused = StageRecord(kind=StageKind.FUSE, name="rrf", ids=ids, scores=(0.9, 0.8, 0.7))
    parts = {
        "first stage": {"a": 0.9, "b": 0.8, "c": 0.7},
        "cross-encoder": {"a": 0.2, "b": 3.721e-08, "c": 0.0},
        "neighbors": {"b": 0.5752},
    }
    order = ("b", "a", "c")
    scores = tuple(math.fsum(column.get(id, 0.0) for column in parts.values()) for id in order)
    blend = StageRecord(kind=StageKind.GUARD, name="blend", ids=order, scores=scores, parts=parts)
    ranking = Ranking(tuple(map(Hit, order)), trace=Trace((fused, blend)))
    move = find_move(read_flow(ranking).kept[0], read_flow(ranking))
    assert move.reason.startswith("higher-scoring similar hits")
    assert ranking.why("b").endswith("because of its higher-scoring similar hits.")
    assert "lower-scoring similar hits" in ranking.why("a")
    for text in (move.reason, *ranking.why_all().values(), ranking.explain().html()):
        assert "e-0" not in text


def test_why_of_all_hits_is_why_of_each():
    merged = make_record(StageKind.SHAPE, "fold", [Hit("a"), Hit("b")])
    folded = Ranking(
        (Hit("a"), Hit("b")),
        unscored=("b",),
        trace=Trace(
            (
                make_record(StageKind.RETRIEVE, "retrieve", [Hit("c"), Hit("a"), Hit("a")], source="x"),
                replace(merged, merged={"c": "a"}),
            )
        ),
    )
    for ranking in (blended(), fused_and_reranked(), folded, Ranking()):
        assert ranking.why_all() == {id: ranking.why(id) for id in ranking.ids}
    assert "1st" in folded.why_all()["a"]
