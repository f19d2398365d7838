"""Read files in a worker process, so that a file that hangs, crashes or exhausts memory affects only itself.

Parent and worker exchange frames: a length in four bytes, then JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import asdict, astuple
from pathlib import Path
from typing import BinaryIO

from resift._internal.files import write_all
from resift.errors import DataFormatError, ResiftError
from resift.ingest.chunking import Section
from resift.ingest.sources import DEFAULT_LIMITS, GZIP, FileLimits, has_reader, open_source, read_sections
from resift.types import JsonObject

_HEADER = struct.Struct(">I")
# Bytes. Reading a text of this size takes less time than starting a process.
_MAX_IN_PROCESS = 65_536
_READ_IN_PROCESS = frozenset(
    {".md", ".markdown", ".html", ".htm", ".jsonl", ".ndjson", ".csv", ".tsv", ".json", ".toml", ".ipynb"}
)


class FileReader:
    """Reads files one at a time. Close it when done."""

    def __init__(self, limits: FileLimits = DEFAULT_LIMITS, *, text_keys: tuple[str, ...] | None = None) -> None:
        self._limits = limits
        self._text_keys = text_keys
        self._process: asyncio.subprocess.Process | None = None

    async def sections(self, path: Path, *, name: str, follow: bool = True) -> AsyncGenerator[Section, None]:
        """Yield the sections of a file. Raises DataFormatError if it is unreadable or takes too long."""
        size = file_size(path)
        suffix = path.suffix.lower()
        is_text = suffix in _READ_IN_PROCESS or not (has_reader(suffix) or suffix == GZIP)
        if is_text and size <= _MAX_IN_PROCESS:
            source = open_source(path, name=name, limits=self._limits, follow=follow, text_keys=self._text_keys)
            for section in read_sections(source):
                yield section
            return
        limits = asdict(self._limits)
        request = {"path": str(path), "name": name, "follow": follow, "text_keys": self._text_keys, "limits": limits}
        try:
            async for section in self._read_in_worker({**request, "size": size}):
                yield section
        except BaseException:
            await self.close()  # otherwise the worker would keep sending this file
            raise

    async def close(self) -> None:
        """End the worker process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()  # reads to the end, which closes the pipes

    async def _read_in_worker(self, request: JsonObject) -> AsyncIterator[Section]:
        name = request["name"]
        remaining_s = self._limits.seconds_for(request["size"])
        if self._process is None or self._process.returncode is not None:
            await self.close()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                # -P keeps the current folder from coming first on the child's import path.
                *("-P", "-m", "resift.ingest.worker", str(self._limits.memory_bytes)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        process = self._process
        loop = asyncio.get_running_loop()
        try:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
            process.stdin.write(_frame(request))
            while True:
                started = loop.time()
                async with asyncio.timeout(remaining_s):
                    (length,) = _HEADER.unpack(await process.stdout.readexactly(_HEADER.size))
                    response = json.loads(await process.stdout.readexactly(length))
                remaining_s -= loop.time() - started
                if "section" not in response:
                    break
                yield Section(*response["section"])
        except TimeoutError as exc:
            message = f"Takes more than {self._limits.seconds:g} s to read. Convert it to text first."
            raise DataFormatError(message, file=name) from exc
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            message = "Crashed the worker process. Convert it to text first."
            raise DataFormatError(message, file=name) from exc
        if "error" in response:
            raise DataFormatError(response["error"])  # the message contains the file name


def file_size(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it is unknown."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the requested files until the request stream ends. Runs in the worker."""
    while len(header := requests.read(_HEADER.size)) == _HEADER.size:
        request = json.loads(requests.read(*_HEADER.unpack(header)))
        limits = FileLimits(**request["limits"])
        # The timer ends the process if the parent is gone and the file never ends. It measures CPU time, so
        # that waiting for the parent to accept a section does not count.
        _set_cpu_timer(limits.seconds_for(request["size"]) + 5)
        for message in _read(request, limits):
            write_all(answers, _frame(message))
        _set_cpu_timer(0)


def _read(request: JsonObject, limits: FileLimits) -> Iterator[JsonObject]:
    name, keys = request["name"], request["text_keys"]
    try:
        source = open_source(Path(request["path"]), name=name, limits=limits, follow=request["follow"])
        source.text_keys = None if keys is None else tuple(keys)
        for section in read_sections(source):
            yield {"section": astuple(section)}
    except ResiftError as exc:
        yield {"error": str(exc)}
    except OSError as exc:
        yield {"error": f"{name}: {exc.strerror or type(exc).__name__}"}
    except MemoryError:
        yield {"error": f"{name}: needs more than {limits.memory_bytes >> 20} MB of memory to be read."}
    except Exception as exc:
        # A parser can raise any exception. Its message may quote the document, so only the type is reported.
        yield {"error": f"{name}: cannot be read ({type(exc).__name__})."}
    else:
        yield {"end": True}


def _frame(message: object) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


def _set_cpu_timer(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    # The parent handles Ctrl-C and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        memory_bytes = int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)
