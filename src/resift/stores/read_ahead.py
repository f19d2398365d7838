"""Work that is done before it is asked for: the next items are made while the last one is still used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class _End(NamedTuple):
    error: Exception | None


async def read_ahead(source: AsyncGenerator[T, None], *, depth: int) -> AsyncGenerator[T, None]:
    """Yield what the source yields; up to `depth` items wait ready. Close it to stop the source."""
    ready: asyncio.Queue[T | _End] = asyncio.Queue(depth)

    async def fill() -> None:
        error = None
        try:
            async for item in source:
                await ready.put(item)
        except Exception as exc:  # told to the reader, after what was made before it
            error = exc
        await ready.put(_End(error))

    filling = asyncio.create_task(fill())
    try:
        while not isinstance(item := await ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        filling.cancel()
        await asyncio.wait([filling])
        await source.aclose()
