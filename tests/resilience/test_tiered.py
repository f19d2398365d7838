"""Exactly one tier scores, skips have a reason, and nothing is fatal."""

from __future__ import annotations

import asyncio
import math

import pytest

from resift.deadline import Deadline
from resift.errors import InputError, ProviderServerError, ProviderTimeout, ResiftError
from resift.events import ListSink
from resift.rerankers.rescore import rescore
from resift.resilience import Budget, CircuitBreaker, State, Tier, Tiered, breakers
from resift.testing import FakeClock
from resift.types import Hit, Scores

POOL = [Hit(f"d{number}", f"text {number}") for number in range(6)]


class Fake:
    """A scorer with fixed answers that counts its calls."""

    def __init__(self, name, answer=None, *, delay_s=0.0):
        self.name = name
        self.answer = answer
        self.delay_s = delay_s
        self.asked = 0
        self.deadline = None
        self.closed = False

    async def score(self, query, hits, *, deadline):
        self.asked += 1
        self.deadline = deadline
        await asyncio.sleep(self.delay_s)
        if isinstance(self.answer, BaseException):
            raise self.answer
        values = self.answer if self.answer is not None else [float(at) for at in range(len(hits))]
        return Scores(values, self.name)

    async def aclose(self):
        self.closed = True


def score(tiered, deadline=None, hits=POOL):
    return asyncio.run(tiered.score("q", hits, deadline=deadline or Deadline.never()))


def skipped(sink):
    return [(event.provider, event.reason, event.error) for event in sink.named("cross_encoder_skipped")]


def test_the_fallback_skips_itself_when_the_primary_succeeded():
    sink, primary, fallback = ListSink(), Fake("voyage"), Fake("semantic-bm25")
    scores = score(Tiered(primary, fallback, sink=sink))
    assert (scores.provider, scores.degraded, scores.reason) == ("voyage", False, None)
    assert (primary.asked, fallback.asked) == (1, 0)
    assert [event.name for event in sink.events] == ["cross_encoder_succeeded"]


def test_no_primary_is_a_choice_and_not_a_failure():
    sink = ListSink()
    ranking = asyncio.run(rescore(Tiered(None, Fake("semantic-bm25"), sink=sink), "q", POOL, k=3))
    assert (ranking.degraded, ranking.tier, ranking.reason) == (False, "semantic-bm25", None)
    assert [hit.rerank_provider for hit in ranking] == ["semantic-bm25"] * 3
    assert skipped(sink) == []


@pytest.mark.parametrize(
    "answer",
    [
        ProviderServerError("voyage answered 500.", status=500),
        ZeroDivisionError("secret document"),
        [1.0],
        [None] * 6,
        [math.nan, *[0.0] * 5],
    ],
)
def test_a_failing_primary_is_an_api_error_and_counts_against_it(answer):
    """Too few scores, no scores and NaN are failures, never answers."""
    sink, fallback = ListSink(), Fake("semantic-bm25")
    breaker = CircuitBreaker(1)
    scores = score(Tiered(Fake("voyage", answer), fallback, breaker=breaker, sink=sink))
    assert scores.provider == "semantic-bm25"
    assert scores.degraded
    assert scores.reason.startswith("api_error: voyage")
    assert "secret" not in scores.reason
    assert [reason for _, reason, _ in skipped(sink)] == ["api_error"]
    assert breaker.state is State.OPEN
    assert [event.to_state for event in sink.named("circuit_breaker_changed")] == ["OPEN"]


def test_an_open_breaker_skips_the_primary_without_a_call():
    sink, primary = ListSink(), Fake("voyage")
    breaker = CircuitBreaker()
    breaker.force_open()
    scores = score(Tiered(primary, Fake("semantic-bm25"), breaker=breaker, sink=sink))
    assert primary.asked == 0
    assert scores.reason.startswith("circuit_breaker: ")
    assert skipped(sink) == [("voyage", "circuit_breaker", None)]


def test_a_tight_budget_skips_the_primary_and_leaves_the_breaker_alone():
    sink, primary, clock = ListSink(), Fake("voyage"), FakeClock()
    breaker = CircuitBreaker(1, clock=clock)
    breaker.acquire().failure()
    clock.advance(100)
    tiered = Tiered(primary, Fake("semantic-bm25"), breaker=breaker, sink=sink)
    scores = score(tiered, Deadline.after(0.1, clock=clock))
    assert primary.asked == 0
    assert scores.reason.startswith("budget: voyage needs 0.25 s and 0.10 s are left")
    assert skipped(sink) == [("voyage", "budget", None)]
    assert breaker.state is State.HALF_OPEN
    assert breaker.acquire().probe, "the probe was not spent on a skipped call"


def test_a_stalling_primary_leaves_the_fallback_its_time():
    primary, fallback = Fake("voyage", delay_s=60), Fake("semantic-bm25")
    budget = Budget(0.01, 0.0, reserve_s=0.4)
    tiered = Tiered(primary, fallback, breaker=CircuitBreaker(1), budget=budget)
    deadline = Deadline.after(0.6)
    scores = score(tiered, deadline)
    assert not deadline.expired
    assert scores.reason.startswith("api_error: voyage failed: ")
    assert tiered.breaker.state is State.OPEN
    assert primary.deadline.at_s < deadline.at_s - 0.4


