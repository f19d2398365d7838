"""Run a small program in this process, to compare its output with that of other processes."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock


def run_here(program: str, *arguments: str, stdin: str = "") -> bytes:
    """Return what the program prints with these arguments. This process has a random hash seed of its own."""
    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["-c", *arguments]),
        mock.patch.object(sys, "stdin", io.StringIO(stdin)),
        contextlib.redirect_stdout(output),
    ):
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    return output.getvalue().encode()
