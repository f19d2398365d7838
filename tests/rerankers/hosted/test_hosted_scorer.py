"""HostedReranker against a real server: batches, partial answers, deadlines, loops, limits, cancellation."""

import asyncio
import threading
import time

import pytest

from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import (
    ConfigError,
    DeadlineExceeded,
    InputError,
    ProviderAuthError,
    ProviderBadAnswer,
    ProviderRejected,
    ProviderServerError,
    ProviderTimeout,
    ProviderUnreachable,
)
from resift.plugins import load_reranker
from resift.rerankers.hosted import PROVIDERS, close_connections
from resift.rerankers.hosted.transport import ConcurrencyLimit, shared_limit
from resift.rerankers.rescore import rescore
from resift.rerankers.score_cache import CachedScorer, MemoryScores
from resift.reranking import rerank
from resift.resilience import Tiered
from resift.testing import check_reranker, check_scorer
from resift.types import Hit
from tests.providers.forms import overlap

QUERY = "quantum number7"


def score(reranker, hits, *, query=QUERY, seconds=5.0):
    return asyncio.run(reranker.score(query, hits, deadline=Deadline.after(seconds)))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_passes_the_contract_on_a_strict_server(provider, server, reranker):
    scorer = reranker(provider)
    check_scorer(scorer)
    check_reranker(scorer)
    assert {request.provider for request in server.requests} == {provider}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_plugins_resolve_by_name_and_need_the_network(provider, server):
    scorer = load_reranker(provider, base_url=server.base_url(provider), api_key="k", allow_loopback=True)
    assert (scorer.name, scorer.requires) == (provider, (f"net.{provider}",))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_scores_are_merged_by_index_for_any_batch_size(provider, server, reranker, pool):
    hits = pool(200)
    scores = score(reranker(provider), hits)
    assert list(scores.values) == [overlap(QUERY, hit.text) for hit in hits]
    assert not scores.degraded
    sizes = [len(next(v for v in r.body.values() if isinstance(v, list))) for r in server.requests]
    cap = 32 if provider == "tei" else 60
    assert sum(sizes) == 200
    assert max(sizes) == cap


def test_hits_of_a_failed_batch_come_last_in_their_old_order(server, reranker, pool):
    """A pool of 200: scored hits first, the other 60 after in their old order, partial and reason set."""
    hits = pool(200)
    lost = hits[60].text
    server.misbehave("500", when=lambda request: lost in request.body["documents"])
    ranking = asyncio.run(rescore(reranker(), QUERY, hits, k=200))
    assert ranking.partial
    assert ranking.degraded
    assert ranking.reason == "1 of 4 batches failed: voyage returned 500: it failed internally. Try again later."
    assert ranking.ids[140:] == [hit.id for hit in hits[60:120]] == list(ranking.unscored)
    assert sorted(ranking.ids) == [hit.id for hit in hits]
    scored = [(-hit.score, hit.id) for hit in ranking[:140]]
    assert scored == sorted(scored)
    assert {hit.rerank_provider for hit in ranking[:140]} == {"voyage"}
    assert ranking[199].rerank_provider is None


def test_all_batches_failing_raises_the_worst_error_once(server, reranker, pool):
    server.misbehave("401", times=1)
    server.misbehave("500")
    with pytest.raises(ProviderAuthError):
        score(reranker(), pool(200))


def test_listwise_models_are_never_merged_across_requests(server, reranker, pool):
    scorer = reranker("jina", model="jina-reranker-v3")
    assert not score(scorer, pool(200)).degraded
    assert len(server.requests) == 1
    long = [Hit(str(at), "x" * 90_000) for at in range(20)]
    scores = score(scorer, long)
    assert scores.partial
    assert "not comparable" in scores.reason
    assert len(server.requests) == 2


def test_scores_of_pointwise_models_can_be_cached_and_others_cannot(server, reranker, pool):
    assert not reranker("jina", model="jina-reranker-v3").pointwise
    cached = CachedScorer(reranker(), MemoryScores())
    first, second = (list(score(cached, pool(90)).values) for _ in range(2))
    assert first == second == [overlap(QUERY, hit.text) for hit in pool(90)]
    assert len(server.requests) == 2


