"""When there is enough to answer from: words, names and limits."""

from __future__ import annotations

import pytest

from resift.agent.answerability import Evidence, coverage, find_names, missing_names


def test_coverage_counts_content_words():
    """Words of asking do not count, plurals do."""
    assert coverage("Where do the lamps burn?", "A lamp may burn oil.") == 1.0
    assert coverage("What is it?", "What is it?") == 0.0
    assert coverage("lamp oil", "lamp") == 0.5


def test_names_are_capitals_inside_a_sentence():
    """The first word and shouting are no names."""
    assert find_names("Who built the tower of Atlantis for Columbus's son?") == ["Atlantis", "Columbus"]
    assert find_names("Lighthouses are tall") == []
    assert find_names("WHO BUILT THE TOWER") == []
    assert missing_names(["Atlantis", "Columbus"], {"columbus"}) == ["Atlantis"]


@pytest.mark.parametrize(
    ("evidence", "enough"),
    [
        (Evidence(1.0, 0.5, 0.0), True),  # the cross-encoder is sure
        (Evidence(-3.0, 0.7, 0.3), True),  # in doubt, and vectors and words agree
        (Evidence(-3.0, 0.5, 0.3), False),
        (Evidence(-3.0, 0.7, 0.0), False),
        (Evidence(-9.0, 0.9, 1.0), False),
        (Evidence(None, 0.75, 0.0), True),
        (Evidence(None, 0.62, 0.3), True),
        (Evidence(None, 0.62, 0.1), False),
        (Evidence(None, 0.4, 0.9), True),  # rare words that an embedder does not know
        (Evidence(None, None, 0.5), True),
        (Evidence(None, None, 0.4), False),
    ],
)
def test_the_limits_decide_whether_evidence_is_enough(evidence, enough):
    """One sure judge, or two that agree."""
    assert evidence.is_enough is enough
    assert 0 <= evidence.confidence <= 1
