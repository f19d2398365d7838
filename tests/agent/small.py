"""A pack that needs no model: words as vectors, eight short articles, links of every kind."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import numpy as np

from resift.agent import build_pack
from resift.text import words

ARTICLES = {
    "apple.md": "# Apple\n\nAn apple is the fruit of the [[Apple tree]]. Cider is pressed from apples.\n\n"
    "## Storage\n\nApples keep in a cool cellar for months. See [pears](pear.md) for another fruit.\n",
    "apple-tree.md": "# Apple tree\n\nThe apple tree blossoms in May. Bees visit its flowers, see [[Bee|the bee]].\n",
    "pear.md": "# Pear\n\nA pear is sweet and soft. It grows near the [[apple TREE#Blossom]].\n",
    "bee.html": "<html><head><title>Bee</title></head><body><nav><a href='pear.md'>no</a></nav><main>"
    "<h1>Bee</h1><p>A bee makes honey from <a href='apple-tree.md'>blossoms</a>. A hive holds 40,000 bees."
    "</p></main></body></html>",
    "more.jsonl": '{"title": "Honey", "text": "Honey is made by the [[Bee]]. It never spoils.", '
    '"links": ["Apple"]}\n'
    '{"id": "w1", "title": "Wax", "text": "== Use ==\\nWax from the hive becomes candles.", '
    '"links": [{"title": "Bee"}]}\n'
    '{"title": "Candle", "text": "A candle of wax burns for 12 hours.", "links": ["w1", "Nowhere"]}\n',
}


class WordEmbedder:
    """Hashes words into 64 dimensions: deterministic, quick, and near where words are shared."""

    model_name = "test/words"

    def __init__(self, *, fail_after: int | None = None) -> None:
        self.fail_after = fail_after
        self.calls: list[int] = []

    async def embed(self, texts, *, kind):
        await asyncio.sleep(0)
        self.calls.append(len(texts))
        if self.fail_after is not None and sum(self.calls) > self.fail_after:
            raise RuntimeError("embedder down")
        rows = np.full((len(texts), 64), 1e-3, dtype=np.float32)
        for at, text in enumerate(texts):
            for word in words(text):
                rows[at, hashlib.sha256(word.rstrip("s").encode()).digest()[0] % 64] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def write_sources(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ARTICLES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def small_pack(folder: Path) -> Path:
    target = folder / "small.lbug"
    asyncio.run(build_pack(write_sources(folder / "sources"), target, embedder=WordEmbedder()))
    return target
