"""F7: each dialect equals the engine's own arithmetic, bit for bit, on random lists."""

from __future__ import annotations

import itertools
import math
import random
import struct

import pytest

from resift import Hit, fusion
from resift.errors import InputError
from resift.fusion.dialects import DBSF_DIALECTS, DIALECTS, fuse_as


def random_lists(seed: int, *, descending: bool = False) -> list[list[Hit]]:
    """Lists of overlapping ids with scores from a small set, so that ties are common."""
    rng = random.Random(seed)
    lists = []
    for number in range(rng.randint(1, 5)):
        ids = rng.sample([f"d{n}" for n in range(15)], rng.randint(0, 12))
        scores = [rng.choice([0.1, 0.2, 0.2, 0.7, 0.9]) for _ in ids]
        if descending:
            scores.sort(reverse=True)
        hits = [Hit(id, f"text of {id}", score, f"s{number}") for id, score in zip(ids, scores, strict=True)]
        lists.append(hits)
    return lists


def weights_for(lists: list[list[Hit]], seed: int) -> list[float] | None:
    rng = random.Random(seed)
    return rng.choice([None, [rng.choice([0.3, 0.5, 1.0, 2.0]) for _ in lists]])


def pairs(hits: list[Hit]) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


SEEDS = range(150)


def test_langchain():
    """LangChain's EnsembleRetriever fuses to the same order and, by its own formula, the same scores."""
    documents = pytest.importorskip("langchain_core.documents")
    ensemble = pytest.importorskip("langchain_classic.retrievers")
    for seed in SEEDS:
        lists, weights = random_lists(seed), weights_for(random_lists(seed), seed)
        engine = ensemble.EnsembleRetriever.model_construct(
            retrievers=[], weights=weights or [1 / len(lists)] * len(lists), c=60, id_key=None
        )
        given = [[documents.Document(page_content=hit.text, id=hit.id) for hit in hits] for hits in lists]
        expected = [document.id for document in engine.weighted_reciprocal_rank(given)]
        assert [hit.id for hit in fuse_as("langchain", lists, weights=weights)] == expected


def test_haystack():
    """Haystack's DocumentJoiner gives the same ids and scores for reciprocal_rank_fusion and DBSF."""
    haystack = pytest.importorskip("haystack")
    joiners = pytest.importorskip("haystack.components.joiners")
    for seed in SEEDS:
        lists, weights = random_lists(seed), weights_for(random_lists(seed), seed)
        given = [
            [haystack.Document(id=hit.id, content=hit.text, score=hit.score) for hit in hits]
            for hits in lists
        ]
        joiner = joiners.DocumentJoiner(join_mode="reciprocal_rank_fusion", weights=weights)
        answer = joiner.run(documents=given)["documents"]
        assert pairs(fuse_as("haystack", lists, weights=weights)) == [(doc.id, doc.score) for doc in answer]
        dbsf = joiners.DocumentJoiner(join_mode="distribution_based_rank_fusion").run(documents=given)[
            "documents"
        ]
        ours = dict(pairs(fusion.dbsf(lists, dialect="haystack")))
        assert ours == {doc.id: doc.score for doc in dbsf}


def test_llama_index():
    """LlamaIndex's QueryFusionRetriever gives the same ids and scores for RRF and dist-based fusion."""
    schema = pytest.importorskip("llama_index.core.schema")
    module = pytest.importorskip("llama_index.core.retrievers.fusion_retriever")
    for seed in SEEDS:
        lists = random_lists(seed)
        engine = object.__new__(module.QueryFusionRetriever)
        engine._retriever_weights = [1 / len(lists)] * len(lists)
        engine.num_queries = 1

        def nodes(lists=lists):
            return {
                ("q", number): [
                    schema.NodeWithScore(node=schema.TextNode(id_=hit.id, text=hit.text), score=hit.score)
                    for hit in hits
                ]
                for number, hits in enumerate(lists)
            }

        answer = engine._reciprocal_rerank_fusion(nodes())
        expected = [(node.node.id_, node.score) for node in answer]
        assert pairs(fuse_as("llama-index", lists)) == expected
        relative = engine._relative_score_fusion(nodes(), dist_based=True)
        ours = dict(pairs(fusion.dbsf(lists, dialect="llama-index")))
        assert ours == pytest.approx({node.node.id_: node.score for node in relative}, abs=1e-12)


def test_qdrant():
    """qdrant-client's local mode gives the same ids and scores for RRF (k=2) and DBSF."""
    engine = pytest.importorskip("qdrant_client.hybrid.fusion")
    models = pytest.importorskip("qdrant_client.http.models")
    for seed in SEEDS:
        lists, weights = random_lists(seed), weights_for(random_lists(seed), seed)

        def points(lists=lists):
            return [
                [models.ScoredPoint(id=int(hit.id[1:]), version=0, score=hit.score) for hit in hits]
                for hits in lists
            ]

        answer = engine.reciprocal_rank_fusion(points(), limit=100, weights=weights)
        expected = [(f"d{point.id}", point.score) for point in answer]
        assert pairs(fuse_as("qdrant", lists, weights=weights)) == expected
        dbsf = engine.distribution_based_score_fusion(points(), limit=100)
        ours = dict(pairs(fusion.dbsf(lists, dialect="qdrant")))
        assert ours == pytest.approx({f"d{point.id}": point.score for point in dbsf}, abs=1e-12)


