"""Pipeline: stages in order, nothing lost, one deadline, failures that show."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import CapabilityError, InputError, RetrievalError
from resift.events import ListSink
from resift.pipeline import Fuse, OnHits, OverFetch, Pipeline, Pool, Rerank
from resift.pipeline.stages import Gate
from resift.ranking.fusion.rerankers import FusionReranker
from resift.types import Hit
from tests.pipeline.fake_stores import Answers, Hangs, Points, Raises

QUERY = "a question nobody else asks"
STORES = {"a": ["x", "y", "z"], "b": ["z", "w"]}


def pipeline(**options) -> Pipeline:
    return Pipeline([Answers(name, ids) for name, ids in STORES.items()], **options)


def test_without_stages_it_is_rrf_and_a_cut():
    """The plain pipeline fuses and cuts, and says why for what is in and what is out."""
    ranking = pipeline(k=2).rank(QUERY)
    assert ranking.ids == ranking.replay() == ["z", "x"]
    assert [hit.id for hit in ranking.cut] == ["w", "y"]
    assert not ranking.degraded
    assert "cut: k=2" in ranking.why("w")
    assert set(ranking.timings) == {"fan-out", "fuse", "total"}


def test_search_and_rank_are_the_same():
    """The sync edge gives what the async one gives, also inside a running loop."""

    async def work():
        pipe = pipeline(k=3)
        return (await pipe.search(QUERY)).ids, pipe.rank(QUERY).ids

    awaited, waited = asyncio.run(work())
    assert awaited == waited


def test_stages_run_in_the_order_of_the_flow():
    """fuse, gate, rerank, guard, shape: whatever the order of the arguments."""
    seen = []

    def stage(name):
        async def run(pool: Pool) -> Pool:
            seen.append(name)
            return pool

        run.__name__ = name
        return run

    shapes = [stage("one"), stage("two")]
    pipe = pipeline(shape=shapes, guard=stage("guard"), rerank=stage("rerank"), gate=stage("gate"))
    ranking = pipe.rank(QUERY)
    assert seen == ["gate", "rerank", "guard", "one", "two"]
    assert list(ranking.timings) == ["fan-out", "fuse", "gate", "rerank", "guard", "one", "two", "total"]


def test_a_scorer_reranks_the_top_and_the_rest_stay_behind():
    """Rerank judges `depth` hits; the others keep their order and are named as not judged."""
    scorer = Points({"z": 0.1, "x": 0.9})
    ranking = pipeline(rerank=Rerank(scorer, depth=2), k=4).rank(QUERY)
    assert scorer.asked == [["z", "x"]]
    assert ranking.ids == ranking.replay() == ["x", "z", "w", "y"]
    assert ranking.tier == "points"
    assert ranking.unscored == ("w", "y")
    assert "not reranked" in ranking.why("w")
    assert ranking[0].rerank_provider == "points"


def test_hits_below_the_depth_and_below_k_are_no_partial_result():
    """A depth of 2 with k=2 leaves nobody unjudged in the answer."""
    ranking = pipeline(rerank=Rerank(Points({"z": 0.1, "x": 0.9}), depth=2), k=2).rank(QUERY)
    assert (ranking.unscored, ranking.partial, ranking.degraded) == ((), False, False)


def test_a_failing_scorer_degrades_and_the_order_stays():
    """Reranking is never fatal inside a pipeline."""

    class Broken:
        name = "broken"

        async def score(self, query, hits, *, deadline):
            raise OSError(query)

    ranking = pipeline(rerank=Broken(), k=2).rank(QUERY)
    assert ranking.ids == ["z", "x"]
    assert ranking.degraded
    assert ranking.reason == "broken failed: OSError"


@pytest.mark.parametrize("name", ["gate", "guard", "shape"])
def test_a_stage_that_raises_degrades_and_the_order_stays(name):
    """A bug in a stage never costs the answer, and its message never shows the query."""

    async def broken(pool):
        raise KeyError(pool.query)

    ranking = pipeline(k=2, **{name: broken}).rank(QUERY)
    assert ranking.ids == ranking.replay() == ["z", "x"]
    assert ranking.reason == "broken failed: KeyError"


def test_a_stage_that_hangs_is_left_behind_at_the_deadline():
    """One deadline for all stages: the answer is there before it, in the order so far."""

    async def hangs(pool):
        await asyncio.Event().wait()

    started = time.monotonic()
    ranking = pipeline(shape=hangs, k=2).rank(QUERY, deadline_s=1.0)
    assert time.monotonic() - started < 1.0
    assert ranking.ids == ["z", "x"]
    assert ranking.reason == "hangs: no answer in time"


def test_one_hanging_store_leaves_time_for_the_reranker():
    """With later stages, stores may use only part of the deadline."""
    pipe = Pipeline([Answers("a", ["x", "y"]), Hangs("h")], rerank=Points({"x": 0.0, "y": 1.0}))
    started = time.monotonic()
    ranking = pipe.rank(QUERY, deadline_s=1.0)
    assert time.monotonic() - started < 1.0
    assert ranking.ids == ["y", "x"]
    assert ranking.failures == {"h": "no answer in time"}
    assert ranking.reason == "1 of 2 stores failed: h"


def test_without_time_the_reranker_is_skipped_visibly():
    """Pure stages still run when the time is gone; the reranker is skipped and says so."""

    async def dawdle(pool):
        await asyncio.Event().wait()

    scorer = Points({"x": 1.0})
    ranking = pipeline(gate=dawdle, rerank=scorer, shape=Gate(), k=2).rank(QUERY, deadline_s=0.1)
    assert scorer.asked == []
    assert ranking.ids == ["z", "x"]
    assert "rerank: no time left for points" in ranking.reason


def test_a_stage_that_drops_without_a_word_is_recorded():
    """Nothing is ever lost: what a stage leaves out is in `cut` under its name."""
    ranking = pipeline(gate=OnHits("picky", lambda hits: hits[:1])).rank(QUERY)
    assert ranking.ids == ["z"]
    assert {hit.id: ranking.path(hit.id)[-1].note for hit in ranking.cut} == dict.fromkeys("xwy", "dropped by picky")
    assert "dropped by picky" in ranking.why("x")


def test_a_stage_may_bring_back_what_was_cut():
    """Hits in `cut` are still candidates for later stages."""

    async def recover(pool: Pool) -> Pool:
        return pool.reorder([*pool.hits, *pool.cut])

    ranking = pipeline(gate=OnHits("picky", lambda hits: hits[:1]), shape=recover).rank(QUERY)
    assert sorted(ranking.ids) == ["w", "x", "y", "z"]
    assert ranking.cut == ()
    assert ranking.replay() == ranking.ids


@pytest.mark.parametrize(
    ("cheat", "told"),
    [
        (lambda hits: [*hits, Hit("invented", "text")], "not in its input"),
        (lambda hits: [*hits, hits[0]], "a hit twice"),
        (lambda hits: [replace(hit, text="other") for hit in hits], "changed the text"),
        (lambda hits: 5, "TypeError"),
    ],
)
def test_a_stage_that_invents_doubles_or_changes_is_not_believed(cheat, told):
    """Output ids ⊆ input ids, centrally: a cheating stage counts as failed."""
    ranking = pipeline(shape=OnHits("cheat", cheat), k=3).rank(QUERY)
    assert ranking.ids == ["z", "x", "w"]
    assert told in ranking.reason


def test_a_stage_that_returns_no_pool_is_not_believed():
    """A stage must hand the pool on."""

    async def forgets(pool):
        return None

    assert pipeline(gate=forgets).rank(QUERY).reason == "forgets failed: returned NoneType, not a Pool"


def test_a_stage_cannot_change_the_question_or_the_limits():
    """Query, k and deadline belong to the caller."""

    async def greedy(pool):
        return replace(pool, query="other", k=99)

    asked = []

    async def listens(pool):
        asked.append((pool.query, pool.k))
        return pool

    assert len(pipeline(gate=greedy, shape=listens, k=2).rank(QUERY)) == 2
    assert asked == [(QUERY, 2)]


_ids = st.lists(st.sampled_from("abcdefgh"), max_size=8, unique=True)


@given(lists=st.lists(_ids, min_size=1, max_size=4), k=st.integers(0, 10), data=st.data())
def test_nothing_is_lost_and_the_trace_replays(lists, k, data):
    """Any lists, any order a stage chooses, any cut: every id is in hits or cut once, the trace replays."""
    every = {id for ids in lists for id in ids}

    def shuffled(hits):
        order = data.draw(st.permutations(range(len(hits))))
        return [hits[at] for at in order[: data.draw(st.integers(0, len(hits)))]]

    points = {id: data.draw(st.sampled_from([0.0, 1.0, None])) for id in sorted(every)}
    stores = [Answers(f"s{at}", ids) for at, ids in enumerate(lists)]
    pipe = Pipeline(
        stores, gate=OnHits("gate", shuffled), rerank=Rerank(Points(points), depth=3), guard=OnHits("g", shuffled)
    )
    ranking = asyncio.run(pipe.search(QUERY, k=k))
    told = [*ranking.ids, *(hit.id for hit in ranking.cut)]
    assert len(told) == len(set(told))
    assert set(told) == (every if k else set())
    assert len(ranking) <= k
    assert ranking.replay() == ranking.ids
    assert [ranking.path(hit.id)[-1].rank for hit in ranking] == list(range(1, len(ranking) + 1))
    assert all(ranking.path(hit.id)[-1].cut for hit in ranking.cut)


def test_two_runs_give_the_same_bytes():
    """The same question twice gives byte-identical hits."""
    pipe = pipeline(rerank=Points(dict.fromkeys("xyzw", 0.5)))
    runs = {json.dumps([hit.to_dict() for hit in pipe.rank(QUERY)]) for _ in range(5)}
    assert len(runs) == 1


def test_fetch_and_filters_reach_every_store():
    """Each store is asked for the over-fetched number, with the filter."""
    store = Answers("a", ["x"])
    Pipeline([store], fetch=OverFetch(factor=3)).rank(QUERY, k=4, where={"year": 2020})
    assert store.asked == [{"query": QUERY, "k": 12, "where": {"year": 2020}}]


def test_k_zero_touches_nothing():
    """k=0 is an empty answer."""
    store = Answers("a", ["x"])
    assert len(Pipeline([store]).rank(QUERY, k=0)) == 0
    assert store.asked == []


@pytest.mark.parametrize("query", ["", "  \n", None, 5])
def test_an_empty_query_is_refused(query):
    """An empty query gets a clear error."""
    with pytest.raises(InputError, match="query"):
        pipeline().rank(query)


@pytest.mark.parametrize("wrong", [{"k": -1}, {"k": 1.0}, {"deadline_s": -1.0}, {"deadline_s": float("nan")}])
def test_wrong_limits_are_refused(wrong):
    """Impossible k and deadline get a clear error, at construction and at a search."""
    with pytest.raises(InputError):
        pipeline(**wrong)
    with pytest.raises(InputError):
        pipeline().rank(QUERY, **wrong)


def test_a_stage_that_cannot_be_called_is_refused():
    """Wrong parts are an error at construction."""
    with pytest.raises(InputError, match="A stage is a int"):
        pipeline(gate=5)


def test_capabilities_cover_stages_too():
    """A stage's `requires` counts, and refusal comes before any store is asked."""
    store = Answers("a", ["x"])
    pipe = Pipeline([store], rerank=Points({}, requires=("net.voyage",)), capabilities={"db.a:read"})
    assert pipe.requires == ("db.a:read", "net.voyage")
    with pytest.raises(CapabilityError, match=r"net\.voyage"):
        pipe.rank(QUERY)
    assert store.asked == []


