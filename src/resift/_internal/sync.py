"""Run async code from synchronous callers, on any thread and inside a running event loop (notebooks)."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from resift._internal.forking import ForkSafeLock
from resift.errors import InputError, ResiftError

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

CLEANUP_S = 0.7  # maximum time for cancelled work to close its files after Ctrl-C

MAX_RESERVE_S, MAX_RESERVE_SHARE = 1.0, 0.5
"""Limits of the reserve, so that one late call does not use up the time of the following calls."""

LATENESS_DECAY = 0.99  # factor of the measured lateness per call; it halves after about 70 calls

_POOLS_CLOSED = "cannot schedule new futures"
"""Python's message in threads that still work after the end of the main thread."""

_lateness_s = 0.0  # delay with which recent calls with a deadline returned to their threads
_lock = ForkSafeLock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def run_sync(coroutine: Coroutine[object, object, T]) -> T:
    """Run the coroutine on Resift's event loop thread and return its result.

    All synchronous calls share one loop, which keeps connection pools warm. Ctrl-C cancels the work and waits
    for its cleanup.
    """
    import asyncio  # at the top, it would double the time of the first `fuse`

    finished = threading.Event()

    async def run() -> T:
        try:
            return await coroutine
        finally:
            finished.set()

    loop = _loop
    if loop is None or _pid != os.getpid():  # no lock needed for reading: once set, they do not change
        loop = _background_loop()
    future = asyncio.run_coroutine_threadsafe(run(), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        # If the process exited before the cleanup ends, it would print tracebacks about open files.
        finished.wait(CLEANUP_S)
        raise


def sync_method(function: Callable[P, Coroutine[object, object, T]], name: str | None = None) -> Callable[P, T]:
    """Return the synchronous version of an async function (`search` for `asearch`) with signature and docstring."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            coroutine = function(*args, **kwargs)
        except TypeError as exc:
            # For wrong arguments, Python's message names the async version, which the user did not call.
            raise TypeError(str(exc).replace(function.__qualname__, wrapper.__qualname__)) from None
        deadline_s = kwargs.get("deadline_s")
        try:
            # Larger values are equivalent to no deadline, or the function rejects them.
            if isinstance(deadline_s, (int, float)) and 0 < deadline_s < 1e9:
                # The deadline starts now, not when the event loop gets to the call.
                coroutine.close()
                return _run_with_deadline(deadline_s, function, args, kwargs)
            return run_sync(coroutine)
        except RuntimeError as exc:
            if _POOLS_CLOSED not in str(exc):
                raise
            raise ResiftError(f"{wrapper.__qualname__} was stopped, because the interpreter is exiting.") from exc
        except InputError as exc:
            # The message of the argument check also names the async version.
            prefix = f"{function.__qualname__}:"
            if str(exc).startswith(prefix):
                exc.args = (f"{wrapper.__qualname__}:{str(exc).removeprefix(prefix)}", *exc.args[1:])
            raise

    wrapper.__name__ = name or function.__name__.removeprefix("a")
    wrapper.__qualname__ = function.__qualname__.removesuffix(function.__name__) + wrapper.__name__
    return wrapper


def _run_with_deadline(
    deadline_s: float,
    function: Callable[..., Coroutine[object, object, T]],
    args: tuple[object, ...],
    options: Mapping[str, object],
) -> T:
    """Run the function until the deadline, minus the delay with which recent results reached their threads.

    With many busy threads, the event loop and the waiting thread have to wait for the interpreter.
    """
    global _lateness_s
    reserve_s = min(_lateness_s, deadline_s * MAX_RESERVE_SHARE)
    end_s = time.monotonic() + deadline_s

    async def run() -> T:
        left_s = max(0.0, end_s - reserve_s - time.monotonic())
        return await function(*args, **{**options, "deadline_s": left_s})

    try:
        return run_sync(run())
    finally:
        late_s = time.monotonic() - (end_s - reserve_s)
        _lateness_s = min(MAX_RESERVE_S, max(late_s, _lateness_s * LATENESS_DECAY))


def _background_loop() -> asyncio.AbstractEventLoop:
    import asyncio

    global _loop, _pid
    with _lock:
        # A forked child has the parent's loop object but not its thread.
        if _loop is None or _pid != os.getpid():
            _loop = asyncio.new_event_loop()
            _pid = os.getpid()
            threading.Thread(target=_loop.run_forever, name="resift-sync", daemon=True).start()
        return _loop
