"""Sections of a file into passages: cut, cleaned, and named so that an unchanged one keeps its id."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Literal

from resift.ingest.chunking import ChunkSize, chunks
from resift.ingest.sections import LONGEST_HEADING, Section
from resift.types import JsonMapping, JsonObject

RowIds = Literal["own", "path"]
"""Rows of JSONL and CSV keep their own ids, or have the file's path before them."""

_LONGEST_CONTEXT = 6 * LONGEST_HEADING
"""Characters that go before every passage: a path of headings. A longer one, say a row's title, is text."""

_MOST_REPEATED = 16_000
"""Characters of metadata that every passage of a long text has: far more than honest columns need.
All of it stands with the first."""


def passages_of(
    section: Section, key: str, *, size: ChunkSize, row_ids: RowIds, copies: Counter[str]
) -> list[JsonObject]:
    """Return the documents of one section of the file `key`; `copies` counts equal ones of that file."""
    if not section.text.strip():
        return []
    own_id = section.id if section.id is None or row_ids == "own" else f"{key}#{section.id}"
    context, whole = section.context, section.text
    if len(context) > _LONGEST_CONTEXT:
        context, whole = "", f"{context}\n\n{whole}"
    pieces = [whole] if own_id is not None else chunks(whole, size)
    repeated = _repeated(section.metadata) if len(pieces) > 1 else {}
    found = []
    for number, piece in enumerate(pieces, start=1):
        text = clean(f"{context}\n\n{piece}" if context else piece)
        id = clean(own_id) if own_id is not None else _chunk_id(key, text, copies)
        place = {"chunk": number} if len(pieces) > 1 else {}
        metadata = {**(section.metadata if number == 1 else repeated), **place, "path": key}
        found.append({"id": id, "text": text, "metadata": metadata, "own_id": own_id is not None})
    return found


def _repeated(metadata: JsonMapping) -> JsonObject:
    """Return what is short enough to stand with every passage: a megabyte would come a thousand times."""
    kept: JsonObject = {}
    room = _MOST_REPEATED
    for key, value in metadata.items():
        size = len(key) + len(str(value))
        if size <= room:
            kept[key] = value
            room -= size
    return kept


def clean(text: str) -> str:
    """Return the text without what no database or tokenizer takes: NULs and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def _chunk_id(key: str, text: str, copies: Counter[str]) -> str:
    """Name a chunk by file and content, so that an unchanged chunk keeps its id wherever it moves."""
    name = f"{key}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    copies[name] += 1
    return name if copies[name] == 1 else f"{name}-{copies[name]}"
