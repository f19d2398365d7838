"""Sections of a file into passages: cut, cleaned, and named so that an unchanged one keeps its id."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Literal

from resift.ingest.chunking import ChunkSize, chunks
from resift.ingest.sections import Section
from resift.types import JsonObject

RowIds = Literal["own", "path"]
"""Rows of JSONL and CSV keep their own ids, or have the file's path before them."""


def passages_of(
    section: Section, key: str, *, size: ChunkSize, row_ids: RowIds, copies: Counter[str]
) -> list[JsonObject]:
    """Return the documents of one section of the file `key`; `copies` counts equal ones of that file."""
    if not section.text.strip():
        return []
    own_id = section.id if section.id is None or row_ids == "own" else f"{key}#{section.id}"
    pieces = [section.text] if own_id is not None else chunks(section.text, size)
    found = []
    for number, piece in enumerate(pieces, start=1):
        text = clean(f"{section.context}\n\n{piece}" if section.context else piece)
        id = clean(own_id) if own_id is not None else _chunk_id(key, text, copies)
        place = {"chunk": number} if len(pieces) > 1 else {}
        metadata = {**section.metadata, **place, "path": key}
        found.append({"id": id, "text": text, "metadata": metadata, "own_id": own_id is not None})
    return found


def clean(text: str) -> str:
    """Return the text without what no database or tokenizer takes: NULs and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def _chunk_id(key: str, text: str, copies: Counter[str]) -> str:
    """Name a chunk by file and content, so that an unchanged chunk keeps its id wherever it moves."""
    name = f"{key}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    copies[name] += 1
    return name if copies[name] == 1 else f"{name}-{copies[name]}"
