"""Score caches in memory or in an SQLite file. Keys are digests; no text is ever stored."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
import math
import os
import sqlite3
import struct
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self, TypeVar, runtime_checkable
from zlib import crc32

from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError
from resift.events import Event, Sink, emit
from resift.protocols import FollowsInstructions, HasModelName, Scorer, describe_scorer, display_name
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, ScorerInfo, Scores
from resift.validation import check_arguments, check_k, check_number

T = TypeVar("T")

log = logging.getLogger("resift.rerankers")


@runtime_checkable
class ScoreStore(Protocol):
    """Stores scores by key. If `blocking` is True, its methods are called in a worker thread."""

    blocking: bool

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the cached scores that have not expired."""

    def put_many(self, scores: Mapping[bytes, float]) -> None:
        """Store these scores."""


class ScoreCacheUsed(Event, name="score_cache"):
    """A pool was looked up in a score cache; `failed` means that the cache itself failed."""

    provider: str
    hits: int
    misses: int
    failed: bool


class CachedScorer(FusesThenScores):
    """Returns cached scores by (model, revision, query, text), and gets the missing ones from a pointwise scorer.

    A cache that fails counts as empty. If the scorer fails, its error is raised even if some scores are cached,
    because they must not hide a failing provider from its breaker.
    """

    pointwise = True

    @check_arguments
    def __init__(
        self,
        scorer: Scorer,
        cache: ScoreStore,
        *,
        model: str | None = None,
        revision: str | None = None,
        pointwise: bool | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.name = display_name(scorer)
        is_pointwise = describe_scorer(scorer).pointwise if pointwise is None else pointwise
        if is_pointwise is not True:
            raise InputError(
                f"Scores of {self.name!r} may depend on the whole pool, so they cannot be cached per text. "
                "Cache a pointwise scorer, or pass pointwise=True if you know that this one is."
            )
        model_name = scorer.model_name if isinstance(scorer, HasModelName) else None
        model = model or getattr(scorer, "model", None) or model_name
        if not isinstance(model, str):
            raise InputError(f"{self.name!r} does not declare its model; pass model=.")
        revision = str(revision or getattr(scorer, "revision", None) or "")
        self._scorer = scorer
        self._cache = cache
        self._sink = sink
        # The name is part of the key, because two providers may serve the same model with different scores.
        self._prefix = _digest(self.name, model, revision)

    def __repr__(self) -> str:
        return f"CachedScorer({self._scorer!r}, {self._cache!r})"

    def __getattr__(self, name: str) -> object:
        # Tiers and pipelines read these attributes of a scorer.
        if name in ("aclose", "breaker", "breaker_key", "model", "requires", "revision"):
            return getattr(self._scorer, name)
        raise AttributeError(f"CachedScorer has no attribute {name!r}")

    def with_instruction(self, instruction: str) -> Self:
        """Return a copy of this scorer that uses an instruction; its scores are cached separately."""
        cached = copy.copy(self)
        if isinstance(self._scorer, FollowsInstructions):
            cached._scorer = self._scorer.with_instruction(instruction)
            cached._prefix = _digest(self._prefix, instruction)
        return cached

    @property
    def info(self) -> ScorerInfo:
        """Description of the scorer whose scores are cached."""
        return replace(describe_scorer(self._scorer), pointwise=True)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one score per hit; the scorer receives only the texts without a cached score."""
        keys = [_digest(self._prefix, query, hit.text) for hit in hits]
        empty: dict[bytes, float] = {}
        cached, failed = await self._try(lambda: self._cache.get_many(keys), empty)
        values: list[float | None] = [_finite_or_none(cached.get(key)) for key in keys]
        unknown = [i for i, value in enumerate(values) if value is None]
        event = ScoreCacheUsed(provider=self.name, hits=len(hits) - len(unknown), misses=len(unknown), failed=failed)
        emit(self._sink, event)
        if not unknown:
            return Scores(values, self.name, note="from the score cache", scorer=self.info)
        scores = await self._scorer.score(query, [hits[i] for i in unknown], deadline=deadline)
        if len(scores.values) != len(unknown):
            raise ResiftError(f"{self.name} returned {len(scores.values)} scores for {len(unknown)} hits.")
        for i, value in zip(unknown, scores.values, strict=True):
            values[i] = value
        fresh = {keys[i]: float(value) for i in unknown if (value := _finite_or_none(values[i])) is not None}
        # A cache that just failed would fail again, and waiting for a locked file takes time.
        if fresh and not failed:
            await self._try(lambda: self._cache.put_many(fresh), None)
        return replace(scores, values=values, scorer=scores.scorer or self.info)

    async def _try(self, work: Callable[[], T], default: T) -> tuple[T, bool]:
        """Return the result and False, or the default and True if the cache failed."""
        try:
            return (await asyncio.to_thread(work) if self._cache.blocking else work()), False
        except Exception as exc:
            log.warning("score cache of %s failed: %s", self.name, type(exc).__name__)
            return default, True


def _digest(*parts: str | bytes) -> bytes:
    """Hash the parts with their lengths, so that different lists of parts have different digests."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def _finite_or_none(value: float | None) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


class MemoryScores:
    """Stores the `max_items` most recently used scores in memory, each for at most `ttl_s` seconds."""

    blocking = False

    def __init__(
        self, max_items: int = 100_000, ttl_s: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_items = check_k(max_items, name="max_items", min=1)
        self._ttl_s = math.inf if ttl_s is None else check_number(ttl_s, "ttl_s", gt=0, lt=1e15)
        self._clock = clock
        self._lock = ForkSafeLock()
        self._scores: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        return f"MemoryScores({len(self)} of {self._max_items})"

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the cached scores that have not expired, and mark them as recently used."""
        oldest = self._clock() - self._ttl_s
        scores: dict[bytes, float] = {}
        with self._lock:
            for key in keys:
                stored_at, score = self._scores.pop(key, (oldest, 0.0))
                # Expired scores are removed only here, on access.
                if stored_at > oldest:
                    scores[key] = score
                    self._scores[key] = stored_at, score  # now the most recently used
        return scores

    def put_many(self, scores: Mapping[bytes, float]) -> None:
        """Store these scores and drop the least recently used ones."""
        now = self._clock()
        with self._lock:
            for key, score in scores.items():
                self._scores[key] = (now, score)
                self._scores.move_to_end(key)
            while len(self._scores) > self._max_items:
                self._scores.popitem(last=False)


_KEYS_PER_STATEMENT = 500  # old versions of SQLite allow 999 parameters


class SQLiteScores:
    """Stores scores in an SQLite file that processes can share; beyond `max_items`, the oldest are dropped.

    Raises sqlite3.Error for a file that is broken or locked for `wait_s`; `CachedScorer` then continues without it.
    """

    blocking = True

    def __init__(
        self,
        path: Path | str,
        max_items: int = 1_000_000,
        ttl_s: float | None = None,
        *,
        wait_s: float = 0.2,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = str(path)
        self._max_items = check_k(max_items, name="max_items", min=1)
        self._ttl_s = 1e15 if ttl_s is None else check_number(ttl_s, "ttl_s", gt=0, lt=1e15)
        self._wait_s = wait_s
        self._clock = clock
        self._lock = ForkSafeLock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._unchecked = max_items  # scores stored since the size was last checked

    def __repr__(self) -> str:
        return f"SQLiteScores({Path(self._path).name!r})"

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the cached scores that have not expired."""
        oldest = self._clock() - self._ttl_s
        scores: dict[bytes, float] = {}
        with self._connection() as db:
            for start in range(0, len(keys), _KEYS_PER_STATEMENT):
                part = keys[start : start + _KEYS_PER_STATEMENT]
                marks = ",".join("?" * len(part))
                rows = db.execute(
                    f"SELECT key, score FROM scores WHERE key IN ({marks}) AND at > ?",  # noqa: S608 - marks only
                    (*part, oldest),
                )
                scores.update((key, score) for key, data in rows if (score := _unpack(key, data)) is not None)
        return scores

    def put_many(self, scores: Mapping[bytes, float]) -> None:
        """Store these scores and drop the oldest ones beyond the limit."""
        now = self._clock()
        with self._connection() as db:
            db.executemany(
                "INSERT OR REPLACE INTO scores (key, score, at) VALUES (?, ?, ?)",
                [(key, _pack(key, score), now) for key, score in scores.items()],
            )
            self._unchecked += len(scores)
            # Counting a million rows for every pool would take longer than scoring it.
            if self._unchecked * 100 < self._max_items:
                return
            (count,) = db.execute("SELECT COUNT(*) FROM scores").fetchone()
            self._unchecked = 0
            if count > self._max_items:
                db.execute(
                    "DELETE FROM scores WHERE key IN (SELECT key FROM scores ORDER BY at, key LIMIT ?)",
                    (count - self._max_items,),
                )

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._disconnect()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Lock and yield the connection; commit at the end, or disconnect after an error."""
        with self._lock:
            try:
                if self._db is None or self._pid != os.getpid():
                    self._db = self._connect()
                    self._pid = os.getpid()
                with self._db:
                    yield self._db
            except sqlite3.Error:
                self._disconnect()
                raise

    def _connect(self) -> sqlite3.Connection:
        # Any worker thread may use the connection; the lock admits one at a time.
        db = sqlite3.connect(self._path, timeout=self._wait_s, check_same_thread=False)
        # An object that is never closed would otherwise leak a file handle and cause a warning.
        weakref.finalize(self, db.close)
        try:
            # With WAL, readers in other processes do not wait for a writer. A power cut may lose recent scores.
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("CREATE TABLE IF NOT EXISTS scores(key BLOB PRIMARY KEY, score REAL NOT NULL, at REAL NOT NULL)")
            db.execute("CREATE INDEX IF NOT EXISTS scores_at ON scores (at)")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _disconnect(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            self._db.close()
        self._db = None


def _pack(key: bytes, score: float) -> bytes:
    """Return a score with a checksum, because SQLite does not detect damaged values."""
    packed = struct.pack("<d", score)
    return packed + struct.pack("<I", crc32(key + packed))


def _unpack(key: bytes, data: object) -> float | None:
    """Return the score, or None if it is damaged and must be computed again."""
    if not isinstance(data, bytes) or len(data) != struct.calcsize("<dI"):
        return None
    score: float = struct.unpack_from("<d", data)[0]
    return score if data == _pack(key, score) else None
