"""The cliff rule and its golden examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.gate import Cliff, find_cliff

CORE = [0.90, 0.88, 0.86]


def test_020_to_016_is_no_cliff():
    """The documented example: a fall of 20 % that is only 0.04 deep on low scores."""
    assert not Cliff().between(0.20, 0.16)
    assert find_cliff([0.22, 0.21, 0.20, 0.16], floor=0.1, rerank_top_n=2).skip_reason == "no_cliff"


def test_a_deep_fall_is_a_cliff():
    """0.80 → 0.60 is under 85 % and 0.20 deep."""
    hint = find_cliff([*CORE, 0.80, 0.60, 0.55], floor=0.18, rerank_top_n=3)
    assert (hint.floor, hint.position, hint.skip_reason) == (0.80, 4, None)


def test_the_drop_means_decimal_numbers():
    """0.30 − 0.25 is 0.04999… in binary, and still a drop of 0.05."""
    assert Cliff().between(0.30, 0.25)


def test_exactly_85_percent_is_no_cliff():
    """The next score must lie below 85 % of the current one, not at it."""
    assert not Cliff().between(1.0, 0.85)


def test_first_cliff_past_the_core_wins():
    """Two cliffs past the core: the first decides although the second is deeper."""
    hint = find_cliff([*CORE, 0.70, 0.65, 0.20], floor=0.1, rerank_top_n=3)
    assert (hint.floor, hint.position) == (0.86, 3)


def test_a_cliff_inside_the_core_is_not_seen():
    """The must-have core is spared: only a fall at its end or behind it counts."""
    hint = find_cliff([0.95, 0.50, 0.49, 0.48, 0.47], floor=0.1, rerank_top_n=3)
    assert hint.skip_reason == "no_cliff"


def test_cliff_bottom_must_improve_on_the_static_floor():
    """Scores below the cliff are below the floor anyway, so there is nothing to tighten."""
    hint = find_cliff([*CORE, 0.80, 0.15, 0.10], floor=0.18, rerank_top_n=3)
    assert (hint.floor, hint.skip_reason) == (None, "not_above_static_floor")


@pytest.mark.parametrize(
    ("scores", "floor", "top_n", "reason"),
    [
        (None, 0.18, 3, "missing_inputs"),
        ([0.9, 0.5], None, 1, "missing_inputs"),
        ([0.9, 0.5], 0.18, None, "missing_inputs"),
        ([0.9, 0.5], 0.18, 2, "no_room_above_core"),
        ([], 0.18, 1, "no_room_above_core"),
    ],
)
def test_preconditions(scores, floor, top_n, reason):
    """Scores, floor and keep-count must be there, and there must be more scores than the core."""
    assert find_cliff(scores, floor=floor, rerank_top_n=top_n).skip_reason == reason


def test_wrong_policy_is_refused():
    """A ratio above 1 would call a rise a cliff."""
    with pytest.raises(InputError):
        Cliff(ratio=1.5)


SCORES = st.lists(st.sampled_from([round(0.05 * step, 2) for step in range(21)]), max_size=40)


@given(SCORES, st.sampled_from([0.0, 0.1, 0.18, 0.5]), st.integers(1, 15))
def test_a_hint_keeps_the_core_and_never_weakens_the_floor(scores, floor, top_n):
    """Whatever the pool, the tightened floor is above the static one and the core survives it."""
    hint = find_cliff(scores, floor=floor, rerank_top_n=top_n)
    if hint.floor is not None:
        assert hint.floor > floor
        assert sum(score >= hint.floor for score in scores) == hint.position >= top_n


@given(SCORES, st.integers(1, 15), st.randoms())
def test_the_order_of_scores_does_not_matter(scores, top_n, random):
    """Scores are sorted inside, so a shuffled pool gives the same hint."""
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert find_cliff(shuffled, floor=0.1, rerank_top_n=top_n) == find_cliff(scores, floor=0.1, rerank_top_n=top_n)
