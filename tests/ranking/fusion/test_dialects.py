"""Dialects of engines that are not at hand, by their formulas, and the options that each engine has."""

from __future__ import annotations

import itertools
import math
import random
import struct

import pytest

from resift import Hit, RRFReranker
from resift.errors import InputError
from resift.ranking import fusion
from resift.ranking.fusion.dialects import DBSF_DIALECTS, DIALECTS, fuse_as
from resift.ranking.fusion.rerankers import FusionReranker


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


def pairs(hits: list[Hit]) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


SEEDS = range(150)


def test_txtai_by_its_formula():
    """txtai: Σ w · 1/(r+1), r from 0, equal scores in the order first seen; derived by hand."""
    lists = [[Hit("a"), Hit("b")], [Hit("b"), Hit("c")]]
    assert pairs(fuse_as("txtai", lists)) == [("b", 0.25 + 0.5), ("a", 0.5), ("c", 0.25)]


def test_weaviate_in_single_precision():
    """Weaviate: w/(60+r), r from 0, in 32-bit floats; ties go by the hit's own score in the last list."""

    def single(value: float) -> float:
        return struct.unpack("f", struct.pack("f", value))[0]

    for seed in SEEDS:
        lists = random_lists(seed)
        expected: dict[str, float] = {}
        for hits in lists:
            for rank, hit in enumerate(hits):
                part = single(1 / len(lists) / (60 + rank))
                expected[hit.id] = single(expected.get(hit.id, 0.0) + part)
        fused = fuse_as("weaviate", lists)
        assert dict(pairs(fused)) == expected
        last = {hit.id: hit.score for hits in lists for hit in hits}
        order = [(-hit.score, -last[hit.id], hit.id) for hit in fused]
        assert order == sorted(order)


def test_elasticsearch_follows_the_paper():
    """Elasticsearch: 1/(60+rank), rank from 1; equal to our default."""
    for seed in SEEDS:
        lists = random_lists(seed)
        assert pairs(fuse_as("elasticsearch", lists)) == pairs(fusion.rrf(lists))


def test_llama_index_sorts_each_list_by_score_first():
    """LlamaIndex ranks a list by its scores, not by its order."""
    upside_down = [[Hit("low", "low", 0.1), Hit("high", "high", 0.9)]]
    assert [hit.id for hit in fuse_as("llama-index", upside_down)] == ["high", "low"]


def test_engines_count_a_duplicate_twice():
    """Counting once is ours: the engines add a repeated id at each of its ranks."""
    lists = [[Hit("a"), Hit("b"), Hit("a")]]
    assert dict(pairs(fuse_as("qdrant", lists)))["a"] == pytest.approx(1 / 2 + 1 / 4)
    assert dict(pairs(fusion.rrf(lists)))["a"] == 1 / 61


@pytest.mark.parametrize("name", ["LangChain", "llama_index", "LlamaIndex", "Elasticsearch", "QDRANT"])
def test_dialect_names_ignore_case_and_dashes(name):
    """Case, dashes and underscores of a dialect's name do not matter."""
    assert fusion.rrf([[Hit("a", "x")]], dialect=name)[0].id == "a"


def test_unknown_dialects_get_a_suggestion():
    """Bad input: an unknown dialect names the nearest one."""
    with pytest.raises(InputError, match=r"Unknown dialect 'langchian'\. Did you mean 'langchain'\?"):
        fusion.rrf([[Hit("a")]], dialect="langchian")
    with pytest.raises(InputError, match=r"Unknown dialect of dbsf 'milvus'"):
        fusion.dbsf([[Hit("a")]], dialect="milvus")
    with pytest.raises(InputError, match=r"Unknown dialect of relative-score 'weaviate'"):
        fusion.relative_score([[Hit("a")]], dialect="weaviate")


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


KEEPS_ZERO = {"elasticsearch", "haystack", "langchain", "qdrant"}


@pytest.mark.parametrize("name", sorted(DIALECTS.keys() - {"llama-index"}))
def test_a_weight_of_zero_has_the_effect_it_has_in_the_engine(name):
    """Some engines keep the documents of a list that counts nothing; others do not ask it at all."""
    lists = [[Hit("a", "x", source="s1")], [Hit("b", "y", source="s2")]]
    fused = pairs(fuse_as(name, lists, weights=[0, 1]))
    assert [id for id, _ in fused] == (["b", "a"] if name in KEEPS_ZERO else ["b"])
    assert fused[1:] == ([("a", 0.0)] if name in KEEPS_ZERO else [])