def test_all_stores_failing_raises():
    """No store, no answer."""
    with pytest.raises(RetrievalError):
        Pipeline([Raises("a", OSError()), Hangs("b")]).rank(QUERY, deadline_s=0.1)


def test_stores_that_are_all_late_give_an_empty_degraded_ranking():
    """The deadline of the caller is not a failure of a store; a timeout of the store itself is."""
    stores = [Hangs("a"), Hangs("b")]
    for deadline_s in (0.0, 0.05):
        ranking = Pipeline(stores, rerank=Points({})).rank(QUERY, deadline_s=deadline_s)
        assert (ranking.ids, ranking.degraded) == ([], True)
        assert ranking.reason == "deadline: no answer in time from any store"
        assert set(ranking.failures) == {"a", "b"}
    with pytest.raises(RetrievalError):
        Pipeline(stores, timeout_s=0.05).rank(QUERY)


def test_the_first_of_late_stores_gets_the_time_of_the_reranker():
    """Hits in the order of the store are better than no hits."""

    class Slow(Answers):
        async def search(self, query, *, k, where=None):
            await asyncio.sleep(0.35)
            return await super().search(query, k=k)

    ranking = Pipeline([Slow("a", ["x"]), Hangs("b")], rerank=Points({"x": 1.0})).rank(QUERY, deadline_s=0.5)
    assert ranking.ids == ["x"]
    assert ranking.failures == {"b": "no answer in time"}


