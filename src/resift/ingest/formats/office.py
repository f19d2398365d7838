"""Word and PowerPoint files: paragraphs under their headings, slides with their titles and notes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from resift.ingest.formats.packages import Package, opened_package
from resift.ingest.sections import Headed, Section
from resift.ingest.sources import Source

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_docx(source: Source) -> Iterator[Section]:
    """Yield one section per heading; tables as lines of cells, footnotes at the end."""
    with opened_package(source) as package:
        title = _title(package)
        headed = Headed(title=title, metadata={"title": title} if title else {})
        levels = _heading_levels(package)
        for part in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
            if part in package.names or part == "word/document.xml":
                _paragraphs(package, part, levels, headed)
    yield from headed.sections()


def read_pptx(source: Source) -> Iterator[Section]:
    """Yield one section per slide, in the order of the presentation, with its number and notes."""
    with opened_package(source) as package:
        for number, part in enumerate(_slides(package), start=1):
            title, lines = _slide(package, part)
            notes = [target for target in package.relations(part).values() if "/notesSlides/" in f"/{target}"]
            for target in notes:
                if target in package.names:
                    lines += _slide(package, target)[1]
            text = "\n".join(lines) or title
            if text:
                metadata = {"slide": number, **({"title": title} if title else {})}
                yield Section(text, context=title if lines else "", metadata=metadata)


def _title(package: Package) -> str:
    if "docProps/core.xml" not in package.names:
        return ""
    found = ET.fromstring(package.read("docProps/core.xml")).find(_TITLE)  # noqa: S314 - expat bounds entities
    return " ".join((found.text or "").split())[:300] if found is not None else ""


def _heading_levels(package: Package) -> dict[str, int]:
    """Return style id -> heading level; ids are in the writer's language, names always in English."""
    if "word/styles.xml" not in package.names:
        return {}
    levels = {}
    for style in ET.fromstring(package.read("word/styles.xml")).iter(f"{_W}style"):  # noqa: S314
        name = style.find(f"{_W}name")
        words = ("" if name is None else name.attrib.get(f"{_W}val", "")).lower().split()
        if words == ["title"]:
            levels[style.attrib.get(f"{_W}styleId", "")] = 1
        elif len(words) == 2 and words[0] == "heading" and words[1] in "123456789":
            levels[style.attrib.get(f"{_W}styleId", "")] = int(words[1])
    return levels


def _paragraphs(package: Package, part: str, levels: dict[str, int], headed: Headed) -> None:
    body = _Body(levels, headed)
    for event, element in package.elements(part):
        if event == "start":
            body.start(element.tag)
        elif body.end(element):
            element.clear()


class _Body:
    """The text of a Word document as its parser goes through it."""

    def __init__(self, levels: dict[str, int], headed: Headed) -> None:
        self._levels = levels
        self._headed = headed
        self._words: list[str] = []
        self._row: list[str] | None = None
        self._level = 0

    def start(self, tag: str) -> None:
        if tag == f"{_W}tr" and self._row is None:
            self._row = []

    def end(self, element: ET.Element) -> bool:
        """Take an element; say whether nothing in it is needed any more."""
        tag = element.tag
        if tag == f"{_W}t":
            self._words.append(element.text or "")
        elif tag in (f"{_W}tab", f"{_W}br", f"{_W}cr"):
            self._words.append(" ")
        elif tag == f"{_W}pStyle":
            self._level = self._levels.get(element.attrib.get(f"{_W}val", ""), 0)
        elif tag == f"{_W}p":
            self._paragraph(" ".join("".join(self._words).split()))
            return True
        elif tag == f"{_W}tr" and self._row is not None:
            self._headed.lines.append(" | ".join(self._row))
            self._row = None
            return True
        return False

    def _paragraph(self, text: str) -> None:
        if self._row is not None:
            self._row.append(text)
        elif self._level and text:
            self._headed.heading(self._level, text)
        elif text:
            self._headed.lines += [text, ""]
        self._words, self._level = [], 0


def _slides(package: Package) -> list[str]:
    main = "ppt/presentation.xml"
    targets = package.relations(main)
    root = ET.fromstring(package.read(main))  # noqa: S314 - expat bounds entities
    listed = [targets.get(one.attrib.get(f"{_R}id", ""), "") for one in root.iter(f"{_P}sldId")]
    return [part for part in listed if part in package.names]


def _slide(package: Package, part: str) -> tuple[str, list[str]]:
    """Return the title of a slide and its other lines."""
    title, lines = "", list[str]()
    words: list[str] = []
    shape: list[str] = []
    is_title = is_furniture = False
    for event, element in package.elements(part):
        if event == "start":
            continue
        if element.tag == f"{_A}t":
            words.append(element.text or "")
        elif element.tag == f"{_A}br":
            words.append(" ")
        elif element.tag == f"{_A}p":
            shape.append(" ".join("".join(words).split()))
            words = []
        elif element.tag == f"{_P}ph":
            kind = element.attrib.get("type", "")
            is_title, is_furniture = kind in ("title", "ctrTitle"), kind in ("sldNum", "dt", "ftr", "hdr")
        elif element.tag in (f"{_P}sp", f"{_P}graphicFrame"):
            found = [line for line in shape if line]
            if is_title and not title:
                title = " ".join(found)[:300]
            elif not is_furniture:
                lines += found
            shape, is_title, is_furniture = [], False, False
            element.clear()
    return title, lines
