"""Text on its way to a terminal: what a document or a file name brings along must not act there.

A document can hold escape sequences that clear the screen, set the clipboard or hide a line, and
characters that turn the direction of what follows. They are shown as escapes instead. Our own colours
travel as a mark that no document can know, and become escape sequences last.
"""

from __future__ import annotations

import os
import re
from typing import TextIO

# Controls but tab and line feed; signs of direction; separators of lines; tags; halves of characters.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)

COLOUR = chr(0xF0000 + int.from_bytes(os.urandom(2)) % 0xFFF0)
"""Stands for ESC until the text is written: a private character, another one in each process."""


def visible(text: str) -> str:
    """Return the text with everything that acts on a terminal written as an escape, such as an ESC."""
    return _ACTIVE.sub(_escaped, text)


def json_visible(text: str) -> str:
    """Return JSON text with the same characters in JSON's own escapes: its value does not change."""
    return _ACTIVE.sub(_json_escaped, text)


def write(text: str, stream: TextIO) -> None:
    """Write text for people: nothing in it acts on the terminal but our own colours."""
    stream.write(visible(text).replace(COLOUR, "\x1b"))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
