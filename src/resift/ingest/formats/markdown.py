"""Markdown into sections under their headings, by markdown-it-py's block rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from resift.errors import MissingExtraError, require
from resift.ingest.formats.plain import plain_sections
from resift.ingest.sections import Headed, Section
from resift.ingest.sources import Source

_FRONT_MATTER_LINES = 200


def read_markdown(source: Source) -> Iterator[Section]:
    """Yield one section per heading; a very large file is read as plain text and says so."""
    if not source.parseable:
        yield from plain_sections(source, flag="very large: read as plain text, without headings")
        return
    decoded = source.text()
    try:
        yield from flagged(markdown_sections(decoded.text), decoded.flag)
    except MissingExtraError as exc:
        yield from plain_sections(source, flag=f"read as plain text, without headings: {exc}")


def markdown_sections(text: str) -> list[Section]:
    """Return one section per heading; headings inside code, quotes and lists are text."""
    title, body = front_matter(text)
    lines = body.split("\n")
    headed = Headed(title=title, metadata={"title": title} if title else {})
    at = 0
    for level, heading, start, end in _headings(body):
        headed.lines += lines[at:start]
        headed.heading(level, heading)
        at = end
    headed.lines += lines[at:]
    return headed.sections()


def flagged(sections: Iterable[Section], flag: str) -> Iterator[Section]:
    """Yield the sections, the first one with a flag."""
    for number, section in enumerate(sections):
        if number == 0 and flag:
            yield Section(section.text, section.id, section.context, section.metadata, flag=flag)
        else:
            yield section


def _headings(text: str) -> Iterator[tuple[int, str, int, int]]:
    """Yield level, title, first line and line after of each heading."""
    parser = _parser()
    tokens = parser.parse(text)
    for opened, inline in pairwise(tokens):
        if opened.type == "heading_open" and opened.level == 0 and opened.map:
            yield int(opened.tag[1]), inline.content.strip(), opened.map[0], opened.map[1]


def _parser() -> Any:
    markdown_it = require("markdown_it", extra="files")
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    # Blocks only: what is inside a paragraph is shown as it is written.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def front_matter(text: str) -> tuple[str, str]:
    """Return the title in the front matter and the text without it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.startswith("---"):
        return "", text
    head = text[: 64 * 1024].split("\n", _FRONT_MATTER_LINES)
    if head[0].rstrip() != "---":
        return "", text
    title = ""
    for number, line in enumerate(head[1:_FRONT_MATTER_LINES], start=1):
        if line.rstrip() in ("---", "..."):
            return title, "\n".join(text.split("\n", number + 1)[number + 1 :])
        if line.startswith("title:"):
            title = line[6:].strip().strip("\"'").strip()[:300]
    return "", text
