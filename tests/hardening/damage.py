"""Damaged files: the damage is reported or does no harm; never another answer or a raw error."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Change one byte in `count` copies of SQLite files, caches of scores and JSON rankings."""
    outcome = Outcome("files with one byte changed")
    draw = random.Random(seed)
    with _cases(_SQLite, _Scores, _RankingFile) as cases:
        for case, share in zip(cases, (0.8, 0.1, 0.1), strict=True):
            for _ in range(max(1, round(count * share))):
                data = bytearray(case.whole)
                i, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
                data[i] ^= bit
                _try(outcome, case, bytes(data), f"byte {i} of {len(data)}, bit {bit}")
    return outcome


def attack_pages(seed: int, count: int) -> Outcome:
    """Damage whole pages in `count` copies of an index: swapped, stale, copied, zeroed, garbage, cut off."""
    outcome = Outcome("index files with damaged pages")
    draw = random.Random(seed)
    with _cases(_Pages) as (case,):
        size = case.page_size
        pages = len(case.whole) // size
        before = case.before + bytes(max(0, len(case.whole) - len(case.before)))

        def page(data: bytes, number: int) -> bytes:
            return data[number * size : (number + 1) * size]

        stale = [i for i in range(pages) if page(case.whole, i) != page(before, i)]
        kinds = ("swapped", "swapped", "stale", "copied", "zeroed", "garbage", "cut off")
        for turn in range(count):
            data = bytearray(case.whole)
            kind = kinds[turn % len(kinds)]
            first, second = draw.sample(range(pages), 2)
            if kind == "stale":
                first = draw.choice(stale)
            new = {
                "swapped": page(case.whole, second),
                "stale": page(before, first),
                "copied": page(case.whole, second),
                "zeroed": bytes(size),
                "garbage": draw.randbytes(size),
                "cut off": page(case.whole, first),
            }
            data[first * size : (first + 1) * size] = new[kind]
            if kind == "swapped":
                data[second * size : (second + 1) * size] = page(case.whole, first)
            elif kind == "cut off":
                del data[first * size + draw.randrange(size) :]
            _try(outcome, case, bytes(data), f"{kind}, pages {first} and {second} of {pages}", kind)
    return outcome


@contextmanager
def _cases(*kinds: type[_Case]) -> Iterator[list[Any]]:
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield [kind(Path(folder)) for kind in kinds]
    finally:
        logging.disable(logging.NOTSET)


def _try(outcome: Outcome, case: Any, data: bytes, name: str, kind: str = "") -> None:
    """Query a damaged copy: an error of ours without any text, or the same answer."""
    outcome.tried += 1
    name = f"{type(case).__name__.strip('_')}, {name}"
    try:
        answer = case.answer(data)
    except ResiftError as exc:
        _count(outcome, "named", kind)
        outcome.check(not any(word in str(exc) for word in ("river", "honey")), f"{name}: text in {exc}")
        return
    except Exception as exc:
        outcome.fail(f"{name}: raw {type(exc).__name__}: {exc}")
        return
    if case.may_differ or answer == case.expected:
        _count(outcome, "harmless", kind)
    else:
        _count(outcome, "silent", kind)
        outcome.fail(f"{name}: another answer, nothing said{case.difference(answer)}")


def _count(outcome: Outcome, result: str, kind: str) -> None:
    name = f"{kind} {result}".strip()
    outcome.figures[name] = outcome.figures.get(name, 0) + 1


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

    def difference(self, answer: Any) -> str:
        """Return which of the questions has another answer."""
        if not isinstance(answer, list):
            return ""
        numbers = [i for i, (got, want) in enumerate(zip(answer, self.expected, strict=True)) if got != want]
        return f" (questions {numbers})"


class _SQLite(_Case):
    """Documents, words, vectors, numbers and dates in one file."""

    documents, words = 60, 12

    def make(self) -> None:
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        store = SQLiteStore(self.path, embedder=SeededEmbedder(), create=True)
        await store.add(self.document(i) for i in range(self.documents))
        await store.close()

    def document(self, i: int, version: int = 1) -> dict[str, Any]:
        draw = random.Random(1000 * version + i)
        day = f"2024-{1 + i % 12:02}-{1 + i % 28:02}"
        metadata = {"n": i, "w": WORDS[i % 9], "day": day, "tags": [WORDS[i % 4], WORDS[i % 5]]}
        return {"id": f"d{i}", "text": " ".join(draw.choices(WORDS, k=self.words)), "metadata": metadata}

    def ask(self) -> Any:
        return asyncio.run(self._ask())

    async def _ask(self) -> Any:
        store = SQLiteStore(self.path, embedder=SeededEmbedder())
        filters: list[Any] = [
            {"w": "glass"},
            {"day": {">=": "2024-05-01"}},
            {"n": {"<": self.documents // 2}},
            {"tags": "honey"},
            {"w": {"!=": "stone"}},
        ]
        try:
            lists = [await store.search(query, k=8) for query in QUESTIONS]
            lists += [await store.search("river", k=8, where=where) for where in filters]
            lists.append(await store.get([f"d{i}" for i in range(self.documents)]))
            answers: list[Any] = [[(hit.id, hit.text, hit.score, dict(hit.metadata)) for hit in hits] for hits in lists]
            vectors = await store.get_vectors([f"d{i}" for i in range(self.documents)])
            answers += [{id: vector.tobytes() for id, vector in vectors.items()}]
            answers += [await store.ids({"day": {">=": "2024-05-01"}}), await store.ids(), await store.count()]
            return answers
        finally:
            await store.close()


class _Pages(_SQLite):
    """A file of many pages, and its bytes before the last two writes."""

    documents, words = 500, 40
    page_size = 8192

    async def _fill(self) -> None:
        await super()._fill()
        self.before = self.path.read_bytes()
        store = SQLiteStore(self.path, embedder=SeededEmbedder())
        # As many documents as before: their number alone tells nothing.
        await store.add([self.document(i, version=2) for i in range(0, self.documents, 100)])
        await store.delete(["d7"])
        await store.add([self.document(7, version=3)])
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
