"""LadybugGraphStore: read-only Cypher over a Ladybug database file."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import hashlib
import importlib.util
import re
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from resift.errors import InputError, MissingExtraError, StoreError
from resift.external.candidates import first_text
from resift.external.records import read_text
from resift.stores.base import Workers
from resift.stores.graph.cypher_guard import check_cypher_for
from resift.stores.graph.ladybug_process import EngineProcess
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, to_json
from resift.validation import Options, check_arguments, check_k, check_mapping, check_number, option

_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER_TYPES = (
    str, bool, int, float, datetime.date, datetime.timedelta, uuid.UUID, decimal.Decimal, type(None),
)  # fmt: skip
_SAFE_MESSAGE = re.compile(r"(Parser|Binder|Catalog) exception: [^\n]*")
_QUOTED = re.compile(r"<[^<>]*>|\"[^\"]*\"|'[^']*'")


@dataclass(frozen=True, kw_only=True)
class LadybugOptions(Options):
    """Options of a Ladybug store in a pipeline file."""

    path: str = option("The graph database; it is opened read-only.", kind="path", must_exist=True)
    id_column: str = option("Column of the rows that is the hit's id.", default="id")
    text_column: str = option("Column of the rows that is the hit's text.", default="text")


class LadybugGraphStore:
    """Runs Cypher that only reads: guarded, on a read-only engine, with limits on time, rows and memory.

    The engine runs in `processes` child processes, started on first use. A statement that exceeds a limit or
    crashes ends its own process and raises StoreError. The next statement gets a new process.
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
        limits = {
            "timeout_s": timeout_s,
            "max_rows": max_rows,
            "memory_mb": memory_mb,
            "processes": processes,
            "threads": threads,
        }
        for limit, value in limits.items():
            check_number(value, limit, gt=0)
        if importlib.util.find_spec("ladybug") is None:
            raise MissingExtraError("ladybug", "graph")
        self.name = name
        self.path = Path(path)
        self.procedures, self.functions = tuple(procedures), tuple(functions)
        self._id_column, self._text_column = id_column, text_column
        self._timeout_s, self._max_rows = timeout_s, max_rows
        self._memory_bytes = memory_mb << 20
        self._threads = threads  # with more than one, rows without ORDER BY vary between runs
        self._workers = Workers(name, threads=processes)
        self._lock = threading.Lock()
        self._idle: list[EngineProcess] = []
        self._closed = False

    async def query(self, cypher: str, parameters: JsonMapping | None = None, *, k: int) -> list[Hit]:
        """Return at most k hits from the rows of the statement, in row order.

        Raises UnsafeCypherError for a statement that may do more than read, before the engine sees it, and
        StoreError if the engine fails or a limit is reached.
        """
        check_cypher_for(self, cypher)
        values = _check_parameters(parameters)
        if check_k(k) == 0:
            return []
        call = _Call()
        try:
            answer = await self._workers.run(lambda: self._run(call, cypher, values))
        except asyncio.CancelledError:
            call.cancel()
            raise
        return make_hits(
            answer["columns"],
            answer["rows"],
            k=k,
            source=self.name,
            id_column=self._id_column,
            text_column=self._text_column,
        )

    async def close(self) -> None:
        """End the engine processes; later queries raise StoreError."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for engine in idle:
            await asyncio.to_thread(engine.end)
        self._workers.close()

    def _run(self, call: _Call, cypher: str, values: JsonObject) -> JsonObject:
        engine: EngineProcess | None = None
        try:
            engine = self._take_engine()
            call.start(engine)
            # The engine's own time limit comes first. Ending the process is for when it fails.
            request = (cypher, values, int(self._timeout_s * 1000), self._max_rows)
            answer = engine.run(request, timeout_s=self._timeout_s + 0.5)
        finally:
            call.finish()
            self._release_engine(engine)
        if "error" in answer:
            raise self._explain(answer)
        return answer

    def _take_engine(self) -> EngineProcess:
        with self._lock:
            if self._closed:
                raise self._error("is closed")
            while self._idle:
                engine = self._idle.pop()
                if engine.is_alive:
                    return engine
        if not self.path.exists():
            raise self._error(
                f"has no database file at {self.path}; build the graph first, or correct the path"
            )
        return EngineProcess(
            str(self.path), store=self.name, memory_bytes=self._memory_bytes, threads=self._threads
        )

    def _release_engine(self, engine: EngineProcess | None) -> None:
        if engine is None:
            return
        with self._lock:
            keep = engine.is_alive and not self._closed
            if keep:
                self._idle.append(engine)
        if not keep:
            engine.end()

    def _explain(self, answer: JsonMapping) -> StoreError:
        message = str(answer["error"])
        if answer["kind"] == "size":
            return self._error(f"has too much to return: {message}")
        if message.startswith("Interrupted"):
            return self._error(f"took more than {self._timeout_s:g} s", transient=True)
        # Engine messages quote the statement and its data; only the part that names the fault is safe.
        known = _SAFE_MESSAGE.match(message)
        safe = _QUOTED.sub("…", known[0]) if known else message.partition(":")[0][:60]
        return self._error(f"could not run the statement: {safe}")

    def _error(self, reason: str, *, transient: bool = False) -> StoreError:
        return StoreError(f"The graph store {self.name!r} {reason}.", store=self.name, transient=transient)


class _Call:
    """One running query. Cancelling it ends the work, not only the wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: EngineProcess | None = None
        self._cancelled = False

    def start(self, engine: EngineProcess) -> None:
        """Record the process, or end it if the call was already cancelled."""
        with self._lock:
            self._engine = engine
            cancelled = self._cancelled
        if cancelled:
            engine.end()

    def finish(self) -> None:
        """Forget the process, which may now serve another call."""
        with self._lock:
            self._engine = None

    def cancel(self) -> None:
        """End the process that works on this call."""
        with self._lock:
            self._cancelled = True
            engine = self._engine
        if engine is not None:
            engine.end()


