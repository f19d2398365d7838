"""LadybugGraphStore: read-only Cypher on a Ladybug database file."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import decimal
import hashlib
import importlib.util
import json
import math
import os
import pickle
import queue
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from resift._internal.files import write_all
from resift.errors import InputError, MissingExtraError, StoreError
from resift.external.candidates import first_text
from resift.external.records import read_text
from resift.stores.base import Workers
from resift.stores.graph.cypher_guard import check_cypher_for
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, to_json
from resift.validation import Options, check_arguments, check_k, check_mapping, check_number, option

MAX_ANSWER_BYTES = 64 << 20

_START_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.02

Request = tuple[str, JsonObject, int, int]  # statement, parameters, timeout in milliseconds, maximum number of rows


class EngineProcess:
    """A child process with one open database that runs one statement at a time."""

    def __init__(self, path: str, *, store: str, memory_bytes: int, threads: int) -> None:
        self._store, self._memory_bytes = store, memory_bytes
        self._responses: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # -P: the script's folder must not come first on the child's import path.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-P", __file__, path, str(memory_bytes // 2), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        threading.Thread(target=self._read_responses, daemon=True).start()
        response = self._wait(_START_TIMEOUT_S)
        if "error" in response:
            self.end()
            raise StoreError(f"{store!r} cannot open its graph database read-only: {response['error']}", store=store)

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def run(self, request: Request, *, timeout_s: float) -> JsonObject:
        """Return the engine's response. If it does not arrive in time, end the process and raise StoreError."""
        try:
            write_all(cast("BinaryIO", self._process.stdin), pickle.dumps(request))
        except OSError as exc:
            self.end()
            raise StoreError(f"The engine process of {self._store!r} has ended.", store=self._store) from exc
        return self._wait(timeout_s)

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()

    def _read_responses(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stdout or ():
                self._responses.put(line)
        self._responses.put(None)

    def _wait(self, timeout_s: float) -> JsonObject:
        give_up_at = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(queue.Empty):
                line = self._responses.get(timeout=_POLL_INTERVAL_S)
                if line is None or not line.endswith(b"\n"):
                    raise self._end_with_error("ended the engine process, or the store was closed")
                response: JsonObject = json.loads(line)
                return response
            if time.monotonic() >= give_up_at:
                raise self._end_with_error(f"took more than {timeout_s:g} s and was stopped", transient=True)
            if resident_bytes(self._process.pid) > self._memory_bytes:
                raise self._end_with_error(f"needed more than {self._memory_bytes >> 20} MB and was stopped")

    def _end_with_error(self, reason: str, *, transient: bool = False) -> StoreError:
        self.end()
        return StoreError(
            f"A statement on {self._store!r} {reason}. Make it cheaper: add LIMIT or a narrower pattern.",
            store=self._store,
            transient=transient,
        )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 on systems other than Linux."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


# Child process


def main(path: str, buffer_pool_bytes: int, threads: int) -> None:
    """Open the database read-only and serve requests until standard input ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the engine's own output apart from the responses
    try:
        import ladybug

        database = ladybug.Database(path, read_only=True, buffer_pool_size=buffer_pool_bytes, max_num_threads=threads)
        connection = ladybug.Connection(database)
    except Exception as exc:
        _send(output, {"error": str(exc), "kind": "open"})
        return
    _send(output, {"ready": True})
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def listen() -> None:
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                requests.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - from the parent
        os._exit(0)  # the parent has finished or died; do not wait for a running statement

    threading.Thread(target=listen, daemon=True).start()
    while True:
        _send(output, _execute(connection, requests.get()))


def _send(target: BinaryIO, response: JsonObject) -> None:
    body = json.dumps(response).encode()
    if len(body) > MAX_ANSWER_BYTES:
        message = f"The rows take {len(body)} bytes, more than {MAX_ANSWER_BYTES}"
        body = json.dumps({"error": message, "kind": "size"}).encode()
    write_all(target, body + b"\n")


def _execute(connection: Any, request: Request) -> JsonObject:
    statement, parameters, timeout_ms, max_rows = request
    try:
        connection.set_query_timeout(timeout_ms)
        result = connection.execute(statement, parameters)
        rows: list[list[JsonValue]] = []
        while len(rows) < max_rows and result.has_next():
            rows.append([_to_json(value) for value in result.get_next()])
        return {"columns": result.get_column_names(), "rows": rows}
    except Exception as exc:
        return {"error": str(exc), "kind": "statement"}


def _to_json(value: object) -> JsonValue:
    """Convert a value to JSON data. Nodes and relationships keep their labels but not their internal ids."""
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, dict):
        return {str(key): _to_json(v) for key, v in value.items() if key not in ("_ID", "_SRC", "_DST")}
    if isinstance(value, (list, tuple, set)):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)  # also NaN and infinity


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))


_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER_TYPES = (
    str, bool, int, float, datetime.date, datetime.timedelta, uuid.UUID, decimal.Decimal, type(None),
)  # fmt: skip
_SAFE_MESSAGE = re.compile(r"(Parser|Binder|Catalog) exception: [^\n]*")
_QUOTED = re.compile(r"<[^<>]*>|\"[^\"]*\"|'[^']*'")


@dataclass(frozen=True, kw_only=True)
class LadybugOptions(Options):
    """Options of a Ladybug store in a pipeline file."""

    path: str = option("The graph database, which is opened read-only.", kind="path", must_exist=True)
    id_column: str = option("Result column with the id of the hit.", default="id")
    text_column: str = option("Result column with the text of the hit.", default="text")


class LadybugGraphStore:
    """Runs read-only Cypher: checked by a guard, on a read-only database, with limits on time, rows and memory.

    The engine runs in `processes` child processes. A statement that exceeds a limit or crashes ends only its
    own process and raises StoreError.
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
        limits = {"timeout_s": timeout_s, "max_rows": max_rows, "memory_mb": memory_mb}
        for limit, value in {**limits, "processes": processes, "threads": threads}.items():
            check_number(value, limit, gt=0)
        if importlib.util.find_spec("ladybug") is None:
            raise MissingExtraError("ladybug", "graph")
        self.name, self.path = name, Path(path)
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
        """Return at most k rows of a statement as hits, in row order; raise UnsafeCypherError if it may write."""
        check_cypher_for(self, cypher)
        values = _check_parameters(parameters)
        if check_k(k) == 0:
            return []
        running: list[EngineProcess] = []
        cancelled = threading.Event()
        request = (cypher, values, int(self._timeout_s * 1000), self._max_rows)

        def run() -> JsonObject:
            with self._lend_engine() as engine:
                running.append(engine)
                if cancelled.is_set():
                    engine.end()
                try:
                    # The engine's own timeout expires first. The process is killed only if that fails.
                    return engine.run(request, timeout_s=self._timeout_s + 0.5)
                finally:
                    running.clear()  # the process may now serve another query

        try:
            response = await self._workers.run(run)
        except asyncio.CancelledError:  # stop the work, not just the wait for it
            cancelled.set()
            for engine in running:
                engine.end()
            raise
        if "error" in response:
            raise self._explain(response)
        return self._make_hits(response["columns"], response["rows"], k)

    async def close(self) -> None:
        """End the engine processes; later queries raise StoreError."""
        with self._lock:
            self._closed = True
        while self._idle:
            await asyncio.to_thread(self._idle.pop().end)
        self._workers.close()

    def _make_hits(self, columns: Sequence[str], rows: Sequence[Sequence[JsonValue]], k: int) -> list[Hit]:
        """Return at most k hits in row order; rows with an id seen before are skipped.

        The id is the value of the id column, else of that property of the only node, else a hash of the row.
        """
        hits: dict[str, Hit] = {}
        for row in rows:
            values = dict(zip(columns, row, strict=True))
            nodes = [value for value in values.values() if isinstance(value, Mapping) and "_LABEL" in value]
            fields = {**nodes[0], **values} if len(nodes) == 1 else values
            id = fields.get(self._id_column)
            if isinstance(id, bool) or not isinstance(id, (str, int)) or id == "":
                digest = hashlib.sha256(to_json(values).encode("utf-8", "surrogatepass")).hexdigest()
                id = f"row-{digest[:32]}"
            if str(id) in hits:
                continue
            if len(hits) == k:
                break
            text = first_text(fields, (self._text_column,)) or read_text(fields).text
            metadata = {key: value for key, value in values.items() if key not in (self._id_column, self._text_column)}
            hits[str(id)] = Hit(str(id), text, 1 / (len(hits) + 1), self.name, metadata)
        return list(hits.values())

    @contextlib.contextmanager
    def _lend_engine(self) -> Iterator[EngineProcess]:
        """Lend an idle process, or start a new one."""
        with self._lock:
            if self._closed:
                raise self._error("is closed")
            self._idle = [engine for engine in self._idle if engine.is_alive]
            engine = self._idle.pop() if self._idle else None
        if engine is None:
            if not self.path.exists():
                raise self._error(f"has no database file at {self.path}; build the graph first, or correct the path")
            limits = {"memory_bytes": self._memory_bytes, "threads": self._threads}
            engine = EngineProcess(str(self.path), store=self.name, **limits)
        try:
            yield engine
        finally:
            with self._lock:
                keep = engine.is_alive and not self._closed
                if keep:
                    self._idle.append(engine)
            if not keep:
                engine.end()

    def _explain(self, response: JsonMapping) -> StoreError:
        message = str(response["error"])
        if response["kind"] == "size":
            return self._error(f"returned too much data: {message}")
        if message.startswith("Interrupted"):
            return self._error(f"took more than {self._timeout_s:g} s", transient=True)
        # Engine messages quote the statement and its data; only the part that names the error is safe.
        known = _SAFE_MESSAGE.match(message)
        safe = _QUOTED.sub("…", known[0]) if known else message.partition(":")[0][:60]
        return self._error(f"could not run the statement: {safe}")

    def _error(self, reason: str, *, transient: bool = False) -> StoreError:
        return StoreError(f"The graph store {self.name!r} {reason}.", store=self.name, transient=transient)


def _check_parameters(parameters: JsonMapping | None) -> JsonObject:
    """Return the parameters; raise InputError for objects other than plain values, whose data the engine would scan."""
    values = dict(check_mapping(parameters, "parameters") or {})
    for key, value in values.items():
        if not isinstance(key, str) or not _PARAMETER_NAME.fullmatch(key):
            raise InputError(f"Parameter name {key!r}: use letters, digits and underscores.")
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, (list, tuple, dict)):
                stack.extend(item.values() if isinstance(item, dict) else item)
            elif not isinstance(item, _PARAMETER_TYPES):
                raise InputError(
                    f"Parameter {key!r} contains a value of type {type(item).__name__}; pass strings, "
                    "numbers, booleans, dates, None, or lists and dicts of them."
                )
    return values
