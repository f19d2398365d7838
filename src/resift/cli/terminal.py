"""Output: text, tables and progress for people, JSON and tab-separated lines for programs.

Escape sequences and direction marks in documents and file names are printed as escapes. Our own styles use a private
character instead of ESC, which is substituted last. rich is imported on first use.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from resift.text.snippets import display_width, one_line
from resift.types import JsonObject, to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PALETTE = {"red": 196, "green": 28, "yellow": 130, "blue": 27, "magenta": 163, "cyan": 30}
"""Colors of the 256-color palette that are readable on black and on white; themes redefine the first 16."""

_CODES = {"bold": "1", "dim": "2", **{name: f"38;5;{number}" for name, number in PALETTE.items()}}

# Control characters except tab and line feed, direction marks, line separators, tags and lone surrogates.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
# Replaces ESC in our own styles. It differs in each process, so that no document can contain it on purpose.
STYLE_MARK = chr(0xF0000 + int.from_bytes(os.urandom(2)) % 0xFFF0)

_NUMBER_AND_UNIT = re.compile(r"(?<![\d.,])(\d[\d.,]*) (s|ms|min|h|MB|%)(?![\w])")
_NUMERIC = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)?(?:e[+-]?\d+)?[%×]?|–", re.IGNORECASE)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MIN_NAME_COLUMNS, _MIN_TEXT_COLUMNS = 8, 20


def in_pipe() -> bool:
    """Whether the output goes to a file or another program instead of a terminal."""
    return not sys.stdout.isatty()


def width() -> int:
    """Return the columns of the terminal, between 40 and 120."""
    return max(40, min(120, shutil.get_terminal_size((80, 24)).columns))


def _split_columns(headers: Sequence[str], sizes: list[int], flexible: int) -> list[list[int]]:
    """Return the columns of each table, and set the sizes that fit the terminal."""

    def total(columns: Sequence[int]) -> int:
        return sum(sizes[i] for i in columns) + 2 * (len(columns) - 1)

    # Columns without a heading are bars, which are dropped first.
    fits = total(range(len(sizes))) <= width()
    columns = [i for i, head in enumerate(headers) if head or fits]
    first, natural = columns[0], list(sizes)
    minimum = min(natural[flexible], _MIN_NAME_COLUMNS if flexible == first else _MIN_TEXT_COLUMNS)
    sizes[flexible] = max(minimum, natural[flexible] + min(0, width() - total(columns)))
    if total(columns) <= width():
        return [columns]
    sizes[first] = min(natural[first], width() // 3)
    tables = [[first]]
    for i in columns[1:]:
        if len(tables[-1]) > 1 and total([*tables[-1], i]) > width():
            tables.append([first])
        tables[-1].append(i)
    for table in tables:
        for i in {table[-1], flexible} & set(table) - {first}:
            sizes[i] = max(4, min(natural[i], width() - total(table) + sizes[i]))
    return tables


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, width=width(), highlight=False, markup=False, emoji=False)


def write(text: str, stream: TextIO) -> None:
    """Write a line of text in which only our own styles affect the terminal."""
    safe = escape_controls(text)
    if STYLE_MARK not in safe:
        stream.write(safe + "\n")
        return
    from rich.text import Text

    _console(stream).print(Text.from_ansi(safe.replace(STYLE_MARK, "\x1b")), soft_wrap=True)


def style(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Return text in bold, dim or a color if the stream is a terminal and NO_COLOR is not set; "" means no style."""
    if not any(styles) or not _has_styles(stream or sys.stdout):
        return text
    return f"{STYLE_MARK}[{';'.join(_CODES[name] for name in styles)}m{text}{STYLE_MARK}[0m"


