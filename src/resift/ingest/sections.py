"""A section: a stretch of a file with one context (a heading, a page, a row). What readers yield."""

from __future__ import annotations

from dataclasses import dataclass, field

from resift.types import Metadata

SEPARATOR = " › "
LONGEST_HEADING = 300
"""Characters of a heading that go before every chunk; a longer one is text."""


@dataclass(frozen=True, slots=True)
class Section:
    """Text with its context. A section with an `id` is a document of its own and is kept whole.

    `context` (headings, a title) is put before each of its chunks; `flag` says what was odd about it,
    `problem` what could not be taken; `position` is how many bytes of the file have been read, for progress.
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


class Outline:
    """The headings above the current line."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """Close headings of this level and below, and open this one."""
        self._open = [(depth, name) for depth, name in self._open if depth < level]
        self._open.append((level, title if len(title) <= LONGEST_HEADING else ""))

    @property
    def path(self) -> str:
        """All open headings, outermost first."""
        return SEPARATOR.join(name for _, name in self._open if name)

    @property
    def above(self) -> str:
        """The headings above the innermost one."""
        return SEPARATOR.join(name for _, name in self._open[:-1] if name)


class Headed:
    """Collects text under headings and gives it out as sections, in order; no heading is lost."""

    def __init__(self, *, title: str = "", metadata: Metadata | None = None) -> None:
        self._outline = Outline()
        self._title = title
        self._metadata = dict(metadata or {})
        self._heading: tuple[int, str] | None = None
        self.lines: list[str] = []
        self.done: list[Section] = []

    def heading(self, level: int, title: str) -> None:
        """Begin a section."""
        self._close(next_level=level)
        self._outline.enter(level, title)
        self._heading = (level, title)
        if len(title) > LONGEST_HEADING:
            self.lines.append(title)

    def sections(self) -> list[Section]:
        """Return all sections; call once, at the end."""
        self._close(next_level=0)
        return self.done

    def _close(self, *, next_level: int) -> None:
        text = "\n".join(self.lines).strip()
        self.lines = []
        context = self._outline.path
        metadata = {**self._metadata, **({"heading": context} if context else {})}
        if not text and self._heading is not None and next_level <= self._heading[0]:
            # Nothing under the heading, not even a deeper one: the heading itself is the text.
            text, context = self._heading[1], self._outline.above
        if text:
            self.done.append(Section(text, context=context or self._title, metadata=metadata))
        self._heading = None
