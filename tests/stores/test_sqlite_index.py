"""The parts of the SQLite index: compiled and plain code agree, codes find what a scan finds."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resift.native.library import SWITCH, native_kernel
from resift.stores.sqlite import SQLiteStore, lexical_index, vector_index
from resift.stores.sqlite.lexical_index import encode_list, read_occurrences
from resift.stores.sqlite.rows import BLOCK_ROWS as ROWS
from resift.stores.sqlite.vector_index import CodeTable
from resift.stores.sqlite.vector_index import encode_vectors as codes_of
from resift.stores.sqlite.vector_index import quantize_query as quantized_query
from tests.stores.factories import HashingEmbedder


class GivenVectors:
    """Embeds "17" as row 17 of a matrix."""

    name = "given"

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    async def embed(self, texts: Any, *, kind: str) -> Any:
        return self.rows[[int(text.split()[0]) for text in texts]]


def clustered(count: int, dimension: int, seed: int = 0) -> Any:
    chance = np.random.default_rng(seed)
    centres = chance.standard_normal((20, dimension))
    rows = centres[chance.integers(0, 20, count)] + 0.6 * chance.standard_normal((count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("dimension", [1, 63, 64, 65, 384])
def test_every_kernel_gives_the_distances_of_the_definition(monkeypatch: pytest.MonkeyPatch, dimension: int) -> None:
    """The sum of four-bit sizes where signs differ; masked rows are never found; ties come by place."""
    chance = np.random.default_rng(dimension)
    vectors = chance.standard_normal((2 * ROWS, dimension)).astype(np.float32)
    vectors[7] = vectors[1500]
    blocks = [np.ascontiguousarray(codes_of(vectors[at : at + ROWS]).T) for at in (0, ROWS)]
    mask = (chance.random(2 * ROWS) < 0.8).astype(np.uint8)
    mask[[7, 1500]] = 1
    query = vectors[7]
    scale = 2.5 * np.sqrt(np.mean(query.astype(np.float64) ** 2))
    sizes = np.minimum(np.rint(np.abs(query.astype(np.float64)) * 15 / scale), 15)
    wanted = ((vectors > 0) != (query > 0)) @ sizes
    order = sorted(np.flatnonzero(mask).tolist(), key=lambda at: (wanted[at], at))
    kernels = [None] if native_kernel().name is None else ["0", "portable", native_kernel().name]
    for kernel in kernels:
        if kernel is not None:
            monkeypatch.setenv(SWITCH, kernel)
        found = CodeTable(blocks).nearest(quantized_query(query), 300, mask).tolist()
        assert found == order[: len(found)]
        assert len(found) >= 300 or dimension == 1
        assert wanted[found[-1]] < wanted[order[len(found)]] if len(found) < len(order) else True


def test_posting_lists_survive_merges_updates_and_deletions(tmp_path: Path) -> None:
    """Short and long lists, many segments, removed documents: the rows and counts of a plain count."""
    chance = random.Random(5)

    def text() -> str:
        words = [f"w{int(chance.paretovariate(0.6))}" for _ in range(chance.randrange(1, 60))]
        return " ".join(words + ["all"] * chance.choice([1, 1, 2, 9, 700]))

    async def body() -> None:
        store = SQLiteStore(tmp_path / "a.db", create=True, language="none")
        texts = {str(n): text() for n in range(700)}
        await store.add([{"id": id, "text": text} for id, text in texts.items()])
        for step in range(80):
            id = str(chance.randrange(900))
            texts[id] = text()
            await store.add([{"id": id, "text": texts[id]}])
            if step % 4 == 0:
                gone = [str(chance.randrange(900)) for _ in range(3)]
                await store.delete(gone)
                texts = {id: text for id, text in texts.items() if id not in gone}
        assert 1 < len(store.metadata().segments) < 20
        for optimized in (False, True):
            if optimized:
                await store.optimize()
                assert len(store.metadata().segments) == 1
            assert await store.verify() == []
            with store._file.reading() as connection:
                ids = dict(connection.execute("SELECT row, id FROM documents"))
                for term in ["all", "nobody", *(f"w{n}" for n in range(1, 60)), "w100", "w1000"]:
                    rows, counts = read_occurrences(connection, store.metadata().segments, term)
                    pairs = zip(rows.tolist(), counts.tolist(), strict=True)
                    found = {ids[row]: count for row, count in pairs if row in ids}
                    plain = {id: text.split().count(term) for id, text in texts.items()}
                    assert found == {id: count for id, count in plain.items() if count}
                    assert len(rows) == len(found) or not optimized
        await store.close()

    asyncio.run(body())


def test_long_lists_decode_alike_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps and counts of one to five bytes."""
    chance = random.Random(2)
    row, expected = 0, {}
    for _ in range(3000):
        row += chance.choice([1, 100, 200, 20_000, 3_000_000])
        expected[row] = chance.choice([1, 127, 128, 70_000])
    item = encode_list("term", [number for pair in expected.items() for number in pair])
    rows, counts = item.decode()
    assert dict(zip(rows.tolist(), counts.tolist(), strict=True)) == expected
    monkeypatch.setattr(lexical_index, "_numpy", lambda: None)
    assert dict(zip(*item.decode(), strict=True)) == expected


