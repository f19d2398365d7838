"""A few cases of each attack that is cheap in this process, and the table of the last full run.

`python -m tests.hardening` runs all attacks in full. The classes that need a process, a server or a disk of
their own have their cases next to the code they attack: tests/stores, tests/server, tests/models, tests/cli.
"""

from __future__ import annotations

import json

import pytest

from tests.hardening.__main__ import ATTACKS, load_attack
from tests.hardening.report import PAGE, RESULTS, generated_part

SEED = 3


@pytest.mark.parametrize(("name", "count"), [("fan-out", 32), ("byte flips", 10), ("full disks", 3)])
def test_an_attack_finds_nothing(name, count):
    outcome = load_attack(name)(SEED, count)
    assert outcome.examples == []
    assert outcome.tried >= count or outcome.absent


def test_the_page_shows_the_last_full_run():
    """Headline and table match the committed results, with machine and commit."""
    result = json.loads((RESULTS / "hardening.json").read_text(encoding="utf-8"))
    assert generated_part(result) in PAGE.read_text(encoding="utf-8")
    # Attacks that were added since the last full run are not on the page yet.
    assert set(result["attacks"]) <= set(ATTACKS)