def test_a_request_stays_below_the_size_limit_of_the_provider(server, reranker):
    scores = score(reranker(), [Hit(str(at), "y" * 90_000) for at in range(40)])
    assert None not in scores.values
    assert len(server.requests) == 4
    assert all(int(request.headers["content-length"]) < 1_300_000 for request in server.requests)


def test_hits_without_text_are_not_sent_and_stay_unscored(server, reranker):
    scores = score(reranker(), [Hit("a", "quantum"), Hit("b", "  "), Hit("c", "")])
    assert [value is None for value in scores.values] == [False, True, True]
    assert server.requests[0].body["documents"] == ["quantum"]


def test_no_request_is_sent_if_there_is_nothing_to_score(server, reranker):
    assert list(score(reranker(), []).values) == []
    assert list(score(reranker(), [Hit("a")]).values) == [None]
    with pytest.raises(InputError, match="query is empty"):
        score(reranker(), [Hit("a", "x")], query=" ")
    assert server.requests == []


def test_no_request_is_sent_if_no_time_is_left(server, reranker, pool):
    with pytest.raises(DeadlineExceeded):
        score(reranker(), pool(3), seconds=0)
    assert server.requests == []


def test_the_clients_own_timeout_holds_without_a_deadline(server, reranker, pool):
    server.misbehave("stall")
    with pytest.raises(ProviderTimeout):
        asyncio.run(reranker(timeout_s=0.1).score(QUERY, pool(3), deadline=Deadline.never()))


def test_a_redirect_is_refused_and_not_followed(server, reranker, pool):
    server.misbehave("redirect")
    with pytest.raises(ProviderRejected, match="final address"):
        score(reranker(), pool(3))
    assert [request.provider for request in server.requests] == ["voyage"]


def test_the_error_for_an_unknown_path_mentions_the_address(server, reranker, pool):
    with pytest.raises(ProviderRejected, match="Check base_url"):
        score(reranker(base_url=f"{server.url}/nowhere"), pool(3))


def test_https_uses_tls(server, reranker, pool):
    """A server that does not speak TLS is not spoken to in the clear."""
    with pytest.raises(ProviderUnreachable, match="TLS failed"):
        score(reranker(base_url=server.base_url("voyage").replace("http:", "https:")), pool(3))
    assert server.requests == []


def test_a_wrong_key_is_an_auth_error(pool, reranker):
    from tests.providers import ProviderServer

    with ProviderServer(api_key="right") as server:
        address = server.base_url("voyage")
        with pytest.raises(ProviderAuthError):
            score(reranker(base_url=address, api_key="wrong"), pool(3))
        assert not score(reranker(base_url=address, api_key="right"), pool(3)).degraded


def test_cancellation_passes_through_and_frees_the_permit(server, reranker, pool):
    scorer = reranker()

    async def cancelled():
        arrived, loop = asyncio.Event(), asyncio.get_running_loop()
        server.misbehave("stall", when=lambda request: loop.call_soon_threadsafe(arrived.set) is not None)
        task = asyncio.create_task(scorer.score(QUERY, pool(3), deadline=Deadline.after(5)))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert shared_limit("voyage", server.url, 1000).in_use == 0


def test_connections_stay_warm_within_a_loop(server, reranker, pool):
    scorer = reranker()
    opened = []
    accept = server._listener.get_request
    server._listener.get_request = lambda: opened.append(1) or accept()

    async def five_then_fresh():
        for _ in range(5):
            await scorer.score(QUERY, pool(3), deadline=Deadline.after(5))
        assert len(opened) == 1
        await close_connections()
        await scorer.score(QUERY, pool(3), deadline=Deadline.after(5))
        assert len(opened) == 2

    asyncio.run(five_then_fresh())