@pytest.mark.parametrize("name", ["elasticsearch", "langchain", "qdrant"])
def test_k_param_is_used_if_the_engine_has_it(name):
    """The engine's own constant unless given."""
    lists = [[Hit("a"), Hit("b")]]
    own = {"elasticsearch": 60, "langchain": 60, "qdrant": 2}[name]
    assert pairs(fusion.rrf(lists, dialect=name, k_param=own)) == pairs(fusion.rrf(lists, dialect=name))
    shift = 0 if name == "qdrant" else 1
    assert fusion.rrf(lists, dialect=name, k_param=9)[0].score == 1 / (9 + shift)
    assert RRFReranker(dialect=name).k_param == own


@pytest.mark.parametrize("name", ["haystack", "llama-index", "txtai", "weaviate"])
def test_k_param_is_rejected_if_the_constant_is_fixed(name):
    with pytest.raises(InputError, match=f"constant of RRF is fixed in {name}: omit k_param"):
        fusion.rrf([[Hit("a")]], dialect=name, k_param=9)
    with pytest.raises(InputError, match="constant of RRF is fixed"):
        RRFReranker(9, dialect=name)


@pytest.mark.parametrize("name", ["elasticsearch", "qdrant"])
def test_a_constant_that_the_engine_rejects_is_rejected(name):
    with pytest.raises(InputError, match=rf"k_param is 0; {name} takes 1 or more\."):
        fusion.rrf([[Hit("a")]], dialect=name, k_param=0)


@pytest.mark.parametrize("name", sorted(DIALECTS.keys() - {"langchain"}))
def test_identity_is_rejected_if_the_engine_has_only_one(name):
    with pytest.raises(InputError, match=f"{name} identifies hits by .*: omit identity"):
        fusion.rrf([[Hit("a")]], dialect=name, identity="content")
    if name != "llama-index":
        assert pairs(fusion.rrf([[Hit("a")]], dialect=name, identity="id"))


def test_langchain_takes_an_identity():
    """Its `id_key` says what makes two documents the same; its content does unless given."""
    lists = [[Hit("a", "same", metadata={"key": "1"})], [Hit("b", "same", metadata={"key": "1"}), Hit("c", "z")]]
    assert [hit.id for hit in fusion.rrf(lists, dialect="langchain")] == ["a", "c"]
    assert [hit.id for hit in fusion.rrf(lists, dialect="langchain", identity="id")] == ["a", "b", "c"]
    by_key = fusion.rrf(lists, dialect="langchain", identity=lambda hit: hit.metadata.get("key", ""))
    assert [hit.id for hit in by_key] == ["a", "c"]


def test_weights_are_rejected_if_the_engine_has_none():
    lists = [[Hit("a", score=1.0)], [Hit("b", score=1.0)]]
    with pytest.raises(InputError, match="RRF has no weights in llama-index"):
        fusion.rrf(lists, dialect="llama-index", weights=[1, 2])
    for engine in ("haystack", "qdrant"):
        with pytest.raises(InputError, match=f"dbsf has no weights in {engine}"):
            fusion.dbsf(lists, dialect=engine, weights=[1, 2])
        with pytest.raises(InputError, match="dbsf has no weights"):
            FusionReranker("dbsf", dialect=engine, weights={"s1": 2})
    with pytest.raises(InputError, match=r"haystack identifies hits by id"):
        fusion.dbsf(lists, dialect="haystack", identity="content")
    assert [hit.id for hit in fusion.dbsf(lists, weights=[1, 2])] == ["b", "a"]


def test_declared_sources_go_first_in_a_dialect_too():
    """Engines follow the order of the lists, and `sources` declares it."""
    lists = [[Hit("a", "of s1", source="s1")], [Hit("a", "of s2", source="s2")]]
    assert fusion.rrf(lists, dialect="qdrant", sources=["s2", "s1"])[0].text == "of s2"


def test_scores_whose_squares_overflow_raise_input_error():
    huge = [[Hit("a", score=1e308), Hit("b", score=-1e308)]]
    for engine in (None, *DBSF_DIALECTS):
        with pytest.raises(InputError, match="too large to add up"):
            fusion.dbsf(huge, dialect=engine)


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
