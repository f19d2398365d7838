"""Marks of users: read strictly, fitted close to the default, and never against their own held-out part."""

from __future__ import annotations

import json

import pytest

from resift.errors import DataFormatError
from resift.evaluation.clicks import ENOUGH, fit, read_clicks
from resift.evaluation.recording import Header, Recorded, Recording

HEADER = Header(stores=("words", "meaning"), reranker="", depth=0, k=10, searched=("doc", "vector"))
NAMES = [f"d{number}" for number in range(10)]


def recording(count, *, knows="meaning", good=True):
    """Questions whose marked hit one list has first and the other seventh."""
    rows = []
    for at in range(count):
        right = NAMES[at % 10]
        others = [name for name in NAMES if name != right]
        first, seventh = [right, *others], [*others[:6], right, *others[6:]]
        lists = {
            name: tuple((id, 10.0 - place) for place, id in enumerate(first if name == knows else seventh))
            for name in HEADER.stores
        }
        rows.append(Recorded(f"q{at}", "clicks", lists, qrels={right: int(good)}, marks=0.1))
    return Recording(HEADER, tuple(rows))


def test_what_users_mark_moves_the_weights_once_there_is_enough():
    """Vectors count more where what was marked good is theirs, less where it is the words'."""
    default = fit(recording(ENOUGH - 1)).best.vectors
    more, less = fit(recording(40)), fit(recording(40, knows="words"))
    assert less.best.vectors < default < more.best.vectors
    assert (more.reason, less.reason) == ("", "")
    assert more.gain > more.error


def test_a_bad_mark_counts_the_other_way():
    assert fit(recording(40, good=False)).best.vectors < fit(recording(40)).best.vectors


def test_few_marks_move_nothing_and_say_so():
    fitted = fit(recording(ENOUGH - 1))
    assert "too few" in fitted.reason
    assert (fitted.questions, fitted.good, fitted.bad) == (ENOUGH - 1, ENOUGH - 1, 0)


def test_marks_that_do_not_agree_leave_the_default():
    half = ENOUGH
    both = [*recording(half).queries, *recording(half, good=False).queries]
    rows = [
        Recorded(f"q{at}", "clicks", one.lists, qrels=one.qrels, marks=0.1) for at, one in enumerate(both)
    ]
    fitted = fit(Recording(HEADER, tuple(rows)))
    assert fitted.best.vectors == fit(recording(1)).best.vectors
    assert fitted.reason


def test_the_later_mark_counts(tmp_path):
    path = tmp_path / "thumbs.jsonl"
    rows = [("keys", "a", True), ("keys", "b", "bad"), ("keys", "a", False), ("doors", "c", "good")]
    path.write_text(
        "".join(json.dumps({"question": q, "id": id, "good": good}) + "\n" for q, id, good in rows)
    )
    read = read_clicks(path)
    assert sorted(read.queries.values()) == ["doors", "keys"]
    keys = next(query for query, text in read.queries.items() if text == "keys")
    assert read.qrels[keys] == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    "line",
    [
        '{"question": "", "id": "a", "good": true}',
        '{"question": "q", "id": 3, "good": true}',
        '{"question": "q"}',
    ]
    + [f'{{"question": "q", "id": "a", "good": {wrong}}}' for wrong in ("null", "2", '"fine"', "[]", "{}")],
)
def test_other_lines_are_refused_with_their_number(tmp_path, line):
    path = tmp_path / "thumbs.jsonl"
    path.write_text('{"question": "q", "id": "a", "good": true}\n' + line + "\n")
    with pytest.raises(DataFormatError, match="question") as caught:
        read_clicks(path)
    assert caught.value.line == 2
