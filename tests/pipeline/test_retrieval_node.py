"""RetrievalNode: fan-out, capabilities, determinism, failures and citations."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from resift.errors import CapabilityError, InputError, ResiftError, RetrievalError, StoreError, UnsafeCypherError
from resift.events import ListSink
from resift.pipeline import Pipeline, RetrievalNode, StoreRef
from resift.pipeline.fan_out import fan_out
from resift.protocols import Reranker
from resift.ranking.fusion.rerankers import RRFReranker
from resift.stores import MemoryStore
from resift.types import Ranking
from tests.pipeline.fake_stores import Answers, Graph, Hangs, HangsInThread, IgnoresCancellation, Points, Raises, hit
from tests.run_program import run_here

QUERY = "a question nobody else asks"


def retrieved(node, query=QUERY, ctx=None) -> Ranking:
    return asyncio.run(node.execute(SimpleNamespace(query=query), ctx))["retrieved"]


def test_n1_reads_state_query_and_returns_one_channel():
    """`state.query` in, `{"retrieved": …}` out, fused by RRF."""
    node = RetrievalNode([Answers("a", ["x", "y"]), Answers("b", ["y", "z"])], k=2)
    result = asyncio.run(node.execute(SimpleNamespace(query=QUERY)))
    assert list(result) == ["retrieved"]
    assert isinstance(result["retrieved"], Ranking)
    assert result["retrieved"].ids == ["y", "x"]
    assert result["retrieved"].replay() == ["y", "x"]


def test_n1_reads_the_query_of_a_mapping_too():
    """A state may be a mapping."""
    store = Answers("a", ["x"])
    asyncio.run(RetrievalNode([store], k=1).execute({"query": QUERY}))
    assert store.asked == [{"query": QUERY, "k": 1, "where": None}]


@pytest.mark.parametrize("state", [{}, SimpleNamespace(), None, {"query": None}])
def test_n1_a_state_without_query_is_refused(state):
    """A missing query is a clear error."""
    with pytest.raises(InputError, match="no query"):
        asyncio.run(RetrievalNode([Answers("a")]).execute(state))


def test_n1_stores_are_asked_at_the_same_time():
    """Three stores that wait for each other all answer, so they ran together."""

    async def work():
        barrier = asyncio.Barrier(3)
        stores = [Answers(name, ["x"], before=barrier.wait) for name in "abc"]
        return await RetrievalNode(stores, deadline_s=5).execute({"query": QUERY})

    assert asyncio.run(work())["retrieved"].failures == {}


def test_n1_graph_store_gets_the_query_as_a_parameter():
    """The question never becomes part of the statement."""
    graph = Graph("g", ["x"])
    cypher = "MATCH (n) WHERE n.title CONTAINS $query RETURN n LIMIT $most"
    ref = StoreRef(store=graph, cypher=cypher, parameters={"most": 3})
    ranking = retrieved(RetrievalNode([ref, Answers("a", ["x"])], k=5))
    assert graph.asked == [(cypher, {"most": 3, "query": QUERY}, 5)]
    assert ranking.ids == ["x"]
    assert [step.source for step in ranking.path(ranking[0].id) if step.kind == "retrieve"] == ["g", "a"]


@pytest.mark.parametrize("statement", ["MATCH (n) DETACH DELETE n", "RETURN [1, 2][1:nextval('sq')]"])
def test_a_graph_store_by_somebody_else_is_behind_the_guard_too(statement):
    """A statement that may write is refused when the node is built and, for a late one, when it is sent."""
    graph = Graph("g", ["x"])
    ref = StoreRef(store=graph, cypher=statement)
    for build in (RetrievalNode, Pipeline):
        with pytest.raises(UnsafeCypherError):
            build([ref])
    with pytest.raises(RetrievalError, match="UnsafeCypherError"):
        asyncio.run(fan_out([ref], QUERY, k=3))
    assert graph.asked == []


def test_a_graph_store_may_allow_its_own_macros():
    """The store's owner names functions of the database; the fan-out honours them."""

    class WithMacros(Graph):
        procedures = ()
        functions = ("addTwice",)

    graph = WithMacros("g", ["x"])
    node = RetrievalNode([StoreRef(store=graph, cypher="MATCH (n) RETURN addTwice(n.x)")])
    assert retrieved(node).ids == ["x"]


