"""Disks as power cuts leave them: what was synced is there, of the rest some sectors are and some are not.

A child process writes with power_loss.c loaded before the C library, which records every write,
truncation, removal and sync. From the record, cut at any place, `disk` makes the files of a machine that lost
its power there. Needs a C compiler and Linux.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.hardening.report import HERE, ROOT

_HEAD = struct.Struct("<cHqI")
_SECTOR = 512


class Operation(NamedTuple):
    """One thing that was done to a file: w(rite), t(runcate), s(ync) or u(nlink)."""

    kind: str
    path: str
    offset: int
    data: bytes


def recorded(folder: Path, module: str, *args: str) -> list[Operation]:
    """Run a module in a child process and return what it did to the files under the folder."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise NotImplementedError("recording writes needs Linux and a C compiler")
    library, log = folder.parent / "power_loss.so", folder.parent / "power.log"
    source = HERE / "power_loss.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    log.unlink(missing_ok=True)
    settings = {"LD_PRELOAD": str(library), "POWER_FOLDER": str(folder), "POWER_LOG": str(log)}
    subprocess.run([sys.executable, "-m", module, *args], check=True, cwd=ROOT, env={**os.environ, **settings})
    return list(_operations(log.read_bytes()))


def _operations(log: bytes) -> list[Operation]:
    found, at = [], 0
    while at < len(log):
        kind, length, offset, size = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        path = log[at : at + length].decode()
        at += length
        found.append(Operation(kind.decode(), path, offset, log[at : at + size]))
        at += size
    return found


def disk(done: Sequence[Operation], chance: random.Random) -> dict[str, bytes]:
    """Return path -> content after a power cut behind these operations."""
    files: dict[str, bytearray] = {}
    last_sync = {one.path: at for at, one in enumerate(done) if one.kind == "s"}
    for at, one in enumerate(done):
        file = files.setdefault(one.path, bytearray())
        certain = at < last_sync.get(one.path, -1)
        if one.kind == "u":
            files.pop(one.path, None)
        elif one.kind == "t" and (certain or chance.random() < 0.5):
            file[:] = file[: one.offset].ljust(one.offset, b"\0")
        elif one.kind == "w":
            _write(file, one, 1.0 if certain else 0.5, chance)
    return {path: bytes(content) for path, content in files.items()}


def _write(file: bytearray, one: Operation, share: float, chance: random.Random) -> None:
    for start in range(0, len(one.data), _SECTOR):
        if share == 1.0 or chance.random() < share:
            piece = one.data[start : start + _SECTOR]
            at = one.offset + start
            if len(file) < at:
                file.extend(bytes(at - len(file)))
            file[at : at + len(piece)] = piece
