"""The migration pages promise the peer's order on the same weights; this asks the peers.

Runs where FlashRank, rerankers and txtai are: in the environment that `python -m benchmarks.same_order`
makes, or behind RESIFT_PEERS_PYTHON.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import same_order
from benchmarks.harness import ENVS

PYTHON = Path(os.environ.get("RESIFT_PEERS_PYTHON") or ENVS / "same_order_peers/bin/python")

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(not PYTHON.exists(), reason="no peers: run python -m benchmarks.same_order once"),
]


CHEESE = (
    "Lyon is famous for its cheese.",
    "Paris is where the French government sits.",
    "Cells have mitochondria.",
)
CAPITAL = (
    "Lyon is the capital of French cheese.",
    "Paris is the capital of France.",
    "Cells have mitochondria.",
)
PAGES = [
    ("flashrank", "what is the capital of France?", CHEESE, [1, 0, 2]),
    ("rerankers", "what is the capital of France?", CHEESE, [1, 0, 2]),
    ("txtai", "capital of France", CAPITAL, [1, 0, 2]),
    ("txtai two-stage", "capital of France", CAPITAL, [1, 0]),
    ("resift over txtai", "capital of France", CAPITAL, [1, 0]),
]


def test_the_pages_examples_give_the_printed_order():
    """What docs/migrating prints beside each peer's call is what the peer answers."""
    with same_order.open_peer(PYTHON) as peer:
        for name, query, passages, expected in PAGES:
            answer = peer.ask({"peer": name, "query": query, "passages": passages})
            assert [at for at, _ in answer["order"]] == expected, name


@pytest.fixture(scope="module")
def results():
    return same_order.run(PYTHON)["peers"]


@pytest.mark.parametrize("name", ["flashrank", "rerankers", "txtai"])
def test_a_peer_gives_our_order_where_no_padding_moves_its_scores(results, name):
    """Asked passage by passage, the peer's order is ours to the last place."""
    alone = results[name]["one passage per call"]
    assert alone["same_order"] == alone["questions"] == len(same_order.QUESTIONS)


@pytest.mark.parametrize("name", same_order.PEER_NAMES)
def test_a_peers_one_call_differs_at_most_among_near_equals(results, name):
    """Asked in one call, the first place is the same, and only near ties swap."""
    together = results[name]["one call"]
    assert together["same_first"] == together["questions"]
    assert together["widest_swap_in_logits"] < 0.35