def test_a_filter_holds_for_graph_stores_too():
    """Rows of a graph store that do not match the filter never come through."""

    class Rows(Graph):
        async def query(self, cypher, parameters=None, *, k):
            return [hit("new", year=2024), hit("old", year=1999), hit("unknown")]

    node = RetrievalNode([StoreRef(store=Rows("g"), cypher="MATCH (n) RETURN n // $query")])
    state = {"query": QUERY, "where": {"year": 2024}}
    assert asyncio.run(node.execute(state))["retrieved"].ids == ["new"]


def test_n1_names_are_resolved_as_in_the_seed():
    """A StoreRef may be only a name that a resolver turns into a store."""
    stores = {"a": Answers("other", ["x"])}
    node = RetrievalNode(["a"], store_resolver=stores.__getitem__)
    assert retrieved(node)[0].source == "a"


def test_n2_retrieval_node_no_cross_store_reembed():
    """Each store embeds the query once, with its own embedder, and nothing else is embedded."""

    class Counting:
        def __init__(self, name):
            self.name = name
            self.calls = []

        async def embed(self, texts, *, kind):
            import numpy as np

            self.calls.append((kind, list(texts)))
            return np.array([[len(text), len(self.name), 1.0] for text in texts], dtype=np.float32)

    async def work():
        embedders = [Counting("one"), Counting("three")]
        stores = [MemoryStore(each, name=each.name) for each in embedders]
        for store in stores:
            await store.add([{"id": "x", "text": "some text"}, {"id": "y", "text": "another longer text"}])
        for each in embedders:
            each.calls.clear()
        await RetrievalNode(stores, k=2).execute({"query": QUERY})
        return [each.calls for each in embedders]

    assert asyncio.run(work()) == [[("query", [QUERY])], [("query", [QUERY])]]


def test_n3_requires_names_every_store_and_what_the_reranker_needs():
    """`db.<store>:read` in declared order, then the reranker's capabilities."""
    node = RetrievalNode([Answers("b"), Answers("a")], rerank=Points({}, requires=("net.voyage",)))
    assert node.requires == ("db.b:read", "db.a:read", "net.voyage")
    assert RetrievalNode([Answers("a")], rerank=Points({}, requires="net.jina")).requires[-1] == "net.jina"
    assert RetrievalNode([Answers("a")], rerank=RRFReranker()).requires == ("db.a:read",)


@pytest.mark.parametrize("where", ["node", "context"])
def test_n3_a_missing_capability_refuses_before_any_store_is_touched(where):
    """No store and no scorer is asked when one capability is missing."""
    stores, scorer = [Answers("a", ["x"]), Answers("b", ["x"])], Points({"x": 1.0}, requires=("net.voyage",))
    granted = {"db.a:read", "net.voyage"}
    own = granted if where == "node" else None
    node = RetrievalNode(stores, rerank=scorer, capabilities=own)
    with pytest.raises(CapabilityError, match=r"db\.b:read") as caught:
        retrieved(node, ctx=None if where == "node" else {"capabilities": granted})
    assert caught.value.missing == ("db.b:read",)
    assert [store.asked for store in stores] == [[], []]
    assert scorer.asked == []


def test_n3_granted_capabilities_let_it_pass():
    """Exactly what is required is enough."""
    node = RetrievalNode([Answers("a", ["x"])], capabilities=["db.a:read"])
    assert retrieved(node).ids == ["x"]


def test_n4_any_completion_order_gives_the_same_bytes():
    """All 24 completion orders of four stores give byte-identical hits, ties included."""
    lists = {"d": ["x", "y"], "a": ["y", "x"], "c": ["z", "x"], "b": ["y", "z"]}

    async def search(order):
        turns = {name: asyncio.Event() for name in lists}
        stores = [Answers(name, ids, before=turns[name].wait) for name, ids in lists.items()]
        node = RetrievalNode(stores, k=3)
        task = asyncio.ensure_future(node.execute({"query": QUERY}))
        for name in order:
            await asyncio.sleep(0)
            turns[name].set()
            await asyncio.sleep(0)
        return _bytes((await task)["retrieved"])

    async def work():
        return {await search(order) for order in itertools.permutations(lists)}

    assert len(asyncio.run(work())) == 1


