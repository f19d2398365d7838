"""Indexes of others as stores: any function, txtai; k, filters, failures."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import resift
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, StoreError
from resift.integrations.external_store import ExternalStore, Found
from resift.integrations.txtai import ResiftSimilarity, txtai_store
from resift.testing import OverlapScorer
from resift.types import Hit, Scores
from tests.integrations.documents import QUERY, TEXTS


def make_documents(count: int) -> list[Found]:
    return [Found(f"d{n:03}", f"text {n}", 1.0 / (1 + n // 2), {"rare": n == 90}) for n in range(count)]


async def hundred(_query: str, k: int) -> list[Found]:
    return make_documents(100)[:k]


def test_functions_of_0_2_name_their_replacement(monkeypatch):
    for name in ("chroma", "elasticsearch"):  # another test may have imported them, which warns only once
        monkeypatch.delitem(sys.modules, f"resift.integrations.{name}", raising=False)
    with pytest.deprecated_call(), pytest.raises(ImportError, match="ChromaCollection"):
        from resift.integrations.chroma import chroma_store  # noqa: F401
    with pytest.deprecated_call(), pytest.raises(ImportError, match="ElasticsearchQuery"):
        from resift.integrations.elasticsearch import elasticsearch_store  # noqa: F401


def test_a_store_over_an_index_keeps_the_contract():
    store = ExternalStore("mine", hundred)
    hits = run_sync(store.search("x", k=5))
    assert [hit.id for hit in hits] == ["d000", "d001", "d002", "d003", "d004"]
    assert all(hit.source == "mine" for hit in hits)
    assert run_sync(store.search("x", k=0)) == run_sync(store.search("  ", k=3)) == []
    for wrong in (-1, True, 2.5):
        with pytest.raises(InputError, match="integer"):
            run_sync(store.search("x", k=wrong))


def test_a_rare_filter_is_found_by_fetching_more():
    store = ExternalStore("mine", hundred)
    assert [hit.id for hit in run_sync(store.search("x", k=3, where={"rare": True}))] == ["d090"]


def test_a_filter_that_may_miss_documents_is_marked_approximate():
    """The index has more than is fetched of it, and too few of those passed."""

    async def endless(_query: str, k: int) -> list[Found]:
        return make_documents(k)

    ranking = resift.Pipeline(ExternalStore("mine", endless), k=2).rank("x", where={"rare": True})
    assert ranking.ids == ["d090"]
    assert "approximate" in ranking.trace[0].note


def test_a_failing_index_is_skipped_after_three_errors():
    async def broken(_query: str, _k: int) -> list[Found]:
        raise RuntimeError("secret document")

    store = ExternalStore("mine", broken)
    for _ in range(3):
        with pytest.raises(StoreError, match="mine failed: RuntimeError") as raised:
            run_sync(store.search("x", k=1))
        assert "secret" not in str(raised.value)
    with pytest.raises(resift.ResiftError, match="open"):
        run_sync(store.search("x", k=1))


def plain(_query: str, k: int) -> list[Found]:
    return [Found(number, f"text {number}", None, {}) for number in range(k)]  # type: ignore[arg-type]


def dicts(_query: str, k: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"text {number}", "score": 1.0} for number in range(k)]


class Client:
    async def __call__(self, _query: str, k: int) -> list[Hit]:
        return [Hit(str(number), f"text {number}") for number in range(k)]


@pytest.mark.parametrize("fetch", [plain, dicts, Client(), lambda *words: hundred(*words[:2])])
def test_plain_functions_dicts_hits_and_integer_ids_work(fetch):
    store = ExternalStore("mine", fetch)
    hits = run_sync(store.search("x", k=3))
    assert len(hits) == 3
    assert all(isinstance(hit.id, str) and hit.text and hit.source == "mine" for hit in hits)


def test_a_slow_plain_function_does_not_stop_the_event_loop():
    async def both() -> float:
        started = time.monotonic()
        stores = [ExternalStore(f"s{n}", lambda q, k: time.sleep(0.5) or plain(q, k)) for n in range(3)]
        await asyncio.gather(*(store.search("x", k=1) for store in stores))
        return time.monotonic() - started

    assert run_sync(both()) < 1.4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda q, k: [{"id": "a"}["missing_column"]], "missing_column"),
        (lambda q, k: q.embed(), "embed"),
        (lambda q: [], "positional"),
        (lambda q, k: None, "None"),
        (lambda q, k: [object()], "object"),
    ],
)
def test_a_mistake_in_the_function_is_shown(wrong, message):
    with pytest.raises(resift.ResiftError, match=message):
        run_sync(ExternalStore("mine", wrong).search("x", k=1))


def test_fetch_must_be_callable():
    with pytest.raises(InputError):
        ExternalStore("mine", [])  # type: ignore[arg-type]


class TxtaiIndex:
    """Answers as txtai's Embeddings does."""

    def search(self, query: str, limit: int) -> list[Any]:
        rows = [{"id": f"t{at}", "text": text, "score": 0.9 - at / 10, "page": at} for at, text in enumerate(TEXTS)]
        return rows[:limit] if query != "bare" else [(7, 0.5)][:limit]


def test_a_txtai_index_is_a_store():
    store = txtai_store(TxtaiIndex())
    assert [(hit.id, hit.score) for hit in run_sync(store.search("x", k=2))] == [("t0", 0.9), ("t1", 0.8)]
    assert run_sync(store.search("bare", k=2))[0].id == "7"
    assert run_sync(store.search("x", k=2, where={"page": 2}))[0].id == "t2"


def test_the_similarity_has_txtais_shape():
    similarity = ResiftSimilarity(scorer=OverlapScorer("overlap"))
    pairs = similarity(QUERY, TEXTS)
    assert [at for at, _ in pairs] == [1, 2, 0]
    assert similarity([QUERY, "lunch"], TEXTS) == [pairs, similarity("lunch", TEXTS)]
    assert similarity(QUERY, [(at, text, None) for at, text in enumerate(TEXTS)]) == pairs
    assert similarity(QUERY, []) == []


class EveryOtherScorer(OverlapScorer):
    """Scores every second hit, as a scorer does whose deadline passes."""

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        scores = await super().score(query, hits, deadline=deadline)
        return replace(scores, values=[None if at % 2 else -1.0 - at for at in range(len(hits))])


def test_the_similarity_raises_if_its_scorer_fails():
    with pytest.raises(ResiftError, match="mine failed"):
        ResiftSimilarity(scorer=OverlapScorer("mine", fails=True))(QUERY, TEXTS)
    assert ResiftSimilarity(scorer=EveryOtherScorer("half"))(QUERY, TEXTS) == [(0, -1.0), (2, -3.0), (1, -3.0)]
