"""The sync edge: run async code to its end from any thread, also inside a running loop (notebooks)."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from typing import ParamSpec, TypeVar

from resift._internal.forking import ForkSafeLock
from resift.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")

CLEANUP_S = 0.7
"""How long cancelled work may take to close what it opened: who pressed Ctrl-C waits for it."""

_lock = ForkSafeLock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def run_sync(coroutine: Coroutine[object, object, T]) -> T:
    """Run the coroutine on Resift's own loop thread and wait for its result.

    One loop for all sync calls keeps connection pools warm between them. Ctrl-C cancels the work and
    waits for its cleanup.
    """
    finished = threading.Event()
    future = asyncio.run_coroutine_threadsafe(_noting(coroutine, finished), _background_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        # Files are closed on the way out; a process that ended before would tell of it in a traceback.
        finished.wait(CLEANUP_S)
        raise


def synced(function: Callable[P, Coroutine[object, object, T]], name: str | None = None) -> Callable[P, T]:
    """Return the plain twin of an async function, with its signature and docstring: `search` of `asearch`."""

    @functools.wraps(function)
    def waits(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            coroutine = function(*args, **kwargs)
        except TypeError as exc:
            # Only the arguments can be wrong here, and Python names the twin that nobody called.
            raise TypeError(str(exc).replace(function.__qualname__, waits.__qualname__)) from None
        try:
            return run_sync(coroutine)
        except InputError as exc:
            # `checked` names the async function, which the caller did not call.
            start = f"{function.__qualname__}:"
            if str(exc).startswith(start):
                exc.args = (f"{waits.__qualname__}:{str(exc).removeprefix(start)}", *exc.args[1:])
            raise

    asynchronous = function.__name__
    waits.__name__ = name or asynchronous.removeprefix("a")
    waits.__qualname__ = function.__qualname__.removesuffix(asynchronous) + waits.__name__
    return waits


async def _noting(coroutine: Coroutine[object, object, T], finished: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        finished.set()


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop, _pid
    with _lock:
        # A forked child has the parent's loop object but not its thread.
        if _loop is None or _pid != os.getpid():
            _loop = asyncio.new_event_loop()
            _pid = os.getpid()
            threading.Thread(target=_loop.run_forever, name="resift-sync", daemon=True).start()
        return _loop
