"""Shorten texts and ids to a number of terminal columns, on one line and without control characters.

rich measures the width: a Chinese, Japanese or Korean character takes two columns, a combining mark none.
"""

from __future__ import annotations

import re

_DIGEST = re.compile(r"[0-9a-f]{8,}")
_PHRASE_END = re.compile(r" \+ |[:;] ")
_DIGEST_SHOWN = 4  # enough hexadecimal digits to distinguish chunks of one file


def display_width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len  # not at the top: most commands print ASCII and need no rich

    return cell_len(text)


def one_line(text: str) -> str:
    """Return the text without control, tab, direction and newline characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def clip(text: str, width: int) -> str:
    """Return the text on one line, shortened with … to at most that many columns."""
    line = one_line(text)
    return line if display_width(line) <= width else _head(line, width - 1) + "…"


def clip_phrase(text: str, width: int) -> str:
    """Return a reason on one line, shortened with … after a complete phrase, or after a complete word."""
    line = one_line(text)
    if display_width(line) <= width:
        return line
    ends = [end.start() for end in _PHRASE_END.finditer(_head(line, width - 1))]
    return f"{line[: ends[-1]]} …" if ends else clip_words(line, width)


def clip_words(text: str, width: int) -> str:
    """Return the text on one line, shortened with … after a complete word if it has spaces."""
    clipped = clip(text, width)
    words = clipped.rpartition(" ")[0] if clipped.endswith("…") else ""
    return f"{words} …" if 2 * display_width(words) > width else clipped


def short_id(id: str, width: int) -> str:
    """Return an id within that many columns; digits of its digest and outer folders are dropped first.

    `handbook/rooms/library.md#ab1c178bc6e6` becomes `…/library.md#ab1c`.
    """
    line = one_line(id)
    if display_width(line) <= width:
        return line
    path, mark, digest = line.rpartition("#")
    if mark and _DIGEST.fullmatch(digest):
        line = f"{path}#{digest[:_DIGEST_SHOWN]}"
    folders, slash, name = line.rpartition("/")
    while display_width(line) > width and slash:
        _, slash, folders = folders.partition("/")
        line = f"…/{folders}/{name}" if slash else f"…/{name}"
    if display_width(line) <= width:
        return line
    # One long name: its end distinguishes pages and chunks, its beginning says what it is.
    tail = _head(line[::-1], min(width // 2, 9))[::-1]
    return f"{_head(line, width - 1 - display_width(tail))}…{tail}"


def _head(text: str, width: int) -> str:
    """Return as much of the beginning as fits."""
    used = 0
    for i, char in enumerate(text):
        used += display_width(char)
        if used > width:
            return text[:i]
    return text
