"""Every store under contract: name -> async context manager that yields an empty store.

To put a store under contract, add one entry to STORES. Its engine must be real; where the engine is an
optional package, the entry's context manager calls pytest.importorskip.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import pytest

from resift.stores.memory import MemoryStore
from resift.stores.sqlite import SQLiteStore, vector_index
from resift.text import words


@dataclass
class HashingEmbedder:
    """Bag of hashed words as unit vectors: deterministic, and alike texts get alike vectors."""

    dimension: int = 64
    name: str = "hashing-test"
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Any:
        self.asked.append((kind, len(texts)))
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for at, text in enumerate(texts):
            row = rows[at]
            for word in words(text):
                digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
                row[int.from_bytes(digest[:4], "big") % self.dimension] += 1 if digest[4] % 2 else -1
            row /= np.linalg.norm(row) or 1
        return rows


Factory = Callable[[Path], AbstractAsyncContextManager[Any]]


@contextlib.asynccontextmanager
async def memory(_folder: Path) -> AsyncIterator[MemoryStore]:
    yield MemoryStore(HashingEmbedder(), mode="vector")


@contextlib.asynccontextmanager
async def memory_text(_folder: Path) -> AsyncIterator[MemoryStore]:
    yield MemoryStore(name="memory")


@contextlib.asynccontextmanager
async def memory_hybrid(_folder: Path) -> AsyncIterator[MemoryStore]:
    yield MemoryStore(HashingEmbedder(), mode="hybrid")


def sqlite(mode: Literal["hybrid", "text", "vector"], *, exact: bool | None = None) -> Factory:
    @contextlib.asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[SQLiteStore]:
        embedder = None if mode == "text" else HashingEmbedder()
        store = SQLiteStore(folder / "index.db", embedder=embedder, mode=mode, exact=exact, create=True)
        try:
            # Few documents are all compared; with small batches the codes choose among them, too.
            with mock.patch.object(vector_index, "_BATCH", 4 if exact is False else vector_index._BATCH):
                yield store
        finally:
            await store.close()

    return opened


def indexed(store: Any) -> Any:
    """Return the store with its engine's own vector index renewed after every write."""
    add = store.add

    async def add_and_optimize(documents: Any) -> int:
        added: int = await add(documents)
        await store.optimize()
        return added

    store.add = add_and_optimize
    return store


def lancedb(mode: Literal["hybrid", "text", "vector"], *, index: Any = None) -> Factory:
    @contextlib.asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Any]:
        pytest.importorskip("lancedb")
        from resift.stores.lancedb import LanceDBVectorStore

        embedder = None if mode == "text" else HashingEmbedder()
        store = LanceDBVectorStore(folder / "lance", "docs", embedder=embedder, mode=mode, index=index or "hnsw")
        try:
            yield indexed(store) if index else store
        finally:
            await store.close()

    return opened


def postgres(mode: Literal["hybrid", "text", "vector"], *, index: Any = None) -> Factory:
    @contextlib.asynccontextmanager
    async def opened(_folder: Path) -> AsyncIterator[Any]:
        pytest.importorskip("psycopg")
        from resift.stores.postgres import PostgresStore
        from tests.stores.postgres_server import dsn, fresh_table

        embedder = None if mode == "text" else HashingEmbedder()
        store = PostgresStore(dsn(), table=fresh_table(), embedder=embedder, mode=mode, index=index or "hnsw-half")
        try:
            yield indexed(store) if index else store
        finally:
            await store.close()

    return opened


@contextlib.asynccontextmanager
async def qdrant(_folder: Path) -> AsyncIterator[Any]:
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    from resift.stores.qdrant import QdrantVectorStore

    try:
        yield QdrantVectorStore(client=client, embedder=HashingEmbedder())
    finally:
        client.close()


STORES: dict[str, tuple[str, Factory]] = {
    "memory-vector": ("vector", memory),
    "memory-text": ("text", memory_text),
    "memory-hybrid": ("hybrid", memory_hybrid),
    "sqlite-hybrid": ("hybrid", sqlite("hybrid")),
    "sqlite-text": ("text", sqlite("text")),
    "sqlite-vector": ("vector", sqlite("vector")),
    "sqlite-codes": ("vector", sqlite("vector", exact=False)),
    "sqlite-codes-hybrid": ("hybrid", sqlite("hybrid", exact=False)),
    "lancedb-hnsw": ("vector", lancedb("vector", index="hnsw")),
    "postgres-half": ("vector", postgres("vector", index="hnsw-half")),
    "lancedb-hybrid": ("hybrid", lancedb("hybrid")),
    "lancedb-text": ("text", lancedb("text")),
    "lancedb-vector": ("vector", lancedb("vector")),
    "postgres-hybrid": ("hybrid", postgres("hybrid")),
    "postgres-text": ("text", postgres("text")),
    "postgres-vector": ("vector", postgres("vector")),
    "qdrant-vector": ("vector", qdrant),
}
"""Test id -> (how it finds: "vector", "text" or "hybrid"; its factory)."""
