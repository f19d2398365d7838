"""Sections of a file: text with its context (a heading, a page, a row). Readers yield them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from resift.ingest.sources import Source, open_text
from resift.types import Metadata

SEPARATOR = " › "
MAX_TITLE = 300
"""Characters of a title or heading that precede every chunk. A longer heading is read as text."""

_PIECE = 200_000  # characters of a plain text held in memory
_BLOCK = 65_536


@dataclass(frozen=True, slots=True)
class Section:
    """Text with its context. A section with an `id` is one document and is never split.

    `context` (headings, a title) is put before each of its chunks. `flag` notes something unusual, `problem`
    names what could not be read. `position` is the number of bytes of the file read so far, for progress.
    `fields` are the fields of a record that its text was read from.
    """

    text: str
    id: str | None = None
    context: str = ""
    metadata: Metadata = field(default_factory=dict)
    flag: str = ""
    problem: str = ""
    position: int = 0
    fields: tuple[str, ...] = ()


class SectionBuilder:
    """Collects lines under headings and returns them as sections, in order."""

    def __init__(self, title: str = "") -> None:
        self._title = title
        self._open: list[tuple[int, str]] = []
        self._heading: tuple[int, str] | None = None
        self._sections: list[Section] = []
        self.lines: list[str] = []

    def heading(self, level: int, title: str) -> None:
        """Start a section; close the headings of this level and below."""
        self._close(next_level=level)
        self._open = [(depth, name) for depth, name in self._open if depth < level]
        self._open.append((level, title if len(title) <= MAX_TITLE else ""))
        self._heading = (level, title)
        if len(title) > MAX_TITLE:
            self.lines.append(title)

    def sections(self) -> list[Section]:
        """Return all sections. Call it once, at the end."""
        self._close(next_level=0)
        return self._sections

    def _close(self, *, next_level: int) -> None:
        text = "\n".join(self.lines).strip()
        self.lines = []
        context = SEPARATOR.join(name for _, name in self._open if name)
        metadata = {"title": self._title} if self._title else {}
        if context:
            metadata["heading"] = context
        if not text and self._heading is not None and next_level <= self._heading[0]:
            # Nothing follows the heading, not even a deeper one: the heading itself is the text.
            text = self._heading[1]
            context = SEPARATOR.join(name for _, name in self._open[:-1] if name)
        if text:
            self._sections.append(Section(text, context=context or self._title, metadata=metadata))
        self._heading = None


def clean_title(text: object) -> str:
    """Return a title on one line, shortened to the length of a heading."""
    return " ".join(str(text or "").split())[:MAX_TITLE]


def flag_first(sections: Iterable[Section], flag: str) -> Iterator[Section]:
    """Yield the sections, with a flag on the first one."""
    for number, section in enumerate(sections):
        yield replace(section, flag=flag) if number == 0 and flag else section


def plain_sections(source: Source, *, context: str = "", flag: str = "") -> Iterator[Section]:
    """Yield the text of a file; split a long one at the last paragraph, line or word of each piece."""
    encoding = source.encoding()
    flags = "; ".join(filter(None, (flag, encoding.flag)))
    text = open_text(source.file, encoding.name, newline=None)
    try:
        pending = ""
        while block := text.read(_BLOCK):
            pending += block
            if len(pending) >= _PIECE:
                cut = _find_cut(pending)
                position = min(source.size, source.file.tell())
                yield Section(pending[:cut], context=context, flag=flags, position=position)
                pending, flags = pending[cut:], ""
        if pending.strip():
            yield Section(pending, context=context, flag=flags, position=source.size)
    finally:
        text.detach()


def _find_cut(text: str) -> int:
    for border in ("\n\n", "\n", ". ", "。", " "):
        index = text.rfind(border, _PIECE // 2)
        if index > 0:
            return index + len(border)
    return len(text)
