"""The fault matrix: every fault × every dialect through Tiered and rescore, and the breaker's recovery."""

import asyncio
import logging
import time

import pytest

from resift.deadline import Deadline
from resift.events import ListSink
from resift.rerankers.hosted import PROVIDERS, HostedReranker, hosted_reranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience import CircuitBreaker, State, Tiered
from resift.testing import FakeClock
from resift.types import Hit
from tests.providers import FAULTS, ProviderServer

UNREACHABLE, BAD, SERVER = "ProviderUnreachable", "ProviderBadAnswer", "ProviderServerError"
REJECTED, AUTH, LIMITED, TIMEOUT = ("ProviderRejected", "ProviderAuthError", "ProviderRateLimited", "ProviderTimeout")

# The expected report of each fault, derived from DESIGN.md "Breaker", not from the code.
EXPECTED = {
    "refuse": UNREACHABLE, "reset": UNREACHABLE, "no-answer": UNREACHABLE,
    "stall": TIMEOUT, "stall-midway": TIMEOUT, "drip": TIMEOUT,
    "early-close": BAD, "length-too-long": BAD, "length-too-short": BAD, "gzip-bomb": BAD, "broken-gzip": BAD,
    "huge": BAD, "two-answers": BAD, "html": BAD, "empty": BAD, "half-json": BAD, "deep-json": BAD,
    "dense-json": BAD, "wrong-shape": BAD,
    "nan": BAD, "infinite": BAD, "string-score": BAD, "null-score": BAD, "duplicate-index": BAD,
    "negative-index": BAD, "large-index": BAD, "string-index": BAD, "bool-index": BAD, "missing-row": BAD,
    "extra-row": BAD,
    "400": REJECTED, "404": REJECTED, "413": REJECTED, "422": REJECTED, "redirect": REJECTED,
    "401": AUTH, "403": AUTH,
    "429": LIMITED, "429-retry-after": LIMITED, "503-retry-after": LIMITED,
    "408": SERVER, "500": SERVER, "502": SERVER, "503": SERVER,
}  # fmt: skip
SLOW = ("stall", "stall-midway", "drip")
QUICK = [fault for fault in EXPECTED if fault not in SLOW]
HITS = [Hit(f"h{at}", f"text{at} {'wanted' if at % 2 else 'other'} words") for at in range(5)]
QUERY = "wanted words"
GRACE_S = 0.05


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


class Case:
    """One dialect under one fault, with its own breaker on a clock that is moved by hand."""

    def __init__(self, server, provider):
        self.clock = FakeClock()
        self.breaker = CircuitBreaker(clock=self.clock, name=provider)
        self.sink = ListSink()
        self.server = server
        self.provider = provider
        primary = HostedReranker(
            provider, base_url=server.base_url(provider), api_key="k", allow_loopback=True, timeout_s=5
        )
        self.tiers = Tiered(primary, SemanticBM25Reranker(), breaker=self.breaker, sink=self.sink)

    async def call(self, seconds):
        started = time.perf_counter()
        ranking = await rescore(self.tiers, QUERY, HITS, k=5, deadline=Deadline.after(seconds))
        late = time.perf_counter() - started - seconds
        assert sorted(ranking.ids) == [hit.id for hit in HITS], "every candidate exactly once"
        assert not ranking.unscored
        return ranking, late

    async def suffer(self, fault, seconds):
        """Meet the fault three times; return how late each answer was."""
        self.server.misbehave(fault, at=80)
        lateness = []
        for number in range(3):
            ranking, late = await self.call(seconds)
            lateness.append(late)
            held = EXPECTED[fault] in (AUTH, LIMITED) and number > 0
            skip = self.sink.named("cross_encoder_skipped")[number]
            assert ranking.degraded
            assert ranking.tier == "semantic-bm25"
            assert skip.provider == self.provider
            assert skip.reason == ("circuit_breaker" if held else "api_error"), (fault, ranking.reason)
            assert skip.error == (None if held else EXPECTED[fault]), (fault, ranking.reason)
            assert ranking.reason.startswith(f"{skip.reason}: ")
        expected = State.CLOSED if EXPECTED[fault] == REJECTED else State.OPEN
        assert self.breaker.state is expected
        return lateness

    async def recover(self):
        """The faults stop: after the cooldown two good answers close the breaker, without any help."""
        self.server.behave()
        self.clock.advance(700)
        for _ in range(2):
            ranking, _ = await self.call(5)
            assert not ranking.degraded, ranking.reason
            assert ranking.tier == self.provider
        assert self.breaker.state is State.CLOSED


