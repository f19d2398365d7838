"""Ctrl-C where Python alone would not end: swallowed, or in the middle of a clean-up that waits."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

SWALLOWED = """
    import gc
    class Swallows:
        def __del__(self):
            print("ready", flush=True)
            time.sleep(30)      # an exception in here is printed and forgotten
    while True:
        Swallows()
"""
WAITING = """
    try:
        print("ready", flush=True)
        time.sleep(30)
    finally:
        threading.Event().wait()
"""
DONE = """
    pass
"""
PROGRAM = """
import threading, time
from resift.cli.main import end_on_interrupt
with end_on_interrupt():
{body}
print("done", flush=True)
time.sleep(30 if {stays} else 0)
"""


def started(body: str, *, stays: bool = False) -> subprocess.Popen[str]:
    program = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    "), stays=stays)
    # A suite in the background ignores the signal, and what it starts inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("body", [SWALLOWED, WAITING], ids=["swallowed", "clean-up waits"])
@pytest.mark.slow
def test_ctrl_c_ends_a_blocked_process(body):
    with started(body) as process:
        assert process.stdout.readline() == "ready\n"
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=25)
    assert time.monotonic() - sent < 5  # 0.8 s, and a busy machine
    assert process.returncode == 130
    assert err.endswith("resift: interrupted\n")


@pytest.mark.slow
def test_ctrl_c_after_the_end_is_ignored():
    """Python's own end would otherwise be a death by signal, after everything was written."""
    with started(DONE, stays=True) as process:
        assert process.stdout.readline() == "done\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.kill()


def test_ctrl_c_during_the_first_imports_is_one_line():
    program = """
import signal, sys
class Interrupts:
    def find_spec(self, name, *rest):
        if name == "resift.cli.main":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
signal.signal(signal.SIGINT, signal.default_int_handler)
from resift.cli import run
run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "resift: interrupted\n")
