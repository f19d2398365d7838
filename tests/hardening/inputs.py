"""Bad inputs at every entry point: an error of ours, or an answer. Never a raw error, never a hang."""

# ruff: noqa: E501 - a row of data reads best on one line
from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resift.errors import ResiftError
from resift.types import Hit
from tests.hardening.entry_points import EntryPoint, entry_points
from tests.hardening.report import Outcome

HANG_S = 20

VALUES: tuple[Any, ...] = (
        None, True, False, 0, 1, -1, 2.5, -0.0, math.nan, math.inf, -math.inf, 10**400, -(10**30), 1e308, 5e-324, "", " ", "x", "3",
        "\0", "\ud800", "\u202e", "a" * 100_000, "1" * 5_000, b"x", b"\xff", bytearray(b"x"), (), [], {}, set(), frozenset({1}), [None], [1, 2],
        [[]], [[1]], [{}], [{"id": None}], [{"id": 1, "text": 2}], [{"id": "a"}, {"id": "a"}], [{"text": "t"}], [{"id": "a", "text": "t", "score": math.nan}],
        [{"id": "a", "score": 1e308}, {"id": "b", "score": -1e308}], [{"id": "a", "metadata": {1: 2}}], [{"id": "a", "metadata": "m"}], ["a", "a", ""],
        [Hit("a"), "b", {"id": "c"}], [Hit("a", score=1e308), Hit("a", score=1e308)], {"a": None}, {"a": [1]}, {1: [2]}, {"": []}, {"query": None},
        {"a": {"$gt": "x"}}, {"a": object}, object(), object, len, lambda: None, ..., NotImplemented, 3 + 4j, range(3), Path("/nonexistent/x"),
        Path("/dev/null"), Path("."), "/nonexistent/x", "/etc", "../..", "https://example.org", "http://127.0.0.1:1", "${HOME}", "%s%n", "{0.__class__}",
        ValueError("x"), memoryview(b"x"), [[Hit("a", "t", 0.5)], [Hit("a", "t", 0.5)]], "[]", "{}", "null", '{"hits": 3}', '{"hits": [{"id": "a", "rank": "<b>"}]}',
        "[" * 50_000, "nan", "9" * 5000,
)  # fmt: skip