async def through(provider, faults, seconds):
    lateness = {}
    with ProviderServer() as server:
        for fault in faults:
            case = Case(server, provider)
            lateness[fault] = await case.suffer(fault, seconds)
            await case.recover()
    return lateness


def test_the_table_covers_every_fault():
    assert set(EXPECTED) == set(FAULTS)


THIRDS = [(provider, QUICK[number % 3 :: 3]) for number, provider in enumerate(PROVIDERS)]
"""Every fault in a third of the dialects."""


@pytest.mark.parametrize(
    ("provider", "faults"),
    [
        *(pytest.param(*third, id=third[0]) for third in THIRDS),
        *(pytest.param(name, QUICK, id=f"{name}-all", marks=pytest.mark.hardening) for name in PROVIDERS),
    ],
)
def test_quick_faults_are_reported_and_the_breaker_recovers(provider, faults):
    lateness = asyncio.run(through(provider, faults, seconds=5))
    assert max(late for each in lateness.values() for late in each) < GRACE_S


def test_slow_faults_never_outlast_the_deadline_by_50_ms():
    """All dialects at once, three calls per fault; the best of three, since machines pause too."""

    async def everyone():
        return await asyncio.gather(*(through(provider, SLOW, seconds=0.3) for provider in PROVIDERS))

    for lateness in asyncio.run(everyone()):
        for fault, each in lateness.items():
            assert min(each) < GRACE_S, (fault, each)


@pytest.mark.parametrize("fault", ["dense-json", "gzip-bomb", "huge", "deep-json"])
def test_no_answer_blocks_the_event_loop(fault):
    """While a monstrous answer is read, other tasks of the loop go on.

    On a busy machine the system pauses us as well, so a few tries are allowed.
    """

    async def longest_pause():
        with ProviderServer() as server:
            case = Case(server, "voyage")
            server.misbehave(fault, times=1)
            call = asyncio.create_task(case.call(5))
            pause = 0.0
            while not call.done():
                started = time.perf_counter()
                await asyncio.sleep(0)
                pause = max(pause, time.perf_counter() - started)
            assert (await call)[0].degraded
            return pause

    assert any(asyncio.run(longest_pause()) < 0.1 for _ in range(8))


@pytest.mark.parametrize("at", [0, 1, 17, 150, 300])
def test_a_reset_at_any_byte_is_a_failure_and_never_a_wrong_answer(at):
    async def one():
        with ProviderServer() as server:
            case = Case(server, "voyage")
            server.misbehave("reset", at=at)
            ranking, _ = await case.call(5)
            skip = case.sink.named("cross_encoder_skipped")[0]
            assert ranking.degraded
            assert skip.error in (UNREACHABLE, BAD)

    asyncio.run(one())


def test_a_requested_pause_is_respected():
    async def one():
        with ProviderServer() as server:
            case = Case(server, "cohere")
            server.misbehave("429-retry-after", retry_after=120, times=1)
            await case.call(5)
            case.clock.advance(100)
            ranking, _ = await case.call(5)
            assert ranking.reason.startswith("circuit_breaker")
            case.clock.advance(40)
            ranking, _ = await case.call(5)
            assert not ranking.degraded
            assert len(server.requests) == 2

    asyncio.run(one())


def test_without_a_key_the_fallback_is_used_and_nothing_is_degraded():
    """A choice, not a failure: degraded=False, tier="semantic-bm25"."""
    for provider, row in PROVIDERS.items():
        if row.needs_key:
            tiers = Tiered(hosted_reranker(provider), SemanticBM25Reranker())
            ranking = asyncio.run(rescore(tiers, QUERY, HITS, k=5, deadline=Deadline.after(5)))
            assert (ranking.degraded, ranking.reason, ranking.tier) == (False, None, "semantic-bm25")
            assert {hit.rerank_provider for hit in ranking} == {"semantic-bm25"}


def test_a_partial_pool_is_one_success_for_the_breaker():
    """One logical call is one outcome, however many batches (DESIGN, Breaker, rule 5)."""

    async def one():
        with ProviderServer() as server:
            case = Case(server, "voyage")
            many = [Hit(f"h{at:03}", f"text{at} wanted") for at in range(200)]
            server.misbehave("500", times=1)
            ranking = await rescore(case.tiers, QUERY, many, k=200, deadline=Deadline.after(20))
            assert ranking.partial
            assert ranking.tier == "voyage"
            assert case.breaker.snapshot()["totals"] == {"success": 1}
            server.misbehave("500")
            ranking = await rescore(case.tiers, QUERY, many, k=200, deadline=Deadline.after(20))
            assert ranking.tier == "semantic-bm25"
            assert case.breaker.snapshot()["totals"] == {"success": 1, "failure": 1}

    asyncio.run(one())
