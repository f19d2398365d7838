"""LangChain: its own conformance suites, the order of `resift.rerank`, failures reported, deadlines kept."""

from __future__ import annotations

import asyncio
import copy
import time
from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, RetrieversIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

import resift
from resift._internal.sync import run_sync
from resift.integrations.langchain import (
    ResiftEmbeddings,
    ResiftFusionRetriever,
    ResiftReranker,
    ResiftRetriever,
    langchain_store,
)
from resift.stores import MemoryStore
from resift.testing import OverlapScorer
from tests.integrations.documents import QUERY, SlowScorer

DOCUMENTS = [
    Document("Lunch is at noon.", id="lunch", metadata={"page": 1}),
    Document("Late returns cost twenty cents a day.", id="late", metadata={"page": 2}),
    Document("Returns are taken at the desk.", metadata={"page": 3}),
]


class ListRetriever(BaseRetriever):
    """Returns what it was given, or fails."""

    documents: list[Document]
    fails: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if self.fails:
            raise RuntimeError("secret text of a document")
        return self.documents


def memory_store() -> MemoryStore:
    store = MemoryStore()
    run_sync(store.add([{"id": f"d{n}", "text": f"late returns number {n}"} for n in range(5)]))
    return store


class TestRetrieverStandard(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[ResiftRetriever]:
        return ResiftRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"source": memory_store()}

    @property
    def retriever_query_example(self) -> str:
        return "late returns"


class TestFusionRetrieverStandard(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[ResiftFusionRetriever]:
        return ResiftFusionRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retrievers": [ListRetriever(documents=DOCUMENTS), ListRetriever(documents=DOCUMENTS[::-1])]}

    @property
    def retriever_query_example(self) -> str:
        return QUERY


@pytest.mark.real_model
class TestEmbeddingsStandard(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[ResiftEmbeddings]:
        return ResiftEmbeddings


@pytest.mark.real_model
class TestEmbeddingsIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[ResiftEmbeddings]:
        return ResiftEmbeddings


@pytest.mark.real_model
def test_the_order_is_that_of_rerank():
    given = copy.deepcopy(DOCUMENTS)
    found = ResiftReranker(top_n=None).compress_documents(given, QUERY)
    ranking = resift.rerank(QUERY, [document.page_content for document in DOCUMENTS])
    assert [document.page_content for document in found] == [hit.text for hit in ranking]
    assert [document.metadata["relevance_score"] for document in found] == [hit.score for hit in ranking]
    assert given == DOCUMENTS
    best = found[0]
    assert (best.id, best.metadata["page"]) == ("late", 2)
    assert (best.metadata["degraded"], best.metadata["tier"]) == (False, "cross-encoder")
    assert "1st" in best.metadata["why"]


def test_async_gives_the_same_and_top_n_cuts():
    reranker = ResiftReranker(scorer=OverlapScorer("overlap"), top_n=2)
    found = asyncio.run(reranker.acompress_documents(DOCUMENTS, QUERY))
    assert found == reranker.compress_documents(DOCUMENTS, QUERY)
    assert len(found) == 2
    assert reranker.compress_documents([], QUERY) == []


def test_a_failing_reranker_keeps_the_order_and_is_reported():
    found = ResiftReranker(scorer=OverlapScorer("mine", fails=True)).compress_documents(DOCUMENTS, QUERY)
    assert [document.page_content for document in found] == [one.page_content for one in DOCUMENTS]
    assert all(document.metadata["degraded"] for document in found)
    assert "mine failed" in found[0].metadata["reason"]
    assert found[0].metadata["relevance_score"] is None


def test_a_deadline_is_respected():
    started = time.monotonic()
    found = ResiftReranker(scorer=SlowScorer(), deadline_s=0.1).compress_documents(DOCUMENTS, QUERY)
    assert time.monotonic() - started < 10  # the scorer would take 30 s
    assert found[0].metadata["degraded"]


class Seen(BaseCallbackHandler):
    """Remembers the runs that it sees."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **_: Any) -> None:
        self.events.append(f"start {serialized['name']} {inputs['query']}")

    def on_chain_end(self, outputs: Any, **_: Any) -> None:
        self.events.append(f"end {len(outputs['documents'])}")

    def on_retriever_end(self, documents: Any, **_: Any) -> None:
        self.events.append(f"retrieved {len(documents)}")


def test_callbacks_are_called():
    seen = Seen()
    reranker = ResiftReranker(scorer=OverlapScorer("overlap"), top_n=1)
    reranker.compress_documents(DOCUMENTS, QUERY, callbacks=[seen])
    asyncio.run(reranker.acompress_documents(DOCUMENTS, QUERY, callbacks=[seen]))
    assert seen.events == [f"start ResiftReranker {QUERY}", "end 1"] * 2
    ResiftRetriever(source=memory_store(), k=2).invoke("late", config={"callbacks": [seen]})
    assert seen.events[-1] == "retrieved 2"


def test_a_failing_retriever_is_left_out():
    retriever = ResiftFusionRetriever(
        retrievers={"good": ListRetriever(documents=DOCUMENTS), "bad": ListRetriever(documents=[], fails=True)}, k=3
    )
    for found in (retriever.invoke(QUERY), asyncio.run(retriever.ainvoke(QUERY))):
        assert [document.id for document in found][:2] == ["lunch", "late"]
        assert all(document.metadata["degraded"] for document in found)
        assert "bad" in found[0].metadata["reason"]
        assert "secret" not in str(found[0].metadata)


def test_an_index_is_a_source(tmp_path):
    with resift.Index(tmp_path / "n.db", text_only=True, rerank=False) as index:
        index.add(["late returns cost money", "lunch is at noon"], ids=["a", "b"])
        [document] = ResiftRetriever(source=index, k=1).invoke("late returns")
    assert document.id == "a"
    with pytest.raises(resift.ResiftError, match=r"pass resift\.Index"):
        ResiftRetriever(source="n.db").invoke("late")


@pytest.mark.real_model
def test_a_vector_store_is_a_store():
    vectors = InMemoryVectorStore(ResiftEmbeddings())
    vectors.add_documents(DOCUMENTS[:2])
    store = langchain_store(vectors, name="vectors")
    hits = run_sync(store.search(QUERY, k=2))
    assert [hit.id for hit in hits] == ["late", "lunch"]
    assert hits[0].score is None  # this one cannot say how relevant a document is, only its order
    assert run_sync(store.search(QUERY, k=2, where={"page": 1}))[0].id == "lunch"
    assert run_sync(store.search(" ", k=2)) == []
