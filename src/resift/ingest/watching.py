"""Noticing that files changed: their sizes and times, looked at again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from resift.ingest.walking import Choice, find_files

INTERVAL_S = 2.0

Stamps = dict[Path, tuple[int, int]]


async def changes(
    paths: Sequence[Path],
    choice: Choice = Choice(),  # noqa: B008 - an immutable value
    *,
    index: Path | None = None,
    interval_s: float = INTERVAL_S,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Yield at once, then each time something under the paths came, went or changed; ends when cancelled."""
    before: Stamps | None = None
    while True:
        now = await asyncio.to_thread(stamps, paths, choice, index=index)
        if now != before:
            before = now
            yield
        await sleep(interval_s)


def stamps(paths: Sequence[Path], choice: Choice, *, index: Path | None = None) -> Stamps:
    """Return file -> time and size; a path that is gone for a moment is no file."""
    found: Stamps = {}
    for file in find_files([path for path in paths if path.exists()], choice, index=index).files:
        try:
            status = file.stat()
        except OSError:
            continue
        found[file] = (status.st_mtime_ns, status.st_size)
    return found
