"""Gate and shape inside a pipeline: what they cut is told, what they protect stays."""

from __future__ import annotations

from resift.errors import ProviderServerError
from resift.events import ListSink
from resift.pipeline import Pipeline, Pool
from resift.pipeline.stages import Gate, Shape, is_breaker_closed
from resift.ranking.gate import Profile
from resift.ranking.shape import Recovery, ShapePolicy
from resift.resilience import CircuitBreaker, Tiered
from resift.types import Hit
from tests.pipeline.fake_stores import Answers, Points

QUERY = "words"


class Scored(Answers):
    """A store with real scores and metadata."""

    def __init__(self, name, rows):
        super().__init__(name)
        self.rows = rows

    async def search(self, query, *, k, where=None):
        return [Hit(id, f"text of {id}", score, metadata=dict(meta)) for id, score, meta in self.rows][:k]


def test_g1_the_gate_cuts_by_a_stores_own_scores():
    """Floors apply to the named store's scores, and the record says which floor."""
    store = Scored("docs", [("x", 0.9, {}), ("y", 0.3, {}), ("z", 0.1, {})])
    profile = Profile(floors={"risk": 0.5}, default=0.2, signal="docs")
    pipe = Pipeline([store], gate=Gate(profile))
    default, risk = pipe.rank(QUERY, k=1), pipe.rank(QUERY, k=1, section="risk")
    assert default.ids == risk.ids == ["x"]
    assert "below the floor" in risk.why("z")
    assert {hit.id for hit in risk.cut} == {"y", "z"}


def test_g3_the_gate_asks_the_breaker_of_the_reranker():
    """With the primary's breaker open nothing is tightened."""
    breaker = CircuitBreaker(failure_threshold=1)
    tiered = Tiered(Points({}, name="primary"), Points({}, name="last"), breaker=breaker)
    assert is_breaker_closed(tiered)
    breaker.acquire().error(ProviderServerError("down"))
    assert not is_breaker_closed(tiered)
    assert is_breaker_closed(object())


def test_later_stages_see_the_grade():
    """A stage leaves facts for later ones in `notes`."""
    seen = []

    async def look(pool: Pool) -> Pool:
        seen.append(dict(pool.notes))
        return pool

    Pipeline([Answers("a", ["x"])], gate=Gate(), shape=look).rank(QUERY)
    assert list(seen[0]) == ["grade"]


def test_s1_recovery_brings_protected_hits_back_before_the_cut():
    """A protected hit that the reranker put last is in the answer, and k still holds."""
    store = Scored("docs", [("p", 0.9, {"stage": "B"}), *((f"d{n}", 0.8 - n / 10, {}) for n in range(5))])
    scorer = Points({"p": -5.0, **{f"d{n}": float(n) for n in range(5)}})
    policy = ShapePolicy(blend=None, guard=None, recovery=Recovery())
    ranking = Pipeline([store], rerank=scorer, shape=Shape(policy)).rank(QUERY, k=3)
    assert len(ranking) == 3
    assert "p" in ranking
    assert ranking.replay() == ranking.ids
    assert {hit.id for hit in ranking.cut} | set(ranking.ids) == {row[0] for row in store.rows}


def test_shape_tells_its_events_to_the_same_sink():
    """One sink for everything, and shaping without candidates is quiet."""
    sink = ListSink()
    Pipeline([Answers("a", ["x", "y"])], rerank=Points({"x": 1.0}), shape=Shape(), sink=sink).rank(QUERY)
    assert [event.stage for event in sink.named("shape")] == ["blend", "guard"]
    assert Pipeline([Answers("a")], gate=Gate(), shape=Shape()).rank(QUERY).ids == []