def test_events_of_all_stages_go_to_one_sink():
    """One sink for fan-out, fusion, gate and rerank, and no query text in any event."""
    sink = ListSink()
    pipeline(gate=Gate(), rerank=Points({"x": 1.0}), sink=sink).rank(QUERY)
    names = [event.name for event in sink.events]
    assert names == ["stargraph.transition"] * 2 + ["fused", "vector_search_tool_result", "reranked"]
    assert QUERY not in repr(sink.events)


def test_any_fusion_serves():
    """`fuse` takes a reranker, a Fuse stage, or a stage of one's own."""
    assert pipeline(fuse=FusionReranker("borda")).rank(QUERY).replay()
    made = Fuse(make=lambda names: FusionReranker("rrf", sources=list(names)))
    assert pipeline(fuse=made).rank(QUERY).ids == pipeline().rank(QUERY).ids


def test_id_and_source_as_identity_keeps_both_hits():
    """With identity "id-source" one id of two stores stays two hits."""
    pipe = pipeline(fuse=FusionReranker("rrf", identity="id-source"))
    ranking = pipe.rank(QUERY)
    assert sorted((hit.id, hit.source) for hit in ranking) == [
        ("w", "b"),
        ("x", "a"),
        ("y", "a"),
        ("z", "a"),
        ("z", "b"),
    ]
    assert ranking.replay() == ranking.ids


