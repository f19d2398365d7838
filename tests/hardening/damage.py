"""Files with one byte changed: the damage is named or does no harm; never another answer or a raw error."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from resift.errors import ResiftError
from resift.rerankers import SQLiteScores
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, Ranking
from tests.hardening.report import Outcome

WORDS = [
    "river",
    "stone",
    "bread",
    "honey",
    "glass",
    "winter",
    "letter",
    "garden",
    "music",
    "paper",
    "silver",
    "engine",
    "forest",
    "bridge",
    "candle",
]
QUESTIONS = ("river stone", "honey", "silver engine forest", "candle letter")


class SeededEmbedder:
    """A vector that depends on the text alone."""

    name = "seeded"

    async def embed(self, texts: Any, *, kind: str) -> Any:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        rows = np.stack([np.random.default_rng(seed).standard_normal(16, dtype=np.float32) for seed in seeds])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def attack(seed: int, count: int) -> Outcome:
    """Change one byte in `count` copies of SQLite files, caches of scores and vectors, and JSON rankings."""
    outcome = Outcome("files with one byte changed")
    draw = random.Random(seed)
    seen: Counter[str] = Counter()
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for make, share in ((_SQLite, 0.8), (_Scores, 0.1), (_RankingFile, 0.1)):
                case = make(Path(folder))
                for _ in range(max(1, round(count * share))):
                    outcome.tried += 1
                    _flip(outcome, case, draw, seen)
    finally:
        logging.disable(logging.NOTSET)
    outcome.figures = dict(seen)
    return outcome


def _flip(outcome: Outcome, case: Any, draw: random.Random, seen: Counter[str]) -> None:
    data = bytearray(case.whole)
    at, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
    data[at] ^= bit
    name = f"{type(case).__name__.strip('_')}, byte {at} of {len(data)}, bit {bit}"
    try:
        answer = case.answer(bytes(data))
    except ResiftError as exc:
        seen["named"] += 1
        outcome.check(not any(word in str(exc) for word in ("river", "honey")), f"{name}: text in {exc}")
        return
    except Exception as exc:
        outcome.fail(f"{name}: raw {type(exc).__name__}: {exc}")
        return
    if case.may_differ or answer == case.expected:
        seen["harmless"] += 1
    elif answer == "degraded":
        seen["named"] += 1
    else:
        outcome.fail(f"{name}: another answer, nothing said")


class _Case:
    """A sound file, what it answers, and a way to ask a damaged copy."""

    may_differ = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{type(self).__name__.strip('_')}.file"
        self.make()
        self.whole = self.path.read_bytes()
        self.expected = self.answer(self.whole)

    def make(self) -> None: ...

    def answer(self, data: bytes) -> Any:
        for leftover in self.path.parent.glob(self.path.name + "*"):
            leftover.unlink()
        self.path.write_bytes(data)
        return self.ask()

    def ask(self) -> Any: ...


class _SQLite(_Case):
    """Documents, words and vectors in one file."""

    def make(self) -> None:
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        draw = random.Random(5)
        store = SQLiteStore(self.path, embedder=SeededEmbedder(), create=True)
        await store.add(
            {
                "id": f"d{at}",
                "text": " ".join(draw.choices(WORDS, k=12)),
                "metadata": {"n": at, "w": WORDS[at % 9]},
            }
            for at in range(60)
        )
        await store.close()

    def ask(self) -> Any:
        return asyncio.run(self._asked())

    async def _asked(self) -> Any:
        store = SQLiteStore(self.path, embedder=SeededEmbedder())
        try:
            found = [await store.search(question, k=8) for question in QUESTIONS]
            found.append(await store.search("river", k=8, where={"w": "glass"}))
            found.append(sorted(await store.get([f"d{at}" for at in range(60)]), key=lambda hit: hit.id))
            return [[(hit.id, hit.text, hit.score, dict(hit.metadata)) for hit in hits] for hits in found]
        finally:
            await store.close()


class _Scores(_Case):
    """Cached scores; one that is lost is asked for again, one that is wrong would not be."""

    KEYS = tuple(hashlib.sha256(word.encode()).digest() for word in WORDS)

    def make(self) -> None:
        store = SQLiteScores(self.path)
        store.put_many({key: at / 7 for at, key in enumerate(self.KEYS)})
        store.close()

    def ask(self) -> Any:
        store = SQLiteScores(self.path)
        try:
            found = store.get_many(self.KEYS)
        except sqlite3.Error:  # `CachedScorer` goes on without it and says so
            return True
        finally:
            store.close()
        return all(found.get(key, at / 7) == at / 7 for at, key in enumerate(self.KEYS))


class _RankingFile(_Case):
    """A ranking as JSON: text has no checksum, so another answer is the file's own; only raw errors count."""

    may_differ = True

    def make(self) -> None:
        hits = [Hit(f"d{at}", word, 1.0 / (at + 1), "s", {"n": at}) for at, word in enumerate(WORDS)]
        self.path.write_text(Ranking(hits).to_json(), encoding="utf-8")

    def ask(self) -> Any:
        ranking = Ranking.from_json(self.path.read_bytes().decode("utf-8", "replace"))
        steps: list[Callable[[], Any]] = [ranking.to_json, ranking.public, lambda: ranking.explain().text()]
        return [json.dumps(step(), default=str) for step in steps]
