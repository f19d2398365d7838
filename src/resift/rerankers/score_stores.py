"""Where cached scores live: in memory or in one SQLite file. Keys are digests; no text is ever stored."""

from __future__ import annotations

import math
import os
import sqlite3
import struct
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable
from zlib import crc32

from resift._internal.forking import ForkSafeLock
from resift.errors import InputError

_TABLE = "CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, score REAL NOT NULL, at REAL NOT NULL)"
_AT_ONCE = 500  # keys per statement, below SQLite's oldest limit of 999 parameters


@runtime_checkable
class ScoreStore(Protocol):
    """Remembers scores by key. `blocking` says that its methods belong in a worker thread."""

    blocking: bool

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the scores that are known and fresh."""
        ...

    def put_many(self, scores: Mapping[bytes, float]) -> None:
        """Remember these scores."""
        ...


class MemoryScores:
    """Keeps the scores used last, at most `max_items` of them, each for at most `ttl_s` seconds."""

    blocking = False

    def __init__(
        self,
        max_items: int = 100_000,
        ttl_s: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check(max_items, ttl_s)
        self._max_items = max_items
        self._ttl_s = math.inf if ttl_s is None else ttl_s
        self._clock = clock
        self._lock = ForkSafeLock()
        self._kept: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"MemoryScores({len(self)} of {self._max_items})"

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the scores that are known and fresh, and count them as used."""
        oldest = self._clock() - self._ttl_s
        found: dict[bytes, float] = {}
        with self._lock:
            for key in keys:
                entry = self._kept.get(key)
                if entry is None:
                    continue
                # Dropped where it is met: nothing else ever looks for what is too old.
                if entry[0] <= oldest:
                    del self._kept[key]
                    continue
                self._kept.move_to_end(key)
                found[key] = entry[1]
        return found

    def put_many(self, scores: Mapping[bytes, float]) -> None:
        """Remember these scores and forget the ones unused for longest."""
        now = self._clock()
        with self._lock:
            for key, score in scores.items():
                self._kept[key] = (now, score)
                self._kept.move_to_end(key)
            while len(self._kept) > self._max_items:
                self._kept.popitem(last=False)


class SQLiteScores:
    """Keeps scores in a file that processes can share; the oldest beyond `max_items` are dropped.

    Ages are wall-clock time, since the file outlives the process. Raises sqlite3.Error for a file
    that is broken or locked for longer than `wait_s`; `CachedScorer` goes on without it then.
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
        _check(max_items, ttl_s)
        self._path = str(path)
        self._max_items = max_items
        self._ttl_s = math.inf if ttl_s is None else ttl_s
        self._wait_s = wait_s
        self._clock = clock
        self._lock = ForkSafeLock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._unchecked = max_items  # scores put since the size was last checked

    def __repr__(self) -> str:
        return f"SQLiteScores({Path(self._path).name!r})"

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the scores that are known and fresh."""
        oldest = self._clock() - self._ttl_s if math.isfinite(self._ttl_s) else -1e300
        found: dict[bytes, float] = {}
        with self._connected() as db:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(part))
                rows = db.execute(
                    f"SELECT key, score FROM scores WHERE key IN ({marks}) AND at > ?",  # noqa: S608 - marks only
                    (*part, oldest),
                )
                found.update(
                    (key, score) for key, held in rows if (score := _unsealed(key, held)) is not None
                )
        return found

    def put_many(self, scores: Mapping[bytes, float]) -> None:
        """Remember these scores and drop the oldest beyond the bound."""
        now = self._clock()
        with self._connected() as db:
            db.executemany(
                "INSERT OR REPLACE INTO scores (key, score, at) VALUES (?, ?, ?)",
                [(key, _sealed(key, score), now) for key, score in scores.items()],
            )
            self._unchecked += len(scores)
            # Counting a million rows for every pool would cost more than the pool.
            if self._unchecked * 100 >= self._max_items:
                self._trim(db)

    def _trim(self, db: sqlite3.Connection) -> None:
        (held,) = db.execute("SELECT COUNT(*) FROM scores").fetchone()
        self._unchecked = 0
        if held > self._max_items:
            db.execute(
                "DELETE FROM scores WHERE key IN (SELECT key FROM scores ORDER BY at, key LIMIT ?)",
                (held - self._max_items,),
            )

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._drop()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """One connection behind one lock; committed at the end, dropped after an error."""
        with self._lock:
            try:
                if self._db is None or self._pid != os.getpid():
                    self._db = self._opened()
                    self._pid = os.getpid()
                with self._db:
                    yield self._db
            except sqlite3.Error:
                self._drop()
                raise

    def _opened(self) -> sqlite3.Connection:
        # Any worker thread may use it: the lock lets in one at a time.
        db = sqlite3.connect(self._path, timeout=self._wait_s, check_same_thread=False)
        # An object that nobody closes would leave a warning and a file handle behind.
        weakref.finalize(self, db.close)
        try:
            # Readers of other processes do not wait for a writer; what a power cut takes is only a cache.
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute(_TABLE)
            db.execute("CREATE INDEX IF NOT EXISTS scores_at ON scores (at)")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _drop(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            self._db.close()
        self._db = None


def _sealed(key: bytes, score: float) -> bytes:
    """Return a score with the checksum of it and its key: SQLite would hand out one that was damaged."""
    packed = struct.pack("<d", score)
    return packed + struct.pack("<I", crc32(key + packed))


def _unsealed(key: bytes, held: object) -> float | None:
    """Return the score, or None, as for one that is not known, where it does not fit its checksum."""
    if not isinstance(held, bytes) or len(held) != struct.calcsize("<dI"):
        return None
    score: float = struct.unpack_from("<d", held)[0]
    return score if held == _sealed(key, score) else None


def _check(max_items: int, ttl_s: float | None) -> None:
    if isinstance(max_items, bool) or not isinstance(max_items, int) or max_items < 1:
        raise InputError(f"max_items is {max_items!r}; pass a whole number ≥ 1.")
    number = isinstance(ttl_s, (int, float)) and not isinstance(ttl_s, bool)
    if ttl_s is not None and not (number and 0 < ttl_s < 1e15):
        raise InputError(f"ttl_s is {ttl_s!r}; pass seconds > 0, or None to keep scores for good.")