def _has_styles(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def escape_controls(text: str) -> str:
    r"""Return the text with all characters that affect a terminal written as escapes, such as \x1b."""
    return _ACTIVE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_in_json(text: str) -> str:
    """Return JSON text with the same characters written as JSON escapes; its value does not change."""
    return _ACTIVE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def wrap(text: str, *, indent: str = "") -> str:
    """Return text in lines that fit the terminal; a number stays with its unit."""
    unbroken = _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(unbroken, width() - len(indent), break_on_hyphens=False)
    return "\n".join(indent + line for line in lines).replace("\N{NO-BREAK SPACE}", " ")


def bar(value: float, maximum: float, columns: int = 12) -> str:
    """Return a horizontal bar, padded to `columns` characters."""
    if maximum <= 0 or value <= 0:
        return " " * columns
    full, part = divmod(round(min(1.0, value / maximum) * columns * 8), 8)
    return (_EIGHTHS[8] * full + (_EIGHTHS[part] if part else "")).ljust(columns)


def count(number: int, noun: str) -> str:
    """Return a count with its noun: "1 row", "2 rows"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Progress:
    """A progress bar on stderr, redrawn at most ten times a second; silent in pipes."""

    def __init__(self, label: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.label = label
        self._clock = clock
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, done: int, total: int) -> None:
        """Redraw the bar; cheap enough to call often."""
        if not sys.stderr.isatty():
            return
        now = self._clock()
        if now - self._drawn_at < 0.1 and done < total:
            return
        self._drawn_at = now
        display, task = self._display
        label = escape_controls(self.label)
        display.update(task, completed=done, total=max(1, total), description=label, refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        if "_display" in self.__dict__:
            self._display[0].stop()
            del self._display

    @functools.cached_property
    def _display(self) -> tuple[RichProgress, TaskID]:
        from rich import progress

        display = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(24),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(compact=True),
            console=_console(sys.stderr),
            auto_refresh=False,
            transient=True,
            get_time=lambda: self._drawn_at,
        )
        display.start()
        return display, display.add_task(self.label)


class Output:
    """Writes text, notes, errors and tables for people, JSON and tab-separated lines for programs."""

    def text(self, text: str = "") -> None:
        """Write a line of text to stdout."""
        write(text, sys.stdout)

    def note(self, text: str) -> None:
        """Write a line of text to stderr."""
        write(text, sys.stderr)

    def error(self, message: str) -> int:
        """Write one line to stderr and return the exit code 1."""
        self.note(f"{style('resift:', 'red', stream=sys.stderr)} {' '.join(message.split())}")
        return 1

    def json(self, data: object) -> int:
        """Write canonical JSON, indented on a terminal, one line in a pipe; return the exit code 0."""
        sys.stdout.write((to_json(data) if in_pipe() else escape_in_json(to_json(data, indent=2))) + "\n")
        return 0

    def tsv(self, *values: object) -> None:
        """Write a line of tab-separated values for other programs; newlines and tabs in values become spaces."""
        texts = [f"{value:.6g}" if isinstance(value, float) else str(value or "") for value in values]
        sys.stdout.write("\t".join(map(one_line, texts)) + "\n")

    def table(
        self, headers: Sequence[str], rows: Iterable[Sequence[object]], *, stretch: int = -1, wrap: bool = False
    ) -> None:
        """Write a table that fits the terminal; the column `stretch` is clipped if space is tight, or the last wrapped.

        Columns that do not fit follow in another table, which repeats the first column.
        """
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        def to_cell(value: object) -> str:
            if isinstance(value, float):
                return f"{value:.4g}"
            return "–" if value is None else escape_controls(str(value)).replace("\n", " ").replace("\t", " ")

        body = [[to_cell(value) for value in row] for row in rows]
        flexible = range(len(headers))[-1 if wrap else stretch]
        sizes = [max([display_width(head), *(display_width(row[i]) for row in body)]) for i, head in enumerate(headers)]
        plain = not _has_styles(sys.stdout)
        for i, columns in enumerate(_split_columns(headers, sizes, flexible)):
            if i:
                self.text()
            table = Table(
                box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
                header_style="" if plain else "bold", border_style="" if plain else "dim",
            )  # fmt: skip
            for column in columns:
                numeric = bool(body) and all(_NUMERIC.fullmatch(row[column]) for row in body)
                options: JsonObject = {"justify": "right" if numeric else "left", "width": sizes[column]}
                options["no_wrap"] = not (wrap and column == flexible)
                table.add_column(headers[column], overflow="fold" if wrap else "ellipsis", **options)
            for row in body:
                table.add_row(*(row[column] for column in columns))
            self.rich(table)

    def rich(self, renderable: RenderableType) -> None:
        """Write a rich renderable; its text must not contain control characters."""
        console = _console(sys.stdout)
        with console.capture() as capture:
            console.print(renderable, soft_wrap=True)
        # rich pads lines to the full width.
        sys.stdout.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())


out = Output()