def test_txtai():
    """txtai's Hybrid.rrf gives the same ids and scores (runs where txtai is installed: it needs torch)."""
    hybrid = pytest.importorskip("txtai.embeddings.search.hybrid")
    for seed in SEEDS:
        lists, weights = random_lists(seed), weights_for(random_lists(seed), seed)
        vectors = [[(hit.id, hit.score) for hit in hits] for hits in lists]
        factors = weights or [1 / len(lists)] * len(lists)
        expected = object.__new__(hybrid.Hybrid).rrf(vectors, factors, 100)
        assert pairs(fuse_as("txtai", lists, weights=weights)) == expected


def test_txtai_by_its_formula():
    """txtai: Σ w · 1/(r+1), r from 0, equal scores in the order first seen; derived by hand."""
    lists = [[Hit("a"), Hit("b")], [Hit("b"), Hit("c")]]
    assert pairs(fuse_as("txtai", lists)) == [("b", 0.25 + 0.5), ("a", 0.5), ("c", 0.25)]


def test_weaviate_in_single_precision():
    """Weaviate: w/(60+r), r from 0, in 32-bit floats; equal scores go by the hit's own best score."""

    def single(value: float) -> float:
        return struct.unpack("f", struct.pack("f", value))[0]

    for seed in SEEDS:
        lists = random_lists(seed)
        expected: dict[str, float] = {}
        for hits in lists:
            for rank, hit in enumerate(hits):
                part = single(single(1 / len(lists)) / (60 + rank))
                expected[hit.id] = single(expected.get(hit.id, 0.0) + part)
        fused = fuse_as("weaviate", lists)
        assert dict(pairs(fused)) == expected
        best = {id: max(hit.score for hits in lists for hit in hits if hit.id == id) for id in expected}
        order = [(-hit.score, -best[hit.id]) for hit in fused]
        assert order == sorted(order)


def test_elasticsearch_is_the_paper():
    """Elasticsearch: 1/(60+rank), rank from 1; equal to our default."""
    for seed in SEEDS:
        lists = random_lists(seed)
        assert pairs(fuse_as("elasticsearch", lists)) == pairs(fusion.rrf(lists))


def test_llama_index_sorts_each_list_by_score_first():
    """F7: LlamaIndex ranks a list by its scores, not by its order."""
    upside_down = [[Hit("low", "low", 0.1), Hit("high", "high", 0.9)]]
    assert [hit.id for hit in fuse_as("llama-index", upside_down)] == ["high", "low"]


def test_engines_count_a_duplicate_twice():
    """F3 is ours: the engines add a repeated id at each of its ranks."""
    lists = [[Hit("a"), Hit("b"), Hit("a")]]
    assert dict(pairs(fuse_as("qdrant", lists)))["a"] == pytest.approx(1 / 2 + 1 / 4)
    assert dict(pairs(fusion.rrf(lists)))["a"] == 1 / 61


@pytest.mark.parametrize("name", ["LangChain", "llama_index", "LlamaIndex", "Elasticsearch", "QDRANT"])
def test_names_are_forgiving(name):
    """Case, dashes and underscores of a dialect's name do not matter."""
    assert fusion.rrf([[Hit("a", "x")]], dialect=name)[0].id == "a"


def test_unknown_dialects_get_a_suggestion():
    """Bad input: an unknown dialect names the nearest one."""
    with pytest.raises(InputError, match=r"Unknown dialect 'langchian'\. Did you mean 'langchain'\?"):
        fusion.rrf([[Hit("a")]], dialect="langchian")
    with pytest.raises(InputError, match=r"Unknown DBSF dialect 'milvus'"):
        fusion.dbsf([[Hit("a")]], dialect="milvus")


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_dialects_write_the_record_and_keep_k(name):
    """A dialect's fused hits replay their order, and k cuts it."""
    lists = [[Hit("a", "x", 0.9, "s1"), Hit("b", "y", 0.5, "s1")], [Hit("b", "y", 0.8, "s2")], []]
    fused = fuse_as(name, lists)
    (record,) = fused.records
    assert record.ids == tuple(hit.id for hit in fused)
    assert record.scores == tuple(hit.score for hit in fused)
    assert fused[0].id in record.parts["s1"]
    assert fuse_as(name, lists, k=1) == fused[:1]
    assert fuse_as(name, []) == []


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_weight_of_zero_leaves_the_list_out_in_every_dialect(name):
    """F6: zero weight = the list is absent."""
    lists = [[Hit("a", "x", source="s1")], [Hit("b", "y", source="s2")]]
    assert [hit.id for hit in fuse_as(name, lists, weights=[0, 1])] == ["b"]


@pytest.mark.parametrize("dialect", sorted(DBSF_DIALECTS))
def test_dbsf_of_nothing_and_of_equal_scores(dialect):
    """DBSF corner cases differ per engine and never divide by zero."""
    expected = {"haystack": 0.4, "llama-index": 1.0, "qdrant": 0.5}[dialect]
    assert fusion.dbsf([[]], dialect=dialect) == []
    equal = fusion.dbsf([[Hit("a", score=0.4), Hit("b", score=0.4)]], dialect=dialect)
    assert [hit.score for hit in equal] == [expected, expected]
    assert all(math.isfinite(hit.score) for hit in fusion.dbsf([[Hit("a", score=1e308)]], dialect=dialect))


def test_every_engine_depends_on_list_order_but_we_do_not():
    """Why dialects exist: on ties the engines follow the order of lists, the default does not."""
    lists = [[Hit("b", "b")], [Hit("a", "a")]]
    follows = [
        name
        for name in DIALECTS
        if [hit.id for hit in fuse_as(name, lists)] != [hit.id for hit in fuse_as(name, lists[::-1])]
    ]
    assert {"langchain", "haystack", "llama-index", "qdrant", "txtai"} <= set(follows)
    assert len({tuple(hit.id for hit in fusion.rrf(order)) for order in itertools.permutations(lists)}) == 1