def test_connections_closed_by_the_server_cause_no_failure(server, reranker, pool):
    """A restarted server, or one that closes idle connections, is asked again on a new one."""
    scorer = reranker(max_concurrency=8)

    async def before_and_after_a_restart():
        for _ in range(5):
            calls = (scorer.score(QUERY, pool(3), deadline=Deadline.after(5)) for _ in range(6))
            await asyncio.gather(*calls)
            server.misbehave("refuse")
            server.behave()

    asyncio.run(before_and_after_a_restart())
    assert len(server.requests) == 30


def test_a_second_answer_to_one_request_never_answers_the_next_query(server, reranker):
    hits = [Hit("a", "alpha"), Hit("b", "beta")]
    scorer = reranker()

    async def two_queries():
        server.misbehave("two-answers", times=1)
        with pytest.raises(ProviderBadAnswer, match="follows after its end"):
            await scorer.score("alpha", hits, deadline=Deadline.after(5))
        return await scorer.score("beta", hits, deadline=Deadline.after(5))

    assert list(asyncio.run(two_queries()).values) == [0.0, 1.0]


def test_one_reranker_serves_several_loops_and_threads(server, reranker, pool):
    scorer = reranker(max_concurrency=2)
    hits = pool(30)
    expected = list(run_sync(scorer.score(QUERY, hits, deadline=Deadline.after(10))).values)
    results = []

    async def several():
        calls = (scorer.score(QUERY, hits, deadline=Deadline.after(10)) for _ in range(8))
        return [list(scores.values) for scores in await asyncio.gather(*calls)]

    threads = [threading.Thread(target=lambda: results.extend(asyncio.run(several()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert results == [expected] * 32
    assert shared_limit("voyage", server.url, 2).in_use == 0


def test_the_concurrency_limit_is_shared_by_all_instances_of_a_provider(server, reranker, pool):
    """With a limit of 2 never more than 2 requests are at the server, over instances and batches."""
    busy, most, lock = 0, 0, threading.Lock()
    gate = threading.Event()

    def count(_request):
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        gate.wait(0.02)
        with lock:
            busy -= 1

    server.next_fault = count  # every request passes here, outside the server's own lock
    rerankers = [reranker(max_concurrency=limit) for limit in (7, 2, 5)]

    async def all_at_once():
        await asyncio.gather(*(each.score(QUERY, pool(200), deadline=Deadline.after(10)) for each in rerankers))

    asyncio.run(all_at_once())
    assert most == 2
    assert len(server.requests) == 12


def test_waiting_for_a_free_connection_is_not_a_failure_of_the_provider(server, reranker, pool):
    server.misbehave("stall")
    scorer = reranker(max_concurrency=1)

    async def two():
        calls = (scorer.score(QUERY, pool(3), deadline=Deadline.after(0.15)) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in asyncio.run(two())) == ["DeadlineExceeded", "ProviderTimeout"]


def test_a_limit_survives_waiters_that_give_up_and_loops_that_close():
    limit = ConcurrencyLimit(1)

    async def wait():
        async with limit.permit():
            await asyncio.Event().wait()

    async def hold_and_abandon():
        async with limit.permit():
            waiting = [asyncio.create_task(wait()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[2].cancel()
            await asyncio.gather(waiting[0], waiting[2], return_exceptions=True)
        # Granted by the release above, cancelled before it wakes: the permit must come back.
        waiting[1].cancel()
        await asyncio.gather(waiting[1], return_exceptions=True)
        assert limit.in_use == 0
        async with limit.permit():
            assert limit.in_use == 1

    asyncio.run(hold_and_abandon())
    assert limit.in_use == 0


@pytest.mark.filterwarnings("ignore:.*was destroyed but it is pending")
def test_permits_of_closed_event_loops_are_reclaimed():
    """Ten loops are closed while their tasks hold permits: later requests get in, also those that wait."""
    limit = ConcurrencyLimit(8)
    entered = []

    async def hold():
        async with limit.permit():
            entered.append(1)
            await asyncio.Event().wait()

    loops, tasks = [asyncio.new_event_loop() for _ in range(10)], []
    for loop in loops:
        tasks.append(loop.create_task(hold()))  # kept alive: a collected task would give its permit back
        loop.run_until_complete(asyncio.sleep(0))
    assert (len(entered), limit.in_use) == (8, 8)

    async def enter_while_the_holders_vanish():
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            waiting = group.create_task(enter())
            await asyncio.sleep(0)
            for loop in loops:
                loop.close()
            await waiting

    async def enter():
        async with limit.permit():
            return limit.in_use

    asyncio.run(enter_while_the_holders_vanish())
    assert limit.in_use == 0
    for task in tasks:
        task.get_coro().close()  # what the garbage collector would do later must not free a permit twice
    assert limit.in_use == 0


@pytest.mark.parametrize("query", [None, "", " \n"])
def test_fuse_without_a_query_is_refused(server, reranker, pool, query):
    with pytest.raises(InputError, match="query"):
        asyncio.run(reranker("jina").fuse([pool(3)], k=2, query=query))
    assert server.requests == []


def test_server_errors_carry_provider_and_status(server, reranker, pool):
    server.misbehave("502")
    with pytest.raises(ProviderServerError) as caught:
        score(reranker("jina"), pool(3))
    assert (caught.value.provider, caught.value.status, caught.value.transient) == ("jina", 502, True)


def test_a_call_over_loopback_is_quick_once_warm(server, reranker, pool):
    scorer = reranker()
    hits = pool(20)

    async def timed():
        await scorer.score(QUERY, hits, deadline=Deadline.after(5))
        times = []
        for _ in range(20):
            started = time.perf_counter()
            await scorer.score(QUERY, hits, deadline=Deadline.after(5))
            times.append(time.perf_counter() - started)
        return min(times)

    assert asyncio.run(timed()) < 0.05


def test_an_instruction_precedes_the_query_of_models_that_follow_one(server, reranker, pool):
    ranking = rerank(QUERY, pool(5), scorer=reranker("voyage"), instruction="Prefer manuals.")
    assert server.requests[-1].body["query"] == f"Prefer manuals.\nQuery: {QUERY}"
    assert not ranking.warnings
    score(reranker("voyage", instruction="Prefer news."), pool(5))
    assert server.requests[-1].body["query"].startswith("Prefer news.\n")


def test_an_instruction_that_was_not_used_is_reported(server, reranker, pool):
    scorer = reranker("cohere")
    plain, instructed = (rerank(QUERY, pool(5), scorer=scorer, instruction=text) for text in (None, "Prefer manuals."))
    assert instructed.ids == plain.ids
    assert server.requests[-1].body["query"] == QUERY
    assert "cohere" in instructed.warnings[-1]
    with pytest.raises(ConfigError, match="instruction"):
        reranker("voyage", model="rerank-2", instruction="Prefer manuals.")
    with pytest.raises(InputError, match="instruction"):
        rerank(QUERY, pool(5), scorer=scorer, instruction=" ")


def test_scores_with_an_instruction_are_cached_apart(reranker, pool):
    cache = MemoryScores()
    plain = score(CachedScorer(reranker("voyage"), cache), pool(5))
    instructed = score(CachedScorer(reranker("voyage", instruction="number7"), cache), pool(5))
    assert plain.note != "from the score cache" != instructed.note


def test_an_instruction_reaches_the_tiers_that_follow_one(server, reranker, pool):
    tiers = Tiered(reranker("voyage"), reranker("cohere"))
    assert not rerank(QUERY, pool(5), scorer=tiers, instruction="Prefer manuals.").warnings
    assert server.requests[-1].body["query"].startswith("Prefer manuals.")
    server.misbehave("500", when=lambda request: request.provider == "voyage")
    ranking = rerank(QUERY, pool(5), scorer=tiers, instruction="Prefer manuals.")
    assert (ranking.tier, server.requests[-1].body["query"]) == ("cohere", QUERY)
    assert "cohere" in ranking.warnings[-1]
