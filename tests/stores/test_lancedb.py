"""LanceDBVectorStore beyond the contract: reopening, other handles, other embedders, hostile input."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from resift.errors import InputError, StoreError
from resift.stores.lancedb import LanceDBVectorStore
from tests.stores.factories import HashingEmbedder

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="needs resift[lancedb]")

HOSTILE = "x' OR 1=1; --\x00 \ud800 \" ` %s {}"


def test_a_table_is_there_after_reopening_and_seen_by_other_handles(tmp_path: Path) -> None:
    """What one handle adds or deletes, another one finds, by words too."""

    async def body() -> None:
        one, two = (LanceDBVectorStore(tmp_path, "docs", mode="text") for _ in range(2))
        await one.add([{"id": "a", "text": "red apples"}])
        assert [hit.id for hit in await two.search("apples", k=5)] == ["a"]
        await one.add([{"id": "b", "text": "green apples"}])
        assert [hit.id for hit in await two.search("apples", k=5)] == ["a", "b"]
        await two.delete(["a"])
        assert [hit.id for hit in await one.search("apples", k=5)] == ["b"]
        await one.close()
        assert await one.count() == 1

    asyncio.run(body())


def test_documents_are_kept_exactly_and_nothing_in_them_is_syntax(tmp_path: Path) -> None:
    """Quotes, NUL and lone surrogates in ids, texts, keys and values."""

    async def body() -> None:
        store = LanceDBVectorStore(tmp_path, embedder=HashingEmbedder(), mode="hybrid")
        document = {"id": HOSTILE, "text": HOSTILE, "metadata": {HOSTILE: HOSTILE, "nested": {"a": [1, None]}}}
        await store.add([document, {"id": "other", "text": "other"}])
        (held,) = await store.get([HOSTILE])
        assert (held.id, held.text, held.metadata) == (HOSTILE, HOSTILE, document["metadata"])
        assert [hit.id for hit in await store.search("x OR", k=5, where={HOSTILE: HOSTILE})] == [HOSTILE]
        assert await store.delete(["' OR '1'='1"]) == 0
        assert await store.delete([HOSTILE]) == 1
        assert await store.count() == 1

    asyncio.run(body())


def test_vectors_of_another_embedder_are_refused(tmp_path: Path) -> None:
    """The table remembers its embedder."""

    async def body() -> None:
        await LanceDBVectorStore(tmp_path, embedder=HashingEmbedder()).add([{"id": "a", "text": "b"}])
        other = LanceDBVectorStore(tmp_path, embedder=HashingEmbedder(dimension=32, name="other"))
        with pytest.raises(StoreError, match="'hashing-test', not from 'other'"):
            await other.search("b", k=1)

    asyncio.run(body())


def test_many_documents_are_replaced_and_deleted_in_batches(tmp_path: Path) -> None:
    """More ids than one statement takes."""

    async def body() -> None:
        store = LanceDBVectorStore(tmp_path, mode="text")
        documents: list[dict[str, Any]] = [{"id": f"d{n}", "text": f"word{n % 7}"} for n in range(1300)]
        await store.add(documents)
        await store.add(documents)
        ids = [document["id"] for document in documents]
        assert await store.count() == 1300
        assert [hit.id for hit in await store.get(ids)] == ids
        assert await store.delete(ids[:1299]) == 1299
        assert await store.count() == 1

    asyncio.run(body())


def test_a_mode_that_needs_vectors_needs_an_embedder(tmp_path: Path) -> None:
    """Refused when built, not when asked."""
    with pytest.raises(InputError, match="embedder"):
        LanceDBVectorStore(tmp_path, mode="hybrid")


def test_lists_are_found_in_tables_that_were_written_without_their_tags(tmp_path: Path) -> None:
    """Tables of Resift 0.2 say nothing about tags of lists: their rows are tested one by one."""
    import lancedb
    import pyarrow

    async def body() -> None:
        store = LanceDBVectorStore(tmp_path, "docs", mode="text")
        await store.add([{"id": "a", "text": "red apples", "metadata": {"tags": ["food", "red"]}}])
        await store.close()
        connection = lancedb.connect(tmp_path)
        rows = connection.open_table("docs").to_arrow()
        notes = {b"resift.embedder": b"", b"resift.language": b"auto"}
        tags = pyarrow.array([[]], rows.schema.field("tags").type)
        old = rows.set_column(rows.schema.get_field_index("tags"), "tags", tags)
        connection.create_table("docs", old.replace_schema_metadata(notes), mode="overwrite")
        store = LanceDBVectorStore(tmp_path, "docs", mode="text")
        assert [hit.id for hit in await store.search("apples", k=5, where={"tags": "red"})] == ["a"]
        assert await store.search("apples", k=5, where={"tags": "green"}) == []
        await store.close()

    asyncio.run(body())
