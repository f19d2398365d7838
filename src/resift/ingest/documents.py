"""Read PDF, Word, PowerPoint and EPUB files."""

from __future__ import annotations

import logging
import posixpath
import time
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from resift.errors import DataFormatError
from resift.ingest.markup import html_sections
from resift.ingest.sections import MAX_TITLE, Section, SectionBuilder, clean_title
from resift.ingest.sources import Source, decode, open_zip, parse_errors

if TYPE_CHECKING:
    from docx.oxml.xmlchemy import BaseOxmlElement as Element

_MACRO_DOCUMENT = "application/vnd.ms-word.document.macroEnabled.main+xml"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
# Holds a second copy of content for older programs.
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


def read_pdf(source: Source) -> Iterator[Section]:
    """Yield the text of each page; report pages beyond the limits as a problem."""
    pypdf = source.require("pypdf")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns about everything that it repairs
    source.file.seek(0)
    deadline = time.monotonic() + source.limits.seconds * 0.8
    with parse_errors(source, "PDF"):
        reader = pypdf.PdfReader(source.file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataFormatError("An encrypted PDF. Remove its password first.", file=source.name)
        title = clean_title(reader.metadata and reader.metadata.title)
        for number, page in enumerate(reader.pages, start=1):
            if number > source.limits.pages or time.monotonic() > deadline:
                yield Section("", problem=f"page {number} and those after it were not read: too many")
                return
            text = page.extract_text().strip()
            if text:
                metadata = {"page": number, **({"title": title} if title else {})}
                yield Section(text, context=title, metadata=metadata)
                continue
            resources = page.get("/Resources")
            if resources is not None and resources.get_object().get("/XObject"):
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
        levels: dict[str, int] = {}
        for style in document.styles:
            # Style ids are in the language of the author, names are in English.
            words = (style.name or "").lower().split()
            if words == ["title"]:
                levels[style.style_id] = 1
            elif len(words) == 2 and words[0] == "heading" and words[1] in "123456789":
                levels[style.style_id] = int(words[1])
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
    """Add all paragraphs in order, including those in content controls, text boxes and tables.

    python-docx's own paragraphs leave out content controls and tracked insertions.
    """
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
    words = [
        (element.text or "") if element.tag == f"{_W}t" else " "
        for element in paragraph.iter(f"{_W}t", f"{_W}tab", f"{_W}br", f"{_W}cr")
        if next(element.iterancestors(f"{_W}p")) is paragraph  # not of a text box in the paragraph
    ]
    return " ".join("".join(words).split())


def read_pptx(source: Source) -> Iterator[Section]:
    """Yield one section per slide, in the order of the presentation, with its number and notes."""
    pptx = source.require("pptx")
    with open_zip(source):
        for number, slide in enumerate(pptx.Presentation(source.file).slides, start=1):
            title, lines = _slide_text(slide.element)
            if slide.has_notes_slide:
                lines += _slide_text(slide.notes_slide.element)[1]
            text = "\n".join(lines) or title
            if text:
                metadata = {"slide": number, **({"title": title} if title else {})}
                yield Section(text, context=title if lines else "", metadata=metadata)


def _slide_text(slide: Element) -> tuple[str, list[str]]:
    """Return the title of a slide and its other lines, without dates, headers, footers and numbers."""
    title, lines = "", list[str]()
    for shape in slide.iter(f"{_P}sp", f"{_P}graphicFrame"):
        if next(shape.iterancestors(_FALLBACK), None) is not None:
            continue
        placeholder = next(shape.iter(f"{_P}ph"), None)
        kind = "" if placeholder is None else placeholder.get("type", "")
        texts = []
        for paragraph in shape.iter(f"{_A}p"):
            words = [
                (element.text or "") if element.tag == f"{_A}t" else " "
                for element in paragraph.iter(f"{_A}t", f"{_A}br")
            ]
            texts.append(" ".join("".join(words).split()))
        texts = list(filter(None, texts))
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
        title, listed = _read_contents(archive)
        chapters = [name for name in listed if name in names]
        if len(chapters) < len(listed):
            missing = f"{len(listed) - len(chapters)} of {len(listed)} chapters are not in the file"
            yield Section("", problem=missing)
        for number, name in enumerate(chapters, start=1):
            page = decode(archive.read(name), file=f"{source.name}/{name}", declares=True)
            for section in html_sections(page.text):
                metadata = {**section.metadata, "chapter": number, **({"book": title} if title else {})}
                context = section.context or title
                yield Section(section.text, context=context, metadata=metadata, flag=page.flag)


def _read_contents(archive: zipfile.ZipFile) -> tuple[str, list[str]]:
    """Return the title of a book and the names of its chapters in reading order."""
    container = ET.fromstring(archive.read("META-INF/container.xml"))  # noqa: S314 - expat limits entities
    main = next(item.attrib["full-path"] for item in container.iter() if item.tag.endswith("rootfile"))
    book = ET.fromstring(archive.read(main))  # noqa: S314 - expat limits entities
    title = next((item.text for item in book.iter() if item.tag.endswith("}title") and item.text), "")
    folder = posixpath.dirname(main)
    pages = {
        item.attrib.get("id", ""): posixpath.normpath(
            posixpath.join(folder, unquote(item.attrib.get("href", "")))
        )
        for item in book.iter()
        if item.tag.endswith("}item") and "html" in item.attrib.get("media-type", "")
    }
    order = [item.attrib.get("idref", "") for item in book.iter() if item.tag.endswith("}itemref")]
    # Each page once, as the format demands: a small book could list one a hundred thousand times.
    return clean_title(title), list(dict.fromkeys(pages[id] for id in order if id in pages))
