"""Rows of a graph engine to hits: which column is the id, which the text, and the rest as metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from resift.external.candidates import first_text
from resift.external.records import read_text
from resift.types import Hit, JsonMapping, JsonValue, to_json


def hits_from_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[JsonValue]],
    *,
    k: int,
    source: str,
    id_column: str,
    text_column: str,
) -> list[Hit]:
    """Return at most k hits in row order; a later row with the id of an earlier one adds nothing.

    The id is the id column, else the same property of the row's only node, else a hash of the row. The
    text is found the same way, else as in any record (`resift.external.records`). The score is 1/rank, so
    that sorting by score keeps the order of the statement.
    """
    hits: dict[str, Hit] = {}
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        fields = _fields(values)
        id = _id(fields, values, id_column)
        if id in hits:
            continue
        if len(hits) == k:
            break
        text = first_text(fields, (text_column,)) or read_text(fields).text
        rank = len(hits) + 1
        used = {id_column, text_column}
        metadata = {key: value for key, value in values.items() if key not in used}
        hits[id] = Hit(id, text, 1 / rank, source, metadata)
    return list(hits.values())


def _fields(values: JsonMapping) -> JsonMapping:
    """Return the columns, with the properties of the only node behind them where there is just one."""
    nodes = [value for value in values.values() if isinstance(value, Mapping) and "_LABEL" in value]
    return {**nodes[0], **values} if len(nodes) == 1 else values


def _id(fields: JsonMapping, values: JsonMapping, id_column: str) -> str:
    given = fields.get(id_column)
    if isinstance(given, (str, int)) and not isinstance(given, bool) and given != "":
        return str(given)
    return "row-" + hashlib.sha256(to_json(values).encode("utf-8", "surrogatepass")).hexdigest()[:32]
