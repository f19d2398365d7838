"""The migration pages promise the peer's order with the same weights; the recorded comparison confirms it.

`python -m benchmarks.same_order` installs FlashRank, rerankers and txtai, runs them and writes the record.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RECORD = Path(__file__).resolve().parents[2] / "benchmarks/results/same_order.json"


@pytest.fixture(scope="module")
def peers():
    return json.loads(RECORD.read_text(encoding="utf-8"))["peers"]


@pytest.mark.parametrize("name", ["flashrank", "rerankers", "txtai"])
def test_a_peer_gives_our_order_when_it_scores_one_passage_per_call(peers, name):
    """Without padding, the order of the peer equals ours at every rank."""
    alone = peers[name]["one passage per call"]
    assert alone["same_order"] == alone["questions"] > 0


def test_batched_peers_differ_only_among_near_ties(peers):
    """With padding, the first rank is the same, and only near ties change places."""
    for name, row in peers.items():
        together = row["one call"]
        assert together["same_first"] == together["questions"], name
        assert together["widest_swap_in_logits"] < 0.35, name
