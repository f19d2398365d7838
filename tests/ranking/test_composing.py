"""The whole shape in its documented order: k, quotas, recovery, records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.events import ListSink
from resift.ranking.shape import DIVERSITY, FAIRNESS, Blend, Guard, Precedence, Quota, Recovery, ShapePolicy, shape
from tests.ranking.pools import everything, hit, note, pipeline_hits, pools, replays

ALL = ShapePolicy(
    blend=Blend(),
    precedence=Precedence(),
    guard=Guard(),
    fold=1.0,
    mmr=0.7,
    recovery=Recovery(survivors={"s": {"EXCEL": 1}}),
    quotas=(FAIRNESS, DIVERSITY),
)


def test_stages_run_in_the_documented_order():
    """Each stage tells its event, in the order of the docs; the cut to k comes last."""
    sink = ListSink()
    lists = {store: [(f"h{n}", 9.0 - n) for n in range(6)] for store in ("bm25", "dense")}
    hits = pipeline_hits(lists, {f"h{n}": float(n) for n in range(6)})
    shaped = shape(hits, k=3, policy=ALL, sink=sink)
    assert [event.stage for event in sink.events] == ["blend", "precedence", "guard", "fold", "mmr", "balance"]
    assert (len(shaped.kept), len(shaped.cut)) == (3, 3)


def test_recovered_hits_are_inside_k():
    """Within shape, recovery makes room instead of growing: k is respected."""
    hits = [hit(f"a{n}", 0.9, stage="A") for n in range(4)] + [hit("b", 0.1, stage="B")]
    shaped = shape(hits, k=3, policy=ShapePolicy(recovery=Recovery()))
    assert shaped.ids == ["a0", "a1", "b"]
    assert note(shaped, shaped.kept[2].id) == "recovered: protected by stage=B"


def test_default_shape_blends_and_guards():
    """The default policy blends, guards and cuts, and touches nothing else."""
    names = [f"d{n}" for n in range(6)]
    lists = {"bm25": [(n, 9.0 - at) for at, n in enumerate(names)], "dense": [("d0", 0.9), ("d3", 0.5)]}
    shaped = shape(pipeline_hits(lists, {name: float(at) for at, name in enumerate(names)}), k=2)
    assert "d0" in shaped.ids


def test_k_below_zero_is_refused():
    """Nobody can have fewer than no hits."""
    with pytest.raises(InputError):
        shape([], k=-1)


@given(pools(), st.integers(0, 8), st.sampled_from([ALL, ShapePolicy(), ShapePolicy(fold=0.8)]))
def test_shape_over_random_pools(hits, k, policy):
    """k is respected, nothing is lost or invented, records replay, recovered and required hits are there."""
    shaped = shape(hits, k=k, policy=policy, section="s")
    assert len(shaped.kept) == min(k, len(shaped.kept) + len([c for c in shaped.cut if note(shaped, c.id) == f"k={k}"]))
    assert everything(shaped) == sorted(one.id for one in hits)
    assert replays(shaped)
    assert len(shaped.protected & {one.id for one in shaped.kept}) == min(k, len(shaped.protected))
    assert all(note(shaped, one.id) for one in shaped.cut)


@given(pools(), st.integers(1, 8), st.sampled_from([1, 2]))
def test_quotas_hold_after_everything(hits, k, most):
    """With folding and precedence before it, a quota still holds whenever the pool allows it."""
    quota = Quota(key="document", at_most=most)
    shaped = shape(hits, k=k, policy=ShapePolicy(precedence=Precedence(), fold=1.0, quotas=(quota,)))
    counts = {}
    for one in shaped.kept:
        counts[quota.value(one)] = counts.get(quota.value(one), 0) + 1
    assert shaped.notes or all(number <= most for number in counts.values())
