"""A folder with a small real index, and a way to write pipeline files into it."""

from __future__ import annotations

import asyncio
import textwrap

import pytest

from resift.stores import SQLiteStore

TEXTS = {
    "d1": "The breaker opens after three failures.",
    "d2": "A cross-encoder reads the question and the passage together.",
    "d3": "Reciprocal rank fusion adds up one over sixty plus the rank.",
}


@pytest.fixture
def folder(tmp_path):
    async def fill():
        store = SQLiteStore(tmp_path / "docs.db", name="docs", create=True)
        await store.add([{"id": id, "text": text} for id, text in TEXTS.items()])
        await store.close()

    asyncio.run(fill())
    return tmp_path


@pytest.fixture
def write(folder):
    def write(text: str, name: str = "pipeline.yaml"):
        file = folder / name
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    return write
