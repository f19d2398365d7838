"""SQLite files that are damaged, forked, read where nothing can be written, or cut off by a power loss."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from resift import Pipeline, Ranking
from resift.cli.main import main
from resift.errors import ResiftError, StoreError
from resift.stores.memory import MemoryStore
from resift.stores.sqlite import SQLiteStore
from tests.hardening.durability import power_test
from tests.stores.factories import STORES, HashingEmbedder

CANARY = "xylophone-canary"
DOCS = [
    {"id": f"d{n:03}", "text": f"{CANARY} w{n % 13} w{n % 7}", "metadata": {"n": n, "topic": f"t{n % 3}"}}
    for n in range(400)
]


def made(path: Path, documents: Sequence[Mapping[str, Any]] = DOCS, **options: Any) -> Path:
    store = SQLiteStore(path, embedder=HashingEmbedder(), create=True, **options)
    asyncio.run(store.add(documents))
    store.release()
    return path


def altered(path: Path, change: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()


async def answers(path: Path) -> Any:
    found = []
    for exact in (True, False):
        store = SQLiteStore(path, embedder=HashingEmbedder(), exact=exact, read_only=True)
        try:
            for where in (None, {"topic": "t1"}, {"n": {">": 300}}):
                for view in (store.text, store.vectors):
                    hits = await view.search("w3 w5", k=30, where=where)
                    found.append([(hit.id, hit.text, hit.score, dict(hit.metadata)) for hit in hits])
            found.append([hit.text for hit in await store.get(["d001", "d200"])])
        finally:
            store.release()
    return found


async def problems(path: Path) -> list[str]:
    store = SQLiteStore(path, read_only=True)
    try:
        return await store.verify()
    finally:
        store.release()


@pytest.mark.slow
def test_a_flipped_byte_is_told_or_harmless(tmp_path: Path) -> None:
    """Right answers, or an error of ours without text, also where only an index inside the file is hit."""
    path = made(tmp_path / "a.db", DOCS[:60])
    whole, right = path.read_bytes(), asyncio.run(answers(path))
    assert asyncio.run(problems(path)) == []
    chance = random.Random(4)
    silent: list[int] = []
    told: list[str] = []
    # Free space of a page is zeros; a bit changed there harms nobody.
    places = [at for at in range(100, len(whole)) if any(whole[at - 2 : at + 3])]
    for at in chance.sample(places, 40):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            silent += [] if asyncio.run(answers(path)) == right else [at]
        except ResiftError as exc:
            told.append(f"{exc!r} {exc.__cause__!r} {exc.__context__!r}")
    assert silent == []
    assert not any(CANARY in line for line in told)
    assert len(told) > 5


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("UPDATE postings SET first_term = first_term || 'x' WHERE first_term > ''", "postings"),
        ("DELETE FROM postings WHERE first_term > 'w5'", "postings"),
        ("DELETE FROM postings WHERE first_term = ''", "postings"),
        ("DELETE FROM postings", "postings"),
        ("UPDATE postings SET lists = zeroblob(length(lists))", "postings"),
        ("UPDATE postings SET lists = substr(lists, 1, 100)", "postings"),
        ("DELETE FROM attributes WHERE key = 'n' AND row = 350", "attributes"),
        ("UPDATE attribute_sums SET rows = rows + 1", "attributes"),
        ("UPDATE facts SET value = value + 1 WHERE name = 'documents'", "facts"),
        ("DELETE FROM facts WHERE name = 'tokens'", "facts"),
        ("UPDATE row_blocks SET generation = 9", "facts"),  # the page of the facts is from an earlier write
    ],
)
def test_what_only_leads_to_documents_is_checked_by_searches(tmp_path: Path, change: str, table: str) -> None:
    """Words, filters and facts that were changed behind our back are refused, not followed."""
    many = [{"id": f"e{n}", "text": " ".join(f"w{n * 7 + at}" for at in range(40))} for n in range(200)]
    path = made(tmp_path / "a.db", [*DOCS, *many])
    altered(path, change)
    with pytest.raises(StoreError, match=rf"is damaged \(table {table}.*move it away and index again"):
        asyncio.run(searched(path))
    if table != "facts":  # such a file is not even opened
        assert asyncio.run(problems(path))


async def searched(path: Path) -> None:
    store = SQLiteStore(path, embedder=HashingEmbedder(), read_only=True)
    try:
        for word in ("w1", "w5", "w500", "w999", "w1399", "wzz"):
            await store.text.search(word, k=5)
        await store.text.search(CANARY, k=5, where={"n": {">": 300}})
    finally:
        store.release()


def test_an_id_that_an_index_lost_is_refused(tmp_path: Path) -> None:
    """`get` and `add` do not take a document for absent because one index does not know it."""
    path = made(tmp_path / "a.db", DOCS[:5])
    whole = path.read_bytes()
    places = [at for at in range(len(whole)) if whole[at : at + 4] == b"d003"]
    refused = 0
    for at in places:  # in the table, in two indexes of it
        path.write_bytes(whole[:at] + b"d0x3" + whole[at + 4 :])
        store = SQLiteStore(path, embedder=HashingEmbedder())
        try:
            assert [hit.id for hit in asyncio.run(store.get(["d003"]))] == ["d003"]
            assert asyncio.run(store.ids()) == [one["id"] for one in DOCS[:5]]
        except StoreError as exc:
            refused += "is damaged" in str(exc)
        finally:
            store.release()
    assert (refused, len(places)) == (2, 3)  # the second index alone misleads nobody


async def test_every_way_of_writing_keeps_the_checksums(tmp_path: Path) -> None:
    """Adding, replacing, deleting, merging and moving out of sparse blocks leave a file that verifies."""
    store = SQLiteStore(tmp_path / "a.db", embedder=HashingEmbedder(), create=True)
    for start in range(0, 1200, 60):
        await store.add(
            {"id": f"d{n}", "text": f"w{n % 97} v{n}", "metadata": {"n": n % 5}} for n in range(start, start + 60)
        )
    await store.add({"id": f"d{n}", "text": f"u{n}", "metadata": {"n": 7, "m": 1.5}} for n in range(0, 300, 3))
    await store.delete([f"d{n}" for n in range(950)])
    await store.mark_sources({"a.md": "1"})
    assert await store.verify() == []
    await store.optimize()
    assert await store.verify() == []
    assert len(await store.text.search("w5", k=50)) == len([n for n in range(950, 1200) if n % 97 == 5])
    assert len(await store.ids({"n": {"!=": 2}})) == 200
    store.release()


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("UPDATE code_blocks SET codes = zeroblob(length(codes))", "code_blocks"),
        ("UPDATE code_blocks SET codes = substr(codes, 1, 100)", "code_blocks"),
        ("DELETE FROM code_blocks", "code_blocks"),
        ("UPDATE vectors SET vector = zeroblob(length(vector)) WHERE row = 7", "vectors"),
        ("DELETE FROM vectors WHERE row = 7", "vectors"),
        ("UPDATE documents SET text = 'other' WHERE row = 7", "documents"),
        ("UPDATE documents SET metadata = '{' WHERE row = 7", "documents"),
        ("UPDATE row_blocks SET lengths = zeroblob(4096)", "row_blocks"),
        ("UPDATE attributes SET row = 8 WHERE row = 7 AND key = 'n'", "filters"),
    ],
)
def test_changed_tables_are_named_with_the_remedy(tmp_path: Path, change: str, table: str) -> None:
    """What does not fit its checksum or the documents is refused by searches or found by `verify`."""
    path = made(tmp_path / "a.db")
    altered(path, change)
    assert any(table in problem for problem in asyncio.run(problems(path)))
    remedy = "resift store optimize" if table == "code_blocks" else "move it away and index again"
    if table != "filters":
        with pytest.raises(StoreError, match=rf"is damaged \(table {table}.*{remedy}"):
            asyncio.run(all_of(path))


@pytest.mark.parametrize(
    "change", ["SET codes = zeroblob(length(codes))", "SET codes = substr(codes, 1, 100)", "SET block = 7"]
)
def test_damaged_codes_are_made_anew_from_the_vectors(tmp_path: Path, change: str) -> None:
    """`store optimize` is the remedy that the error names: the same answers as before, nothing wrong left."""
    path = made(tmp_path / "a.db")
    right = asyncio.run(answers(path))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE code_blocks {change}")
        connection.commit()
    assert main(["store", "optimize", str(path)]) == 0
    assert asyncio.run(answers(path)) == right
    assert asyncio.run(problems(path)) == []


async def all_of(path: Path) -> None:
    for exact in (True, False):
        store = SQLiteStore(path, embedder=HashingEmbedder(), exact=exact, read_only=True)
        try:
            await store.vectors.search(CANARY, k=400)
            await store.text.search(CANARY, k=400)
        finally:
            store.release()


def test_readers_leave_nothing_beside_the_file(tmp_path: Path) -> None:
    """-wal and -shm go when the last reader closes, and not before another has finished."""
    path = made(tmp_path / "a.db")
    first = SQLiteStore(path, read_only=True)
    second = SQLiteStore(path, read_only=True)
    assert asyncio.run(first.search("w3", k=1))
    first.release()
    assert asyncio.run(second.search("w3", k=1))
    second.release()
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of folders are those of POSIX")
def test_a_reader_in_a_folder_it_cannot_write_sees_every_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks the file's stamp says that it changed; a file that changes all the time is an error."""
    path = made(tmp_path / "a.db")
    writable = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK and writable(place, mode))
    reader = SQLiteStore(path, embedder=HashingEmbedder(), read_only=True)
    assert len(asyncio.run(reader.search("unheard", k=3))) == 3
    for step in range(3):
        writer = SQLiteStore(path, embedder=HashingEmbedder())
        asyncio.run(writer.add([{"id": f"new{step}", "text": f"unheard{step} word"}]))
        assert asyncio.run(reader.text.search(f"unheard{step}", k=1))[0].id == f"new{step}"
        writer.release()
        assert asyncio.run(reader.text.search(f"unheard{step}", k=1))[0].id == f"new{step}"
        assert asyncio.run(reader.count()) == len(DOCS) + step + 1
    reader.release()


