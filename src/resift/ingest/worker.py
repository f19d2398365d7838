"""The process that reads files: paths come in, sections go out, and it may be ended at any time.

Frames are a length in four bytes and JSON. The parent's side is isolation.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any, BinaryIO

from resift._internal.atomic_files import write_whole
from resift.errors import ResiftError
from resift.ingest.limits import Limits
from resift.ingest.readers import read_sections

HEADER = struct.Struct(">I")


def frame(message: object) -> bytes:
    """Return a message with its length before it."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(body)) + body


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the files asked for until there are no more requests."""
    while len(header := requests.read(HEADER.size)) == HEADER.size:
        request = json.loads(requests.read(*HEADER.unpack(header)))
        limits = Limits(**request["limits"])
        # Should the parent be gone and the file never end, the alarm ends the process. It counts the time
        # of the processor, for waiting until the parent takes a section is no reading.
        _alarm(limits.seconds_for(request["size"]) + 5)
        for message in _messages(request, limits):
            write_whole(answers, frame(message))
        _alarm(0)


def _messages(request: dict[str, Any], limits: Limits) -> Any:
    name = request["name"]
    keys = request["text_keys"]
    try:
        for section in read_sections(
            Path(request["path"]),
            name=name,
            limits=limits,
            follow=request["follow"],
            text_keys=None if keys is None else tuple(keys),
        ):
            yield {"section": astuple(section)}
    except ResiftError as exc:
        yield {"error": str(exc)}
    except OSError as exc:
        yield {"error": f"{name}: {exc.strerror or type(exc).__name__}"}
    except MemoryError:
        yield {"error": f"{name}: needs more than {limits.memory_bytes >> 20} MB of memory to be read."}
    except Exception as exc:
        # Foreign data in a foreign parser: the type is told, never the text, which may quote the document.
        yield {"error": f"{name}: cannot be read ({type(exc).__name__})."}
    else:
        yield {"end": True}


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory(most: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    # Ctrl-C is for the parent, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory(int(sys.argv[1]))
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)
