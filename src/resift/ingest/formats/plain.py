"""Text of any length, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from resift.ingest.decoding import open_text
from resift.ingest.sections import Section
from resift.ingest.sources import Source

_PIECE = 200_000  # characters held at a time
_BLOCK = 65_536


def plain_sections(source: Source, *, context: str = "", flag: str = "") -> Iterator[Section]:
    """Yield the text; a long one in several sections, cut at the last paragraph, line or word."""
    encoding = source.encoding()
    flags = "; ".join(filter(None, (flag, encoding.flag)))
    text = open_text(source.file, encoding.name, newline=None)
    try:
        held = ""
        while block := text.read(_BLOCK):
            held += block
            if len(held) >= _PIECE:
                at = _cut(held)
                yield Section(
                    held[:at], context=context, flag=flags, position=min(source.size, source.file.tell())
                )
                held, flags = held[at:], ""
        if held.strip():
            yield Section(held, context=context, flag=flags, position=source.size)
    finally:
        text.detach()


def _cut(text: str) -> int:
    for border in ("\n\n", "\n", ". ", "。", " "):
        at = text.rfind(border, _PIECE // 2)
        if at > 0:
            return at + len(border)
    return len(text)
