"""Files of earlier versions: read as they are, converted by the first write, refused if they are from 0.1."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from resift.errors import StoreError
from resift.stores.sqlite import SQLiteStore
from tests.stores.factories import HashingEmbedder

DATA = Path(__file__).parent / "data"
"""A file written by Resift 0.2 (version 2), and its answers."""

QUERIES = ("pandas w3", "人口 running", "replaced café")
FILTERS: tuple[Any, ...] = (
    None,
    {"n": {">": 5}},
    {"even": True},
    {"tags": "b"},
    {"day": {">=": "2024-05-10"}},
    {"long": "x" * 250},
)


def unpack(folder: Path) -> Path:
    path = folder / "version_2.db"
    path.write_bytes(gzip.decompress((DATA / "index_version_2.db.gz").read_bytes()))
    return path


async def search_all(store: SQLiteStore) -> Any:
    return [
        [[hit.id, hit.score] for hit in await view.search(query, k=6, where=where)]
        for query in QUERIES
        for where in FILTERS
        for view in (store.text, store.vectors)
    ]


async def read_all(store: SQLiteStore) -> Any:
    ids = await store.ids()
    vectors = {id: row.tolist() for id, row in (await store.get_vectors(ids)).items()}
    documents = [hit.to_dict() for hit in await store.get(ids)]
    return documents, vectors, await store.sources(), await store.count()


def test_an_older_file_gives_the_answers_it_always_gave(tmp_path: Path) -> None:
    """Before the conversion, after it, and to a reader that was open during it."""
    path = unpack(tmp_path)
    expected = json.loads((DATA / "index_answers.json").read_text(encoding="utf-8"))

    async def body() -> None:
        reader = SQLiteStore(path, embedder=HashingEmbedder(16), read_only=True)
        store = SQLiteStore(path, embedder=HashingEmbedder(16))
        before = await read_all(store)
        assert store.metadata().version == 2
        assert await search_all(reader) == expected
        assert await reader.verify() == []
        assert await store.upgrade()
        assert not await store.upgrade()
        for opened in (store, reader):
            assert opened.metadata().version == 4
            assert await read_all(opened) == before
            assert await search_all(opened) == expected
            assert await opened.verify() == []
        await store.close()
        await reader.close()

    asyncio.run(body())


def test_the_first_write_converts_an_older_file(tmp_path: Path) -> None:
    """Items of lists are then indexed, and the keyword index is in the current format."""
    path = unpack(tmp_path)

    async def body() -> None:
        store = SQLiteStore(path, embedder=HashingEmbedder(16))
        assert len(await store.ids({"tags": "b"})) == 15
        await store.delete(["d01"])
        await store.add([{"id": "new", "text": "fresh words", "metadata": {"tags": ["b"]}}])
        assert store.metadata().version == 4
        assert len(await store.ids({"tags": "b"})) == 15
        assert [hit.id for hit in await store.text.search("fresh", k=3)] == ["new"]
        assert await store.verify() == []
        await store.close()

    asyncio.run(body())
    with closing(sqlite3.connect(path)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "postings" in names
    assert not any(name.startswith("term") for name in names)


def test_a_failed_write_leaves_an_older_file_as_it_was(tmp_path: Path) -> None:
    """The conversion is part of the transaction and goes with it."""
    path = unpack(tmp_path)

    async def body() -> None:
        store = SQLiteStore(path, embedder=HashingEmbedder(8, name="hashing-test"))
        with pytest.raises(StoreError, match="16 dimensions"):
            await store.add([{"id": "new", "text": "fresh"}])
        assert store.metadata().version == 2
        assert len(await store.text.search("pandas", k=50)) == 22
        await store.close()

    asyncio.run(body())


def test_a_file_of_version_1_is_refused_with_the_command_that_rebuilds_it(tmp_path: Path) -> None:
    """Nothing in it is changed."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE documents (row INTEGER PRIMARY KEY)")
        connection.execute("PRAGMA application_id = 0x52534654")
        connection.execute("PRAGMA user_version = 1")
    content = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(StoreError, match=r"Resift 0\.1.*resift index FOLDER --store"):
            SQLiteStore(path, read_only=read_only)
    assert path.read_bytes() == content


UPGRADE = """
import asyncio, sys
from resift.stores.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
print("ready", flush=True)
asyncio.run(store.upgrade())
store.release()
"""


@pytest.mark.slow
def test_a_killed_upgrade_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """Whenever the process dies, the file opens and has every document."""
    for delay_s in (0.0, 0.002, 0.01, 0.05):
        path = unpack(tmp_path)
        process = subprocess.Popen([sys.executable, "-c", UPGRADE, str(path)], stdout=subprocess.PIPE)
        assert process.stdout
        process.stdout.readline()
        until = time.monotonic() + delay_s
        while time.monotonic() < until and process.poll() is None:
            pass
        process.kill()
        process.wait()
        process.stdout.close()

        async def body(path: Path = path) -> None:
            store = SQLiteStore(path, embedder=HashingEmbedder(16))
            assert store.metadata().version in (2, 4)
            assert len(await store.text.search("pandas", k=50)) == 22
            assert await store.verify() == []
            await store.close()

        asyncio.run(body())
        for leftover in tmp_path.glob("version_2.db*"):
            leftover.unlink()