def attack(seed: int, count: int) -> Outcome:
    """Try `count` bad inputs: four of five at the library's entry points, the others at the command line."""
    outcome = Outcome("bad inputs at the entry points of the library and the command line")
    draw = random.Random(seed)
    raw: Counter[str] = Counter()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name, _in_folder(Path(name)) as folder:
        opened = entry_points(folder)
        for at in range(count * 4 // 5):
            _try_entry_point(outcome, opened[at % len(opened)], draw, raw)
        for _ in range(count - count * 4 // 5):
            _try_command(outcome, folder, draw, raw)
    logging.disable(logging.NOTSET)
    outcome.figures = {"entry points": len(opened), "raw": dict(raw.most_common(60))}
    return outcome


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[Path]:
    # Two levels down: ".." and "../.." lead into the folder, too.
    inside = folder / "work" / "here"
    inside.mkdir(parents=True)
    with contextlib.chdir(inside):
        yield inside


class Hang(BaseException):
    """A call took too long; not an Exception, so that nobody catches it."""


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _try_entry_point(outcome: Outcome, entry_point: EntryPoint, draw: random.Random, raw: Counter[str]) -> None:
    arguments: dict[str, Any] = dict(entry_point.valid)
    # Mostly one bad value among good ones: two would hide each other.
    for name in draw.sample(sorted(arguments), k=min(len(arguments), draw.choice([1, 1, 1, 2]))):
        arguments[name] = draw.choice(VALUES)
    if draw.random() < 0.1 and len(arguments) > 1:
        arguments.pop(draw.choice(sorted(arguments)))
        if not _may_leave_out(entry_point, arguments):
            return
    outcome.tried += 1
    try:
        with _watched():
            entry_point.open(arguments)
    except ResiftError as exc:
        outcome.check(bool(str(exc).strip()), f"{entry_point.name}: an error without words")
    except Hang:
        outcome.fail(f"{entry_point.name} hangs with {_shown(arguments)}")
    except (Exception, SystemExit) as exc:
        raw[f"{entry_point.name}: {type(exc).__name__}"] += 1
        outcome.fail(f"{entry_point.name}: raw {type(exc).__name__}: {str(exc)[:80]} with {_shown(arguments)}")


def _may_leave_out(entry_point: EntryPoint, arguments: Mapping[str, Any]) -> bool:
    """Whether the rest can be called at all: Python itself complains of a missing argument, and rightly."""
    import inspect

    try:
        signature = inspect.signature(entry_point.call)
        signature.bind(**arguments)
    except (TypeError, ValueError):
        return False
    # A wrapper that passes every argument on has no signature of its own.
    return not any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={repr(value)[:60]}" for name, value in arguments.items())


CONTENTS: tuple[bytes, ...] = (
    b"", b"\n", b"\0" * 50, b"\xff\xfe\x00", b"{", b"[]", b"null", b"{}\n{}", b'{"id": 1}\n', b'{"id": "a", "text": 5}\n', b"not json\n",
    b'{"id": "a", "text": "x", "score": NaN}\n', b'{"id": "a", "text": "x", "score": 1e999}\n', b'{"id": ' + b"9" * 5000 + b"}\n", b"[" * 20_000 + b"\n",
    b'{"hits": [{"id": "a", "score": "<script>"}]}', b'{"hits": [1]}', b"1 Q0 a 1 0.5 r\n", b"1 Q0 a x y r\n", b"a,b\n1\n", b"id,text\n1,\xff\n", b"PK\x03\x04junk",
    b"SQLite format 3\0" + bytes(100), b"stores: [", b"stores: 3\n", b"stores:\n- kind: nope\n", b"!!python/object:os.system x\n", b"a: &a [*a]\n",
    b'{"id": "\xed\xa0\x80", "text": "x"}\n', b'{"id": "a\\u0000", "text": "\\ud800"}\n', "{\"id\": \"\u202e\", \"text\": \"x\"}\n".encode(), b"x" * 200_000,
)  # fmt: skip
COMMANDS = (
    ["rerank", "query", "{file}"], ["rerank", "", "{file}"], ["rerank", "q", "{file}", "-k", "{word}"], ["rerank", "q", "{file}", "--json"], ["fuse", "{file}", "{file}"],
    ["fuse", "{file}", "--method", "{word}"], ["fuse", "{file}", "--trec"], ["fuse", "{file}", "-k", "{word}"], ["fuse", "{file}", "--weights", "{word}"],
    ["explain", "{file}"], ["explain", "{file}", "--id", "{word}"], ["explain", "{file}", "-o", "{word}"], ["index", "{file}", "--text-only", "--store", "i.db"],
    ["index", "{word}", "--text-only", "--store", "i.db"], ["search", "{word}", "--store", "{file}"], ["search", "q", "--store", "{word}"], ["config", "check", "{file}"],
    ["config", "show", "{file}"], ["calibrate", "{file}"], ["eval", "{word}"], ["eval", "{file}"], ["compare", "{file}", "{file}"], ["tune", "{file}"],
    ["record", "{word}", "-o", "{file}"], ["graph", "info", "{file}"], ["ask", "q", "--pack", "{file}"], ["{word}"], ["{word}", "{file}"], ["completion", "{word}"],
    ["doctor", "{word}"], ["search", "q", "--store", "i.db", "-k", "{word}"], ["search", "q", "--store", "i.db", "--where", "{word}"],
)  # fmt: skip
WORDS = (
    "",
    "-1",
    "0",
    "1.5",
    "nan",
    "abc",
    "--help-me",
    "a=b",
    "=",
    "/nonexistent",
    ".",
    "..",
    "/dev/null",
    "\u202e",
    "é" * 300,
    "'; DROP TABLE x",
    "%00",
    "9" * 400,
    "\ud800",
)


def _try_command(outcome: Outcome, folder: Path, draw: random.Random, raw: Counter[str]) -> None:
    from resift.cli.main import main

    file = folder / draw.choice(
        ["in.jsonl", "in.json", "in.txt", "in.csv", "in.md", "in.yaml", "in.run", "in.html", "in.db", "in.pdf"]
    )
    file.write_bytes(draw.choice(CONTENTS))
    words = [word.format(file=file.name, word=draw.choice(WORDS)) for word in draw.choice(COMMANDS)]
    outcome.tried += 1
    out, err = io.StringIO(), io.StringIO()
    stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(draw.choice(CONTENTS)), encoding="utf-8", errors="replace")
    try:
        with _watched(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        outcome.check(code in (0, 1, 2), f"{words}: exit code {code}")
        outcome.check(code == 0 or bool(err.getvalue().strip()), f"{words}: fails without a word")
    except SystemExit as exc:
        outcome.check(exc.code in (0, 1, 2), f"{words}: exit code {exc.code}")
    except Hang:
        outcome.fail(f"{words} hangs on {file.read_bytes()[:40]!r}")
    except Exception as exc:
        raw[f"resift {words[0]}: {type(exc).__name__}"] += 1
        outcome.fail(f"{words}: raw {type(exc).__name__}: {str(exc)[:80]} on {file.read_bytes()[:40]!r}")
    finally:
        sys.stdin = stdin
    outcome.check("Traceback" not in err.getvalue(), f"{words}: a traceback on stderr")


def main(argv: list[str] | None = None) -> int:
    """Show raw errors by entry point."""
    given = argv or sys.argv[1:]
    outcome = attack(int(given[1]) if len(given) > 1 else 1, int(given[0]) if given else 2000)
    print(json.dumps(outcome.figures, indent=1), outcome.tried, outcome.failures, *outcome.examples, sep="\n")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
