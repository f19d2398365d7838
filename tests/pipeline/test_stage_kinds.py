"""A stage is known by its kind: renamed, doubled, missing and foreign stages, and what hits carry along."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace

import pytest

from resift import Hit
from resift.pipeline import Fuse, Pipeline, Pool, Rerank
from resift.pipeline.stages import Gate, Shape
from resift.ranking.gate import Profile
from resift.ranking.shape import Blend, Guard, Precedence, Quota, Recovery, ShapePolicy
from resift.types import StageKind, make_record, with_scores
from tests.pipeline.fake_stores import Points

IDS = [f"d{number}" for number in range(8)]
POINTS = {"d0": 1.0, "d1": 0.5, "d2": -1.0, "d3": -2.0, "d4": -3.0, "d5": 8.0, "d6": -5.0, "d7": -6.0}


class Lists:
    """A store with scores of its own."""

    def __init__(self, name, ids, made=Hit):
        self.name = name
        self.hits = [made(id, f"text of {id}", 9.0 - place, name) for place, id in enumerate(ids)]

    async def search(self, query, *, k, where=None):
        return self.hits[:k]


def ranking(*, rerank, shape=None, gate=None, made=Hit, k=8, fuse=None):
    stores = [Lists("words", IDS, made), Lists("dense", IDS[::-1][2:], made)]
    return Pipeline(stores, fuse=fuse, gate=gate, rerank=rerank, shape=shape or Shape(), k=k).rank("q")


def order(found):
    return [(hit.id, hit.score) for hit in found]


PLAIN = order(ranking(rerank=Rerank(Points(POINTS))))


def test_the_blend_follows_the_reranker():
    """What the tests below compare with: the reranker's favourite is lifted to the top."""
    assert PLAIN[0][0] == "d5"


@pytest.mark.parametrize("name", ["second-look", "fuse", "gate", "retrieve", "cut", ""])
def test_a_renamed_reranker_counts_the_same(name):
    """No display name can silence it, not even one that is the name of another kind."""
    found = ranking(rerank=Rerank(Points(POINTS), name=name or "rerank"))
    assert order(found) == PLAIN
    assert [record.kind for record in found.trace].count(StageKind.RERANK) == 1


def test_a_doubled_reranker_counts_once():
    """The same judge asked twice says nothing new."""
    found = ranking(rerank=[Rerank(Points(POINTS)), Rerank(Points(POINTS), name="again")])
    assert order(found) == PLAIN
    assert [record.name for record in found.trace.by_kind(StageKind.RERANK)] == ["rerank", "again"]


def test_a_second_look_is_read_on_its_own_scale():
    """A second reranker between 0 and 1 judges the first one's top three: its favourite of them leads."""
    second = Rerank(Points({"d5": 0.1, "d0": 0.2, "d1": 0.9}, name="probabilities"), depth=3, name="second-look")
    found = ranking(rerank=[Rerank(Points(POINTS)), second])
    parts = {name for id in IDS for name, _ in found.path(id)[-1].parts}
    assert {"points", "probabilities"} <= parts
    assert found.ids.index("d1") < found.ids.index("d5")


def test_without_a_reranker_the_blend_leaves_the_order():
    """A missing stage is no evidence, and the record says so."""
    found = ranking(rerank=None)
    assert found.ids == list(found.trace.by_kind(StageKind.FUSE)[-1].ids)
    assert any(record.note == "nothing to blend" for record in found.trace)


def test_a_stage_of_ones_own_counts_by_where_it_is_passed():
    """An async function that scores, passed as `rerank`, is evidence like any scorer."""

    async def mine(pool: Pool) -> Pool:
        hits = sorted(pool.hits, key=lambda hit: -POINTS[hit.id])
        return pool.reorder(with_scores(hits, [POINTS[hit.id] for hit in hits]))

    found = ranking(rerank=mine)
    (record,) = found.trace.by_kind(StageKind.RERANK)
    assert (record.name, record.scores[0]) == ("mine", 8.0)
    assert found.ids[0] == "d5"


def test_a_stage_may_write_its_own_record():
    """A record that a stage writes is kept as it is."""

    async def mine(pool: Pool) -> Pool:
        return pool.with_records(make_record(StageKind.SHAPE, "mine", pool.hits, note="as it was"))

    found = ranking(rerank=None, shape=mine)
    assert [record.note for record in found.trace if record.name == "mine"] == ["as it was"]


