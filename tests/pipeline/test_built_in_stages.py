"""Resift's own stages keep the stage contract: the pipeline does not check them again."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from resift.pipeline import Fuse, Pipeline, Pool, Rerank
from resift.pipeline.pool import validate_stage_output
from resift.pipeline.stages import Gate, Shape
from resift.ranking.fusion.rerankers import FusionReranker, RRFReranker
from resift.ranking.fusion.weighted import WeightedReranker
from resift.ranking.gate import Profile
from resift.ranking.shape import Blend, Guard, Precedence, Quota, ShapePolicy
from resift.types import Hit, Scores, StageKind, make_record

SCORES = st.sampled_from([None, -1.0, 0.0, 0.5, 0.5, 2.0])


class Table:
    """Scores by id."""

    name = "table"

    def __init__(self, scores):
        self.scores = scores

    async def score(self, query, hits, *, deadline):
        return Scores([self.scores.get(hit.id) for hit in hits], self.name)


@st.composite
def pools(draw):
    lists = {}
    for name in ("words", "vectors"):
        ids = draw(st.lists(st.sampled_from("abcdefghij"), unique=True))
        kinds = draw(st.lists(st.sampled_from(["FAQ", "PDF"]), min_size=len(ids), max_size=len(ids)))
        lists[name] = tuple(
            Hit(id, f"text of {id}", draw(SCORES), name, {"source_type": kind, "document": id})
            for id, kind in zip(ids, kinds, strict=True)
        )
    records = [
        make_record(StageKind.RETRIEVE, "retrieve", hits, scored=True, source=name) for name, hits in lists.items()
    ]
    pool = Pool(query="q", k=draw(st.integers(1, 6)), lists=lists)
    return pool.with_records(*records)


fusions = st.sampled_from([None, RRFReranker(), WeightedReranker(), FusionReranker("comb-mnz", normalize="min-max")])
policies = st.builds(
    ShapePolicy,
    blend=st.sampled_from([None, Blend(), Blend(weight=0.0), Blend(weight=1.0), Blend(weight=0.4)]),
    guard=st.sampled_from([None, Guard()]),
    precedence=st.sampled_from([None, Precedence(order=("FAQ", "PDF"))]),
    fold=st.sampled_from([None, 0.9]),
    mmr=st.sampled_from([None, 0.5]),
    quotas=st.sampled_from([(), (Quota(key="source_type", at_most=1),)]),
)


@settings(max_examples=150, deadline=None)
@given(pools(), fusions, policies, st.dictionaries(st.sampled_from("abcdefghij"), SCORES), st.integers(1, 12), SCORES)
def test_the_contract_changes_nothing_after_a_built_in_stage(pool, fusion, policy, scores, depth, threshold):
    stages = [
        (StageKind.FUSE, Fuse(fusion)),
        (StageKind.GATE, Gate(Profile(default=threshold))),
        (StageKind.RERANK, Rerank(Table(scores), depth=depth)),
        (StageKind.SHAPE, Shape(policy)),
    ]
    for kind, stage in stages:
        after = asyncio.run(stage(pool))
        checked = validate_stage_output(pool, after, kind=kind, name="stage")
        assert (checked.hits, checked.cut, checked.trace) == (after.hits, after.cut, after.trace)
        pool = after


def test_fusion_that_leaves_a_list_out_keeps_its_hits_in_cut():
    """A list of weight 0 has no part in the order, and its hits are not lost."""

    class One:
        def __init__(self, name, *ids):
            self.name = name
            self.hits = [Hit(id, id, 1.0, name) for id in ids]

        async def search(self, query, *, k, where=None):
            return self.hits

    pipeline = Pipeline([One("x", "a", "b"), One("y", "c")], fuse=RRFReranker(weights={"y": 0}))
    ranking = pipeline.rank("q")
    assert ranking.ids == ["a", "b"]
    assert [hit.id for hit in ranking.cut] == ["c"]
    assert "dropped" in ranking.why("c")
