"""Significance: exact where it can be, seeded where it cannot, corrected for many tests."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.evaluation.measures import bootstrap_interval, holm, randomization_p


def test_no_difference_has_p_one():
    assert randomization_p([]) == 1.0
    assert randomization_p([0.0] * 300) == 1.0
    assert bootstrap_interval([0.0] * 300) == (0.0, 0.0)
    assert bootstrap_interval([]) == (0.0, 0.0)


@given(st.lists(st.sampled_from([-0.5, -0.1, 0.0, 0.1, 0.3]), max_size=8))
@pytest.mark.slow
def test_few_differences_are_counted_exactly(values):
    """Against all sign patterns written out one by one."""
    patterns = [
        sum(sign * value for sign, value in zip(signs, values, strict=True))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    reached = sum(abs(total) >= abs(sum(values)) - 1e-12 for total in patterns)
    assert randomization_p(values) == pytest.approx(reached / len(patterns))


def test_sampled_p_agrees_with_the_exact_one():
    draw = random.Random(1)
    values = [draw.gauss(0.05, 0.2) for _ in range(16)]
    exact = randomization_p(values)
    # Tiny differences change nothing but push the count over the limit of the exact test.
    assert randomization_p([*values, 1e-13]) == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
def test_the_direction_does_not_matter_and_the_answer_repeats():
    draw = random.Random(2)
    values = [draw.gauss(0.02, 0.1) for _ in range(200)]
    assert randomization_p(values) == randomization_p([-value for value in values])
    assert bootstrap_interval(values) == bootstrap_interval(values)


def test_a_clear_difference_is_significant_and_chance_is_not():
    draw = random.Random(3)
    assert randomization_p([draw.gauss(0.1, 0.1) for _ in range(100)]) < 0.001
    low, high = bootstrap_interval([draw.gauss(0.1, 0.1) for _ in range(100)])
    assert 0.05 < low < high < 0.15
    assert randomization_p([(-1) ** at * 0.1 for at in range(100)]) == 1.0


def test_holm_matches_a_manual_calculation():
    """0.01, 0.04, 0.03 of three tests: 3 × 0.01, then 2 × 0.03, then at least that."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