def test_a_stage_that_forgets_the_trace_is_not_believed():
    """Records are not for stages to take away."""

    async def forgets(pool: Pool) -> Pool:
        return replace(pool, trace=type(pool.trace)())

    found = ranking(rerank=None, shape=forgets)
    assert "removed records from the trace" in found.reason


def test_the_gate_reads_a_stores_list_by_kind():
    """A store called like a stage is still a store."""
    found = ranking(rerank=None, gate=Gate(Profile(default=5.0, signal="words")))
    assert {hit.id for hit in found.cut} == {"d5", "d6", "d7"}


def test_below_the_depth_nobody_has_a_score():
    """What the reranker did not judge compares with nothing: no score in the ranking, null in its JSON."""
    found = ranking(rerank=Rerank(Points(POINTS), depth=3), shape=Shape(ShapePolicy(blend=None, guard=None)))
    assert [hit.score is None for hit in found] == [False] * 3 + [True] * 5
    assert [hit["score"] is None for hit in json.loads(found.to_json())["hits"]] == [False] * 3 + [True] * 5
    assert found.unscored == tuple(found.ids[3:])


def test_a_failed_reranker_leaves_the_scores():
    """Where nobody was judged, the fused scores still compare with one another."""
    found = ranking(rerank=Rerank(Points(dict.fromkeys(IDS))), shape=Shape(ShapePolicy(blend=None, guard=None)))
    assert found.degraded
    assert all(hit.score is not None for hit in found)


@dataclass(frozen=True, slots=True)
class Marked(Hit):
    """A hit with a field that Resift does not know."""

    mark: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mark", f"mark of {self.id}")


EVERYTHING = ShapePolicy(
    blend=Blend(),
    precedence=Precedence(),
    guard=Guard(),
    fold=0.9,
    mmr=0.5,
    recovery=Recovery(),
    quotas=(Quota(key="source_type", share=0.9),),
)


def test_a_new_field_goes_through_every_stage():
    """Fusion, gate, rerank and every shaping stage carry a field that only types/hit.py would know."""
    found = ranking(
        rerank=Rerank(Points(POINTS), depth=5),
        gate=Gate(Profile(default=2.0, signal="words")),
        shape=Shape(EVERYTHING),
        made=Marked,
        k=3,
    )
    for hit in (*found.hits, *found.cut):
        assert isinstance(hit, Marked)
        assert hit.mark == f"mark of {hit.id}"


def test_a_reranker_of_the_plain_form_is_asked_without_the_query():
    """`fuse(per_store, *, k)` is all that the protocol asks of a plugin."""

    class Interleave:
        name = "interleave"

        async def fuse(self, per_store, *, k):
            seen = {hit.id: hit for hits in zip(*per_store, strict=False) for hit in hits}
            return list(seen.values())[:k]

    found = ranking(rerank=None, fuse=Fuse(Interleave()), shape=Shape(ShapePolicy(blend=None, guard=None)))
    assert not found.degraded
    assert [record.name for record in found.trace.by_kind(StageKind.FUSE)] == ["interleave"]
    assert found.replay() == found.ids


def test_a_reranker_without_async_is_asked_all_the_same():
    class First:
        name = "first"

        def fuse(self, per_store, *, k):
            return per_store[0][:k]

    found = ranking(rerank=None, fuse=Fuse(First()), shape=Shape(ShapePolicy(blend=None, guard=None)))
    assert not found.degraded
    assert [record.name for record in found.trace.by_kind(StageKind.FUSE)] == ["first"]


def test_the_same_search_gives_the_same_trace():
    """The whole ranking, trace included, is the same bytes twice."""
    one, two = (ranking(rerank=Rerank(Points(POINTS))).to_json() for _ in range(2))
    assert one == two
    assert asyncio.run(_search()) == one


async def _search() -> str:
    stores = [Lists("words", IDS), Lists("dense", IDS[::-1][2:])]
    pipeline = Pipeline(stores, rerank=Rerank(Points(POINTS)), shape=Shape(), k=8)
    return (await pipeline.search("q")).to_json()
