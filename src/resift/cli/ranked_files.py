"""Ranked lists from files: JSONL or TREC run, told apart by what is in them."""

from __future__ import annotations

import json
from pathlib import Path

from resift.errors import DataFormatError
from resift.evaluation.readers import Retrieved, in_trec_order, numbered, run_lines
from resift.types import JsonValue


def read_ranked_file(path: Path) -> dict[str, list[JsonValue]]:
    """Return the candidates of each query, best first; a JSONL file has one nameless query."""
    lines = numbered(path, expected="JSONL or a TREC run")
    if lines[0][1].lstrip()[0] in '{["':
        return {"": [_json_line(path, number, line) for number, line in lines]}
    return _trec_run(path, lines)


def _json_line(path: Path, number: int, line: str) -> JsonValue:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; write one JSON value a line", file=str(path), line=number) from None
    if not isinstance(value, (str, dict)):
        raise DataFormatError("expected an object or a string id", file=str(path), line=number)
    if isinstance(value, dict) and not any(key in value for key in ("id", "_id", "doc_id")):
        raise DataFormatError('no "id"; lists are fused by id', file=str(path), line=number)
    return value


def _trec_run(path: Path, lines: list[tuple[int, str]]) -> dict[str, list[JsonValue]]:
    per_query: dict[str, list[Retrieved]] = {}
    for one in run_lines(path, lines):
        per_query.setdefault(one.query, []).append(one)
    return {
        query: [{"id": one.id, "score": one.score} for one in in_trec_order(rows)]
        for query, rows in per_query.items()
    }
