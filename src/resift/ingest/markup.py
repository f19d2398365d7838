"""Read Markdown, HTML, Jupyter notebooks and mail into sections under their headings."""

from __future__ import annotations

import contextlib
import email.errors
import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from resift.errors import DataFormatError, MissingExtraError, require
from resift.ingest.sections import Section, SectionBuilder, clean_title, flag_first, plain_sections
from resift.ingest.sources import Source

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_FRONT_MATTER_LINES = 200
_MAX_CELL_OUTPUT = 2_000  # characters; more is a log
_CELL_FENCE = "~" * 12  # longer than any fence inside a cell
_SILENT_TAGS = {
    "script", "style", "noscript", "template", "svg", "math", "nav", "footer", "aside", "form", "button",
    "iframe", "head", "select", "textarea",
}  # fmt: skip
_BLOCK_TAGS = {
    "p", "div", "section", "li", "ul", "ol", "tr", "table", "pre", "blockquote", "dd", "dt", "dl", "br", "hr",
    "header", "figure", "figcaption", "main", "article", "address", "details", "summary", "caption", "thead",
    "tbody",
}  # fmt: skip
# Tags that pages leave open without nesting deeper.
_UNCLOSED_TAGS = {
    "p", "li", "td", "th", "tr", "dt", "dd", "option", "br", "img", "input", "meta", "link", "hr", "area",
    "base", "col", "embed", "source", "track", "wbr", "tbody", "thead", "tfoot", "colgroup", "optgroup", "rp",
    "rt", "html", "body", "head",
}  # fmt: skip
_HEADING_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_MAX_DEPTH = 2_000  # open elements; a standard parser looks through all of them at each tag
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_ANY_TAG = re.compile(r"<[^<>]*>")


def read_markdown(source: Source) -> Iterator[Section]:
    """Yield one section per heading. A very large file is read as plain text, with a flag."""
    if not source.parseable:
        yield from plain_sections(source, flag="very large: read as plain text, without headings")
        return
    decoded = source.text()
    try:
        yield from flag_first(markdown_sections(decoded.text), decoded.flag)
    except MissingExtraError as exc:
        yield from plain_sections(source, flag=f"read as plain text, without headings: {exc}")


def markdown_sections(text: str) -> list[Section]:
    """Return one section per heading. Headings inside code, quotes and lists are text."""
    title, body = front_matter(text)
    parser = require("markdown_it", extra="files").MarkdownIt("commonmark").enable("table")
    # Only blocks are parsed: text inside a paragraph is kept as written.
    parser.core.ruler.enableOnly(["normalize", "block"])
    lines = body.split("\n")
    builder = SectionBuilder(title)
    end = 0
    for opening, inline in pairwise(parser.parse(body)):
        if opening.type == "heading_open" and opening.level == 0 and opening.map:
            builder.lines += lines[end : opening.map[0]]
            builder.heading(int(opening.tag[1]), inline.content.strip())
            end = opening.map[1]
    builder.lines += lines[end:]
    return builder.sections()


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


def read_html(source: Source) -> Iterator[Section]:
    """Yield one section per heading of the page."""
    source.require("selectolax.lexbor")
    decoded = source.text(declares=True)
    yield from flag_first(html_sections(decoded.text), decoded.flag)


def html_sections(text: str) -> list[Section]:
    """Return one section per heading of the readable part: `<main>` or `<article>` if there is one."""
    lexbor = require("selectolax.lexbor", extra="files")
    if _is_too_deep(text):
        plain = html.unescape(_ANY_TAG.sub(" ", text)).strip()
        return [Section(plain, flag="nested too deeply: read without its structure")] if plain else []
    parser = lexbor.LexborHTMLParser(text)
    title_node = parser.css_first("title")
    title = "" if title_node is None else clean_title(title_node.text(deep=True))
    page = _Page(title)
    for root in filter(None, (parser.css_first("main"), parser.css_first("article"), parser.body)):
        page = _Page(title)
        page.walk(root)
        if page.has_text:
            break
    return page.sections()


def _is_too_deep(text: str) -> bool:
    """Return, after one pass, whether more elements may be open at once than a page should have."""
    open_tags: Counter[str] = Counter()
    depth = 0
    for match in _TAG.finditer(text):
        tag = match[2].lower()
        if tag in _UNCLOSED_TAGS:
            continue
        if not match[1]:
            open_tags[tag] += 1
            depth += 1
            if depth > _MAX_DEPTH:
                return True
        elif open_tags[tag] > 0:
            open_tags[tag] -= 1
            depth -= 1
    return False


