"""The cost of hosted reranking: usage, prices, limits, events and the report."""

import asyncio
import json
from threading import Thread

import pytest

from resift.cli.main import main
from resift.deadline import Deadline
from resift.errors import ConfigError, CostLimitExceeded
from resift.events import JsonlSink, ListSink
from resift.rerankers.hosted.cost import (
    CostLimits,
    Price,
    ProviderBilled,
    Spending,
    Usage,
    estimate_usage,
    find_price,
    price_table,
    read_usage,
)
from resift.rerankers.rescore import rescore
from resift.resilience.tiered import Tiered
from resift.testing import FakeClock, OverlapScorer


def test_the_price_table_is_dated_and_marks_what_nobody_could_check():
    table = price_table()
    assert table["date"] >= "2026-11"
    assert all(row["source"] and isinstance(row["checked"], bool) for row in table["prices"])
    assert find_price("voyage", "rerank-2.5") == Price(0.05, None, checked=False)
    assert not find_price("cohere", "rerank-v3.5").checked
    assert find_price("cohere", "unheard-of") is None
    assert find_price("cohere", "rerank-v3.5", per_thousand=1.5) == Price(None, 1.5)


def test_usage_is_read_from_answers_and_otherwise_estimated():
    expected = estimate_usage("four", ["eight ch", "12345678"])
    assert expected == Usage(6, 1, estimated=True)
    assert estimate_usage("q", ["t"] * 101).search_units == 2
    assert read_usage({"usage": {"total_tokens": 815}}, expected) == Usage(815, 0)
    assert read_usage({"meta": {"billed_units": {"search_units": 1}}}, expected) == Usage(0, 1)
    for answer in ({}, [], {"usage": {"total_tokens": "many"}}, {"usage": {"total_tokens": float("nan")}}):
        assert read_usage(answer, expected) == expected
    assert Price(0.05).cost(Usage(2_000_000)) == pytest.approx(0.1)
    assert Price(None, 2.0).cost(Usage(0, 5)) == pytest.approx(0.01)


def test_limits_count_rolling_windows_and_reservations():
    spending = Spending()
    limits = CostLimits(call=0.5, minute=1.0, day=2.0)
    with pytest.raises(CostLimitExceeded, match="call"):
        spending.reserve("p", 0.6, limits, 0.0)
    spending.reserve("p", 0.5, limits, 0.0)
    spending.reserve("p", 0.5, limits, 1.0)
    with pytest.raises(CostLimitExceeded, match="minute"):
        spending.reserve("p", 0.1, limits, 59.0)
    spending.correct(-0.3, 59.0)
    spending.reserve("p", 0.2, limits, 59.5)
    for now_s in (200.0, 300.0):
        spending.reserve("p", 0.5, limits, now_s)
    with pytest.raises(CostLimitExceeded, match="day"):
        spending.reserve("p", 0.5, limits, 86_000.0)
    spending.reserve("p", 0.5, limits, 90_000.0)


