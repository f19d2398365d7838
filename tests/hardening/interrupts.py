"""Ctrl-C at any moment of a command: it ends within a second, says so in one line, and leaves its files intact."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import resift
from tests.hardening.exits import find_damage
from tests.hardening.report import Outcome

LIMIT_S = 1.0
READY_S = 0.3
"""Before this the interpreter itself is starting, and its own traceback is what Ctrl-C prints."""

LONGEST_S = 4.0
SAID = "resift: interrupted"


def attack(seed: int, count: int) -> Outcome:
    """Interrupt every command `count` times, at moments spread over its run."""
    outcome = Outcome("Ctrl-C at random moments of commands that index, search, rank, serve and work in bulk")
    chosen = random.Random(seed)
    # A shell in the background ignores the signal, and what it starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    slowest: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _write_inputs(place)
        for name, words in _commands(place).items():
            for _ in range(count):
                took = _interrupt(outcome, name, words, place, chosen.uniform(READY_S, LONGEST_S))
                slowest[name] = max(slowest.get(name, 0.0), took)
                if "index" in words:
                    _check_index(outcome, name, Path(words[-1]))
        _finish_batch(outcome, place)
    outcome.figures["slowest end"] = f"{max(slowest.values()):.2f} s ({max(slowest, key=slowest.__getitem__)})"
    return outcome


def _write_inputs(place: Path) -> None:
    (place / "notes").mkdir()
    for at in range(400):
        text = f"# Note {at}\n\n" + f"Alpha {at} beta gamma delta. Nobody knows why it is so. " * 40
        (place / "notes" / f"{at}.md").write_text(text)
    # Nothing to split at: the cutter has to make its own breaks in eight megabytes.
    (place / "one-word.txt").write_text("lorem ipsum dolor " * 480_000)
    lines = (f"passage {at} on alpha, beta and gamma " * 12 for at in range(3_000))
    (place / "passages.txt").write_text("\n".join(lines))
    rows = ({"id": f"p{i}", "text": f"passage {i} on alpha and beta"} for i in range(400))
    (place / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with resift.Index(place / "searched.sqlite") as index:
        index.add(f"{i} alpha beta gamma" for i in range(200))


def _commands(place: Path) -> dict[str, list[str]]:
    return {
        "index": ["index", str(place / "notes"), "--store", str(place / "notes.db")],
        "index of one large text": ["index", str(place / "one-word.txt"), "--store", str(place / "word.db")],
        "index of words": ["index", "--text-only", str(place / "one-word.txt"), "--store", str(place / "text.db")],
        "search": ["search", "why is it so", "--store", str(place / "searched.sqlite")],
        "ask": ["ask", "why is it so?", "--store", str(place / "searched.sqlite")],
        "batch": _batch(place, "batch"),
        "rerank": ["rerank", "why is it so", str(place / "passages.txt")],
        "demo": ["demo"],
        "serve": ["serve", "--port", str(_free_port())],
    }


def _batch(place: Path, out: str) -> list[str]:
    rows, folder = str(place / "rows.jsonl"), str(place / out)
    return ["batch", "embed", rows, "-o", folder, "--workers", "1", "--shard-rows", "20"]


def _check_index(outcome: Outcome, name: str, path: Path) -> None:
    """Check that an index whose writer was interrupted is whole and can be opened."""
    if path.exists():
        problems = asyncio.run(find_damage(path))
        outcome.check(not problems, f"{name}: the index is damaged: {problems}")


def _finish_batch(outcome: Outcome, place: Path) -> None:
    """Complete the interrupted job and compare its shards with those of a job that was never interrupted."""
    for out in ("batch", "undisturbed"):
        words = [sys.executable, "-m", "resift.cli.main", *_batch(place, out)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        outcome.check(done.returncode == 0, f"batch: {done.stderr[-300:]}")
    first, second = (
        {file.name: file.read_bytes() for file in (place / out).glob("part-*")} for out in ("batch", "undisturbed")
    )
    outcome.check(first == second, "batch: other shards after interruptions")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _interrupt(outcome: Outcome, name: str, words: list[str], place: Path, at_s: float) -> float:
    """Interrupt one run unless it is done by then; return how long it took to end."""
    with _running(words, place) as process:
        with suppress(subprocess.TimeoutExpired):
            outcome.check(process.wait(at_s) == 0, f"{name}: ended by itself with {process.returncode}")
            return 0.0
        outcome.tried += 1
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            outcome.fail(f"{name}: did not end within 20 s of Ctrl-C at {at_s:.2f} s")
            return 20.0
        took = time.monotonic() - sent
    told = err.decode(errors="replace")
    where = f"{name}, Ctrl-C at {at_s:.2f} s"
    outcome.check(took <= LIMIT_S, f"{where}: ended after {took:.2f} s")
    outcome.check("Traceback" not in told, f"{where}: {told.strip()[-300:]}")
    # A server ends in good order with 0, and so does a command that was just done.
    outcome.check(process.returncode in (0, 130), f"{where}: exit code {process.returncode}")
    outcome.check(process.returncode != 130 or SAID in told, f"{where}: said {told.strip()[-300:]!r}")
    return took


@contextmanager
def _running(words: list[str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
    for file in place.glob("*.db*"):
        file.unlink()
    env = {**os.environ, "TMPDIR": str(place)}
    process = subprocess.Popen(
        [sys.executable, "-m", "resift.cli.main", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