def _in_child(store: Any, answer: Any) -> None:
    async def body() -> Any:
        hits = await store.search("pandas bamboo", k=3)
        await store.add([{"id": "child", "text": "from the child"}])
        return [hit.id for hit in hits], await store.count()

    answer.send(asyncio.run(body()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kind", ["memory-hybrid", "sqlite-hybrid", "postgres-hybrid", "qdrant-vector"])
@pytest.mark.slow
def test_a_store_used_before_a_fork_works_in_the_child(tmp_path: Path, kind: str) -> None:
    """Servers fork: the child searches and writes, and the parent goes on."""

    async def body() -> None:
        async with STORES[kind][1](tmp_path) as store:
            await store.add([{"id": "p", "text": "pandas eat bamboo"}, {"id": "t", "text": "trains"}])
            before = await store.search("pandas bamboo", k=3)
            there, here = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=_in_child, args=(store, here))
            child.start()
            assert await asyncio.to_thread(there.poll, 30), "the child hangs"
            found, count = there.recv()
            child.join(10)
            assert found == [hit.id for hit in before]
            assert count == 3
            assert (await store.search("pandas bamboo", k=3))[0].id == "p"

    asyncio.run(body())


def _refused(store: Any, answer: Any) -> None:
    try:
        asyncio.run(store.search("pandas", k=1))
    except StoreError as exc:
        answer.send(str(exc))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.slow
def test_lancedb_says_that_it_does_not_survive_a_fork(tmp_path: Path) -> None:
    """Its threads are gone in the child: one clear error instead of waiting for them for ever."""

    async def body() -> None:
        async with STORES["lancedb-text"][1](tmp_path) as store:
            await store.add([{"id": "p", "text": "pandas eat bamboo"}])
            there, here = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=_refused, args=(store, here))
            child.start()
            assert await asyncio.to_thread(there.poll, 30), "the child hangs"
            assert "spawn or forkserver" in there.recv()
            child.kill()
            child.join(10)
            assert await store.search("pandas", k=1)

    asyncio.run(body())


