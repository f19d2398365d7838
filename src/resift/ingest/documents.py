"""Read documents: Markdown, HTML, notebooks, email, PDF, Word, PowerPoint and EPUB."""

from __future__ import annotations

import contextlib
import email.errors
import html
import json
import logging
import posixpath
import re
import time
import tomllib
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote

from resift.errors import DataFormatError, MissingExtraError, require
from resift.ingest.chunking import MAX_TITLE, Section, SectionBuilder, clean_title, flag_first
from resift.ingest.sources import Source, decode, open_zip, parse_errors, plain_sections

if TYPE_CHECKING:
    from docx.oxml.xmlchemy import BaseOxmlElement as Element

_FRONT_MATTER_LINES = 200
_MAX_CELL_OUTPUT = 2_000  # characters; longer output is probably a log
_CELL_FENCE = "~" * 12  # longer than any fence inside a cell
_HTML_TAGS = tomllib.loads(resources.files("resift.ingest").joinpath("html_tags.toml").read_text(encoding="utf-8"))
_UNCLOSED_TAGS = frozenset(_HTML_TAGS["unclosed"])
# Control characters inserted into a page to mark line breaks and headings.
_LINE_BREAK, _HEADING_MARK = "\x02", "\x01"
_MAX_DEPTH = 2_000  # open elements; a standard parser scans all of them at each tag
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
    """Return one section per heading. Headings inside code, quotes and lists are treated as text."""
    title, body = front_matter(text)
    parser = require("markdown_it", extra="files").MarkdownIt("commonmark").enable("table")
    # Parse only blocks, so that text inside a paragraph is kept as written.
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
    """Return the title from the front matter, and the text without the front matter."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
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
    """Return one section per heading of the main content: `<main>` or `<article>` if present."""
    lexbor = require("selectolax.lexbor", extra="files")
    if _is_too_deep(text):
        plain = html.unescape(_ANY_TAG.sub(" ", text)).strip()
        return [Section(plain, flag="nested too deeply: read without its structure")] if plain else []
    parser = lexbor.LexborHTMLParser(text.replace(_LINE_BREAK, " ").replace(_HEADING_MARK, " "))
    title_node = parser.css_first("title")
    builder = SectionBuilder("" if title_node is None else clean_title(title_node.text(deep=True)))
    parser.strip_tags(_HTML_TAGS["silent"])
    for node in parser.css(", ".join(_HTML_TAGS["block"])):
        node.insert_before(_LINE_BREAK)
        node.insert_after(_LINE_BREAK)
    for node in parser.css("td, th"):
        node.insert_before(" ")
    for node in reversed(parser.css("h1, h2, h3, h4, h5, h6")):
        title = " ".join(node.text(deep=True).replace(_LINE_BREAK, " ").split())
        # A heading that contains another one was never closed, so it is not treated as a heading.
        if _HEADING_MARK not in title:
            mark = f"{_HEADING_MARK}{node.tag[1]}{title}" if title else ""
            node.replace_with(f"{_LINE_BREAK}{mark}{_LINE_BREAK}")
    lines: list[str] = []
    for root in filter(None, (parser.css_first("main"), parser.css_first("article"), parser.body)):
        lines = [" ".join(line.split()) for line in root.text(deep=True).split(_LINE_BREAK)]
        if any(lines):
            break
    for line in filter(None, lines):
        if line.startswith(_HEADING_MARK):
            builder.heading(int(line[1]), line[2:])
        else:
            builder.lines += [line, ""]
    return builder.sections()


def _is_too_deep(text: str) -> bool:
    """Return whether the elements of a page may be nested too deeply to parse. Takes one pass over the tags."""
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


def read_notebook(source: Source) -> Iterator[Section]:
    """Yield one section per heading of a notebook: text, code and printed output, without images."""
    decoded = source.text()
    try:
        text = "\n\n".join(filter(None, map(_format_cell, json.loads(decoded.text)["cells"])))
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
        printed.append(_join_lines(output.get("text", data.get("text/plain") if isinstance(data, dict) else None)))
    output_text = "\n".join(filter(None, printed))[:_MAX_CELL_OUTPUT]
    lines = [_CELL_FENCE, text, *filter(None, [output_text]), _CELL_FENCE]
    return "\n".join(lines) if text or output_text else ""


def _join_lines(lines: object) -> str:
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""


def read_mail(source: Source) -> Iterator[Section]:
    """Yield the body of an email (plain text is preferred to HTML), then its text attachments."""
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
        part = mail.get_body(preferencelist=("plain", "html"))
        body = "" if part is None else _part_text(part)
        if part is not None and part.get_content_type() == "text/html":
            sections = html_sections(body)
            body = "\n\n".join("\n".join(filter(None, (section.context, section.text))) for section in sections)
        if body.strip():
            yield Section(body, context=subject, metadata=metadata, flag=flag)
        elif subject:
            yield Section(subject, metadata=metadata, flag=flag)
        for attachment in texts:
            name = str(attachment.get_filename() or subject)
            yield Section(_part_text(attachment), context=name, metadata=metadata)
    except (email.errors.MessageError, ValueError, LookupError, AttributeError, TypeError, IndexError) as exc:
        raise DataFormatError(f"Not a readable email ({type(exc).__name__}).", file=source.name) from exc


def _part_text(part: MIMEPart) -> str:
    try:
        content: object = part.get_content()
    except LookupError:  # an unknown charset
        payload = part.get_payload(decode=True)
        content = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    return content if isinstance(content, str) else ""


def _title_entry(key: str, title: str) -> dict[str, str]:
    return {key: title} if title else {}


_MACRO_DOCUMENT = "application/vnd.ms-word.document.macroEnabled.main+xml"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
# Repeats the content for older applications, so it is skipped.
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


def read_pdf(source: Source) -> Iterator[Section]:
    """Yield the text of each page. Pages beyond the limits are reported as a problem."""
    pypdf = source.require("pypdf")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # pypdf warns about everything it repairs
    source.file.seek(0)
    deadline = time.monotonic() + source.limits.seconds * 0.8
    with parse_errors(source, "PDF"):
        reader = pypdf.PdfReader(source.file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataFormatError("The PDF is encrypted. Remove its password first.", file=source.name)
        title = clean_title(reader.metadata and reader.metadata.title)
        for number, page in enumerate(reader.pages, start=1):
            if number > source.limits.pages or time.monotonic() > deadline:
                yield Section("", problem=f"page {number} and later pages were not read: too many")
                return
            resources = page.get("/Resources")
            if text := page.extract_text().strip():
                yield Section(text, context=title, metadata={"page": number, **_title_entry("title", title)})
            elif resources is not None and resources.get_object().get("/XObject"):
                yield Section("", flag="pages that are images without text; run text recognition (OCR) first")


def read_docx(source: Source) -> Iterator[Section]:
    """Yield one section per heading: tables as lines of cells, footnotes and endnotes at the end."""
    source.require("docx")
    from docx.opc.part import PartFactory
    from docx.oxml import parse_xml
    from docx.package import Package
    from docx.parts.document import DocumentPart

    with open_zip(source):
        PartFactory.part_type_for[_MACRO_DOCUMENT] = DocumentPart  # by default, only .docx is accepted
        part = Package.open(source.file).main_document_part
        if not isinstance(part, DocumentPart):
            raise DataFormatError("Not a Word document.", file=source.name)
        document = part.document
        builder = SectionBuilder(clean_title(document.core_properties.title))
        # Style ids depend on the author's language, but style names are in English.
        names = {"title": 1, **{f"heading {level}": level for level in range(1, 10)}}
        styles = {style.style_id: (style.name or "").lower() for style in document.styles}
        levels = {id: names[name] for id, name in styles.items() if name in names}
        _add_paragraphs(document.element.body, levels, builder)
        notes = {
            name: relation.target_part.blob
            for name in ("footnotes", "endnotes")
            for relation in part.rels.values()
            if not relation.is_external and relation.reltype.endswith(f"/{name}")
        }
        for blob in notes.values():
            _add_paragraphs(parse_xml(blob), levels, builder)
    yield from builder.sections()


def _add_paragraphs(root: Element, levels: dict[str, int], builder: SectionBuilder) -> None:
    """Add all paragraphs in order, also those in content controls and insertions, which python-docx leaves out."""
    row_end: Element | None = None
    row: list[str] = []
    for paragraph in root.iter(f"{_W}p"):
        ancestors = list(paragraph.iterancestors(f"{_W}tr", _FALLBACK))
        if any(element.tag == _FALLBACK for element in ancestors):
            continue
        current_row = ancestors[-1] if ancestors else None  # the outermost row, for nested tables
        if row and current_row is not row_end:
            builder.lines.append(" | ".join(row))
            row = []
        text = _paragraph_text(paragraph)
        if current_row is not None:
            row_end = current_row
            row.append(text)
            continue
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        level = 0 if style is None else levels.get(str(style.get(f"{_W}val", "")), 0)
        if level and text:
            builder.heading(level, text)
        elif text:
            builder.lines += [text, ""]
    if row:
        builder.lines.append(" | ".join(row))


def _paragraph_text(paragraph: Element) -> str:
    runs = paragraph.iter(f"{_W}t", f"{_W}tab", f"{_W}br", f"{_W}cr")
    # Text boxes inside the paragraph are paragraphs of their own.
    return _join_runs((run for run in runs if next(run.iterancestors(f"{_W}p")) is paragraph), f"{_W}t")


def _join_runs(runs: Iterable[Element], text_tag: str) -> str:
    """Return the text of some elements on one line; those with another tag are breaks."""
    words = ((run.text or "") if run.tag == text_tag else " " for run in runs)
    return " ".join("".join(words).split())


def read_pptx(source: Source) -> Iterator[Section]:
    """Yield one section per slide, in presentation order, with slide number and notes."""
    pptx = source.require("pptx")
    with open_zip(source):
        for number, slide in enumerate(pptx.Presentation(source.file).slides, start=1):
            title, lines = _slide_text(slide.element)
            if slide.has_notes_slide:
                lines += _slide_text(slide.notes_slide.element)[1]
            if text := "\n".join(lines) or title:
                metadata = {"slide": number, **_title_entry("title", title)}
                yield Section(text, context=title if lines else "", metadata=metadata)


def _slide_text(slide: Element) -> tuple[str, list[str]]:
    """Return the title of a slide and its other lines, without dates, headers, footers and numbers."""
    title, lines = "", list[str]()
    for shape in slide.iter(f"{_P}sp", f"{_P}graphicFrame"):
        if next(shape.iterancestors(_FALLBACK), None) is not None:
            continue
        placeholder = next(shape.iter(f"{_P}ph"), None)
        kind = "" if placeholder is None else placeholder.get("type", "")
        paragraphs = (paragraph.iter(f"{_A}t", f"{_A}br") for paragraph in shape.iter(f"{_A}p"))
        texts = list(filter(None, (_join_runs(runs, f"{_A}t") for runs in paragraphs)))
        if kind in ("title", "ctrTitle") and not title:
            title = " ".join(texts)[:MAX_TITLE]
        elif kind not in ("sldNum", "dt", "ftr", "hdr"):
            lines += texts
    return title, lines


def read_epub(source: Source) -> Iterator[Section]:
    """Yield one section per heading of each chapter, in reading order, with the book's title."""
    source.require("selectolax.lexbor")
    with open_zip(source) as archive:
        names = frozenset(archive.namelist())
        title, contents = _read_contents(archive)
        chapters = [name for name in contents if name in names]
        if missing := len(contents) - len(chapters):
            yield Section("", problem=f"{missing} of {len(contents)} chapters are not in the file")
        for number, name in enumerate(chapters, start=1):
            page = decode(archive.read(name), file=f"{source.name}/{name}", declares=True)
            for section in html_sections(page.text):
                metadata = {**section.metadata, "chapter": number, **_title_entry("book", title)}
                yield Section(section.text, context=section.context or title, metadata=metadata, flag=page.flag)


def _read_contents(archive: zipfile.ZipFile) -> tuple[str, list[str]]:
    """Return the title of a book and the names of its chapters in reading order."""
    container = ET.fromstring(archive.read("META-INF/container.xml"))  # noqa: S314 - expat limits entities
    main = next(item.attrib["full-path"] for item in container.iter() if item.tag.endswith("rootfile"))
    book = ET.fromstring(archive.read(main))  # noqa: S314 - expat limits entities
    title = next((item.text for item in book.iter() if item.tag.endswith("}title") and item.text), "")
    folder = posixpath.dirname(main)
    pages = {
        item.attrib.get("id", ""): posixpath.normpath(posixpath.join(folder, unquote(item.attrib.get("href", ""))))
        for item in book.iter()
        if item.tag.endswith("}item") and "html" in item.attrib.get("media-type", "")
    }
    order = [item.attrib.get("idref", "") for item in book.iter() if item.tag.endswith("}itemref")]
    # Read each page once, as the format requires. A small book could list one page a hundred thousand times.
    return clean_title(title), list(dict.fromkeys(pages[id] for id in order if id in pages))
