"""Text for people: tables, bars, colour, progress; lines and JSON for programs. Nothing else prints."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, TextIO, TypeVar

from resift.cli.terminal import COLOUR, json_visible, visible, write
from resift.explain.escaping import cells, clip, one_line
from resift.types import to_json

T = TypeVar("T")

PALETTE = {"red": 196, "green": 28, "yellow": 130, "blue": 27, "magenta": 163, "cyan": 30}
"""Colors of the 256-color palette that can be read on black and on white; themes redefine the first 16."""

_CODES = {
    "bold": "1",
    "dim": "2",
    **{name: f"38;5;{number}" for name, number in PALETTE.items()},
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WITH_UNIT = re.compile(r"(?<![\d.,])(\d[\d.,]*) (s|ms|min|h|MB|%)(?![\w])")
_GLUE = "\x1f"
_LEAST, _LEAST_TEXT = 8, 20
"""How narrow a column that gives way may become: a name in the first one, text in any other."""


def in_pipe() -> bool:
    """Whether the output goes to a file or another program instead of a terminal."""
    return not sys.stdout.isatty()


def print_json(data: object) -> None:
    """Write canonical JSON, indented on a terminal, one line in a pipe."""
    if in_pipe():
        sys.stdout.write(to_json(data) + "\n")
    else:
        sys.stdout.write(json_visible(to_json(data, indent=2)) + "\n")


def print_text(text: str = "") -> None:
    """Write a line for people."""
    write(text + "\n", sys.stdout)


def print_note(text: str) -> None:
    """Write a line for people beside the output, to stderr."""
    write(text + "\n", sys.stderr)


def print_tsv(*values: object) -> None:
    """Write one line of tab-separated values for other programs; tabs and line ends in them become spaces."""
    sys.stdout.write("\t".join(_one_line(value) for value in values) + "\n")


def complain(message: str) -> int:
    """Write one line of error to stderr and return the exit code 1."""
    one_line = " ".join(message.split())
    print_note(f"{paint('resift:', 'red', stream=sys.stderr)} {one_line}")
    return 1


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Return the text in colour where the stream is a terminal and NO_COLOR is unset.

    Only `print_text`, `print_note` and `complain` turn it into escape sequences.
    """
    out = stream or sys.stdout
    if not styles or not out.isatty() or os.environ.get("NO_COLOR"):
        return text
    codes = ";".join(_CODES[style] for style in styles)
    return f"{COLOUR}[{codes}m{text}{COLOUR}[0m"


def painter(stream: TextIO | None = None) -> Callable[[str, str], str]:
    """Return `paint` for one style at a time, as pictures take it."""
    return lambda text, style: paint(text, *([style] if style else []), stream=stream)


def width() -> int:
    """Return the columns of the terminal, between 40 and 120."""
    return max(40, min(120, shutil.get_terminal_size((80, 24)).columns))


def bar(value: float, most: float, columns: int = 12) -> str:
    """Return a horizontal bar of up to that many columns."""
    if most <= 0 or value <= 0:
        return " " * columns
    eighths = round(min(1.0, value / most) * columns * 8)
    full, part = divmod(eighths, 8)
    return (_EIGHTHS[8] * full + (_EIGHTHS[part] if part else "")).ljust(columns)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, stretch: int = -1, wrap: bool = False
) -> str:
    """Return an aligned table that fits the terminal; column `stretch` gives way when space is short.

    Numbers stand right, words left, and no number is ever cut: where columns are too many for the terminal,
    the rest follows below, with the first column again. With `wrap` the last column goes on in further
    lines instead of being cut.
    """
    body = [[_cell(value) for value in row] for row in rows]
    sizes = [max([cells(head), *(cells(row[at]) for row in body)]) for at, head in enumerate(headers)]
    # Bars have no heading: they are the first to go.
    roomy = _total(sizes, range(len(sizes))) <= width()
    shown = [at for at, head in enumerate(headers) if head or roomy]
    giving = range(len(headers))[-1 if wrap else stretch]
    blocks = _blocks(shown, sizes, giving)
    return "\n\n".join(_block(headers, body, sizes, columns, wrap=wrap) for columns in blocks)


