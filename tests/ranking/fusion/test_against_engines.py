"""Every dialect compared with the engine: ties, zero weights, duplicates, negative and missing scores."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift import Hit
from resift.ranking import fusion

SCORES = [-1.5, -0.5, -0.5, 0.0, 0.1, 0.2, 0.2, 0.7, 3.0]


@dataclass(frozen=True)
class Case:
    lists: list[list[Hit]]
    weights: list[float] | None


@st.composite
def cases(draw, *, unjudged: bool = False):
    """Lists of few ids and fewer texts, so that ties and duplicates are common; some weights are zero."""
    scores = st.sampled_from([*SCORES, None] if unjudged else SCORES)
    hits = st.tuples(st.integers(0, 7), scores)
    lists = draw(st.lists(st.lists(hits, max_size=9), min_size=1, max_size=4))
    weights = draw(st.none() | st.lists(st.sampled_from([0, 0, 0.3, 1, 2]), min_size=len(lists), max_size=len(lists)))
    # Two ids share each text, and every third has metadata that tells it apart again.
    made = [
        [
            Hit(f"d{id}", f"text {id // 2}", score, f"s{number}", {"page": 1} if id % 3 == 0 else {})
            for id, score in hits
        ]
        for number, hits in enumerate(lists)
    ]
    return Case(made, weights if weights is None or any(weights) else None)


def pairs(hits):
    return [(hit.id, hit.score) for hit in hits]


@given(case=cases(), constant=st.sampled_from([None, 0, 1, 20, 60]), by_id=st.booleans())
def test_langchain(case, constant, by_id):
    """EnsembleRetriever, with its constant `c` and its `id_key`: the same documents in the same order."""
    documents = pytest.importorskip("langchain_core.documents")
    ensemble = pytest.importorskip("langchain_classic.retrievers")
    engine = ensemble.EnsembleRetriever.model_construct(
        retrievers=[],
        weights=case.weights or [1 / len(case.lists)] * len(case.lists),
        c=60 if constant is None else constant,
        id_key="id" if by_id else None,
    )
    given_ = [
        [documents.Document(page_content=hit.text, id=hit.id, metadata={"id": hit.id}) for hit in hits]
        for hits in case.lists
    ]
    options = {"identity": "id"} if by_id else {}
    ours = fusion.rrf(case.lists, dialect="langchain", weights=case.weights, k_param=constant, **options)
    assert [hit.id for hit in ours] == [document.id for document in engine.weighted_reciprocal_rank(given_)]


@given(case=cases(unjudged=True))
def test_haystack(case):
    """DocumentJoiner: reciprocal rank fusion with weights, and distribution-based fusion."""
    haystack = pytest.importorskip("haystack")
    joiners = pytest.importorskip("haystack.components.joiners")
    documents = [
        [haystack.Document(id=hit.id, content=hit.text, score=hit.score) for hit in hits] for hits in case.lists
    ]

    def answer(mode, **options):
        joined = joiners.DocumentJoiner(join_mode=mode, **options).run(documents=documents)
        return [(document.id, document.score) for document in joined["documents"]]

    rrf = fusion.rrf(case.lists, dialect="haystack", weights=case.weights)
    assert pairs(rrf) == answer("reciprocal_rank_fusion", weights=case.weights)
    assert pairs(fusion.dbsf(case.lists, dialect="haystack")) == answer("distribution_based_rank_fusion")


@given(case=cases())
def test_llama_index(case):
    """QueryFusionRetriever: reciprocal rank, relative score and distribution-based, with weights."""
    schema = pytest.importorskip("llama_index.core.schema")
    module = pytest.importorskip("llama_index.core.retrievers.fusion_retriever")
    engine = object.__new__(module.QueryFusionRetriever)
    weights = case.weights or [1.0] * len(case.lists)
    engine._retriever_weights = [weight / sum(weights) for weight in weights]
    if case.weights is None:
        engine._retriever_weights = [1.0 / len(case.lists)] * len(case.lists)
    engine.num_queries = 1

    def answer(fuse, **options):
        nodes = {
            ("q", number): [
                schema.NodeWithScore(
                    node=schema.TextNode(id_=hit.id, text=hit.text, metadata=dict(hit.metadata)), score=hit.score
                )
                for hit in hits
            ]
            for number, hits in enumerate(case.lists)
        }
        return [(node.node.id_, node.score) for node in fuse(nodes, **options)]

    assert pairs(fusion.rrf(case.lists, dialect="llama-index")) == answer(engine._reciprocal_rerank_fusion)
    relative = fusion.relative_score(case.lists, dialect="llama-index", weights=case.weights)
    assert pairs(relative) == answer(engine._relative_score_fusion)
    dbsf = fusion.dbsf(case.lists, dialect="llama-index", weights=case.weights)
    assert pairs(dbsf) == answer(engine._relative_score_fusion, dist_based=True)


@given(case=cases(), constant=st.sampled_from([None, 1, 2, 60]))
def test_qdrant(case, constant):
    """qdrant-client's local mode: reciprocal rank fusion with its k and weights, and DBSF."""
    engine = pytest.importorskip("qdrant_client.hybrid.fusion")
    models = pytest.importorskip("qdrant_client.http.models")

    def points():
        return [
            [models.ScoredPoint(id=int(hit.id[1:]), version=0, score=hit.score) for hit in hits] for hits in case.lists
        ]

    answer = engine.reciprocal_rank_fusion(points(), limit=100, ranking_constant_k=constant, weights=case.weights)
    ours = fusion.rrf(case.lists, dialect="qdrant", weights=case.weights, k_param=constant)
    assert pairs(ours) == [(f"d{point.id}", point.score) for point in answer]
    dbsf = engine.distribution_based_score_fusion(points(), limit=100)
    assert pairs(fusion.dbsf(case.lists, dialect="qdrant")) == [(f"d{point.id}", point.score) for point in dbsf]


@given(case=cases())
def test_txtai(case):
    """txtai's own reciprocal rank fusion, where txtai is installed (it needs torch)."""
    hybrid = pytest.importorskip("txtai.embeddings.search.hybrid")
    vectors = [[(hit.id, hit.score) for hit in hits] for hits in case.lists]
    factors = case.weights or [1 / len(case.lists)] * len(case.lists)
    expected = object.__new__(hybrid.Hybrid).rrf(vectors, factors, 100)
    assert pairs(fusion.rrf(case.lists, dialect="txtai", weights=case.weights)) == expected
