"""Ctrl-C ends a command within a second, whatever it is doing: clean-up gets its time, and no more."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_S = 0.8
"""How long the command may take to end by itself, by KeyboardInterrupt; then the process is ended."""

EXIT_INTERRUPTED = 130


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C end this process soon, even where KeyboardInterrupt is swallowed or its clean-up waits.

    Python raises KeyboardInterrupt wherever the main thread happens to be: in a callback that may not raise,
    in a library that catches everything, or before a lock that a busy thread holds. The signal itself also
    writes a byte to a pipe, and a thread that reads it needs nobody's help. A command with a handler of its
    own, such as a server that drains, is left alone. An index takes a kill at any point.
    """
    if not _watchable():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # what signals write to must never make them wait
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="resift-interrupts", daemon=True).start()
    try:
        yield
    finally:
        # What is left is the interpreter's own end, which Ctrl-C would turn into a death by signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watchable() -> bool:
    """Say whether Ctrl-C is Python's own to handle, in the one thread that may ask for its signals."""
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Windows has no such pipes before Python 3.12.
    return plain and threading.current_thread() is threading.main_thread() and hasattr(os, "set_blocking")


def _watch(reader: int) -> None:
    while number := os.read(reader, 1):
        if number[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            time.sleep(GRACE_S)
            os.write(2, b"resift: interrupted\n")
            os._exit(EXIT_INTERRUPTED)