def test_n4_metadata_is_that_of_the_first_declared_store():
    """Declared order decides whose text and metadata a shared hit keeps, also for a slow store."""

    async def work():
        first = MemoryStore(name="zebra")
        second = MemoryStore(name="ant")
        await first.add([{"id": "x", "text": "shared words", "metadata": {"from": "zebra"}}])
        await second.add([{"id": "x", "text": "shared words", "metadata": {"from": "ant"}}])
        return await RetrievalNode([first, second], k=1).execute({"query": "shared words"})

    [found] = asyncio.run(work())["retrieved"]
    assert found.metadata == {"from": "zebra"}
    assert found.source == "zebra"


_SCRIPT = """
import asyncio, json
from tests.pipeline.fake_stores import Answers
from resift.pipeline import RetrievalNode
steps = zip("qwert", (3, 5, 7, 11, 2))
stores = [Answers(name, [f"d{(i * step) % 17}" for i in range(9)]) for name, step in steps]
ranking = asyncio.run(RetrievalNode(stores, k=12).execute({"query": "words"}))["retrieved"]
print(json.dumps([[hit.to_dict() for hit in hits] for hits in (ranking, ranking.cut)], sort_keys=True))
"""


@pytest.mark.slow
def test_n4_two_processes_give_the_same_bytes():
    """Other processes with other hash seeds give byte-identical rankings."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "424242")
    }
    assert outputs == {run_here(_SCRIPT)}
    assert json.loads(outputs.pop())[0]


def test_n4_one_event_per_branch_in_the_seeds_shape():
    """`stargraph.transition` with kind, store, provider, n_hits and ms, also for branches that fail."""
    sink = ListSink()
    refs = [
        Answers("a", ["x", "y"]),
        StoreRef(store=Graph("g", ["x"]), cypher="MATCH (n) RETURN n // $query"),
        Raises("r", StoreError("disk is gone", store="r")),
        Hangs("h"),
    ]
    retrieved(RetrievalNode(refs, sink=sink, deadline_s=0.2))
    told = {event.store: event for event in sink.named("stargraph.transition")}
    assert len(sink.named("stargraph.transition")) == 4
    assert [(e.kind, e.provider, e.n_hits, e.status, e.error) for e in (told[name] for name in "agrh")] == [
        ("search", "Answers", 2, "ok", None),
        ("graph", "Graph", 1, "ok", None),
        ("search", "Raises", 0, "failed", "StoreError"),
        ("search", "Hangs", 0, "late", "TimeoutError"),
    ]
    assert all(event.ms >= 0 for event in told.values())
    assert QUERY not in repr(sink.events)


def test_n5_hanging_raising_and_empty_stores_cost_only_themselves():
    """The healthy store answers within the deadline, and the ranking says what failed."""
    hanging = Hangs("hanging")
    stores = [hanging, Raises("raising", OSError("disk")), Answers("empty"), Answers("healthy", ["x", "y"])]
    started = time.monotonic()
    ranking = retrieved(RetrievalNode(stores, deadline_s=1.0))
    assert time.monotonic() - started < 1.0
    assert ranking.ids == ["x", "y"]
    assert ranking.failures == {"hanging": "no answer in time", "raising": "OSError"}
    assert ranking.degraded
    assert ranking.reason == "2 of 4 stores failed: hanging, raising"
    assert hanging.cancelled
    assert "hanging (no answer in time)" in ranking.why("absent")


def test_n5_a_thread_that_cannot_be_stopped_does_not_hold_the_answer():
    """A store blocked in a worker thread is left behind at the deadline."""

    async def work():
        stuck = HangsInThread("stuck")
        started = time.monotonic()
        try:
            node = RetrievalNode([stuck, Answers("a", ["x"])], deadline_s=1.0)
            ranking = (await node.execute({"query": QUERY}))["retrieved"]
            return ranking, time.monotonic() - started
        finally:
            stuck.released.set()

    ranking, elapsed_s = asyncio.run(work())
    assert elapsed_s < 1.0
    assert ranking.ids == ["x"]
    assert ranking.failures == {"stuck": "no answer in time"}


def test_n5_a_store_that_swallows_its_cancellation_does_not_hold_the_answer():
    """A coroutine that goes on after it was cancelled is left behind too."""

    async def work():
        stubborn = IgnoresCancellation("stubborn")
        node = RetrievalNode([stubborn, Answers("a", ["x"])], deadline_s=0.1)
        ranking = (await node.execute({"query": QUERY}))["retrieved"]
        stubborn.released.set()
        await asyncio.sleep(0)
        return ranking

    assert asyncio.run(work()).failures == {"stubborn": "no answer in time"}


def test_n5_its_own_timeout_ends_one_store_early():
    """`timeout_s` of one branch does not wait for the deadline of all."""
    ref = StoreRef(store=Hangs("slow"), timeout_s=0.05)
    started = time.monotonic()
    ranking = retrieved(RetrievalNode([ref, Answers("a", ["x"])], deadline_s=10))
    assert time.monotonic() - started < 2
    assert ranking.failures == {"slow": "no answer in time (timeout_s=0.05)"}


def test_n5_without_a_deadline_nothing_hangs_for_ever():
    """Every store has a limit unless it was switched off."""
    assert RetrievalNode([Answers("a")])._pipeline.timeout_s == 30
    ranking = retrieved(RetrievalNode([Hangs("h"), Answers("a", ["x"])], timeout_s=0.05))
    assert ranking.failures == {"h": "no answer in time (timeout_s=0.05)"}


def test_n5_a_store_that_cancels_itself_is_a_failure_not_a_cancelled_search():
    """CancelledError out of a store costs only that store."""
    ranking = retrieved(RetrievalNode([Raises("odd", asyncio.CancelledError()), Answers("a", ["x"])]))
    assert ranking.ids == ["x"]
    assert ranking.failures == {"odd": "ResiftError: cancelled itself"}


def test_n5_a_failing_store_logs_one_line_and_its_place_at_debug(caplog):
    """A bug costs only its store; the log never shows the query."""
    for level, lines in ((logging.WARNING, 1), (logging.DEBUG, 2)):
        caplog.clear()
        with caplog.at_level(level, logger="resift.pipeline"):
            ranking = retrieved(RetrievalNode([Raises("buggy", TypeError(QUERY)), Answers("a", ["x"])]))
        assert ranking.failures == {"buggy": "TypeError"}
        assert len([record for record in caplog.records if record.name == "resift.pipeline"]) == lines
        assert ("fake_stores.py" in caplog.text) is (level == logging.DEBUG)
        assert QUERY not in caplog.text


def test_n5_a_store_that_returns_nonsense_is_a_failure():
    """An answer that is no list of hits costs only its store."""

    class Nonsense:
        name = "nonsense"

        async def search(self, query, *, k, where=None):
            return {"not": "a list"}

    ranking = retrieved(RetrievalNode([Nonsense(), Answers("a", ["x"])]))
    assert ranking.ids == ["x"]
    assert "InputError" in ranking.failures["nonsense"]


def test_n5_all_stores_failing_raises_with_every_failure():
    """No answer at all is an error that carries each store's reason."""
    stores = [Raises("a", StoreError("locked", store="a")), Raises("b", ValueError(QUERY)), Hangs("c")]
    with pytest.raises(RetrievalError) as caught:
        retrieved(RetrievalNode(stores, deadline_s=0.1))
    assert caught.value.failures == {"a": "StoreError: locked", "b": "ValueError", "c": "no answer in time"}
    assert QUERY not in str(caught.value)


