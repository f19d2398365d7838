"""Grades: the formula, its edges, and the letters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.gate import Grading, grade


def test_value_is_the_documented_sum():
    """coverage 3/4, top 0.6/0.75, spread 0.15/0.30 give 0.4 × 0.75 + 0.4 × 0.8 + 0.2 × 0.5 = 0.72, a B."""
    graded = grade([0.6, 0.5, 0.45], floor=0.4, wanted=4)
    assert graded.value == pytest.approx(0.72)
    assert (graded.letter, graded.may_tighten) == ("B", True)


@pytest.mark.parametrize(
    ("scores", "letter"),
    [
        ([0.9, 0.8, 0.7, 0.6, 0.5], "A"),
        ([0.5, 0.45, 0.4, 0.35, 0.3], "B"),
        ([0.3, 0.25, 0.22, 0.2, 0.19], "C"),
        ([0.2, 0.19, 0.185, 0.181, 0.18], "D"),
        ([0.05, 0.04], "F"),
        ([], "F"),
    ],
)
def test_letters(scores, letter):
    """Five wanted hits over a floor of 0.18 are graded by how good and how distinct they are."""
    assert grade(scores, floor=0.18, wanted=5).letter == letter


def test_policy_is_data():
    """The same scores grade differently under another policy."""
    strict = Grading(lowest=(("A", 0.99), ("B", 0.98), ("C", 0.97), ("D", 0.96)))
    assert grade([0.6, 0.5, 0.45], floor=0.4, wanted=4, policy=strict).letter == "F"


@pytest.mark.parametrize("wrong", [{"coverage_weight": -1}, {"full_top": 0}, {"wanted": 0}])
def test_wrong_policy_is_refused(wrong):
    """A policy that cannot grade says so when it is made."""
    with pytest.raises(InputError):
        Grading(**wrong)


@given(st.lists(st.floats(-1, 1), max_size=30), st.floats(0, 0.5), st.integers(1, 20))
def test_parts_stay_between_0_and_1(scores, floor, wanted):
    """No pool of scores pushes a part or the value out of its range."""
    graded = grade(scores, floor=floor, wanted=wanted)
    assert all(0 <= part <= 1 for part in (graded.value, graded.coverage, graded.top, graded.spread))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 0.5))
def test_a_better_hit_more_never_lowers_the_grade(scores, floor):
    """Adding a hit that is better than all others never makes a retrieval worse."""
    before = grade(scores, floor=floor, wanted=10).value
    assert grade([*scores, max(scores)], floor=floor, wanted=10).value >= before - 1e-12
