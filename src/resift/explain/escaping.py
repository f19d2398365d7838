"""Foreign text in pictures: on one line, and short enough."""

from __future__ import annotations


def clip(text: str, most: int) -> str:
    """Return the text on one line, shortened with … to at most that many characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else line[: max(0, most - 1)] + "…"
