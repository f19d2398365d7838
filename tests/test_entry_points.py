"""Every public way in, with what goes wrong most: an error with the next step, a reason, or an answer.

Rows are ways in, columns are mishaps: a missing file, extra or key, empty input, no text, a wrong type, a
closed store. No cell may end in a raw error or pass in silence.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resift
from resift.agent import KnowledgeGraphAgent, Pack
from resift.config import pipeline_from_yaml
from resift.deadline import Deadline
from resift.errors import ResiftError
from resift.evaluation import read_collection, read_qrels, read_recording, read_run
from resift.ingest import open_index
from resift.models import allow_local
from resift.ranking.shape import load_calibrator
from resift.rerankers import HostedReranker, LateInteractionReranker, LLMReranker, ZeroShotReranker
from resift.server.server_options import ServerOptions
from resift.stores import LadybugGraphStore, MemoryStore, PostgresStore, SQLiteStore
from resift.testing import FakeStore, OverlapScorer
from resift.types import Hit, Ranking
from tests.hardening.entry_points import entry_points
from tests.hardening.inputs import VALUES

HIT = Hit("a", "Paris is the capital of France.", 0.5)


def run(call: Callable[[], Any]) -> Any:
    """Call, and await what is to be awaited."""

    async def awaited() -> Any:
        answer = call()
        return await answer if inspect.isawaitable(answer) else answer

    return asyncio.run(awaited())


def says_what_to_do(call: Callable[[], Any]) -> str:
    """Assert that the call raises one of our errors, with words, and return them."""
    with pytest.raises(ResiftError) as caught:
        run(call)
    message = str(caught.value)
    assert len(message.split()) >= 4, message
    assert "Traceback" not in message
    return message


GONE = Path("/nonexistent/folder/file.db")


@pytest.mark.parametrize(
    "call",
    [
        lambda: SQLiteStore(GONE).search("q", k=1),
        lambda: open_index(GONE).search("q", k=1),
        lambda: resift.Index(GONE, read_only=True).search("q"),
        lambda: pipeline_from_yaml(GONE),
        lambda: resift.Pipeline.from_yaml(GONE),
        lambda: read_run(GONE),
        lambda: read_qrels(GONE),
        lambda: read_recording(GONE),
        lambda: read_collection(GONE),
        lambda: load_calibrator(GONE),
        lambda: allow_local(GONE),
        lambda: Pack.open(GONE),
        lambda: KnowledgeGraphAgent(GONE).query("q"),
        lambda: HostedReranker("cohere", api_key_file=GONE),
        lambda: LadybugGraphStore(GONE).query("MATCH (n) RETURN n", k=1),
        lambda: resift.Embedder(folder=GONE.parent).embed(["text"], kind="query"),
        lambda: ZeroShotReranker(folder=GONE.parent).score("capital", [HIT], deadline=Deadline.after(None)),
        lambda: LateInteractionReranker(folder=GONE.parent).encode_documents(["text"]),
    ],
)
def test_a_missing_file_is_named(call):
    assert "nonexistent" in says_what_to_do(call)
    assert not GONE.exists()


@pytest.mark.parametrize(
    "named", [{"stores": (GONE,)}, {"pipeline": GONE}, {"pack": GONE}, {"key_file": GONE}], ids=str
)
def test_a_server_does_not_start_if_a_file_is_missing(named):
    """It raises, or never gets ready and says why to anyone who asks."""

    async def reason() -> str:
        app = resift.serve_app(ServerOptions(embedder=None, **named), scorer=OverlapScorer())
        server = app.state.server
        async with app.router.lifespan_context(app):
            await server.wait_until_loaded()
        return server.failure

    try:
        message = asyncio.run(reason())
    except ResiftError as exc:
        message = str(exc)
    assert "nonexistent" in message


EXTRAS = {
    "httpx": lambda: HostedReranker("jina", api_key="k"),
    "ladybug": lambda: resift.stores.LadybugGraphStore("x.lbug"),
    "lancedb": lambda: resift.stores.LanceDBVectorStore("x", "t").search("q", k=1),
    "psycopg": lambda: resift.stores.PostgresStore("postgresql://127.0.0.1:1/x").search("q", k=1),
    "qdrant_client": lambda: resift.stores.QdrantVectorStore(path="x", embedder=resift.Embedder()),
    "ir_measures": lambda: importlib.import_module("resift.evaluation.measures").Judge({"q": {"d": 1}}),
}


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(package, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else real(name, *a))
    assert re.search(r"pip install .*\[\w+\]", says_what_to_do(EXTRAS[package]))


@pytest.mark.parametrize(
    ("call", "variable"),
    [
        (lambda: resift.load_reranker("cohere"), "COHERE_API_KEY"),
        (lambda: resift.load_reranker("voyage"), "VOYAGE_API_KEY"),
        (lambda: HostedReranker("jina"), "JINA_API_KEY"),
        (lambda: LLMReranker("https://example.org", "m", api_key_env="NO_SUCH_KEY"), "NO_SUCH_KEY"),
    ],
)
def test_a_missing_key_is_named_by_its_variable(call, variable, monkeypatch):
    for name in ("COHERE_API_KEY", "CO_API_KEY", "VOYAGE_API_KEY", "JINA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert variable in says_what_to_do(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda: resift.rerank("capital", []),
        lambda: resift.fuse([]),
        lambda: resift.fuse([[], []]),
        lambda: resift.Pipeline(MemoryStore()).search("capital"),
        lambda: MemoryStore().search("capital", k=3),
        lambda: Ranking().explain().text(),
        lambda: Ranking().to_json(),
    ],
)
def test_an_empty_list_gives_an_answer_or_a_clear_error(call):
    """No candidates: an empty ranking, or an error that says so."""
    try:
        answer = run(call)
    except ResiftError as exc:
        assert str(exc)  # noqa: PT017 - both ends are right
    else:
        assert isinstance(answer, str) or len(answer) == 0


@pytest.mark.parametrize("query", ["", " ", None, 7, ["q"]])
@pytest.mark.parametrize(
    "ask",
    [
        lambda query: resift.fuse([[HIT]]) and resift.load_reranker("semantic-bm25").fuse([[HIT]], k=1, query=query),
        lambda query: resift.Pipeline(FakeStore([HIT], name="s"), rerank=OverlapScorer()).search(query),
        lambda query: resift.RetrievalNode([FakeStore([HIT], name="s")]).execute({"query": query}),
    ],
)
def test_an_empty_query_gives_a_clear_error(ask, query):
    assert "query" in says_what_to_do(lambda: ask(query)).lower()


def test_candidates_without_text_are_reported_as_unscored():
    """Nothing could be judged: degraded, with the reason; none is lost, none has a score."""
    ranking = resift.rerank("capital", [{"id": "a"}, {"id": "b", "sku": "x"}])
    assert ranking.degraded
    assert ranking.reason
    assert sorted(ranking.ids) == ["a", "b"]
    assert [hit.score for hit in ranking] == [None, None]


def test_a_wrong_type_raises_our_error_at_every_entry_point(tmp_path, monkeypatch):
    """Each argument of each entry point gets three bad values; over all arguments every bad value is used.

    One is always NotImplemented: Python warns where its truth value is read before its type is checked.
    """
    monkeypatch.chdir(tmp_path)
    raw = []
    bad_values = [value for value in VALUES if not isinstance(value, (str, bytes)) or len(value) < 50]
    turn = itertools.cycle(bad_values)
    for entry_point in entry_points(tmp_path):
        for name in entry_point.valid:
            for bad in (NotImplemented, *itertools.islice(turn, 2)):
                try:
                    entry_point.open({**entry_point.valid, name: bad})
                except ResiftError:
                    continue
                except Exception as exc:
                    raw.append(f"{entry_point.name}({name}={bad!r:.40}): {type(exc).__name__}: {exc}")
    assert raw == []


def test_every_public_name_is_tested_here(tmp_path):
    """What `resift` exports and can be called is among the ways in, or is a value or a role."""
    ways = entry_points(tmp_path)
    tried = {entry_point.name.split(".")[0].split()[0] for entry_point in ways}
    assert set(resift.__all__) <= tried | {"Reranker", "ResiftError"}
    members = vars(resift.Index)
    methods = {name for name in members if f"a{name}" in members}
    assert {f"Index.{name}" for name in methods - {"close"}} <= {entry_point.name for entry_point in ways}


def test_a_closed_or_missing_graph_store_is_reported(tmp_path):
    graph = LadybugGraphStore(tmp_path / "none.lbug")

    async def use_after_close() -> Any:
        await graph.close()
        return await graph.query("MATCH (n) RETURN n", k=1)

    assert "clos" in says_what_to_do(use_after_close)


def test_an_unreachable_server_is_named():
    store = PostgresStore("postgresql://127.0.0.1:1/none", timeout_s=0.5)
    for call in (
        lambda: store.search("Paris", k=1),
        lambda: store.add([{"id": "a", "text": "Paris"}]),
        lambda: store.get(["a"]),
    ):
        assert "Is the server running" in says_what_to_do(call)


@pytest.mark.parametrize(
    "make", [lambda folder: SQLiteStore(folder / "a.db", create=True), lambda folder: MemoryStore()]
)
def test_a_closed_store_answers_or_reports_it(make, tmp_path):
    store = make(tmp_path)

    async def use_after_close() -> Any:
        await store.add([{"id": "a", "text": "Paris"}])
        if hasattr(store, "close"):
            await store.close()
        return await store.search("Paris", k=1)

    try:
        found = asyncio.run(use_after_close())
    except ResiftError as exc:
        assert "clos" in str(exc)  # noqa: PT017 - both ends are right
    else:
        assert [hit.id for hit in found] == ["a"]


def test_a_pipeline_with_one_bad_store_continues_and_reports_it():
    class Broken:
        name = "broken"

        async def search(self, query, *, k, where=None):
            raise KeyError("secret")

    ranking = asyncio.run(resift.Pipeline([FakeStore([HIT], name="s"), Broken()]).search("capital"))
    assert ranking.ids == ["a"]
    assert "broken" in ranking.failures
    assert "secret" not in str(ranking.failures)
