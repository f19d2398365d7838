"""The child process that holds a Ladybug database: statements in, rows out. Run as a script.

Ladybug parses and plans outside its own time limit, and some statements exhaust memory or the C++ stack;
in a process of its own that costs one answer and not the program. Imports nothing of Resift, because it
is started by path. Frames are eight bytes of length and a body: pickle in (the parent is the only
writer), JSON out (the parent does not trust it with more).
"""

from __future__ import annotations

import json
import math
import os
import pickle
import queue
import sys
import threading
from typing import Any, BinaryIO

from resift.types import JsonObject, JsonValue

MAX_ANSWER_BYTES = 64 << 20


def main(path: str, buffer_pool_bytes: int, threads: int) -> None:
    """Open the database read-only and answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the engine prints must not end up between the frames
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
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        _send(answers, _answer(connection, pickle.loads(requests.get())))  # noqa: S301 - from the parent


def _listen(source: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    while (frame := read_frame(source)) is not None:
        requests.put(frame)
    os._exit(0)  # the parent is gone or done, even if a statement is still running


def read_frame(source: BinaryIO) -> bytes | None:
    """Return the next frame, or None at the end of the stream."""
    head = source.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    body = source.read(size)
    return body if len(body) == size else None


def write_frame(target: BinaryIO, body: bytes) -> None:
    """Write one frame past the buffer, which loses bytes when the process is stopped and goes on."""
    left = memoryview(len(body).to_bytes(8, "big") + body)
    while left:
        left = left[os.write(target.fileno(), left) :]


def _send(target: BinaryIO, answer: JsonObject) -> None:
    body = json.dumps(answer).encode()
    if len(body) > MAX_ANSWER_BYTES:
        message = f"The rows take {len(body)} bytes, more than {MAX_ANSWER_BYTES}"
        body = json.dumps({"error": message, "kind": "size"}).encode()
    write_frame(target, body)


def _answer(connection: Any, request: tuple[str, JsonObject, int, int]) -> JsonObject:
    statement, parameters, timeout_ms, max_rows = request
    try:
        connection.set_query_timeout(timeout_ms)
        result = connection.execute(statement, parameters)
        columns = result.get_column_names()
        rows: list[list[JsonValue]] = []
        while len(rows) < max_rows and result.has_next():
            rows.append([plain(value) for value in result.get_next()])
        more = result.has_next()
        result.close()
    except Exception as exc:
        return {"error": str(exc), "kind": "statement"}
    return {"columns": columns, "rows": rows, "more": more}


def plain(value: object) -> JsonValue:
    """Return the value as JSON data; nodes and relationships keep their label and lose inner ids."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items() if key not in ("_ID", "_SRC", "_DST")}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