def test_absent_terms_are_not_reported_as_damage(tmp_path: Path) -> None:
    """The list before an absent term proves its absence."""
    chance = random.Random(8)

    def word() -> str:
        return "".join(chance.choices("abcde", k=chance.randrange(3, 9)))

    async def body() -> None:
        store = SQLiteStore(tmp_path / "a.db", create=True, language="none")
        texts = [" ".join(word() for _ in range(60)) for _ in range(900)]
        await store.add([{"id": str(n), "text": text} for n, text in enumerate(texts)])
        held = {one for text in texts for one in text.split()}
        asked = sorted({word() for _ in range(600)} | {one[:-1] for one in list(held)[:200]})
        for one in asked:
            found = await store.search(one, k=1)
            assert bool(found) == (one in held), one
        assert await store.verify() == []
        await store.close()

    asyncio.run(body())


def test_codes_find_nearly_all_that_a_scan_finds_and_every_score_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recall of the first ten is 0.99 or more; another store gives the same bytes; scores are the scan's."""
    monkeypatch.setattr(vector_index, "_BATCH", 200)
    rows = clustered(6000, 96)
    embedder = GivenVectors(rows)

    async def body() -> None:
        path = tmp_path / "a.db"
        store = SQLiteStore(path, embedder=embedder, mode="vector", exact=False, create=True)
        await store.add([{"id": f"d{n:04}", "text": f"{n}", "metadata": {"n": n}} for n in range(6000)])
        scan = SQLiteStore(path, embedder=embedder, mode="vector", exact=True, read_only=True)
        again = SQLiteStore(path, embedder=embedder, mode="vector", exact=False, read_only=True)
        recalls = []
        for question in range(0, 6000, 1000):
            found = await store.search(f"{question}", k=10)
            wanted = await scan.search(f"{question}", k=10)
            assert (found.approximate, getattr(wanted, "approximate", False)) == (True, False)
            assert await again.search(f"{question}", k=10) == found
            exact = {hit.id: hit.score for hit in await scan.search(f"{question}", k=6000)}
            assert all(hit.score == exact[hit.id] for hit in found)
            recalls.append(len({hit.id for hit in found} & {hit.id for hit in wanted}) / 10)
        assert sum(recalls) / len(recalls) >= 0.99
        few = {"n": list(range(0, 6000, 1000))}
        assert {hit.metadata["n"] for hit in await store.search("3", k=10, where=few)} == set(few["n"])
        some = await store.search("3", k=10, where={"n": {"<": 3000}})
        assert [hit.metadata["n"] < 3000 for hit in some] == [True] * 10
        for one in (store, scan, again):
            await one.close()

    asyncio.run(body())


def test_more_documents_than_the_limit_are_found_by_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice follows the size of the file, also while it grows and shrinks."""
    monkeypatch.setattr(vector_index, "EXACT_UP_TO", 30)
    monkeypatch.setattr(vector_index, "_BATCH", 10)

    async def body() -> None:
        store = SQLiteStore(tmp_path / "a.db", embedder=HashingEmbedder(), create=True)
        docs = [{"id": f"d{n}", "text": f"w{n % 7} w{n % 11} w{n}"} for n in range(3000)]
        await store.add(docs[:30])
        assert not getattr(await store.vectors.search("w1", k=3), "approximate", False)
        await store.add(docs)
        assert (await store.vectors.search("w1", k=3)).approximate
        assert (await store.search("w1 w2", k=3)).approximate
        await store.delete([doc["id"] for doc in docs[20:]])
        assert not getattr(await store.vectors.search("w1", k=3), "approximate", False)
        assert await store.count() == 20
        await store.close()

    asyncio.run(body())


def test_a_ranking_says_that_it_was_found_approximately(tmp_path: Path) -> None:
    """In the trace, in JSON, and in the words of `why`, of hits and of ids that are not there."""
    from resift.pipeline.pipeline import Pipeline
    from resift.types import Ranking

    docs = [{"id": f"d{n}", "text": f"w{n % 7} w{n % 11} w{n}"} for n in range(2500)]

    async def body() -> None:
        store = SQLiteStore(tmp_path / "a.db", embedder=HashingEmbedder(), exact=False, create=True)
        await store.add(docs)
        # The default pipeline asks for 300 each, and so few documents are then all compared.
        ranking = await Pipeline([store.text, store.vectors]).search("w3 w5", k=3)
        notes = {record.source: record.note for record in ranking.trace if record.kind == "retrieve"}
        assert notes == {"sqlite.text": "", "sqlite.vectors": "approximate"}
        assert Ranking.from_json(ranking.to_json()).trace == ranking.trace
        (nearest, *_) = await store.vectors.search("w3 w5", k=1)
        assert "approximate" in ranking.why(nearest.id)
        assert "Approximate" in ranking.why("nobody")
        await store.close()

    asyncio.run(body())
