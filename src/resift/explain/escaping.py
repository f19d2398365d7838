"""Foreign text in pictures and on terminals: on one line, and shortened where it stays readable.

Room is counted in columns of a terminal: a character of Chinese, Japanese or Korean takes two, a mark that
stands on the one before it takes none.
"""

from __future__ import annotations

import re
import unicodedata

_HASH = re.compile(r"[0-9a-f]{8,}")
_PHRASE = re.compile(r" \+ |[:;] ")
_KEPT = 4
"""How much of a digest at the end of an id is shown at least: enough to tell two apart."""


def cells(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def one_line(text: str) -> str:
    """Return the text without control, tab and direction characters and without line ends."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def clip(text: str, most: int) -> str:
    """Return the text on one line, shortened with … to at most that many columns."""
    line = one_line(text)
    return line if cells(line) <= most else _head(line, most - 1) + "…"


def clip_phrase(text: str, most: int) -> str:
    """Return a reason on one line, shortened with … behind a whole phrase, else behind a whole word."""
    line = one_line(text)
    if cells(line) <= most:
        return line
    ends = [end.start() for end in _PHRASE.finditer(_head(line, most - 1))]
    return f"{line[: ends[-1]]} …" if ends else clip_words(line, most)


def clip_words(text: str, most: int) -> str:
    """Return the text on one line, shortened with … behind a whole word where it has spaces."""
    shown = clip(text, most)
    words = shown.rpartition(" ")[0] if shown.endswith("…") else ""
    return f"{words} …" if 2 * cells(words) > most else shown


def short_id(id: str, most: int) -> str:
    """Return an id within that many columns: a digest at its end and outer folders go first.

    `handbook/rooms/library.md#ab1c178bc6e6` becomes `…/library.md#ab1c`.
    """
    line = one_line(id)
    if cells(line) <= most:
        return line
    path, mark, part = line.rpartition("#")
    if mark and _HASH.fullmatch(part):
        line = f"{path}#{part[:_KEPT]}"
    folders, slash, name = line.rpartition("/")
    while cells(line) > most and slash:
        _, slash, folders = folders.partition("/")
        line = f"…/{folders}/{name}" if slash else f"…/{name}"
    if cells(line) <= most:
        return line
    # One long name: its end tells pages and chunks apart, its beginning says what it is.
    tail = _tail(line, min(most // 2, 9))
    return f"{_head(line, most - 1 - cells(tail))}…{tail}"


def _head(text: str, most: int) -> str:
    """Return as much of the beginning as fits."""
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > most:
            return text[:at]
    return text


def _tail(text: str, most: int) -> str:
    """Return as much of the end as fits."""
    return _head(text[::-1], most)[::-1]