def test_close_closes_stores_once():
    """Closing reaches the stores and scorers that can be closed."""
    closed = []

    class Closing(Answers):
        async def close(self):
            closed.append(self.name)

    asyncio.run(Pipeline([Closing("a"), Closing("b"), Answers("c")], rerank=Points({})).close())
    assert closed == ["a", "b"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"pric": 12}, "price"),
        ({"pric": {"!=": 12}}, "price"),
        ({"path": "notes/*"}, "life/notes/a.md"),
        ({"price": {">": "abc"}}, "12"),
        ({"or": [{"pric": 1}, {"price": 12}]}, "price"),
        ({"price": 12}, None),
        ({"tags": "x"}, None),
        (None, None),
    ],
)
def test_a_filter_that_cannot_match_says_which_keys_and_values_there_are(tmp_path, kind, where, told):
    """The ranking warns, as data too; a filter that works says nothing."""
    from resift.stores import MemoryStore, SQLiteStore
    from resift.types import Ranking

    async def search() -> Ranking:
        store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "a.db", create=True)
        metadata = {"path": "life/notes/a.md", "price": 12, "tags": ["x"]}
        await store.add([{"id": "a", "text": "bamboo", "metadata": metadata}])
        try:
            return await Pipeline(store).search("bamboo", where=where)
        finally:
            await store.close()

    ranking = asyncio.run(search())
    assert len(ranking.warnings) == (told is not None)
    assert all(told in warning for warning in ranking.warnings)
    assert all(warning in repr(ranking) for warning in ranking.warnings)
    assert Ranking.from_dict(ranking.to_dict()) == ranking
