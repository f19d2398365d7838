"""Markdown and HTML into sections under their headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from resift.ingest.sections import Section

SEPARATOR = " › "

_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"^ {0,3}(=|-)\1+\s*$")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_FRONT_MATTER = re.compile(r"\A---\s*\n.*?\n(?:---|\.\.\.)\s*\n", re.DOTALL)


class Outline:
    """The headings above the current line."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """Close headings of this level and below, and open this one."""
        self._open = [(depth, name) for depth, name in self._open if depth < level]
        self._open.append((level, title))

    @property
    def path(self) -> str:
        """All open headings, outermost first."""
        return SEPARATOR.join(name for _, name in self._open if name)


def markdown_sections(text: str) -> Iterator[Section]:
    """Yield one section per heading; headings inside code fences are code."""
    outline, body, fence = Outline(), list[str](), ""
    for line in _FRONT_MATTER.sub("", text).splitlines():
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        heading = None if fence else _heading(line, body)
        if heading is None:
            body.append(line)
            continue
        yield from _section(body, outline)
        body = []
        outline.enter(*heading)
    yield from _section(body, outline)


def _heading(line: str, body: list[str]) -> tuple[int, str] | None:
    """Return level and title where a heading ends with this line; an underlined title leaves the body."""
    marked = _HEADING.match(line)
    if marked:
        return len(marked[1]), marked[2]
    underline = _UNDERLINE.match(line)
    alone = bool(body) and body[-1].strip() and (len(body) == 1 or not body[-2].strip())
    if underline and alone and not body[-1].lstrip().startswith(("|", "-", "*", ">")):
        return (1 if underline[1] == "=" else 2), body.pop().strip()
    return None


def html_sections(text: str) -> Iterator[Section]:
    """Yield one section per heading of the readable part: no scripts, styles, navigation or footers."""
    page = _Page()
    page.feed(text)
    page.close()
    parts = page.main_parts or page.parts
    for path, lines in parts:
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        if body:
            metadata = {"heading": path} if path else {}
            if page.title:
                metadata["title"] = page.title
            yield Section(body, context=path or page.title, metadata=metadata)


def _section(body: list[str], outline: Outline) -> Iterator[Section]:
    text = "\n".join(body).strip()
    if text:
        path = outline.path
        yield Section(text, context=path, metadata={"heading": path} if path else {})


class _Page(HTMLParser):
    """Collects text by heading; knows which elements are never content."""

    SILENT = frozenset(
        [
            "script",
            "style",
            "noscript",
            "template",
            "svg",
            "nav",
            "footer",
            "aside",
            "form",
            "button",
            "iframe",
        ]
    )
    BLOCKS = frozenset(
        [
            "p",
            "div",
            "section",
            "li",
            "ul",
            "ol",
            "tr",
            "table",
            "pre",
            "blockquote",
            "dd",
            "dt",
            "br",
            "hr",
            "header",
        ]
    )
    HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
    CONTENT = frozenset({"main", "article"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.parts: list[tuple[str, list[str]]] = [("", [""])]
        self.main_parts: list[tuple[str, list[str]]] = []
        self._outline = Outline()
        self._silent: list[str] = []
        self._content = 0
        self._catching = ""  # "title" or the heading whose words are being read
        self._caught: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag in self.SILENT:
            self._silent.append(tag)
        elif self._silent:
            return
        elif tag == "title" or tag in self.HEADINGS:
            self._catching, self._caught = tag, []
        elif tag in self.CONTENT:
            self._content += 1
            if self._content == 1:
                self.main_parts.append((self._outline.path, [""]))
        elif tag in self.BLOCKS:
            self._break()
        elif tag in ("td", "th"):
            self._write(" ")

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if tag in self.SILENT:
            # Pages forget to close things: leave everything that was opened inside.
            if tag in self._silent:
                del self._silent[self._silent.index(tag) :]
        elif tag == self._catching:
            self._caught_all(tag)
        elif tag in self.CONTENT:
            self._content = max(0, self._content - 1)
        if tag in self.BLOCKS and not self._silent:
            self._break()

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._silent:
            return
        if self._catching:
            self._caught.append(data)
        else:
            self._write(re.sub(r"\s+", " ", data))

    def _caught_all(self, tag: str) -> None:
        words = " ".join("".join(self._caught).split())
        self._catching = ""
        if tag == "title":
            self.title = words
            return
        self._outline.enter(int(tag[1]), words)
        self.parts.append((self._outline.path, [""]))
        if self._content:
            self.main_parts.append((self._outline.path, [""]))

    def _write(self, text: str) -> None:
        for parts in self._targets():
            line = parts[-1][1][-1]
            parts[-1][1][-1] = line + (text.lstrip() if not line or line.endswith(" ") else text)

    def _break(self) -> None:
        for parts in self._targets():
            if parts[-1][1][-1].strip():
                parts[-1][1].extend(["", ""])

    def _targets(self) -> list[list[tuple[str, list[str]]]]:
        return [self.parts, self.main_parts] if self._content and self.main_parts else [self.parts]