def test_many_threads_never_exceed_a_limit():
    spending, granted = Spending(), []

    def spend():
        for _ in range(50):
            try:
                spending.reserve("p", 0.01, CostLimits(minute=1.0), 5.0)
            except CostLimitExceeded:
                continue
            granted.append(1)

    threads = [Thread(target=spend) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(granted) == 100


def test_a_limit_without_a_price_is_refused(reranker):
    with pytest.raises(ConfigError, match="price_per_million_tokens"):
        reranker("jina", model="unheard-of", max_usd_per_day=1.0)
    with pytest.raises(ConfigError, match="max_usd_per_call"):
        reranker(max_usd_per_call=-1.0)
    with pytest.raises(ConfigError, match="price_per_million_tokens"):
        reranker(price_per_million_tokens=-1.0)
    assert reranker("jina", model="unheard-of", price_per_million_tokens=0.1, max_usd_per_day=1.0).limits


def test_a_call_reports_its_usage_in_events_scores_and_trace(reranker, pool):
    sink = ListSink()
    scorer = reranker(price_per_million_tokens=1.0)
    ranking = asyncio.run(rescore(scorer, "soil", pool(4), k=4, sink=sink))
    [event] = sink.named("provider_billed")
    assert (event.provider, event.model, event.price_checked) == ("voyage", "rerank-2.5", True)
    assert event.tokens > 0
    assert event.cost_usd == pytest.approx(event.tokens / 1e6)
    [record] = [each for each in ranking.trace if each.kind == "rerank"]
    assert record.evidence["tokens"] == event.tokens
    assert record.evidence["cost_usd"] == event.cost_usd
    assert not ranking.degraded


def test_a_cost_limit_skips_the_tier_and_is_never_fatal(reranker, pool, server):
    sink = ListSink()
    clock = FakeClock()
    primary = reranker(price_per_million_tokens=1.0, max_usd_per_call=1e-9)
    tiered = Tiered(primary, OverlapScorer(), sink=sink)
    deadline = Deadline.after(60, clock=clock)
    ranking = asyncio.run(rescore(tiered, "soil", pool(4), k=4, deadline=deadline, sink=sink))
    [skipped] = sink.named("cross_encoder_skipped")
    assert skipped.reason == "cost"
    assert ranking.degraded
    assert ranking.reason.startswith("cost: voyage would cost")
    assert len(ranking) == 4
    assert tiered.breaker.state == "CLOSED"
    assert not sink.named("provider_billed")
    alone = asyncio.run(rescore(primary, "soil", pool(4), k=4))
    assert alone.degraded
    assert len(alone) == 4


def test_a_limit_per_minute_ends_after_a_minute_and_is_shared_by_rerankers_of_one_account(reranker, pool):
    clock = FakeClock()
    options = {"price_per_million_tokens": 1.0, "max_usd_per_minute": 0.0001}
    first, second = reranker(**options), reranker(**options)

    async def call(scorer):
        return await scorer.score("soil", pool(8), deadline=Deadline.after(30, clock=clock))

    assert asyncio.run(call(first)).usage["cost_usd"] > 0
    first._spending.correct(0.0001, clock())
    with pytest.raises(CostLimitExceeded):
        asyncio.run(call(second))
    clock.advance(61)
    assert asyncio.run(call(second)).usage["cost_usd"] > 0


def test_report_adds_up_events(tmp_path, capsys):
    billed = ProviderBilled(
        provider="voyage", model="rerank-2.5", tokens=1000, search_units=0, cost_usd=0.05, estimated=False,
        price_checked=True,
    )  # fmt: skip
    unknown = ProviderBilled(
        provider="mixedbread", model="m", tokens=10, search_units=0, cost_usd=None, estimated=True,
        price_checked=False,
    )  # fmt: skip
    log = tmp_path / "events.jsonl"
    sink = JsonlSink(log)
    for event in (billed, billed, unknown):
        sink(event)
    with log.open("a") as file:
        skip = {"event": "cross_encoder_skipped", "reason": "cost", "provider": "voyage"}
        file.write(json.dumps(skip) + '\nnot json\n{"event": "provider_billed", "tok')
    assert main(["report", "cost", str(log), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["total_usd"] == pytest.approx(0.1)
    assert data["skipped_for_cost"] == {"voyage": 1}
    by_provider = {row["provider"]: row for row in data["rows"]}
    assert (by_provider["voyage"]["calls"], by_provider["voyage"]["tokens"]) == (2, 2000)
    assert by_provider["mixedbread"]["unpriced"] == 1
    assert main(["report", "cost", str(log)]) == 0
    out = capsys.readouterr().out
    assert "total: $0.1000" in out


@pytest.mark.parametrize("value", ["1e999", "-5", "NaN", '"12"', "9" * 400, "1e308", "[1]"])
def test_report_of_numbers_that_no_provider_reports(tmp_path, capsys, value):
    """One line with an infinite number ended in an OverflowError."""
    log = tmp_path / "events.jsonl"
    fields = f'"tokens": {value}, "search_units": {value}, "cost_usd": {value}'
    log.write_text(f'{{"event": "provider_billed", "provider": "jina", "model": "m", {fields}}}\n' * 3)
    assert main(["report", "cost", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_usd"] == 0


def test_report_of_a_log_without_costs_or_a_missing_file(tmp_path, capsys):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert main(["report", "cost", str(empty)]) == 1
    assert "No event" in capsys.readouterr().err
    assert main(["report", "cost", str(tmp_path / "missing.jsonl")]) == 1
    assert "missing.jsonl" in capsys.readouterr().err
    assert main(["report", "cost", str(tmp_path)]) == 1
