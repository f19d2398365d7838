"""Reading in a process of its own: a file that hangs, crashes or grows costs itself and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import asdict
from pathlib import Path

from resift.errors import DataFormatError
from resift.ingest.kinds import GZIP, has_reader
from resift.ingest.limits import DEFAULT_LIMITS, Limits
from resift.ingest.readers import read_sections
from resift.ingest.sections import Section
from resift.ingest.worker import HEADER, frame
from resift.types import JsonObject

_SMALL = 65_536  # bytes; no text of this size takes long, and starting a process takes longer
_TEXT_KINDS = frozenset(
    {".md", ".markdown", ".html", ".htm", ".jsonl", ".ndjson", ".csv", ".tsv", ".json", ".toml", ".ipynb"}
)


class FileReader:
    """Reads files one after the other; close it when done. `text_keys` are the fields of records to read."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, text_keys: tuple[str, ...] | None = None) -> None:
        self._limits = limits
        self._text_keys = text_keys
        self._process: asyncio.subprocess.Process | None = None

    async def sections(self, path: Path, *, name: str, follow: bool = True) -> AsyncGenerator[Section, None]:
        """Yield the sections of a file; raises DataFormatError when it cannot be read, or not in time."""
        if _is_small(path):
            for section in read_sections(
                path, name=name, limits=self._limits, follow=follow, text_keys=self._text_keys
            ):
                yield section
            return
        finished = False
        try:
            async for section in self._read(path, name, follow=follow):
                yield section
            finished = True
        finally:
            if not finished:
                await self.close()  # in the middle of a file: what it would still send is for nobody

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process._transport.close()  # type: ignore[attr-defined] # pipes are not closed by kill
            await process.wait()

    async def _read(self, path: Path, name: str, *, follow: bool) -> AsyncIterator[Section]:
        process = await self._started()
        assert process.stdin is not None  # noqa: S101 - opened as a pipe
        size = _size_of(path)
        request = {"path": str(path), "name": name, "follow": follow, "size": size}
        request |= {"limits": asdict(self._limits), "text_keys": self._text_keys}
        loop = asyncio.get_running_loop()
        left_s = self._limits.seconds_for(size)
        try:
            process.stdin.write(frame(request))
            while True:
                asked_at = loop.time()
                async with asyncio.timeout(left_s):
                    answer = await _answer(process)
                left_s -= loop.time() - asked_at
                if "section" not in answer:
                    break
                yield Section(*answer["section"])
        except TimeoutError as exc:
            raise DataFormatError(
                f"Takes more than {self._limits.seconds:g} s to read. Convert it to text first.", file=name
            ) from exc
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            message = "Ended the process that read it. Convert it to text first."
            raise DataFormatError(message, file=name) from exc
        if "error" in answer:
            raise _WorkerError(answer["error"])

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            await self.close()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                # -P: the current folder must not come first on the path of the child.
                *("-P", "-m", "resift.ingest.worker", str(self._limits.memory_bytes)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        return self._process


class _WorkerError(DataFormatError):
    """What the other process said; the file's name stands in it already."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


async def _answer(process: asyncio.subprocess.Process) -> JsonObject:
    assert process.stdout is not None  # noqa: S101 - opened as a pipe
    (size,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
    answer: JsonObject = json.loads(await process.stdout.readexactly(size))
    return answer


def _is_small(path: Path) -> bool:
    suffix = path.suffix.lower()
    textual = suffix in _TEXT_KINDS or not (has_reader(suffix) or suffix in GZIP)
    return textual and _size_of(path) <= _SMALL


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # opening it will say why
        return 0
