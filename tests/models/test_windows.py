"""Windows cover every token, overlap, and are all of one width."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.models.pairs import combine_scores, rank_windows
from resift.models.tokenizer import split_windows


@given(st.integers(0, 3000), st.integers(1, 600), st.integers(0, 100))
def test_windows_cover_all_tokens_in_order_and_fit_the_budget(tokens, budget, overlap):
    windows = split_windows(tokens, budget, overlap=overlap)
    assert windows[0][0] == 0
    assert windows[-1][1] == tokens
    for (start, end), (following, _) in pairwise(windows):
        assert start < following <= end
    assert all(end - start <= budget for start, end in windows)
    if tokens > budget:
        assert {end - start for start, end in windows} == {budget}


def test_a_short_text_is_one_window():
    assert split_windows(0, 10) == [(0, 0)]
    assert split_windows(10, 10) == [(0, 10)]


def test_windows_that_hold_most_of_the_query_come_first():
    ids = [1] * 100
    ids[55] = 7
    windows = [(start, start + 10) for start in range(0, 100, 10)]
    assert rank_windows(windows, ids, [7, 8])[:2] == [5, 0]
    assert rank_windows(windows, ids, [8]) == list(range(10))


def test_a_token_that_every_window_has_tells_none_from_another():
    """Two common tokens of the question weigh less than the one that only a single window holds."""
    ids = [3, 4, *[0] * 8, 3, 4, *[0] * 8, 3, 9, *[0] * 8]
    windows = [(0, 10), (10, 20), (20, 30)]
    assert rank_windows(windows, ids, [3, 4, 9])[0] == 2


@pytest.mark.parametrize(("how", "value"), [("max", 3.0), ("mean", 2.0), ("first", 1.0)])
def test_scores_of_windows_become_one(how, value):
    assert combine_scores([1.0, 3.0, 2.0], how) == value