def make_hits(
    columns: Sequence[str],
    rows: Sequence[Sequence[JsonValue]],
    *,
    k: int,
    source: str,
    id_column: str,
    text_column: str,
) -> list[Hit]:
    """Return at most k hits in row order; a row that repeats an id is skipped.

    The id is the id column, else that property of the row's only node, else a hash of the row. The text is
    found the same way, else as in any record (`resift.external.records`). The score is 1/rank, so that
    sorting by score keeps the order of the statement.
    """
    hits: dict[str, Hit] = {}
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        nodes = [value for value in values.values() if isinstance(value, Mapping) and "_LABEL" in value]
        fields = {**nodes[0], **values} if len(nodes) == 1 else values
        id = fields.get(id_column)
        if isinstance(id, bool) or not isinstance(id, (str, int)) or id == "":
            digest = hashlib.sha256(to_json(values).encode("utf-8", "surrogatepass")).hexdigest()
            id = f"row-{digest[:32]}"
        if str(id) in hits:
            continue
        if len(hits) == k:
            break
        text = first_text(fields, (text_column,)) or read_text(fields).text
        metadata = {key: value for key, value in values.items() if key not in (id_column, text_column)}
        hits[str(id)] = Hit(str(id), text, 1 / (len(hits) + 1), source, metadata)
    return list(hits.values())


def _check_parameters(parameters: JsonMapping | None) -> JsonObject:
    """Return the parameters as a dict of plain values; the engine would scan other objects."""
    values = dict(check_mapping(parameters, "parameters") or {})
    for key, value in values.items():
        if not isinstance(key, str) or not _PARAMETER_NAME.fullmatch(key):
            raise InputError(f"Parameter name {key!r}: use letters, digits and underscores.")
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, (list, tuple)):
                stack.extend(item)
            elif isinstance(item, dict):
                stack.extend(item.values())
            elif not isinstance(item, _PARAMETER_TYPES):
                raise InputError(
                    f"Parameter {key!r} contains a value of type {type(item).__name__}; pass strings, "
                    "numbers, booleans, dates, None, or lists and dicts of them."
                )
    return values
