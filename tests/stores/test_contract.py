"""One suite over every store with its real engine: what a caller may rely on, whatever the engine."""

# ruff: noqa: E501 - documents and queries read best on one line
from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from resift.errors import DuplicateIdError, InputError
from resift.stores.memory import MemoryStore
from resift.testing import check_store
from resift.types import Hit
from tests.stores.factories import STORES, HashingEmbedder

DOCS = [
    {"id": "pandas", "text": "Giant pandas eat bamboo in the mountains of China.", "metadata": {"topic": "animals", "year": 2020, "wild": True, "seen": "2024-05-01T10:30:00"}},
    {"id": "koalas", "text": "Koalas sleep in eucalyptus trees and eat leaves.", "metadata": {"topic": "animals", "year": 2021, "wild": True, "seen": "2024-04-30"}},
    {"id": "trains", "text": "Fast trains cross the mountains through long tunnels.", "metadata": {"topic": "transport", "year": 2020, "wild": False, "seen": "2024-06-01"}},
    {"id": "bread", "text": "Sourdough bread needs flour, water, salt and time.", "metadata": {"topic": "food", "year": 2019, "wild": False}},
    {"id": "cafe", "text": "Das Café serviert Käsekuchen; 東京 has cafés too.", "metadata": {"topic": "food", "year": 2021, "title": "Ein „Café“"}},
]  # fmt: skip


