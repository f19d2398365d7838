"""The process that runs a Ladybug database, and the protocol to it.

Ladybug parses and plans outside its own time limit, and some statements exhaust memory or the C++ stack. In a
separate process that costs one answer and not the program. `EngineProcess` is the parent's side. `main` is
the child, which runs this file as a script. A frame is eight bytes of length and a body: pickle to the child,
whose only writer is the parent, and JSON back, because the parent does not trust the child.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from resift.errors import StoreError
from resift.types import JsonObject, JsonValue

MAX_ANSWER_BYTES = 64 << 20

_START_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.02

Request = tuple[str, JsonObject, int, int]
"""Statement, parameters, timeout in milliseconds, and the maximum number of rows."""


# The parent


class EngineProcess:
    """One child process with one open database; runs one statement at a time."""

    def __init__(self, path: str, *, store: str, memory_bytes: int, threads: int) -> None:
        self._store = store
        self._memory_bytes = memory_bytes
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # -P: the script's folder must not be first on the import path of the child.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-P", __file__, path, str(memory_bytes // 2), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        threading.Thread(target=self._read_answers, daemon=True).start()
        answer = self._wait(_START_TIMEOUT_S)
        if "error" in answer:
            self.end()
            raise StoreError(
                f"{store!r} cannot open its graph database read-only: {answer['error']}", store=store
            )

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def run(self, request: Request, *, timeout_s: float) -> JsonObject:
        """Return the engine's answer. Without one in time, raise StoreError and end the process."""
        try:
            assert self._process.stdin is not None  # noqa: S101 - opened as a pipe
            _write_frame(self._process.stdin, pickle.dumps(request))
        except OSError as exc:
            self.end()
            raise StoreError(f"The engine of {self._store!r} is gone.", store=self._store) from exc
        return self._wait(timeout_s)

    def end(self) -> None:
        """Kill the process and wait for its end."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - opened as a pipe
        frame: bytes | None = b""
        while frame is not None:
            try:
                frame = _read_frame(self._process.stdout)
            except (OSError, ValueError):
                frame = None
            self._answers.put(frame)

    def _wait(self, timeout_s: float) -> JsonObject:
        give_up_at = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(queue.Empty):
                frame = self._answers.get(timeout=_POLL_INTERVAL_S)
                if frame is None:
                    raise self._end_with_error("ended the engine process, or it was closed")
                answer: JsonObject = json.loads(frame)
                return answer
            if time.monotonic() >= give_up_at:
                raise self._end_with_error(f"took more than {timeout_s:g} s and was stopped", transient=True)
            if resident_bytes(self._process.pid) > self._memory_bytes:
                raise self._end_with_error(f"needed more than {self._memory_bytes >> 20} MB and was stopped")

    def _end_with_error(self, reason: str, *, transient: bool = False) -> StoreError:
        self.end()
        return StoreError(
            f"A statement on {self._store!r} {reason}. Ask for less: add LIMIT or a narrower pattern.",
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


def _read_frame(source: IO[bytes]) -> bytes | None:
    """Return the next frame, or None at the end of the stream."""
    head = source.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    body = source.read(size)
    return body if len(body) == size else None


def _write_frame(target: IO[bytes], body: bytes) -> None:
    """Write one frame unbuffered: a buffer loses bytes if the process is stopped and continued."""
    rest = memoryview(len(body).to_bytes(8, "big") + body)
    while rest:
        rest = rest[os.write(target.fileno(), rest) :]


# The child


def main(path: str, buffer_pool_bytes: int, threads: int) -> None:
    """Open the database read-only and answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the engine's own output must not mix with the frames
    try:
        import ladybug

        database = ladybug.Database(
            path, read_only=True, buffer_pool_size=buffer_pool_bytes, max_num_threads=threads
        )
        connection = ladybug.Connection(database)
    except Exception as exc:
        _send(answers, {"error": str(exc), "kind": "open"})
        return
    _send(answers, {"ready": True})
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        while (frame := _read_frame(sys.stdin.buffer)) is not None:
            requests.put(frame)
        os._exit(0)  # the parent is gone or done, even if a statement still runs

    threading.Thread(target=listen, daemon=True).start()
    while True:
        _send(answers, _execute(connection, pickle.loads(requests.get())))  # noqa: S301 - from the parent


def _send(target: IO[bytes], answer: JsonObject) -> None:
    body = json.dumps(answer).encode()
    if len(body) > MAX_ANSWER_BYTES:
        message = f"The rows take {len(body)} bytes, more than {MAX_ANSWER_BYTES}"
        body = json.dumps({"error": message, "kind": "size"}).encode()
    _write_frame(target, body)


def _execute(connection: Any, request: Request) -> JsonObject:
    statement, parameters, timeout_ms, max_rows = request
    try:
        connection.set_query_timeout(timeout_ms)
        result = connection.execute(statement, parameters)
        columns = result.get_column_names()
        rows: list[list[JsonValue]] = []
        while len(rows) < max_rows and result.has_next():
            rows.append([_to_json(value) for value in result.get_next()])
        more = result.has_next()
        result.close()
    except Exception as exc:
        return {"error": str(exc), "kind": "statement"}
    return {"columns": columns, "rows": rows, "more": more}


def _to_json(value: object) -> JsonValue:
    """Return the value as JSON data; nodes and relationships keep their label and lose internal ids."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _to_json(v) for key, v in value.items() if key not in ("_ID", "_SRC", "_DST")}
    if isinstance(value, (list, tuple, set)):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
