"""E-books: the chapters in reading order, each a page of HTML."""

from __future__ import annotations

import posixpath
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from urllib.parse import unquote

from resift.errors import DataFormatError, MissingExtraError
from resift.ingest.decoding import decode
from resift.ingest.formats.html import html_sections
from resift.ingest.formats.packages import Package, opened_package
from resift.ingest.sections import Section
from resift.ingest.sources import Source


def read_epub(source: Source) -> Iterator[Section]:
    """Yield one section per heading of each chapter, with the book's title."""
    with opened_package(source) as package:
        title, listed = _contents(package)
        chapters = [name for name in listed if name in package.names]
        if len(chapters) < len(listed):
            yield Section(
                "", problem=f"{len(listed) - len(chapters)} of {len(listed)} chapters are not in the file"
            )
        for number, name in enumerate(chapters, start=1):
            page = decode(package.read(name), file=f"{source.name}/{name}", declares=True)
            try:
                sections = html_sections(page.text)
            except MissingExtraError as exc:
                raise DataFormatError(str(exc), file=source.name) from exc
            for section in sections:
                metadata = {**section.metadata, "chapter": number, **({"book": title} if title else {})}
                context = section.context or title
                yield Section(section.text, context=context, metadata=metadata, flag=page.flag)


def _contents(package: Package) -> tuple[str, list[str]]:
    """Return the title and the chapters' names in reading order."""
    container = ET.fromstring(package.read("META-INF/container.xml"))  # noqa: S314 - expat bounds entities
    main = next(one.attrib["full-path"] for one in container.iter() if one.tag.endswith("rootfile"))
    book = ET.fromstring(package.read(main))  # noqa: S314 - expat bounds entities
    named = next((one.text for one in book.iter() if one.tag.endswith("}title") and one.text), "")
    folder = posixpath.dirname(main)
    pages = {
        one.attrib.get("id", ""): posixpath.normpath(
            posixpath.join(folder, unquote(one.attrib.get("href", "")))
        )
        for one in book.iter()
        if one.tag.endswith("}item") and "html" in one.attrib.get("media-type", "")
    }
    order = [one.attrib.get("idref", "") for one in book.iter() if one.tag.endswith("}itemref")]
    # Each page once, as the format has it: a small book could list one a hundred thousand times.
    return " ".join(named.split())[:300], list(dict.fromkeys(pages[id] for id in order if id in pages))