def run(kind: str, body: Callable[[Any], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            async with STORES[kind][1](Path(folder)) as store:
                return await body(store)

    return asyncio.run(inside())


@pytest.fixture(params=sorted(STORES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_published_check_passes(kind: str) -> None:
    """`resift.testing.check_store` accepts every store of ours."""
    run(kind, check_store)


def test_an_empty_store_answers_with_nothing(kind: str) -> None:
    """No documents: count 0, no hits, nothing to get or delete."""

    async def body(store: Any) -> None:
        assert await store.count() == 0
        assert await store.search("pandas", k=3) == []
        assert await store.get(["pandas"]) == []
        assert await store.delete(["pandas"]) == 0
        assert await store.add([]) == 0

    run(kind, body)


def test_the_best_match_comes_first_and_tells_where_it_was_found(kind: str) -> None:
    """A hit carries text, metadata, source and score."""

    async def body(store: Any) -> None:
        assert await store.add(DOCS) == len(DOCS)
        assert await store.count() == len(DOCS)
        hits = await store.search("pandas eat bamboo", k=3)
        first = hits[0]
        assert first.id == "pandas"
        assert first.text == DOCS[0]["text"]
        assert first.metadata == DOCS[0]["metadata"]
        for hit in hits:
            assert hit.source == store.name
            assert hit.score is not None

    run(kind, body)


def test_scores_fall_and_ties_sort_by_id(kind: str) -> None:
    """The order is (-score, id), also among documents with the same text, also at the cut."""

    async def body(store: Any) -> None:
        same = [{"id": f"copy-{number}", "text": "the very same words about bamboo"} for number in (3, 1, 5, 2, 4)]
        await store.add([*DOCS, *same])
        for k in (1, 2, 3, 4, 7):
            hits = await store.search("same words about bamboo", k=k)
            assert [hit.id for hit in hits[:5]] == [f"copy-{n}" for n in range(1, 6)][:k]
            keys = [(-hit.score, hit.id) for hit in hits]
            assert keys == sorted(keys)

    run(kind, body)


def test_k_limits_the_answer(kind: str) -> None:
    """k=0 gives [], a k beyond the store gives what there is, k<0 is refused."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        assert await store.search("mountains", k=0) == []
        assert len(await store.search("mountains", k=1)) == 1
        assert 2 <= len(await store.search("mountains", k=1000)) <= len(DOCS)
        with pytest.raises(InputError, match="k is -1"):
            await store.search("mountains", k=-1)

    run(kind, body)


def test_a_blank_query_finds_nothing(kind: str) -> None:
    """There is nothing to look for, so there is nothing to find."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        for query in ("", "   ", "\n\t"):
            assert await store.search(query, k=5) == []

    run(kind, body)


HARMLESS_QUERIES = ['"', "bamboo*", "NEAR(bamboo)", "bamboo AND", "text:bamboo", "bamboo' OR 1=1 --", "^bamboo", "a\x00bamboo", "(", "bamboo 💥", "-bamboo +China {x}", "%_", "\\", "x" * 5000]  # fmt: skip


def test_no_query_is_syntax(kind: str) -> None:
    """Operators, quotes and control characters of the engine are plain text in a query."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        for query in HARMLESS_QUERIES:
            hits = await store.search(query, k=3)
            assert {hit.id for hit in hits} <= {doc["id"] for doc in DOCS}, query

    run(kind, body)


def test_adding_the_same_id_again_replaces_the_document(kind: str) -> None:
    """Upsert: the old text is no longer found, the count stays."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        await store.add([{"id": "bread", "text": "Volcanoes erupt lava.", "metadata": {"topic": "geology"}}])
        assert await store.count() == len(DOCS)
        (now,) = await store.get(["bread"])
        assert (now.text, now.metadata) == ("Volcanoes erupt lava.", {"topic": "geology"})
        assert (await store.search("volcanoes erupt lava", k=1))[0].id == "bread"
        assert await store.search("volcanoes", k=5, where={"topic": "food", "year": 2019}) == []
        stale = await store.search("sourdough flour salt", k=5)
        assert all(hit.text != DOCS[3]["text"] for hit in stale)

    run(kind, body)


def test_a_changed_metadata_alone_is_seen(kind: str) -> None:
    """The same text with other metadata: filters and hits follow."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        await store.add([{**DOCS[0], "metadata": {"topic": "bears"}}])
        assert [hit.id for hit in await store.search("pandas bamboo", k=1, where={"topic": "bears"})] == ["pandas"]
        held = await store.search("pandas bamboo", k=5, where={"topic": "animals"})
        assert "pandas" not in [hit.id for hit in held]

    run(kind, body)


def test_deleted_documents_are_gone(kind: str) -> None:
    """Delete says how many there were; search, get and count agree at once."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        assert await store.delete(["pandas", "nobody", "pandas"]) == 1
        assert await store.count() == len(DOCS) - 1
        assert await store.get(["pandas"]) == []
        assert "pandas" not in [hit.id for hit in await store.search("giant pandas eat bamboo", k=5)]
        await store.add(DOCS[:1])
        assert (await store.search("giant pandas eat bamboo", k=1))[0].id == "pandas"

    run(kind, body)


def test_get_keeps_the_order_asked(kind: str) -> None:
    """Unknown ids are left out, repeated ones given once."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        found = await store.get(["trains", "nobody", "cafe", "trains", "bread"])
        assert [hit.id for hit in found] == ["trains", "cafe", "bread"]
        assert found[1].text == DOCS[4]["text"]
        assert found[1].metadata == DOCS[4]["metadata"]

    run(kind, body)


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"topic": "animals"}, {"pandas", "koalas"}),
    ({"topic": ["transport", "food"]}, {"trains", "bread", "cafe"}),
    ({"topic": "animals", "year": 2020}, {"pandas"}),
    ({"year": 2020}, {"pandas", "trains"}),
    ({"year": 2020.0}, {"pandas", "trains"}),
    ({"wild": True}, {"pandas", "koalas"}),
    ({"wild": False}, {"trains", "bread"}),
    ({"wild": 1}, set()),
    ({"year": "2020"}, set()),
    ({"topic": []}, set()),
    ({"nothing": "here"}, set()),
    ({"title": "Ein „Café“"}, {"cafe"}),
    ({"topic": "animals' OR '1'='1"}, set()),
    ({"year": {">": 2020}}, {"koalas", "cafe"}),
    ({"year": {">=": 2020, "<": 2021}}, {"pandas", "trains"}),
    ({"year": {"<=": 2019.5}}, {"bread"}),
    ({"year": {">": "2000"}}, set()),
    ({"topic": "*al*"}, {"pandas", "koalas"}),
    ({"topic": ["f*d", "tr*"]}, {"trains", "bread", "cafe"}),
    ({"topic": {"=": "f*d"}}, set()),
    ({"topic": {"!=": ["animals", "food"]}}, {"trains"}),
    ({"title": {"!=": "x"}}, {"pandas", "koalas", "trains", "bread", "cafe"}),
    ({"topic": {">": "food", "<": "z"}}, {"trains"}),
    ({"seen": {">=": "2024-05-01"}}, {"pandas", "trains"}),
    ({"seen": {"<=": "2024-05-01"}}, {"pandas", "koalas"}),
    ({"seen": {">": "2024-05-01T09:00:00+00:00"}, "year": 2020}, {"pandas", "trains"}),
    ({}, {"pandas", "koalas", "trains", "bread", "cafe"}),
]


def test_where_means_the_same_everywhere(kind: str) -> None:
    """Equality, alternatives, patterns, ranges, dates; types count; every key must pass."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        query = "pandas koalas trains bread café eat mountains"
        for where, expected in FILTERS:
            hits = await store.search(query, k=10, where=where)
            assert {hit.id for hit in hits} == expected, where

    run(kind, body)


LISTS = [
    {"id": "a", "text": "lamp one", "metadata": {"tags": ["account", "login"], "sizes": [1, 2.5], "seen": ["2024-01-01", "2024-06-01"], "topic": "food", "long": ["x" * 300, "y"]}},
    {"id": "b", "text": "lamp two", "metadata": {"tags": "account", "sizes": 1.0, "flags": [True], "topic": "wood"}},
    {"id": "c", "text": "lamp three", "metadata": {"tags": [], "sizes": [True, "1"], "seen": ["soon"], "topic": "food"}},
    {"id": "d", "text": "lamp four", "metadata": {"tags": ["log*n", "log*n", None, ["account"], {"account": 1}], "sizes": [10**30, -5]}},
    {"id": "e", "text": "lamp five", "metadata": {}},
]  # fmt: skip
ALL = set("abcde")


LIST_FILTERS: list[tuple[dict[str, Any], set[str]]] = [
        ({"tags": "account"}, {"a", "b"}),
        ({"tags": "login"}, {"a"}),
        ({"tags": ["login", "log*n"]}, {"a", "d"}),
        ({"tags": {"=": "log*n"}}, {"d"}),
        ({"tags": {"=": ["log*n", "account"]}}, {"a", "b", "d"}),
        ({"tags": "acc*"}, {"a", "b"}),
        ({"tags": "*"}, {"a", "b", "d"}),
        ({"tags": {"!=": "account"}}, ALL - {"a", "b"}),
        ({"tags": {"!=": ["login", "nothing"]}}, ALL - {"a"}),
        ({"tags": []}, set()),
        ({"tags": {"!=": []}}, ALL),
        ({"sizes": 1}, {"a", "b"}),
        ({"sizes": 1.0}, {"a", "b"}),
        ({"sizes": True}, {"c"}),
        ({"sizes": "1"}, {"c"}),
        ({"sizes": {">": 2}}, {"a", "d"}),
        ({"sizes": {"<": 0}}, {"d"}),
        ({"sizes": {">": 2, "<": 2}}, {"a", "d"}),
        ({"sizes": 10**30}, {"d"}),
        ({"flags": True}, {"b"}),
        ({"seen": {">=": "2024-05-01"}}, {"a"}),
        ({"long": "x" * 300}, {"a"}),
        ({"long": "x*"}, {"a"}),
        ({"tags": "account", "topic": "food"}, {"a"}),
        ({"or": [{"tags": "login"}, {"topic": "wood"}]}, {"a", "b"}),
        ({"or": [{"tags": "login"}, {"sizes": {"<": 0}}], "topic": {"!=": "food"}}, {"d"}),
        ({"or": [{"tags": "account", "topic": "wood"}, {"or": [{"sizes": "1"}, {"long": "y"}]}]}, {"a", "b", "c"}),
        ({"or": [{"tags": "account"}, {}]}, ALL),
        ({"or": ["x"]}, set()),
    ]  # fmt: skip


def test_a_list_passes_when_one_of_its_items_does(kind: str) -> None:
    """Contains, patterns, ranges, not equal, `or`; items that are no scalars are passed over."""

    async def body(store: Any) -> None:
        await store.add(LISTS)
        query = "lamp one two three four five"
        for where, expected in LIST_FILTERS:
            hits = await store.search(query, k=10, where=where)
            assert {hit.id for hit in hits} == expected, where

    run(kind, body)


def test_changed_and_deleted_lists_are_no_longer_found(kind: str) -> None:
    """Replacing or deleting a document takes the items of its lists out of every filter."""

    async def body(store: Any) -> None:
        await store.add(LISTS)
        await store.add([{"id": "a", "text": "lamp one", "metadata": {"tags": ["login", "new"]}}])
        await store.delete(["b"])
        for value, expected in (("account", []), ("login", ["a"]), ("new", ["a"])):
            hits = await store.search("lamp one two", k=10, where={"tags": value})
            assert [hit.id for hit in hits] == expected

    run(kind, body)


def test_a_filter_is_applied_before_the_cut(kind: str) -> None:
    """The best document that passes is found even when thousands of better ones do not."""

    async def body(store: Any) -> None:
        crowd = [{"id": f"c{n:03}", "text": "bamboo bamboo forest", "metadata": {"in": "crowd"}} for n in range(300)]
        await store.add([*crowd, {"id": "lone", "text": "one bamboo far away", "metadata": {"in": "wild"}}])
        assert [hit.id for hit in await store.search("bamboo forest", k=1, where={"in": "wild"})] == ["lone"]

    run(kind, body)


MEANINGLESS_FILTERS: list[Any] = [
    {"a": None},
    {"a": {"b": 1}},
    {"a": [[1]]},
    {1: 2},
    "topic",
    {"": 1},
    {"a": {}},
    {"a": {">": True}},
    {"a": {">": [1]}},
    {"a": {"gte": 1}},
    {"or": [{"a": 1}, "b"]},
    {"or": [{"a": {"in": [1]}}]},
]


def test_a_filter_that_means_nothing_is_refused(kind: str) -> None:
    """None, unknown operators and nested lists mean nothing that all engines share."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        for where in MEANINGLESS_FILTERS:
            with pytest.raises(InputError, match="where"):
                await store.search("pandas", k=3, where=where)

    run(kind, body)


def test_documents_need_ids_and_only_once(kind: str) -> None:
    """Without an id, or with one twice in a call, nothing is stored."""

    async def body(store: Any) -> None:
        with pytest.raises(InputError, match="no id"):
            await store.add([{"text": "nameless"}])
        with pytest.raises(InputError, match="bare string"):
            await store.add(["nameless"])
        with pytest.raises(DuplicateIdError):
            await store.add([DOCS[0], DOCS[0]])
        with pytest.raises(InputError, match="pass a list"):
            await store.delete("pandas")
        assert await store.count() == 0

    run(kind, body)


def test_ids_are_strings_or_numbers_written_as_such(kind: str) -> None:
    """1 is "1" on the way in and out, in every store; anything else is refused, nothing is removed."""

    async def body(store: Any) -> None:
        await store.add([{"id": 1, "text": "one bamboo"}, {"id": "None", "text": "no bamboo"}])
        assert [hit.id for hit in await store.get([1])] == ["1"]
        for call in (store.delete, store.get):
            for id in (None, True, 1.5, b"1", ("1",)):
                with pytest.raises(InputError, match="ids are strings"):
                    await call([id])
        assert await store.count() == 2
        assert await store.delete([1]) == 1
        assert await store.count() == 1

    run(kind, body)


def test_hits_and_dicts_are_equal_documents(kind: str) -> None:
    """A Hit can be stored as it is; its old score and source are not part of the document."""

    async def body(store: Any) -> None:
        old = Hit("h", "a walrus on the ice", 0.9, "elsewhere", {"n": 1})
        await store.add([old])
        (hit,) = await store.search("walrus ice", k=1)
        assert (hit.id, hit.source, hit.metadata) == ("h", store.name, {"n": 1})
        (kept,) = await store.get(["h"])
        assert (kept.score, kept.source) == (None, store.name)

    run(kind, body)


def test_empty_text_is_kept_and_harmless(kind: str) -> None:
    """A document without words can be stored, fetched and deleted."""

    async def body(store: Any) -> None:
        await store.add([*DOCS, {"id": "void", "text": ""}])
        assert (await store.get(["void"]))[0].text == ""
        assert (await store.search("giant pandas eat bamboo", k=1))[0].id == "pandas"
        assert await store.delete(["void"]) == 1

    run(kind, body)


def test_concurrent_searches_agree(kind: str) -> None:
    """Twenty searches at once give what one gives."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        alone = await store.search("eat bamboo in the mountains", k=4)
        together = await asyncio.gather(*(store.search("eat bamboo in the mountains", k=4) for _ in range(20)))
        assert all(hits == alone for hits in together)

    run(kind, body)


@pytest.mark.parametrize("kind", sorted(name for name, (mode, _) in STORES.items() if mode == "vector"))
def test_vector_search_equals_the_reference(kind: str) -> None:
    """Every vector engine gives MemoryStore's exact order and cosine."""

    async def body(store: Any) -> None:
        docs = [{"id": f"d{n:02}", "text": " ".join(f"w{n * step % 23}" for step in range(1, 9))} for n in range(40)]
        reference = MemoryStore(HashingEmbedder())
        await store.add(docs)
        await reference.add(docs)
        for query in ("w1 w2 w3", "w22", "w0 w7 w7 w14"):
            expected = {hit.id: hit.score for hit in await reference.search(query, k=40)}
            hits = await store.search(query, k=12)
            floor = sorted(expected.values(), reverse=True)[11]
            assert len(hits) == 12
            for hit in hits:
                assert hit.score == pytest.approx(expected[hit.id], abs=2e-6)
                assert hit.score >= floor - 2e-6

    run(kind, body)


@pytest.mark.parametrize("kind", sorted(name for name, (mode, _) in STORES.items() if mode == "text"))
def test_text_search_finds_words_whatever_their_case_and_accents(kind: str) -> None:
    """Documents that share no word with the query are not found; case and accents do not matter."""

    async def body(store: Any) -> None:
        await store.add(DOCS)
        assert [hit.id for hit in await store.search("CAFE", k=5)] == ["cafe"]
        assert [hit.id for hit in await store.search("Bamboo", k=5)] == ["pandas"]
        assert await store.search("zebra", k=5) == []

    run(kind, body)


def test_get_vectors_returns_the_embedded_vectors(kind: str) -> None:
    """A store with an embedder hands its unit vectors out by id; unknown ids are left out."""

    async def body(store: Any) -> None:
        if getattr(store, "get_vectors", None) is None:
            return
        assert dict(await store.get_vectors(["pandas"])) == {}
        texts = {"pandas": "Pandas eat bamboo.", "ö/'é": "Onions make soup."}
        await store.add([{"id": id, "text": text} for id, text in texts.items()])
        held = await store.get_vectors(["ö/'é", "nobody", "pandas"])
        if store.embedder is None:
            assert dict(held) == {}
            return
        wanted = await HashingEmbedder().embed(list(texts.values()), kind="document")
        assert set(held) == set(texts)
        for id, row in zip(texts, wanted, strict=True):
            assert [float(value) for value in held[id]] == pytest.approx(row.tolist(), abs=1e-6)

    run(kind, body)
