"""Late interaction: MaxSim, kept and stored document vectors, the pipeline protocol."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.deadline import Deadline
from resift.protocols import Reranker, Scorer
from resift.rerankers.late_interaction import LateInteractionReranker, VectorCache, max_sim
from resift.types import Hit

pytestmark = pytest.mark.real_model

QUERY = "what is the capital of France?"
HITS = [
    Hit("cells", "The mitochondria is the powerhouse of the cell."),
    Hit("lyon", "Lyon, a city in France, is famous for its cheese."),
    Hit("paris", "Paris is the capital and largest city of France."),
]


@pytest.fixture(scope="module")
def reranker():
    return LateInteractionReranker()


def score(reranker, hits=HITS, deadline=None):
    return asyncio.run(reranker.score(QUERY, hits, deadline=deadline or Deadline.never()))


@given(st.integers(1, 5), st.integers(1, 7))
def test_max_sim_is_the_sum_of_best_matches(queries, documents):
    rng = np.random.default_rng(queries * 10 + documents)
    query, document = rng.normal(size=(queries, 4)), rng.normal(size=(documents, 4))
    expected = sum(max(float(q @ d) for d in document) for q in query)
    assert max_sim(query, document) == pytest.approx(expected)


def test_vectors_have_unit_length_and_include_the_markers(reranker):
    vectors = reranker.encode_documents(["Rain falls.", "Rain falls.", ""])
    assert vectors[0].dtype == np.float32
    assert vectors[0].shape == (6, 384)  # [CLS] [D] rain falls . [SEP]
    assert np.allclose(np.linalg.norm(vectors[0], axis=1), 1, atol=1e-5)
    assert np.array_equal(vectors[0], vectors[1])
    assert vectors[2].shape == (3, 384)


def test_scores_are_the_same_from_cached_vectors(reranker):
    first = list(score(reranker).values)
    assert list(score(reranker).values) == first


def test_the_least_recently_used_vectors_are_dropped_first():
    cache = VectorCache(0.003)
    block = np.zeros((1, 256), dtype=np.float32)  # 1,024 bytes
    cache.put("a", block)
    cache.put("b", block)
    assert cache.get("a") is not None
    cache.put("c", block)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert len(cache) == 2


def test_it_is_a_scorer_and_a_reranker(reranker):
    assert isinstance(reranker, Scorer)
    assert isinstance(reranker, Reranker)
    fused = asyncio.run(reranker.fuse([HITS[:2], HITS[1:]], k=2, query=QUERY))
    assert [hit.id for hit in fused] == ["paris", "lyon"]


def test_a_deadline_that_passed_leaves_all_unscored(reranker):
    told = score(reranker, deadline=Deadline.after(0))
    assert list(told.values) == [None, None, None]
    assert told.degraded
    assert told.reason == "deadline: 0 of 3 hits scored"


def test_long_texts_are_read_in_windows_and_truncation_is_noted():
    reranker = LateInteractionReranker(max_windows=2)
    told = score(reranker, [Hit("long", "nothing of note here " * 600 + "Paris is the capital.")])
    assert told.values[0] is not None
    assert "first 2 windows" in told.note
    assert score(reranker, HITS).note == ""


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="bi-encoder"):
        LateInteractionReranker("BAAI/bge-small-en-v1.5")
