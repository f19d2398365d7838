"""LadybugGraphStore: read-only Cypher over a Ladybug database file."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import importlib.util
import re
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from resift.errors import InputError, MissingExtraError, StoreError
from resift.stores.cypher_guard import check_cypher_for
from resift.stores.graph_rows import hits_from_rows
from resift.stores.ladybug_process import EngineProcess
from resift.stores.workers import Workers
from resift.types import Hit, JsonMapping, JsonObject
from resift.validation import Options, check_arguments, check_k, check_mapping, check_number, option

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = (str, bool, int, float, datetime.date, datetime.timedelta, uuid.UUID, decimal.Decimal, type(None))
_SAFE_MESSAGE = re.compile(r"(Parser|Binder|Catalog) exception: [^\n]*")
_QUOTED = re.compile(r"<[^<>]*>|\"[^\"]*\"|'[^']*'")


@dataclass(frozen=True, kw_only=True)
class LadybugOptions(Options):
    """What a pipeline file can say of a Ladybug store."""

    path: str = option("The graph database; it is opened read-only.", kind="path", must_exist=True)
    id_column: str = option("Column of the rows that is the hit's id.", default="id")
    text_column: str = option("Column of the rows that is the hit's text.", default="text")


class LadybugGraphStore:
    """Answers Cypher that only reads: guarded, on a read-only engine, within time, rows and memory.

    The engine runs in `processes` child processes, started on first use. A statement that overstays,
    crashes or eats memory costs its own process and raises StoreError; the next one gets a new process.
    """

    Options = LadybugOptions

    @check_arguments
    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "ladybug",
        id_column: str = "id",
        text_column: str = "text",
        timeout_s: float = 5.0,
        max_rows: int = 10_000,
        memory_mb: int = 1024,
        processes: int = 2,
        threads: int = 1,
        procedures: Iterable[str] = (),
        functions: Iterable[str] = (),
    ) -> None:
        for what, number in {
            "timeout_s": timeout_s,
            "max_rows": max_rows,
            "memory_mb": memory_mb,
            "processes": processes,
            "threads": threads,
        }.items():
            check_number(number, what, gt=0)
        if importlib.util.find_spec("ladybug") is None:
            raise MissingExtraError("ladybug", "graph")
        self.name = name
        self.path = Path(path)
        self._columns = {"id_column": id_column, "text_column": text_column}
        self._timeout_s, self._max_rows = timeout_s, max_rows
        # One thread: with more, rows without ORDER BY come in another order each time.
        self._limits = {"memory_bytes": memory_mb << 20, "threads": threads}
        self.procedures, self.functions = tuple(procedures), tuple(functions)
        self._workers = Workers(name, threads=processes)
        self._lock = threading.Lock()
        self._idle: list[EngineProcess] = []
        self._closed = False

    async def query(self, cypher: str, parameters: JsonMapping | None = None, *, k: int) -> list[Hit]:
        """Return at most k hits from the rows of the statement, in row order.

        Raises UnsafeCypherError before the engine sees a statement that may do more than read, and
        StoreError when the engine fails or a limit is reached.
        """
        check_cypher_for(self, cypher)
        values = _checked(parameters)
        if check_k(k) == 0:
            return []
        call = _Call()
        try:
            answer = await self._workers.run(lambda: self._ask(call, cypher, values))
        except asyncio.CancelledError:
            call.cancel()
            raise
        return hits_from_rows(answer["columns"], answer["rows"], k=k, source=self.name, **self._columns)

    async def close(self) -> None:
        """End the engine processes; later queries raise StoreError."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for engine in idle:
            await asyncio.to_thread(engine.end)
        self._workers.close()

    def _ask(self, call: _Call, cypher: str, values: JsonObject) -> JsonObject:
        engine: EngineProcess | None = None
        try:
            engine = self._engine()
            call.runs_on(engine)
            # The engine's own limit comes first; ending the process is for when it does not hold.
            request = (cypher, values, int(self._timeout_s * 1000), self._max_rows)
            answer = engine.ask(request, timeout_s=self._timeout_s + 0.5)
        finally:
            call.done()
            self._release(engine)
        if "error" in answer:
            raise self._refused(answer)
        return answer

    def _engine(self) -> EngineProcess:
        with self._lock:
            if self._closed:
                raise self._failed("is closed")
            while self._idle:
                engine = self._idle.pop()
                if engine.alive:
                    return engine
        if not self.path.exists():
            raise self._failed(
                f"has no database file at {self.path}; build the graph first, or correct the path"
            )
        return EngineProcess(str(self.path), store=self.name, **self._limits)

    def _release(self, engine: EngineProcess | None) -> None:
        with self._lock:
            keep = engine is not None and engine.alive and not self._closed
            if keep and engine is not None:
                self._idle.append(engine)
        if engine is not None and not keep:
            engine.end()

    def _refused(self, answer: JsonMapping) -> StoreError:
        message = str(answer["error"])
        if answer["kind"] == "size":
            return self._failed(f"has too much to return: {message}")
        if message.startswith("Interrupted"):
            return self._failed(f"took more than {self._timeout_s:g} s", transient=True)
        # Engine messages quote the statement and its data; only the part that names the fault is kept.
        known = _SAFE_MESSAGE.match(message)
        kept = _QUOTED.sub("…", known[0]) if known else message.partition(":")[0][:60]
        return self._failed(f"could not run the statement: {kept}")

    def _failed(self, why: str, *, transient: bool = False) -> StoreError:
        return StoreError(f"The graph store {self.name!r} {why}.", store=self.name, transient=transient)


class _Call:
    """One query on its way, so that cancelling it ends the work and not only the waiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: EngineProcess | None = None
        self._cancelled = False

    def runs_on(self, engine: EngineProcess) -> None:
        """Remember the process, or end it when the call was cancelled before it started."""
        with self._lock:
            self._engine = engine
            cancelled = self._cancelled
        if cancelled:
            engine.end()

    def done(self) -> None:
        """Forget the process: it may serve another call now."""
        with self._lock:
            self._engine = None

    def cancel(self) -> None:
        """End the process that works on this call."""
        with self._lock:
            self._cancelled = True
            engine = self._engine
        if engine is not None:
            engine.end()


def _checked(parameters: JsonMapping | None) -> JsonObject:
    """Return the parameters as a dict of plain values; objects the engine would scan are refused."""
    values = dict(check_mapping(parameters, "parameters") or {})
    for key, value in values.items():
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise InputError(f"Parameter name {key!r}: use letters, digits and underscores.")
        _refuse_objects(key, value)
    return values


def _refuse_objects(key: str, value: object) -> None:
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, (list, tuple)):
            stack.extend(one)
        elif isinstance(one, dict):
            stack.extend(one.values())
        elif not isinstance(one, _PLAIN):
            raise InputError(
                f"Parameter {key!r} holds a {type(one).__name__}; pass strings, numbers, booleans, dates, "
                "None, or lists and dicts of them."
            )