@pytest.mark.slow
def test_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """Eight cuts here, a hundred in `python -m tests.hardening.durability --cuts 100`."""
    report = power_test(tmp_path, cuts=8, seed=3)
    assert (report["lost"], report["damaged"]) == (0, 0)
    assert report["acknowledged"] > 0


OPTIMISE = """
import asyncio, sys
from resift.stores.sqlite import SQLiteStore
from tests.stores.factories import HashingEmbedder

async def main():
    store = SQLiteStore(sys.argv[1], embedder=HashingEmbedder())
    for turn in range(10**6):
        await store.add([{"id": f"new{turn}", "text": f"fresh words w{turn}"}])
        print(turn, flush=True)
        await store.optimize()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_killed_while_it_optimizes_loses_nothing(tmp_path: Path) -> None:
    """Wherever it dies, every document is there, and words and codes fit."""
    path = made(tmp_path / "a.db")
    for delay_s in (0.0, 0.004, 0.02):
        process = subprocess.Popen([sys.executable, "-c", OPTIMISE, str(path)], stdout=subprocess.PIPE)
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(2)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
        process.wait()
        process.stdout.close()
        acknowledged = [int(line) for line in lines if line.endswith(b"\n")]
        assert asyncio.run(problems(path)) == []
        store = SQLiteStore(path, embedder=HashingEmbedder(), exact=False, read_only=True)
        for turn in acknowledged:
            assert [hit.id for hit in asyncio.run(store.text.search(f"w{turn} fresh", k=1))] == [f"new{turn}"]
        assert asyncio.run(store.count()) >= len(DOCS) + len(acknowledged)
        store.release()


def ranked(path: Path, k: int) -> Ranking:
    """Search words with a pipeline whose second store is intact; the file is closed afterwards."""
    other = MemoryStore(name="memory")
    asyncio.run(other.add([{"id": "m1", "text": "w3 w5"}]))
    store = SQLiteStore(path, read_only=True)
    try:
        return Pipeline([store.text, other], k=k).rank("w3 w5")
    finally:
        store.release()


def test_hits_that_are_not_returned_keep_their_content_after_close(tmp_path: Path) -> None:
    """Text and metadata are decoded at their first use, which may be after the file is gone."""
    path = made(tmp_path / "a.db")
    ranking = ranked(path, k=5)
    path.unlink()
    known = {doc["id"]: doc for doc in DOCS}
    stored = [hit for hit in (*ranking, *ranking.cut) if hit.id in known]
    assert len(stored) > 50
    for hit in stored:
        assert (hit.text, hit.metadata) == (known[hit.id]["text"], known[hit.id]["metadata"])


class SyncStore:
    """An index file with synchronous methods."""

    def __init__(self, path: Path) -> None:
        self.store = SQLiteStore(path, embedder=HashingEmbedder())
        self.close = self.store.release

    def search_lazy(self, query: str) -> list[Any]:
        return asyncio.run(self.store.text.search_lazy(query, k=300))

    def add(self, documents: list[dict[str, str]]) -> None:
        asyncio.run(self.store.add(documents))

    def delete(self, ids: list[str]) -> None:
        asyncio.run(self.store.delete(ids))


def test_hits_keep_the_texts_of_their_search_when_the_store_changes(tmp_path: Path) -> None:
    """Most texts are read after the search, but before the store replaces or deletes their documents."""
    path = made(tmp_path / "a.db")
    with contextlib.closing(SyncStore(path)) as store:
        hits = store.search_lazy("w3 w5")
        assert not hits[-1]._text.is_read([hits[-1].id])
        known = {doc["id"]: doc["text"] for doc in DOCS}
        store.add([{"id": hit.id, "text": "changed"} for hit in hits[::2]])
        store.delete([hit.id for hit in hits[1::2]])
        assert [hit.text for hit in hits] == [known[hit.id] for hit in hits]


def test_a_text_that_another_process_removed_after_the_search_raises(tmp_path: Path) -> None:
    """No other text is shown, and a pipeline searches again."""
    path = made(tmp_path / "a.db")
    with contextlib.closing(SyncStore(path)) as store, contextlib.closing(SyncStore(path)) as other:
        last = store.search_lazy("w3 w5")[-1]
        other.delete([last.id])
        with pytest.raises(StoreError, match="Search again"):
            str(last.text)


def test_a_damaged_document_among_the_results_fails_its_store(tmp_path: Path) -> None:
    """The ranking is degraded, names the store and the row, and has the hits of the other store."""
    path = made(tmp_path / "a.db")
    best = next(hit.id for hit in ranked(path, k=5) if hit.id != "m1")
    altered(path, f"UPDATE documents SET text = text || '!' WHERE id = '{best}'")
    ranking = ranked(path, k=5)
    assert ranking.degraded
    assert "documents" in ranking.failures["sqlite.text"]
    assert [hit.id for hit in (*ranking, *ranking.cut)] == ["m1"]


def test_a_damaged_document_below_the_results_is_never_shown(tmp_path: Path) -> None:
    """The results stay; the text of the damaged hit raises instead of being wrong."""
    path = made(tmp_path / "a.db")
    last = ranked(path, k=5).cut[-1].id
    altered(path, f"UPDATE documents SET metadata = '{{}}' WHERE id = '{last}'")
    ranking = ranked(path, k=5)
    assert len(ranking) == 5
    assert not ranking.degraded
    with pytest.raises(StoreError, match="damaged"):
        _ = ranking.cut[-1].metadata


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_is_no_index(tmp_path):
    """Opening a pipe read-only waited for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        for options in ({"read_only": True}, {"create": True}, {}):
            with pytest.raises(StoreError, match="is not a file"):
                SQLiteStore(path, **options)
