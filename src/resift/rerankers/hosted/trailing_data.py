"""Bytes that follow the end of an answer: kept on a warm connection, they would answer the next query."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

# httpx response -> httpcore connection -> h11 state. Not public in httpx, so a test watches over it.
_CHAIN = ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")


async def close_if_trailing_data(response: httpx.Response) -> bool:
    """Close the connection of a fully read response if more than the answer came; say whether it did."""
    state: object = response
    for name in _CHAIN:
        state = getattr(state, name, None)
    more, _ended = getattr(state, "trailing_data", (b"", False))
    if more:
        await response.extensions["network_stream"].aclose()
    return bool(more)
