"""Haystack: components that are saved, loaded and run; the order of `resift.rerank`; failures reported."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
import textwrap
import time

import pytest

pytest.importorskip("haystack")

from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

import resift
from resift._internal.sync import run_sync
from resift.errors import InputError
from resift.integrations.haystack import (
    ResiftDocumentEmbedder,
    ResiftJoiner,
    ResiftRanker,
    ResiftRetriever,
    ResiftTextEmbedder,
    haystack_store,
)
from resift.testing import OverlapScorer
from tests.integrations.documents import QUERY, TEXTS, SlowScorer


def documents() -> list[Document]:
    return [Document(id=f"d{at}", content=text, meta={"page": at}, score=0.5) for at, text in enumerate(TEXTS)]


@pytest.mark.real_model
def test_the_order_is_that_of_rerank():
    given = documents()
    before = copy.deepcopy(given)
    found = ResiftRanker().run(QUERY, given)["documents"]
    ranking = resift.rerank(QUERY, TEXTS)
    assert [one.content for one in found] == [hit.text for hit in ranking]
    assert [one.score for one in found] == [hit.score for hit in ranking]
    assert given == before
    assert (found[0].id, found[0].meta["page"], found[0].meta["tier"]) == ("d1", 1, "cross-encoder")


def test_async_gives_the_same_and_top_k_cuts():
    ranker = ResiftRanker(scorer=OverlapScorer("overlap"), top_k=2)
    found = asyncio.run(ranker.run_async(QUERY, documents()))
    assert found == ranker.run(QUERY, documents())
    assert len(found["documents"]) == 2
    assert len(ranker.run(QUERY, documents(), top_k=1)["documents"]) == 1
    assert ranker.run(QUERY, []) == {"documents": []}
    with pytest.raises(InputError, match="top_k"):
        ranker.run(QUERY, documents(), top_k=0)


def test_a_failing_reranker_keeps_the_order_and_is_reported():
    found = ResiftRanker(scorer=OverlapScorer("mine", fails=True)).run(QUERY, documents())["documents"]
    assert [one.id for one in found] == ["d0", "d1", "d2"]
    assert [one.score for one in found] == [0.5, 0.5, 0.5]
    assert found[0].meta["degraded"]


def test_a_deadline_is_respected():
    started = time.monotonic()
    ranker = ResiftRanker(scorer=SlowScorer(), deadline_s=0.1)
    assert len(ranker.run(QUERY, documents())["documents"]) == 3
    assert time.monotonic() - started < 10  # the scorer would take 30 s


def test_meta_fields_are_scored_with_the_text():
    given = [Document(content="it is so", meta={"title": "late returns cost"}), Document(content="late")]
    ranker = ResiftRanker(scorer=OverlapScorer("overlap"), meta_fields_to_embed=["title"])
    assert ranker.run(QUERY, given)["documents"][0].meta["title"] == "late returns cost"


@pytest.mark.real_model
def test_a_pipeline_is_saved_loaded_and_run(tmp_path):
    """Retriever, joiner, ranker as YAML and back: the same answer."""
    with resift.Index(tmp_path / "n.db") as index:
        index.add(TEXTS, ids=["a", "b", "c"])
    pipeline = Pipeline()
    pipeline.add_component("one", ResiftRetriever(str(tmp_path / "n.db"), top_k=3))
    pipeline.add_component("two", ResiftRetriever(str(tmp_path / "n.db"), top_k=2))
    pipeline.add_component("join", ResiftJoiner("rrf", options={"k_param": 10}))
    pipeline.add_component("rank", ResiftRanker(top_k=2))
    pipeline.connect("one.documents", "join.documents")
    pipeline.connect("two.documents", "join.documents")
    pipeline.connect("join.documents", "rank.documents")
    asked = {"one": {"query": QUERY}, "two": {"query": QUERY}, "rank": {"query": QUERY}}
    before = pipeline.run(asked)["rank"]["documents"]
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["resift.integrations.haystack"])
    assert again.run(asked)["rank"]["documents"] == before
    assert [one.id for one in before] == ["b", "c"]
    for each in (pipeline, again):
        for name in ("one", "two"):
            each.get_component(name).close()


@pytest.mark.filterwarnings("ignore:The module resift:DeprecationWarning")
def test_pipelines_saved_by_0_2_are_loaded():
    pipeline = Pipeline()
    pipeline.add_component("rank", ResiftRanker(top_k=2))
    pipeline.add_component("join", ResiftJoiner(top_k=5))
    saved = pipeline.dumps().replace("haystack.ResiftRanker", "haystack.ranker.ResiftRanker")
    saved = saved.replace("haystack.ResiftJoiner", "haystack.joiner.ResiftJoiner")
    program = textwrap.dedent(
        """
        import sys
        from haystack import Pipeline
        loaded = Pipeline.loads(sys.stdin.read(), allowed_modules=["resift.integrations.haystack"])
        print(loaded.get_component("rank").top_k, loaded.get_component("join").top_k)
        """
    )
    # A new process, in which the integration is not imported yet.
    done = subprocess.run([sys.executable, "-c", program], input=saved, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "5"]


def test_unsavable_components_raise():
    with pytest.raises(InputError, match="pass reranker=NAME"):
        ResiftRanker(scorer=OverlapScorer("mine")).to_dict()
    with pytest.raises(InputError, match="pass a path"):
        ResiftRetriever(resift.MemoryStore()).to_dict()


def test_lists_are_joined_in_the_order_of_fuse():
    one, two = documents(), documents()[::-1]
    found = ResiftJoiner().run([one, two])["documents"]
    ids = [[document.id for document in part] for part in (one, two)]
    assert [document.id for document in found] == resift.fuse(ids).ids
    assert len(asyncio.run(ResiftJoiner(top_k=1).run_async([one, two]))["documents"]) == 1


def test_retrievers_are_stores():
    held = InMemoryDocumentStore()
    held.write_documents(documents())
    store = haystack_store(InMemoryBM25Retriever(held), name="bm25")
    assert run_sync(store.search("late returns", k=1))[0].id == "d1"
    with pytest.raises(InputError, match="text_embedder"):
        haystack_store(InMemoryEmbeddingRetriever(held))


def test_a_document_store_in_memory_is_a_store():
    held = InMemoryDocumentStore()
    held.write_documents(documents())
    by_retriever = run_sync(haystack_store(InMemoryBM25Retriever(held)).search(QUERY, k=2))
    assert run_sync(haystack_store(held, name="InMemoryBM25Retriever").search(QUERY, k=2)) == by_retriever
    with pytest.raises(InputError, match="pass a retriever"):
        haystack_store(object())


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"field": "meta.page", "operator": ">=", "value": 2}, ["b", "c"]),
        ({"field": "meta.kind", "operator": "in", "value": ["x", "y"]}, ["a", "b"]),
        ({"field": "meta.kind", "operator": "not in", "value": ["x", "y"]}, ["c"]),
        (
            {
                "operator": "AND",
                "conditions": [
                    {"field": "meta.page", "operator": ">", "value": 1},
                    {"field": "meta.page", "operator": "<", "value": 3},
                    {"field": "meta.kind", "operator": "==", "value": "y"},
                ],
            },
            ["b"],
        ),
        ({"page": [1, 3]}, ["a", "c"]),
    ],
)
def test_filters_of_haystack_and_resift_are_accepted(tmp_path, filters, found):
    with resift.Index(tmp_path / "n.db", text_only=True, rerank=False) as index:
        kinds = [{"page": 1, "kind": "x"}, {"page": 2, "kind": "y"}, {"page": 3}]
        index.add(["late one", "late two", "late three"], ids=["a", "b", "c"], metadata=kinds)
        retriever = ResiftRetriever(index)
        assert sorted(one.id for one in retriever.run("late", filters=filters)["documents"]) == found


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ({"operator": "OR", "conditions": []}, "only AND"),
        ({"operator": "==", "value": 1}, "no 'field'"),
        ({"field": "meta.a", "operator": "~", "value": 1}, "operator '~'"),
        ({"operator": "AND", "conditions": [{"field": "a", "operator": "==", "value": one} for one in "xy"]}, "twice"),
    ],
)
def test_unsupported_filters_are_refused(tmp_path, filters, reason):
    with resift.Index(tmp_path / "n.db", text_only=True, rerank=False) as index:
        index.add(["The train was late."])
        with pytest.raises(InputError, match=reason):
            ResiftRetriever(index).run("late", filters=filters)


@pytest.mark.real_model
def test_embedders_fill_and_query_a_vector_store():
    held = InMemoryDocumentStore(embedding_similarity_function="cosine")
    held.write_documents(ResiftDocumentEmbedder().run(documents())["documents"])
    embedder = ResiftTextEmbedder()
    store = haystack_store(InMemoryEmbeddingRetriever(held), text_embedder=embedder)
    assert run_sync(store.search(QUERY, k=1))[0].id == "d1"
    again = ResiftTextEmbedder.from_dict(embedder.to_dict())
    assert again.run("x") == asyncio.run(embedder.run_async("x"))
