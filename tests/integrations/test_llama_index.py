"""LlamaIndex: nodes in the order of `resift.rerank`, events, query engines sync and async, fusion."""

from __future__ import annotations

import asyncio
import copy
import time
from typing import Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher
from pydantic import Field

import resift
from resift._internal.sync import run_sync
from resift.errors import InputError
from resift.integrations.llama_index import (
    ResiftEmbedding,
    ResiftFusionRetriever,
    ResiftRerank,
    ResiftRetriever,
    llama_index_store,
)
from resift.stores import MemoryStore
from resift.testing import OverlapScorer
from tests.integrations.documents import QUERY, TEXTS, SlowScorer


def nodes() -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(id_=f"n{at}", text=text, metadata={"page": at}), score=0.5)
        for at, text in enumerate(TEXTS)
    ]


class ListRetriever(BaseRetriever):
    """Returns what it was given, or fails."""

    def __init__(self, given: list[NodeWithScore], *, fails: bool = False) -> None:
        super().__init__()
        self.given = given
        self.fails = fails

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.fails:
            raise RuntimeError("secret text of a document")
        return self.given


@pytest.mark.real_model
def test_the_order_is_that_of_rerank():
    given = nodes()
    before = copy.deepcopy(given)
    found = ResiftRerank(top_n=0).postprocess_nodes(given, query_str=QUERY)
    ranking = resift.rerank(QUERY, TEXTS)
    assert [one.node.get_content() for one in found] == [hit.text for hit in ranking]
    assert [one.score for one in found] == [hit.score for hit in ranking]
    assert given == before
    best = found[0]
    assert (best.node.node_id, best.node.metadata["page"]) == ("n1", 1)
    assert (best.node.metadata["degraded"], best.node.metadata["tier"]) == (False, "cross-encoder")


def test_added_metadata_is_hidden_from_prompts_and_embeddings():
    found = ResiftRerank(scorer=OverlapScorer("overlap")).postprocess_nodes(nodes(), query_str=QUERY)
    assert "why" in found[0].node.metadata
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "why" not in found[0].node.get_content(metadata_mode=mode)


def test_a_failing_reranker_keeps_the_order_and_is_reported():
    found = ResiftRerank(scorer=OverlapScorer("mine", fails=True)).postprocess_nodes(nodes(), query_str=QUERY)
    assert [one.node.node_id for one in found] == ["n0", "n1", "n2"]
    assert [one.score for one in found] == [0.5, 0.5, 0.5]
    assert found[0].node.metadata["degraded"]
    assert "mine failed" in found[0].node.metadata["reason"]


def test_a_deadline_is_respected():
    started = time.monotonic()
    found = ResiftRerank(scorer=SlowScorer(), deadline_s=0.1).postprocess_nodes(nodes(), query_str=QUERY)
    assert time.monotonic() - started < 10  # the scorer would take 30 s
    assert len(found) == 3


def test_the_query_is_required():
    with pytest.raises(InputError, match="query_str"):
        ResiftRerank().postprocess_nodes(nodes())


class Events(BaseEventHandler):
    """Remembers rerank events."""

    seen: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, (ReRankStartEvent, ReRankEndEvent)):
            self.seen.append(event)


def test_events_are_sent():
    handler = Events()
    root = get_dispatcher()
    root.add_event_handler(handler)
    try:
        ResiftRerank(scorer=OverlapScorer("overlap"), top_n=2).postprocess_nodes(nodes(), query_str=QUERY)
    finally:
        root.event_handlers.remove(handler)
    start, end = handler.seen[-2:]
    assert (start.model_name, start.top_n, len(start.nodes), len(end.nodes)) == ("overlap", 2, 3, 2)


def test_query_engines_run_sync_and_async():
    store = MemoryStore()
    run_sync(store.add([{"id": str(at), "text": text} for at, text in enumerate(TEXTS)]))
    engine = RetrieverQueryEngine.from_args(
        ResiftRetriever(store, k=3),
        llm=MockLLM(max_tokens=5),
        node_postprocessors=[ResiftRerank(scorer=OverlapScorer("overlap"), top_n=1)],
    )
    for answer in (engine.query(QUERY), asyncio.run(engine.aquery(QUERY))):
        assert [one.node.node_id for one in answer.source_nodes] == ["1"]


def test_a_failing_retriever_is_left_out():
    retriever = ResiftFusionRetriever(
        {"good": ListRetriever(nodes()), "bad": ListRetriever([], fails=True)}, k=3, weights=[2.0, 1.0]
    )
    for found in (retriever.retrieve(QUERY), asyncio.run(retriever.aretrieve(QUERY))):
        assert len(found) == 3
        assert found[0].node.metadata["degraded"]
        assert "bad" in found[0].node.metadata["reason"]
        assert "secret" not in str(found[0].node.metadata)
    with pytest.raises(InputError, match="one per retriever"):
        ResiftFusionRetriever([ListRetriever(nodes())], weights=[1.0, 2.0])


def test_a_retriever_is_a_store():
    store = llama_index_store(ListRetriever(nodes()), name="mine")
    hits = run_sync(store.search(QUERY, k=2))
    assert [(hit.id, hit.source, hit.score) for hit in hits] == [("n0", "mine", 0.5), ("n1", "mine", 0.5)]
    assert [hit.id for hit in run_sync(store.search(QUERY, k=2, where={"page": 2}))] == ["n2"]


@pytest.mark.real_model
def test_embeddings_equal_those_of_the_embedder():
    embedding = ResiftEmbedding()
    vectors = embedding.get_text_embedding_batch(TEXTS)
    assert [len(vector) for vector in vectors] == [384] * 3
    assert embedding.get_query_embedding(QUERY) == asyncio.run(embedding.aget_query_embedding(QUERY))
    assert embedding.get_text_embedding(TEXTS[0]) == vectors[0]
