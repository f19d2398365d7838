"""HTML into sections under their headings, by selectolax; scripts and navigation are left out."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from resift.errors import DataFormatError, MissingExtraError, require
from resift.ingest.formats.markdown import flagged
from resift.ingest.sections import Headed, Section
from resift.ingest.sources import Source

_SILENT = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "math",
        "nav",
        "footer",
        "aside",
        "form",
        "button",
        "iframe",
        "head",
        "select",
        "textarea",
    ]
)
_BLOCKS = frozenset(
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
        "dl",
        "br",
        "hr",
        "header",
        "figure",
        "figcaption",
        "main",
        "article",
        "address",
        "details",
        "summary",
        "caption",
        "thead",
        "tbody",
    ]
)
# Elements that pages leave open without nesting deeper.
_UNCLOSED = frozenset(
    [
        "p",
        "li",
        "td",
        "th",
        "tr",
        "dt",
        "dd",
        "option",
        "br",
        "img",
        "input",
        "meta",
        "link",
        "hr",
        "area",
        "base",
        "col",
        "embed",
        "source",
        "track",
        "wbr",
        "tbody",
        "thead",
        "tfoot",
        "colgroup",
        "optgroup",
        "rp",
        "rt",
        "html",
        "body",
        "head",
    ]
)
_DEEPEST = 2_000  # open elements; a parser that follows the standard looks through all of them at each tag
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_ANY_TAG = re.compile(r"<[^<>]*>")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def read_html(source: Source) -> Iterator[Section]:
    """Yield one section per heading of the page."""
    decoded = source.text(declares=True)
    try:
        sections = html_sections(decoded.text)
    except MissingExtraError as exc:
        raise DataFormatError(str(exc), file=source.name) from exc
    yield from flagged(sections, decoded.flag)


def html_sections(text: str) -> list[Section]:
    """Return one section per heading of the readable part: `<main>` or `<article>` where there is one."""
    lexbor = require("selectolax.lexbor", extra="files")
    if _too_deep(text):
        bare = html.unescape(_ANY_TAG.sub(" ", text)).strip()
        return [Section(bare, flag="nested too deeply: read without its structure")] if bare else []
    parser = lexbor.LexborHTMLParser(text)
    titled = parser.css_first("title")
    title = " ".join(titled.text(deep=True).split())[:300] if titled is not None else ""
    page = _Page(title)
    roots = [root for root in (parser.css_first("main"), parser.css_first("article"), parser.body) if root]
    for root in roots:
        page = _Page(title)
        page.walk(root)
        if page.words:
            break
    return page.sections()


def _too_deep(text: str) -> bool:
    """Say, in one pass, whether more elements may be open at once than a page has."""
    opened: Counter[str] = Counter()
    depth = 0
    for found in _TAG.finditer(text):
        tag = found[2].lower()
        if tag in _UNCLOSED:
            continue
        if not found[1]:
            opened[tag] += 1
            depth += 1
            if depth > _DEEPEST:
                return True
        elif opened[tag] > 0:
            opened[tag] -= 1
            depth -= 1
    return False


class _Page:
    """Walks a tree without recursion; lines break where blocks begin and end."""

    def __init__(self, title: str) -> None:
        self._headed = Headed(title=title, metadata={"title": title} if title else {})
        self._line: list[str] = []
        self._heading: list[str] | None = None
        self.words = 0

    def walk(self, root: Any) -> None:
        """Take everything under an element."""
        node, depth = root.child, 1
        while node is not None and depth > 0:
            if self._enter(node) and node.child is not None:
                node, depth = node.child, depth + 1
                continue
            self._leave(node)
            while node.next is None:
                node, depth = node.parent, depth - 1
                if depth == 0 or node is None:
                    return
                self._leave(node)
            node = node.next

    def sections(self) -> list[Section]:
        """Return what was found."""
        self._break()
        return self._headed.sections()

    def _enter(self, node: Any) -> bool:
        """Open a node; say whether to go inside."""
        tag = node.tag
        if tag == "-text":
            self._take(node.text_content or "")
            return False
        if tag in _SILENT or tag.startswith(("-", "_", "!")):
            return False
        if tag in _HEADINGS and self._heading is None:
            self._break()
            self._heading = []
        elif tag in _BLOCKS:
            self._break()
        elif tag in ("td", "th"):
            self._line.append(" ")
        return True

    def _leave(self, node: Any) -> None:
        tag = node.tag
        if tag in _HEADINGS and self._heading is not None:
            title = " ".join("".join(self._heading).split())
            self._heading = None
            if title:
                self.words += 1
                self._headed.heading(int(tag[1]), title)
        elif tag in _BLOCKS:
            self._break()

    def _take(self, text: str) -> None:
        if self._heading is not None:
            self._heading.append(text)
        else:
            self._line.append(text)

    def _break(self) -> None:
        if self._heading is not None:
            self._heading.append(" ")
            return
        line = " ".join("".join(self._line).split())
        self._line = []
        if line:
            self.words += 1
            self._headed.lines += [line, ""]
