"""The fallback that always runs."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from resift.deadline import Deadline
from resift.errors import InputError
from resift.plugins import load_reranker
from resift.protocols import Reranker, Scorer
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import Tiered
from resift.types import Hit

POOL = [
    Hit("a", "Newton's laws govern large bodies"),
    Hit("b", "Quantum mechanics governs subatomic particles"),
    Hit("c", "Bread is baked in ovens"),
]
QUERY = "What governs subatomic particles?"


class Compass:
    """An embedder with a direction per word that it knows."""

    def __init__(self, error=None, delay_s=0.0):
        self.asked = []
        self.error = error
        self.delay_s = delay_s

    async def embed(self, texts, *, kind):
        self.asked.append((kind, len(texts)))
        await asyncio.sleep(self.delay_s)
        if self.error:
            raise self.error
        return [[float("bread" in text.lower()), float("quantum" in text.lower() or kind == "query")] for text in texts]


def score(scorer, hits=POOL, *, deadline=None, **options):
    return asyncio.run(scorer.score(QUERY, hits, deadline=deadline or Deadline.never(), **options))


def test_it_is_a_scorer_and_a_reranker_registered_by_name():
    scorer = load_reranker("semantic-bm25")
    assert isinstance(scorer, Scorer)
    assert isinstance(scorer, Reranker)
    fused = asyncio.run(scorer.fuse([POOL, POOL[:1]], k=2, query=QUERY))
    assert fused[0].id == "b"
    assert fused[0].rerank_provider == "semantic-bm25"


def test_without_vectors_and_embedder_it_uses_bm25_alone_with_a_note():
    scores = score(SemanticBM25Reranker())
    assert scores.values[1] > scores.values[0] >= scores.values[2]
    assert not scores.degraded
    assert scores.note == "BM25 alone: no vectors and no embedder"


def test_weights_are_normalized():
    one, other = SemanticBM25Reranker(7, 3, embedder=Compass()), SemanticBM25Reranker(embedder=Compass())
    assert score(one).values == pytest.approx(score(other).values)
    assert (one.semantic_weight, one.bm25_weight) == pytest.approx((0.7, 0.3))


@pytest.mark.parametrize("weights", [(0, 0), (-1, 2), (math.nan, 1), (1, math.inf)])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(InputError, match="weight"):
        SemanticBM25Reranker(*weights)


def test_the_blend_is_70_percent_cosine_and_30_percent_bm25():
    words = score(SemanticBM25Reranker()).values
    blended = score(SemanticBM25Reranker(embedder=Compass()))
    assert blended.values == pytest.approx([0.3 * words[0], 0.7 + 0.3 * words[1], 0.3 * words[2]])
    assert blended.note == "0.7 cosine + 0.3 BM25"


def test_vectors_in_the_metadata_need_no_embedder():
    hits = [hit.with_metadata(vector=vector) for hit, vector in zip(POOL, ([1, 0], [0, 2], [-1, -1]), strict=True)]
    scores = score(SemanticBM25Reranker(1, 0), hits, query_vector=[0.0, 5.0])
    assert scores.values == pytest.approx([0.0, 1.0, 0.0])
    assert score(SemanticBM25Reranker(1, 0), hits[:2] + POOL[2:], query_vector=[0.0, 5.0]).note.startswith("BM25 alone")


def test_arrays_and_lists_give_the_same_cosine():
    np = pytest.importorskip("numpy")
    hits = [hit.with_metadata(vector=[0.1 * at, 0.2, -0.4]) for at, hit in enumerate(POOL)]
    plain = score(SemanticBM25Reranker(), hits, query_vector=[0.3, 0.5, 0.1]).values
    assert score(SemanticBM25Reranker(), hits, query_vector=np.array([0.3, 0.5, 0.1])).values == pytest.approx(plain)


def test_texts_are_embedded_once():
    compass = Compass()
    scorer = SemanticBM25Reranker(embedder=compass)
    assert score(scorer).values == score(scorer).values
    assert compass.asked == [("query", 1), ("document", 3), ("query", 1)]


@pytest.mark.parametrize(
    ("compass", "hits"),
    [
        (Compass(RuntimeError("secret text")), POOL),
        (Compass(), [POOL[0].with_metadata(vector=[1.0, 2.0, 3.0])]),
        (Compass(), [POOL[0].with_metadata(vector=[math.nan, 2.0])]),
    ],
)
def test_a_failing_embedder_leaves_bm25_and_is_reported(compass, hits):
    scores = score(SemanticBM25Reranker(embedder=compass), hits)
    assert scores.values == score(SemanticBM25Reranker(), [Hit(hit.id, hit.text) for hit in hits]).values
    assert scores.degraded
    assert scores.reason.startswith("BM25 alone: ")
    assert "secret" not in scores.reason


@pytest.mark.parametrize("left_s", [0.0, 0.03, 0.2])
def test_without_time_to_embed_it_uses_bm25_immediately(left_s):
    scores = score(SemanticBM25Reranker(embedder=Compass(delay_s=60)), deadline=Deadline.after(left_s))
    assert None not in scores.values
    assert scores.degraded


def test_a_large_pool_is_scored_in_a_thread(monkeypatch):
    monkeypatch.setattr("resift.rerankers.semantic_bm25.INLINE_CHARACTERS", 10)
    scorer = SemanticBM25Reranker()
    threads = []
    counts = scorer._bm25.scores
    scorer._bm25.scores = lambda *args: threads.append(threading.current_thread()) or counts(*args)
    score(scorer)
    assert threads != [threading.main_thread()]


def test_without_a_key_the_fallback_is_used_and_not_degraded():
    ranking = asyncio.run(rescore(Tiered(None, SemanticBM25Reranker()), QUERY, POOL, k=3))
    assert (ranking.degraded, ranking.tier) == (False, "semantic-bm25")
    assert ranking[0].id == "b"
    assert all(hit.rerank_provider == "semantic-bm25" for hit in ranking)