def test_n5_empty_stores_are_an_empty_answer():
    """Finding nothing is no failure."""
    ranking = retrieved(RetrievalNode([Answers("a"), Answers("b")]))
    assert (ranking.ids, ranking.degraded, ranking.failures) == ([], False, {})


def test_n5_keyboard_interrupt_of_a_store_is_not_swallowed():
    """What is no Exception ends the search."""

    class Stop(BaseException):
        pass

    with pytest.raises(Stop):
        retrieved(RetrievalNode([Raises("a", Stop()), Answers("b", ["x"])]))


def test_cancelling_the_search_cancels_its_stores():
    """A caller that gives up leaves no store running."""

    async def work():
        hanging = Hangs("h")
        task = asyncio.ensure_future(RetrievalNode([hanging]).execute({"query": QUERY}))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return hanging.cancelled

    assert asyncio.run(work())


def test_n8_hits_round_trip_to_citations():
    """(doc_id, score, source_store, metadata) per hit."""
    ranking = retrieved(RetrievalNode([Answers("a", ["x", "y"])], k=2))
    assert ranking.citations() == [(hit.doc_id, hit.score, "a", hit.metadata) for hit in ranking]
    assert [citation[0] for citation in ranking.citations()] == ["x", "y"]


def test_a_reranker_of_the_seeds_protocol_is_called_with_lists_in_declared_order():
    """`rerank.fuse(per_store, k=…)` gets one list per store, empty for one that failed."""
    calls = []

    class Concat:
        async def fuse(self, per_store, *, k, query=None):
            calls.append(([[hit.id for hit in hits] for hits in per_store], k, query))
            seen = {hit.id: hit for hits in per_store for hit in hits}
            return list(seen.values())[:k]

    assert isinstance(Concat(), Reranker)
    stores = [Answers("a", ["x"]), Raises("b", OSError()), Answers("c", ["z", "x"])]
    ranking = retrieved(RetrievalNode(stores, k=2, rerank=Concat()))
    assert calls == [([["x"], [], ["z", "x"]], 2, QUERY)]
    assert ranking.ids == ranking.replay() == ["x", "z"]


