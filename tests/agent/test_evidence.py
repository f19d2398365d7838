"""When there is enough to answer from: words, names and limits."""

from __future__ import annotations

import pytest

from resift.agent.evidence import Evidence
from resift.agent.question_words import coverage, missing_from, names_in


def test_coverage_counts_content_words():
    """Words of asking do not count, plurals do."""
    assert coverage("Where do the lamps burn?", "A lamp may burn oil.") == 1.0
    assert coverage("What is it?", "What is it?") == 0.0
    assert coverage("lamp oil", "lamp") == 0.5


def test_names_are_capitals_inside_a_sentence():
    """The first word and shouting are no names."""
    assert names_in("Who built the tower of Atlantis for Columbus's son?") == ["Atlantis", "Columbus"]
    assert names_in("Lighthouses are tall") == []
    assert names_in("WHO BUILT THE TOWER") == []
    assert missing_from(["Atlantis", "Columbus"], {"columbus"}) == ["Atlantis"]


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
def test_limits(evidence, enough):
    """One sure judge, or two that agree."""
    assert evidence.enough is enough
    assert 0 <= evidence.confidence <= 1
