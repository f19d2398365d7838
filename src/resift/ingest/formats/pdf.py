"""PDF: a section per page, with its number."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from resift.errors import DataFormatError, MissingExtraError, require
from resift.ingest.sections import Section
from resift.ingest.sources import Source


def read_pdf(source: Source) -> Iterator[Section]:
    """Yield the text of each page; pages beyond the limit are a problem that is told."""
    try:
        pypdf = require("pypdf", extra="files")
    except MissingExtraError as exc:
        raise DataFormatError(str(exc), file=source.name) from exc
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of every oddity that it copes with
    source.file.seek(0)
    until = time.monotonic() + source.limits.seconds * 0.8
    try:
        reader = pypdf.PdfReader(source.file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataFormatError("An encrypted PDF. Remove its password first.", file=source.name)
        title = " ".join(str((reader.metadata and reader.metadata.title) or "").split())[:300]
        for number, page in enumerate(reader.pages, start=1):
            if number > source.limits.pages or time.monotonic() > until:
                yield Section("", problem=f"page {number} and those after it were not read: too many")
                return
            text = page.extract_text().strip()
            if not text and _has_pictures(page):
                yield Section(
                    "", flag="pages that are pictures without text; recognise their text first (OCR)"
                )
            if text:
                extra = {"page": number, **({"title": title} if title else {})}
                yield Section(text, context=title, metadata=extra)
    except DataFormatError:
        raise
    except Exception as exc:
        # A parser of foreign data can fail in any way; the file is named, the others go on.
        raise DataFormatError(f"Not a readable PDF ({type(exc).__name__}).", file=source.name) from exc


def _has_pictures(page: Any) -> bool:
    resources = page.get("/Resources")
    return resources is not None and bool(resources.get_object().get("/XObject"))
