"""QdrantVectorStore beyond the contract: a folder on disk, payloads, a server that is not there."""

from __future__ import annotations

import asyncio
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

from resift.errors import InputError, StoreError
from resift.stores.backend import hash_id
from resift.stores.qdrant import QdrantVectorStore, make_point_id
from tests.lazy import LazyModule
from tests.stores.factories import HashingEmbedder

qdrant_client = LazyModule("qdrant_client")

pytestmark = pytest.mark.skipif(find_spec("qdrant_client") is None, reason="needs resift[qdrant]")


def test_a_folder_keeps_the_documents(tmp_path: Path) -> None:
    """Closed and opened again, the same search gives the same hits."""

    async def search() -> list[tuple[str, float]]:
        store = QdrantVectorStore("docs", path=tmp_path, embedder=HashingEmbedder())
        if not await store.count():
            await store.add([{"id": f"d{n}", "text": f"apples {n}"} for n in range(5)])
        hits = await store.search("apples 3", k=3)
        await store.close()
        return [(hit.id, hit.score) for hit in hits]

    first = asyncio.run(search())
    assert first[0][0] == "d3"
    assert asyncio.run(search()) == first


def test_points_have_uuids_and_the_payload_has_the_rest() -> None:
    """Any string is an id; the same id is the same point everywhere."""
    assert uuid.UUID(make_point_id(hash_id("a"))).version == 5
    assert make_point_id(hash_id("a")) == make_point_id(hash_id("a")) != make_point_id(hash_id("b"))

    async def body() -> None:
        client = qdrant_client.QdrantClient(":memory:")
        store = QdrantVectorStore("docs", client=client, embedder=HashingEmbedder())
        await store.add([{"id": "a b/c'\"", "text": "apples", "metadata": {"n": 1}}])
        (point,) = client.retrieve("docs", [make_point_id(hash_id("a b/c'\""))])
        assert {name: point.payload[name] for name in ("id", "text", "metadata")} == {
            "id": "a b/c'\"",
            "text": "apples",
            "metadata": {"n": 1},
        }
        await store.close()
        assert await store.count() == 1
        client.close()

    asyncio.run(body())


def test_an_unreachable_server_is_a_transient_store_error() -> None:
    """Without the key in the message."""

    async def body() -> None:
        store = QdrantVectorStore(url="http://127.0.0.1:1", embedder=HashingEmbedder(), timeout_s=1)
        with pytest.raises(StoreError) as caught:
            await store.search("apples", k=1)
        assert caught.value.transient
        await store.close()

    asyncio.run(body())


def test_one_place_must_be_named() -> None:
    """None, or two of them, is a mistake."""
    with pytest.raises(InputError, match="exactly one"):
        QdrantVectorStore(embedder=HashingEmbedder())
    with pytest.raises(InputError, match="exactly one"):
        QdrantVectorStore(url="http://127.0.0.1:1", path="x", embedder=HashingEmbedder())