class _Page:
    """Walks a tree without recursion. Lines break where block elements begin and end."""

    def __init__(self, title: str) -> None:
        self._builder = SectionBuilder(title)
        self._line: list[str] = []
        self._heading: list[str] | None = None
        self.has_text = False

    def walk(self, root: LexborNode) -> None:
        """Read everything under an element."""
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
        """Return the sections of the page."""
        self._break_line()
        return self._builder.sections()

    def _enter(self, node: LexborNode) -> bool:
        """Open a node; return whether to read its children."""
        tag = node.tag or ""
        if tag == "-text":
            (self._line if self._heading is None else self._heading).append(node.text_content or "")
            return False
        if tag in _SILENT_TAGS or tag.startswith(("-", "_", "!")):
            return False
        if tag in _HEADING_TAGS and self._heading is None:
            self._break_line()
            self._heading = []
        elif tag in _BLOCK_TAGS:
            self._break_line()
        elif tag in ("td", "th"):
            self._line.append(" ")
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag in _HEADING_TAGS and self._heading is not None:
            title = " ".join("".join(self._heading).split())
            self._heading = None
            if title:
                self.has_text = True
                self._builder.heading(int(tag[1]), title)
        elif tag in _BLOCK_TAGS:
            self._break_line()

    def _break_line(self) -> None:
        if self._heading is not None:
            self._heading.append(" ")
            return
        line = " ".join("".join(self._line).split())
        self._line = []
        if line:
            self.has_text = True
            self._builder.lines += [line, ""]


def read_notebook(source: Source) -> Iterator[Section]:
    """Yield one section per heading of a notebook: text, code and printed output, without images."""
    decoded = source.text()
    try:
        cells = json.loads(decoded.text)["cells"]
        text = "\n\n".join(filter(None, map(_format_cell, cells)))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as exc:
        raise DataFormatError("Not a readable notebook.", file=source.name) from exc
    yield from flag_first(markdown_sections(text), decoded.flag)


def _format_cell(cell: Mapping[str, object]) -> str:
    text = _join_lines(cell.get("source"))
    if cell.get("cell_type") != "code":
        return text
    printed = []
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        data = output.get("data")
        shown = output["text"] if "text" in output else isinstance(data, dict) and data.get("text/plain")
        printed.append(_join_lines(shown))
    output_text = "\n".join(filter(None, printed))[:_MAX_CELL_OUTPUT]
    lines = [_CELL_FENCE, text, *([output_text] if output_text else []), _CELL_FENCE]
    return "\n".join(lines) if text or output_text else ""


def _join_lines(lines: object) -> str:
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""


def read_mail(source: Source) -> Iterator[Section]:
    """Yield the body of a mail, plain text before HTML, then the attachments that are text."""
    try:
        mail = BytesParser(EmailMessage, policy=policy.default).parsebytes(source.bytes())
        subject = clean_title(mail.get("subject", ""))
        metadata: dict[str, object] = {"title": subject} if subject else {}
        for key in ("from", "to"):
            if people := " ".join(str(mail.get(key, "")).split())[:500]:
                metadata[key] = people
        with contextlib.suppress(TypeError, ValueError, IndexError):
            metadata["date"] = parsedate_to_datetime(str(mail["date"])).isoformat()
        attachments = list(mail.iter_attachments())
        texts = [part for part in attachments if part.get_content_maintype() == "text"]
        others = [part for part in attachments if part.get_content_maintype() != "text"]
        names = ", ".join(str(part.get_filename() or part.get_content_type()) for part in others[:5])
        flag = f"attachments not read: {names}" if names else ""
        body = _mail_body(mail)
        if body.strip():
            yield Section(body, context=subject, metadata=metadata, flag=flag)
        elif subject:
            yield Section(subject, metadata=metadata, flag=flag)
        for part in texts:
            name = str(part.get_filename() or subject)
            yield Section(_part_text(part), context=name, metadata=metadata)
    except (email.errors.MessageError, ValueError, LookupError, AttributeError, TypeError, IndexError) as exc:
        raise DataFormatError(f"Not a readable mail ({type(exc).__name__}).", file=source.name) from exc


def _mail_body(mail: EmailMessage) -> str:
    body = mail.get_body(preferencelist=("plain", "html"))
    if body is None:
        return ""
    text = _part_text(body)
    if body.get_content_type() != "text/html":
        return text
    sections = html_sections(text)
    return "\n\n".join(
        f"{section.context}\n{section.text}" if section.context else section.text for section in sections
    )


def _part_text(part: MIMEPart) -> str:
    try:
        content: object = part.get_content()
    except LookupError:  # an unknown charset
        payload = part.get_payload(decode=True)
        content = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    return content if isinstance(content, str) else ""
