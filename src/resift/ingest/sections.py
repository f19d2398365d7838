"""A section: a stretch of a file with one context (a heading, a page, a row). What readers yield."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """Text with its context. A section with an `id` is a document of its own and is kept whole.

    `context` (headings, a title) is put before each of its chunks; `flag` tells what was odd about it;
    `position` is how many bytes of the file have been read, for progress.
    """

    text: str
    id: str | None = None
    context: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    flag: str = ""
    position: int = 0
