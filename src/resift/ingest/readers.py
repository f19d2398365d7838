"""Which reader for which file: suffix -> sections."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from resift.errors import DataFormatError, MissingExtraError, require
from resift.ingest.decoding import decode
from resift.ingest.markup import html_sections, markdown_sections
from resift.ingest.rows import csv_sections, jsonl_sections
from resift.ingest.sections import Section

TEXT = frozenset({".txt", ".text", ".rst", ".log"})
MARKDOWN = frozenset({".md", ".markdown"})
HTML = frozenset({".html", ".htm", ".xhtml"})
JSONL = frozenset({".jsonl", ".ndjson"})
CSV = frozenset({".csv", ".tsv"})
PDF = frozenset({".pdf"})
KNOWN = TEXT | MARKDOWN | HTML | JSONL | CSV | PDF
"""Suffixes that are picked up from folders; a file named by itself may have any."""


def read_sections(path: Path, *, name: str) -> Iterator[Section]:
    """Yield the sections of a file; `name` is what errors call it.

    Raises DataFormatError for a file that is not what its name says.
    """
    suffix = path.suffix.lower()
    if suffix in JSONL:
        yield from jsonl_sections(path, name=name)
    elif suffix in PDF:
        yield from _pdf_sections(path, name=name)
    else:
        decoded = decode(path.read_bytes(), file=name)
        for number, section in enumerate(_text_sections(decoded.text, suffix, name)):
            flag = decoded.flag if number == 0 else section.flag
            yield Section(section.text, section.id, section.context, section.metadata, flag or section.flag)


def files_under(paths: Iterable[Path]) -> list[Path]:
    """Return the files to read: named ones as they are, folders by known suffix, hidden ones left out."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update(dict.fromkeys(_inside(path)))
        elif path.exists():
            found[path] = None
        else:
            raise DataFormatError("No such file or folder.", file=str(path))
    return list(found)


def _inside(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.suffix.lower() in KNOWN and path.is_file():
            yield path


def _text_sections(text: str, suffix: str, name: str) -> Iterable[Section]:
    if suffix in MARKDOWN:
        return markdown_sections(text)
    if suffix in HTML:
        return html_sections(text)
    if suffix in CSV:
        return csv_sections(text, name=name)
    return [Section(text)] if text.strip() else []


def _pdf_sections(path: Path, *, name: str) -> Iterator[Section]:
    try:
        pypdf = require("pypdf", extra="pdf")
    except MissingExtraError as exc:
        raise DataFormatError(str(exc), file=name) from exc
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of every oddity that it copes with
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataFormatError("An encrypted PDF. Remove its password first.", file=name)
        title = str((reader.metadata and reader.metadata.title) or "").strip()
        for number, page in enumerate(reader.pages, start=1):
            text = page.extract_text().strip()
            extra = {"page": number, **({"title": title} if title else {})}
            if text:
                yield Section(text, context=title, metadata=extra)
    except DataFormatError:
        raise
    except Exception as exc:
        # A parser of foreign data can fail in any way; the file is named, the others go on.
        raise DataFormatError(f"Not a readable PDF ({type(exc).__name__}).", file=name) from exc
