"""Ratings of users: read strictly, fitted close to the default, adopted only if held-out queries agree."""

from __future__ import annotations

import json

import pytest

from resift.errors import DataFormatError
from resift.evaluation.recording import Header, RecordedQuery, Recording
from resift.evaluation.tuning import MIN_RATED_QUERIES, fit_clicks, read_clicks

HEADER = Header(stores=("words", "meaning"), reranker="", depth=0, k=10, retrieval_modes=("lexical", "dense"))
NAMES = [f"d{number}" for number in range(10)]


def recording(count, *, best_store="meaning", good=True):
    """Return queries whose rated hit is first in one list and seventh in the other."""
    rows = []
    for i in range(count):
        rated = NAMES[i % 10]
        others = [name for name in NAMES if name != rated]
        first, seventh = [rated, *others], [*others[:6], rated, *others[6:]]
        lists = {
            name: tuple((id, 10.0 - rank) for rank, id in enumerate(first if name == best_store else seventh))
            for name in HEADER.stores
        }
        rows.append(RecordedQuery(f"q{i}", "clicks", lists, qrels={rated: int(good)}))
    return Recording(HEADER, tuple(rows))


def test_ratings_move_the_weight_toward_the_better_store():
    default = fit_clicks(recording(MIN_RATED_QUERIES - 1)).best.dense_shift
    more, less = fit_clicks(recording(40)), fit_clicks(recording(40, best_store="words"))
    assert less.best.dense_shift < default < more.best.dense_shift
    assert (more.reason, less.reason) == ("", "")
    assert more.gain > more.error


def test_bad_ratings_move_the_weight_in_the_other_direction():
    bad, good = fit_clicks(recording(40, good=False)), fit_clicks(recording(40))
    assert bad.best.dense_shift < good.best.dense_shift


def test_the_default_stays_with_too_few_ratings():
    fit = fit_clicks(recording(MIN_RATED_QUERIES - 1))
    assert "too few" in fit.reason
    assert (fit.questions, fit.good, fit.bad) == (MIN_RATED_QUERIES - 1, MIN_RATED_QUERIES - 1, 0)


def test_the_default_stays_if_ratings_contradict_each_other():
    half = MIN_RATED_QUERIES
    both = [*recording(half).queries, *recording(half, good=False).queries]
    rows = [RecordedQuery(f"q{i}", "clicks", query.lists, qrels=query.qrels) for i, query in enumerate(both)]
    fit = fit_clicks(Recording(HEADER, tuple(rows)))
    assert fit.best.dense_shift == fit_clicks(recording(1)).best.dense_shift
    assert fit.reason


def test_the_last_rating_of_a_hit_counts(tmp_path):
    path = tmp_path / "thumbs.jsonl"
    rows = [("keys", "a", True), ("keys", "b", "bad"), ("keys", "a", False), ("doors", "c", "good")]
    path.write_text("".join(json.dumps({"question": q, "id": id, "good": good}) + "\n" for q, id, good in rows))
    clicks = read_clicks(path)
    assert sorted(clicks.queries.values()) == ["doors", "keys"]
    keys = next(query for query, text in clicks.queries.items() if text == "keys")
    assert clicks.qrels[keys] == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    "line",
    ['{"question": "", "id": "a", "good": true}', '{"question": "q", "id": 3, "good": true}', '{"question": "q"}']
    + [f'{{"question": "q", "id": "a", "good": {wrong}}}' for wrong in ("null", "2", '"fine"', "[]", "{}")],
)
def test_invalid_lines_are_rejected_with_their_number(tmp_path, line):
    path = tmp_path / "thumbs.jsonl"
    path.write_text('{"question": "q", "id": "a", "good": true}\n' + line + "\n")
    with pytest.raises(DataFormatError, match="question") as caught:
        read_clicks(path)
    assert caught.value.line == 2