def test_a_scorer_orders_what_rrf_fused():
    """A scorer as `rerank` judges the whole fused list."""
    node = RetrievalNode(
        [Answers("a", ["x", "y"]), Answers("b", ["z"])], k=2, rerank=Points({"z": 3.0, "y": 2.0, "x": 1.0})
    )
    ranking = retrieved(node)
    assert ranking.ids == ["z", "y"]
    assert ranking.tier == "points"
    assert [hit.id for hit in ranking.cut] == ["x"]


def test_a_reranker_that_fails_leaves_the_rrf_order():
    """Reranking is never fatal: the plain fusion stands in, visibly."""

    class Broken:
        async def fuse(self, per_store, *, k, query=None):
            raise ResiftError("no model")

    ranking = retrieved(RetrievalNode([Answers("a", ["x", "y"])], rerank=Broken()))
    assert ranking.ids == ["x", "y"]
    assert ranking.degraded
    assert ranking.reason == "fuse failed: no model"


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        ([], "at least one"),
        ([Answers("a"), Answers("a")], "Two stores are named 'a'"),
        ([Graph("g")], "needs Cypher"),
        ([object()], "without `async search`"),
        (["a"], "only a name, not a store; pass store_resolver="),
        (["my.db"], r"only a name, not a store; open it: SQLiteStore\('my.db'\)"),
        ([StoreRef(store=Answers("a"), k=0)], "k is 0"),
        ([StoreRef(store=Answers("a"), timeout_s=0)], "timeout_s is 0"),
        ([StoreRef(store=Answers("a"), cypher="MATCH (n) RETURN n")], "without `async query`"),
    ],
)
def test_stores_that_cannot_work_are_refused_at_once(stores, message):
    """A wrong store is an error at construction, not at the first search."""
    with pytest.raises(InputError, match=message):
        RetrievalNode(stores)


@pytest.mark.parametrize("k", [-1, True, 1.5, "3"])
def test_a_wrong_k_is_refused(k):
    """k must be an integer ≥ 0."""
    with pytest.raises(InputError, match="k is"):
        RetrievalNode([Answers("a")], k=k)


def test_a_rerank_that_is_none_of_ours_is_refused():
    """An object without `fuse` or `score` cannot rerank."""
    with pytest.raises(InputError, match="`fuse` or `score`"):
        RetrievalNode([Answers("a")], rerank=object())


def _bytes(ranking: Ranking) -> bytes:
    data = ranking.to_dict()
    return json.dumps(data, sort_keys=True).encode()


def test_names_are_resolved_when_the_node_runs():
    """A store behind a name may be replaced between two runs; a name that means nothing costs only itself."""
    known = {"a": Answers("a", ["x"]), "b": Answers("b", ["y"])}
    node = RetrievalNode(["a", "b"], store_resolver=known.__getitem__)
    assert set(asyncio.run(node.execute({"query": "q"}))["retrieved"].ids) == {"x", "y"}
    known["b"] = Answers("b", ["z"])
    assert set(asyncio.run(node.execute({"query": "q"}))["retrieved"].ids) == {"x", "z"}
    del known["b"]
    ranking = asyncio.run(node.execute({"query": "q"}))["retrieved"]
    assert (ranking.ids, ranking.failures) == (["x"], {"b": "KeyError"})


def test_transitions_have_a_timestamp():
    """Each branch says when it ended, in UTC."""
    sink = ListSink()
    asyncio.run(RetrievalNode([Answers("a", ["x"])], sink=sink).execute({"query": "q"}))
    (event,) = sink.named("stargraph.transition")
    moment = datetime.fromisoformat(event.fields()["timestamp"])
    assert moment.tzinfo is not None
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 60