def _blocks(shown: Sequence[int], sizes: list[int], giving: int) -> list[list[int]]:
    """Share the columns out to blocks that fit the terminal; columns that give way are made smaller."""
    first, natural = shown[0], list(sizes)
    least = _LEAST if giving == first else _LEAST_TEXT
    sizes[giving] = max(min(natural[giving], least), natural[giving] + min(0, width() - _total(sizes, shown)))
    if _total(sizes, shown) <= width():
        return [list(shown)]
    sizes[first] = min(natural[first], width() // 3)
    blocks = [[first]]
    for at in shown[1:]:
        if len(blocks[-1]) > 1 and _total(sizes, [*blocks[-1], at]) > width():
            blocks.append([first])
        blocks[-1].append(at)
    for columns in blocks:  # a column that would not fit alone, and text that now has room
        for at in {columns[-1], giving} & set(columns) - {first}:
            room = width() - _total(sizes, columns) + sizes[at]
            sizes[at] = max(4, min(natural[at], room))
    return blocks


def _block(
    headers: Sequence[str], body: list[list[str]], sizes: list[int], columns: list[int], *, wrap: bool
) -> str:
    room = [sizes[at] for at in columns]
    right = [bool(body) and all(_is_number(row[at]) for row in body) for at in columns]
    lines = [
        paint(_line([headers[at] for at in columns], room, right), "bold"),
        paint("─" * min(width(), _total(sizes, columns)), "dim"),
    ]
    for row in body:
        chosen = [row[at] for at in columns]
        further = textwrap.wrap(chosen[-1], room[-1], break_on_hyphens=False) if wrap else []
        for at, part in enumerate(further or [chosen[-1]]):
            lines.append(_line([*(chosen[:-1] if at == 0 else [""] * (len(room) - 1)), part], room, right))
    return "\n".join(lines)


def prose(text: str, *, indent: str = "") -> str:
    """Return a sentence in lines that fit the terminal; a number stays with its unit."""
    kept = _WITH_UNIT.sub(f"\\1{_GLUE}\\2", text)
    lines = textwrap.wrap(kept, width() - len(indent), break_on_hyphens=False)
    return "\n".join(indent + line for line in lines).replace(_GLUE, " ")


def progress(items: Sequence[T], *, label: str) -> Iterator[T]:
    """Yield the items while a progress bar runs on stderr, if stderr is a terminal."""
    with Progress(label, len(items)) as meter:
        for done, item in enumerate(items, start=1):
            yield item
            meter.show(done)


class Progress:
    """A progress bar on stderr that stays silent in pipes and redraws at most ten times a second.

    The time left follows from the last hundred states drawn: what an earlier run had done took no time now.
    Use it in a `with` statement, which removes the bar at the end.
    """

    def __init__(self, label: str, total: int = 1, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.label = label
        self.total = total
        self._clock = clock
        self._drawn: deque[tuple[float, int]] = deque(maxlen=100)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, done: int, total: int) -> None:
        """Draw the state of work whose size may have changed."""
        self.total = max(1, total)
        self.show(done)

    def show(self, done: int) -> None:
        """Draw the state; cheap to call often."""
        now = self._clock()
        if not sys.stderr.isatty():
            return
        if self._drawn and now - self._drawn[-1][0] < 0.1 and done < self.total:
            return
        self._drawn.append((now, done))
        began, before = self._drawn[0]
        left_s = (self.total - done) * (now - began) / (done - before) if done > before else None
        left = "" if left_s is None else f"  {_duration(left_s)} left"
        line = f"{self.label} {bar(done, self.total, 24)} {done}/{self.total}{left}"
        sys.stderr.write(f"\r{clip(line, width() - 1)}\x1b[K")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the bar."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _total(sizes: Sequence[int], columns: Sequence[int]) -> int:
    return sum(sizes[at] for at in columns) + 2 * (len(columns) - 1)


def _one_line(value: object) -> str:
    """Return a value as one line without control, tab and direction characters."""
    return "" if value is None else one_line(f"{value:.6g}" if isinstance(value, float) else str(value))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else visible(str(value)).replace("\n", " ").replace("\t", " ")


def _is_number(text: str) -> bool:
    if not text:
        return True
    try:
        float(text.removesuffix("%").removesuffix("×").replace("–", "0"))
    except ValueError:
        return False
    return True


def _line(row: Sequence[str], sizes: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for text, size, is_right in zip(row, sizes, right, strict=True):
        shown = clip(text, size) if cells(text) > size else text
        gap = " " * (size - cells(shown))
        parts.append(gap + shown if is_right else shown + gap)
    return "  ".join(parts).rstrip()
