"""Foreign text inside markup: escaped, on one line where asked, without characters that XML forbids."""

from __future__ import annotations

import html
import re

# Control characters, lone surrogates and non-characters: no XML parser takes them, some cannot be written.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Return text that is safe between tags and inside quoted attributes."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text), quote=True)


def clip(text: str, most: int) -> str:
    """Return the text on one line, shortened with … to at most that many characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else line[: max(0, most - 1)] + "…"
