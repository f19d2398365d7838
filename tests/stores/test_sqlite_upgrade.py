"""Files of version 1 are opened, answered from and upgraded; nothing is lost, also when it is killed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from resift.errors import StoreError
from resift.stores.sqlite import SQLiteStore
from tests.stores.factories import HashingEmbedder

# The tables as Resift 0.1 made them.
VERSION_1 = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL,
    metadata TEXT NOT NULL);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE attributes (key TEXT NOT NULL, value TEXT NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (key, value, row)) WITHOUT ROWID;
CREATE TABLE removed (number INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL);
CREATE TABLE sources (path TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(text, content='documents', content_rowid='row',
    tokenize='porter unicode61 remove_diacritics 2');
PRAGMA application_id = 0x52534654;
PRAGMA user_version = 1;
"""
LONG = "a long value " * 10
DOCS = [
    {
        "id": f"d{n}",
        "text": f"running pandas w{n % 7} 東京の人口",
        "metadata": {"n": n, "even": n % 2 == 0, "long": LONG},
    }
    for n in range(30)
]


def version_1_file(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(VERSION_1)
    facts = {"generation": "3", "removals": "0", "embedder": "hashing-test", "dimension": "64"}
    facts["tokenizer"] = "porter unicode61 remove_diacritics 2"
    connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
    vectors = asyncio.run(HashingEmbedder().embed([doc["text"] for doc in DOCS], kind="document"))
    for doc, vector in zip(DOCS, vectors, strict=True):
        metadata = json.dumps(doc["metadata"], separators=(",", ":"))
        cursor = connection.execute(
            "INSERT INTO documents (id, text, metadata) VALUES (?, ?, ?)", (doc["id"], doc["text"], metadata)
        )
        row = cursor.lastrowid
        connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, doc["text"]))
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (row, vector.tobytes()))
        for key, value in doc["metadata"].items():
            kept = "#0123" if key == "long" else json.dumps(value)
            connection.execute("INSERT INTO attributes VALUES (?, ?, ?)", (key, kept, row))
    connection.execute("INSERT INTO sources VALUES ('a.txt', 'abc')")
    connection.commit()
    connection.close()


async def contents(store: SQLiteStore) -> Any:
    ids = await store.ids()
    vectors = {id: row.tolist() for id, row in (await store.vectors_of(ids)).items()}
    documents = [hit.to_dict() for hit in await store.get(ids)]
    return documents, vectors, await store.sources(), await store.count()


async def asked(store: SQLiteStore) -> Any:
    ranges: list[Any] = [{"n": {">": 25}}, {"n": {"!=": 3}}, {"n": {">": 5, "<=": 9}, "even": False}]
    filters = [None, {"n": 3}, {"even": True, "n": [4, 5]}, {"long": LONG}, *ranges]
    return [sorted(hit.id for hit in await store.search("pandas w3", k=40, where=where)) for where in filters]


def test_an_old_file_is_answered_from_and_upgraded_without_loss(tmp_path: Path) -> None:
    """The same documents, vectors and sources before and after; filters too; new words are found after."""
    path = tmp_path / "old.db"
    version_1_file(path)

    async def body() -> None:
        reader = SQLiteStore(path, embedder=HashingEmbedder(), read_only=True)
        store = SQLiteStore(path, embedder=HashingEmbedder())
        before, found = await contents(store), await asked(store)
        assert store.facts().version == 1
        assert (await store.search("run panda", k=1))[0].id
        assert await store.text.search("人口", k=3) == []
        with pytest.raises(StoreError, match=r"Resift 0\.1.*resift index --upgrade --store"):
            await store.add([{"id": "new", "text": "x"}])
        assert await store.upgrade()
        assert not await store.upgrade()
        for one in (store, reader):
            assert one.facts().version == 3
            assert await contents(one) == before
            assert await asked(one) == found
            assert len(await one.text.search("人口", k=50)) == len(DOCS)
        await store.add([{"id": "new", "text": "fresh words"}])
        assert await reader.count() == len(DOCS) + 1
        await store.close()
        await reader.close()

    asyncio.run(body())


UPGRADE = """
import asyncio, sys
from resift.stores.sqlite import SQLiteStore
from resift.text import Analyzer
store = SQLiteStore(sys.argv[1])
print("ready", flush=True)
asyncio.run(store.upgrade())
store.release()
"""


@pytest.mark.slow
def test_a_killed_upgrade_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """Whenever the process dies, the file opens and holds every document."""
    for delay_s in (0.0, 0.002, 0.01, 0.05):
        path = tmp_path / f"{delay_s}.db"
        version_1_file(path)
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
            store = SQLiteStore(path, embedder=HashingEmbedder())
            assert store.facts().version in (1, 2)
            assert len(await store.search("pandas", k=50)) == len(DOCS)
            await store.upgrade()
            assert len(await store.text.search("人口", k=50)) == len(DOCS)
            await store.close()

        asyncio.run(body())


def version_2_file(path: Path) -> None:
    """Write a file as Resift 0.2 does: version 2, without attributes for the items of lists."""
    from resift.stores.sqlite_schema import sign_facts

    documents = [
        {"id": "a", "text": "pandas one", "metadata": {"tags": ["account", "login"], "n": 1}},
        {"id": "b", "text": "pandas two", "metadata": {"tags": "login", "n": [2, 3]}},
    ]

    async def build() -> None:
        store = SQLiteStore(path, create=True)
        await store.add(documents)
        await store.close()

    asyncio.run(build())
    connection = sqlite3.connect(path)
    for table in ("attributes", "attribute_sums"):
        connection.execute(f"DELETE FROM {table} WHERE value = 'account' OR value IN (2, 3)")
    connection.execute("DELETE FROM attributes WHERE value = 'login' AND row = 1")
    connection.execute("UPDATE attribute_sums SET rows = 1, total = 2 WHERE value = 'login'")
    connection.execute("DELETE FROM facts WHERE name = 'lists'")
    sign_facts(connection)
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()


def test_lists_of_version_2_files_are_found_and_indexed_by_the_first_write(tmp_path: Path) -> None:
    """A reader finds them as the file is; a writer brings the file to this version without an upgrade."""
    path = tmp_path / "a.db"
    version_2_file(path)

    async def body() -> None:
        for read_only in (True, False):
            store = SQLiteStore(path, read_only=read_only)
            assert store.facts().version == 2
            assert await store.verify() == []
            assert await store.ids({"tags": "account"}) == ["a"]
            assert await store.ids({"tags": {"!=": "login"}}) == []
            assert await store.ids({"n": {">": 2}}) == ["b"]
            await store.close()
        store = SQLiteStore(path)
        await store.delete(["b"])
        await store.add([{"id": "c", "text": "pandas three", "metadata": {"tags": ["account"]}}])
        assert store.facts().version == 3
        assert await store.ids({"tags": "account"}) == ["a", "c"]
        assert await store.ids({"n": {">": 2}}) == []
        assert await store.verify() == []
        await store.close()

    asyncio.run(body())
