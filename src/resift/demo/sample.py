"""The shipped passages and questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from resift.types import JsonObject

SHOWN = "how much notice must I give after two years here?"
"""The question whose rank flow the demo shows unless another is asked."""


@dataclass(frozen=True, slots=True)
class Question:
    """A judged question: which passages answer it (2) or help (1), and the trap that it sets."""

    id: str
    text: str
    trap: str
    grades: Mapping[str, int]


def passages() -> list[JsonObject]:
    """Return the passages as documents for a store."""
    return [
        {"id": row["id"], "text": row["text"], "metadata": {"source_type": row["source"]}}
        for row in _rows("passages.jsonl")
    ]


def questions() -> list[Question]:
    """Return the judged questions."""
    return [Question(**row) for row in _rows("questions.jsonl")]


def _rows(name: str) -> list[JsonObject]:
    text = (files("resift.demo") / "data" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