def test_a_fallback_runs_even_after_the_deadline():
    """The reserved time belongs to the fallback, even when the caller came too late."""
    deadline = Deadline.after(0.0, clock=FakeClock())
    tiered = Tiered(Fake("voyage"), Fake("semantic-bm25", delay_s=0.001), budget=Budget(reserve_s=5.0))
    assert score(tiered, deadline).provider == "semantic-bm25"


def test_a_hanging_fallback_ends_with_its_time():
    tiered = Tiered(None, Fake("semantic-bm25", delay_s=60), budget=Budget(reserve_s=0.01))
    with pytest.raises(ProviderTimeout, match="semantic-bm25 did not answer in time"):
        score(tiered, Deadline.after(0.02))


def test_both_failing_keeps_the_old_order():
    """Reranking is never fatal."""
    tiered = Tiered(Fake("voyage", ProviderServerError("voyage answered 503.")), Fake("bm25", ValueError("secret")))
    with pytest.raises(ResiftError, match=r"api_error: .*503.*; then bm25 failed: ValueError"):
        score(tiered)
    ranking = asyncio.run(rescore(tiered, "q", POOL, k=6))
    assert ranking.ids == [hit.id for hit in POOL]
    assert ranking.degraded
    assert "secret" not in ranking.reason


def test_partial_scores_are_the_primarys_answer():
    """Scored hits come first, the others follow in their old order, and the ranking is degraded."""
    primary = Fake("voyage", [None, 0.1, None, 0.9, None, 0.5])
    fallback = Fake("semantic-bm25")
    ranking = asyncio.run(rescore(Tiered(primary, fallback), "q", POOL, k=6))
    assert ranking.ids == ["d3", "d5", "d1", "d0", "d2", "d4"]
    assert ranking.partial
    assert ranking.degraded
    assert ranking.tier == "voyage"
    assert fallback.asked == 0


def test_three_tiers_are_tried_in_order():
    sink = ListSink()
    failing = [Fake("voyage", ProviderServerError("500")), Fake("cohere", ProviderServerError("500"))]
    tiered = Tiered(failing[0], [Tier(failing[1]), Fake("semantic-bm25")], sink=sink)
    scores = score(tiered)
    assert scores.provider == "semantic-bm25"
    assert scores.reason.count("api_error") == 2
    assert [provider for provider, _, _ in skipped(sink)] == ["voyage", "cohere"]
    failing[1].answer = None
    assert score(tiered).provider == "cohere"
    assert score(tiered).degraded


def test_it_recovers_by_itself():
    clock, primary = FakeClock(), Fake("voyage", ProviderServerError("500"))
    tiered = Tiered(primary, Fake("semantic-bm25"), breaker=CircuitBreaker(clock=clock, jitter=0.0))
    for _ in range(5):
        score(tiered)
    assert primary.asked == 3
    primary.answer = None
    clock.advance(60)
    assert [score(tiered).provider for _ in range(3)] == ["voyage"] * 3
    assert tiered.breaker.state is State.CLOSED


def test_the_callers_cancellation_passes_through_and_trips_nothing():
    primary, fallback = Fake("voyage", delay_s=60), Fake("semantic-bm25")
    tiered = Tiered(primary, fallback, breaker=CircuitBreaker(1))

    async def impatient():
        async with asyncio.timeout(0.005):
            await tiered.score("q", POOL, deadline=Deadline.never())

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    assert tiered.breaker.state is State.CLOSED
    assert fallback.asked == 0


def test_clients_of_one_upstream_share_their_breaker():
    breakers.clear()
    first, second = Fake("voyage"), Fake("voyage")
    first.breaker_key = second.breaker_key = ("voyage", "https://api.example", "m", "id")
    assert Tiered(first, Fake("b")).breaker is Tiered(second, Fake("b")).breaker
    breakers.clear()


def test_a_scorer_that_guards_itself_keeps_its_own_breaker():
    """A timeout around it would look like a cancellation to its breaker and never be recorded."""
    own = CircuitBreaker(1)

    class Guarded(Fake):
        breaker = own

        async def score(self, query, hits, *, deadline):
            return await own.call(lambda: Fake.score(self, query, hits, deadline=deadline), deadline=deadline)

    tiered = Tiered(Guarded("voyage", delay_s=60), Fake("b"), budget=Budget(0.01, 0.0, reserve_s=0.01))
    assert score(tiered, Deadline.after(0.3)).reason.startswith("api_error")
    assert own.state is State.OPEN
    assert tiered.breaker is own
    assert score(tiered).reason.startswith("circuit_breaker")


def test_the_budget_follows_measured_latency():
    budget = Budget(0.0, 0.025)
    tiered = Tiered(Fake("voyage"), Fake("b"), budget=budget)
    for _ in range(5):
        score(tiered)
    assert budget.per_item_s("voyage") < 0.025


def test_an_empty_pool_calls_no_tier():
    primary = Fake("voyage")
    assert score(Tiered(primary, None), hits=[]).values == ()
    assert primary.asked == 0


def test_no_tier_raises_input_error():
    with pytest.raises(InputError, match="Pass at least one scorer"):
        Tiered(None, None)


def test_requirements_and_closing_cover_all_tiers():
    primary, fallback = Fake("voyage"), Fake("semantic-bm25")
    primary.requires = ("net.voyage",)
    tiered = Tiered(primary, fallback)
    assert tiered.requires == frozenset({"net.voyage"})
    asyncio.run(tiered.aclose())
    assert primary.closed
    assert fallback.closed
    assert repr(tiered) == "Tiered(voyage > semantic-bm25)"
