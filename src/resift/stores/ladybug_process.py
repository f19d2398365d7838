"""The parent's side of the Ladybug process: start it, ask it, and end it when it overstays."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

from resift.errors import StoreError
from resift.stores import ladybug_engine
from resift.types import JsonObject

_START_S = 30.0
_TICK_S = 0.02


class EngineProcess:
    """One child process with one open database; one statement at a time."""

    def __init__(self, path: str, *, store: str, memory_bytes: int, threads: int) -> None:
        self._store = store
        self._memory_bytes = memory_bytes
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # -P: the folder of the script must not come first on the path of the child.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-P", ladybug_engine.__file__, path, str(memory_bytes // 2), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        threading.Thread(target=self._listen, daemon=True).start()
        opened = self._wait(_START_S)
        if "error" in opened:
            self.end()
            raise StoreError(
                f"{store!r} cannot open its graph database read-only: {opened['error']}", store=store
            )

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, request: tuple[str, JsonObject, int, int], *, timeout_s: float) -> JsonObject:
        """Return the engine's answer; raise StoreError and end the process when there is none in time."""
        try:
            assert self._process.stdin is not None  # noqa: S101 - opened as a pipe
            ladybug_engine.write_frame(self._process.stdin, pickle.dumps(request))  # type: ignore[arg-type]
        except OSError as exc:
            self.end()
            raise StoreError(f"The engine of {self._store!r} is gone.", store=self._store) from exc
        return self._wait(timeout_s)

    def end(self) -> None:
        """Stop the process at once and wait until it is gone."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - opened as a pipe
        frame: bytes | None = b""
        while frame is not None:
            try:
                frame = ladybug_engine.read_frame(self._process.stdout)  # type: ignore[arg-type]
            except (OSError, ValueError):
                frame = None
            self._answers.put(frame)

    def _wait(self, timeout_s: float) -> JsonObject:
        until = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(queue.Empty):
                return self._read(self._answers.get(timeout=_TICK_S))
            if time.monotonic() >= until:
                raise self._ended(f"took more than {timeout_s:g} s and was stopped", transient=True)
            if resident_bytes(self._process.pid) > self._memory_bytes:
                raise self._ended(f"needed more than {self._memory_bytes >> 20} MB and was stopped")

    def _read(self, frame: bytes | None) -> JsonObject:
        if frame is None:
            raise self._ended("ended the engine process, or it was closed")
        answer: JsonObject = json.loads(frame)
        return answer

    def _ended(self, why: str, *, transient: bool = False) -> StoreError:
        self.end()
        return StoreError(
            f"A statement on {self._store!r} {why}. Ask for less: add LIMIT or a narrower pattern.",
            store=self._store,
            transient=transient,
        )


def resident_bytes(pid: int) -> int:
    """Return the memory a process holds; 0 where the system does not tell (only Linux does)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
