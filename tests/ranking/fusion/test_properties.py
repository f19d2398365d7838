"""Properties of every fusion method, on lists full of ties."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from resift import Hit
from resift.ranking import fusion
from resift.ranking.fusion import METHODS
from tests.ranking.fusion.strategies import rankings
from tests.run_program import run_here

PROBABILITIES = [0.0, 0.25, 0.25, 0.5, 1.0]


def as_json(hits: list[Hit]) -> str:
    """Ids, order and scores to the last bit; which text and metadata are kept follows the declaration."""
    return json.dumps([(hit.id, hit.score.hex()) for hit in hits])


@given(data=st.data())
def test_shuffled_lists_give_the_same_order_and_scores(data):
    """The order of lists never matters, whatever ties, shared sources or duplicates they hold."""
    lists = data.draw(rankings(unique=False, scores=PROBABILITIES))
    shuffled = data.draw(st.permutations(lists))
    for name, method in METHODS.items():
        assert as_json(method(shuffled)) == as_json(method(lists)), name


@given(data=st.data())
def test_weights_follow_their_lists(data):
    """Shuffling lists together with their weights changes nothing."""
    lists = data.draw(rankings(scores=PROBABILITIES))
    weights = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 0.1]), min_size=len(lists), max_size=len(lists)))
    order = data.draw(st.permutations(range(len(lists))))
    for name, method in METHODS.items():
        straight = method(lists, weights=weights)
        shuffled = method([lists[i] for i in order], weights=[weights[i] for i in order])
        assert as_json(shuffled) == as_json(straight), name


@given(lists=rankings(unique=False, scores=PROBABILITIES))
def test_fusion_keeps_exactly_the_input_hits(lists):
    """Output ids are input ids, each once, sorted by (-score, id); inputs stay as they were."""
    before = [list(hits) for hits in lists]
    for name, method in METHODS.items():
        fused = method(lists)
        assert lists == before, name
        assert sorted(hit.id for hit in fused) == sorted({hit.id for hits in lists for hit in hits}), name
        assert [(-hit.score, hit.id) for hit in fused] == sorted((-hit.score, hit.id) for hit in fused), name
        assert all(math.isfinite(hit.score) for hit in fused), name


@given(lists=rankings(scores=PROBABILITIES), k=st.integers(0, 10))
def test_k_is_a_prefix(lists, k):
    """K cuts the same order short."""
    for name, method in METHODS.items():
        assert method(lists, k=k) == method(lists)[:k], name


@given(lists=rankings(scores=PROBABILITIES, named=True))
def test_a_list_of_weight_zero_is_absent(lists):
    """Weight 0 equals leaving the list out."""
    assume(len(lists) > 1)
    weights = [0.0, *[1.0] * (len(lists) - 1)]
    for name, method in METHODS.items():
        assert method(lists, weights=weights) == method(lists[1:]), name


@given(lists=rankings(scores=PROBABILITIES, named=True))
def test_the_trace_replays_the_order(lists):
    """The last step of each hit has its rank and score; parts name the lists that hold it."""
    for method in METHODS:
        ranking = fusion.fuse({f"s{n}": hits for n, hits in enumerate(lists)}, method=method)
        assert ranking.replay() == ranking.ids, method
        for rank, hit in enumerate(ranking, start=1):
            *found, total = ranking.path(hit.id)
            assert (total.kind, total.name, total.rank, total.score) == ("fuse", method, rank, hit.score)
            holders = {f"s{n}" for n, hits in enumerate(lists) if any(each.id == hit.id for each in hits)}
            assert {name for name, _ in total.parts} == holders, method
            assert {step.source for step in found} == holders, method


@given(lists=rankings(unique=False))
def test_rrf_equals_the_exact_sum(lists):
    """The score is Σ 1/(60+rank) over lists at the best rank, rounded once."""
    for hit in fusion.rrf(lists):
        exact = Fraction(0)
        for hits in lists:
            ranks = [rank for rank, each in enumerate(hits, start=1) if each.id == hit.id]
            exact += Fraction(1.0 / (60 + ranks[0])) if ranks else 0
        assert hit.score == float(exact)


@given(lists=rankings(named=True), identity=st.sampled_from(["content", "id-source", lambda hit: hit.text + hit.id]))
def test_other_identities_do_not_depend_on_list_order(lists, identity):
    """Content hash, (id, source) and a function of the hit."""
    sources = [f"s{n}" for n in range(len(lists))]
    fused = fusion.rrf(lists, identity=identity, sources=sources)
    assert fusion.rrf(lists[::-1], identity=identity, sources=sources) == fused
    assert list(fused.records[0].order) == [hit.id for hit in fused]


PROGRAM = """
import json, sys
from resift import Hit, Ranking
from resift.ranking import fusion
lists = [[Hit.from_dict(hit) for hit in hits] for hits in json.load(sys.stdin)]
for method in sorted(fusion.METHODS):
    print(Ranking(tuple(fusion.METHODS[method](lists))).to_json())
"""


@pytest.mark.slow
def test_another_process_with_another_hash_seed_gives_the_same_bytes():
    """Byte-identical across processes."""
    lists = [
        [Hit(f"d{(n * 7 + at) % 9}", f"t{at}", 0.5, source, {"z": 1, "a": [n]}).to_dict() for at in range(9)]
        for n, source in enumerate(["x", "y", "", ""])
    ]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps(lists),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    }
    assert outputs == {run_here(PROGRAM, stdin=json.dumps(lists)).decode()}
    assert outputs.pop().count("\n") == len(METHODS)
