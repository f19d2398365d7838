"""Convert strings, dicts, tables, cursors and responses of search systems to hits."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Literal, Protocol, cast, runtime_checkable
from uuid import UUID

from resift.errors import DuplicateIdError, InputError, InvalidHitError, ResiftError, redact
from resift.external.records import HIT_KEYS, ID_KEYS, check_text_keys, no_text, read_flat_text, read_metadata
from resift.external.systems import (
    DISTANCE,
    MISSING,
    REPEATABLE_ID,
    clean_column,
    clean_row,
    find_reader,
    flatten_record,
    orient_scores,
)
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, set_original, to_finite_float
from resift.validation import type_name


@runtime_checkable
class Table(Protocol):
    """A pandas or polars DataFrame, or a pyarrow Table."""

    columns: object


Candidate = str | JsonMapping | Hit | object  # a text, a record, a hit, or one result of a search system
Candidates = Iterable[Candidate] | Table | object
"""A list of candidates, a table, a cursor, or the full response of a search system."""
MissingText = Literal["last", "empty", "id", "raise"]
_NOT_METADATA = frozenset({*HIT_KEYS, DISTANCE, REPEATABLE_ID})


def first_text(row: JsonMapping, keys: Sequence[str]) -> str:
    """Return the first non-empty text among the keys, or an empty string."""
    texts = (value for value in map(row.get, keys) if isinstance(value, str) and value.strip())
    return next(texts, "")


def read_hits(
    candidates: Candidates,
    *,
    name: str = "candidates",
    source: str = "",
    text_keys: Sequence[str] | str | None = None,
    missing_text: MissingText = "last",
    strings_are: Literal["text", "id"] = "text",
    unique: bool = True,
    flags: dict[str, str] | None = None,
    fields: dict[str, None] | None = None,
) -> list[Hit]:
    """Return one hit per candidate, in order. Error messages refer to the argument as `name`.

    The text of a dict is extracted as described in `resift.external.records`; its other fields become metadata.
    Candidates without an id are numbered from "0", or "0#2" if that id is taken. With `strings_are="id"`, lists
    are fused by id, so a text without an id gets one from its content. A score that is not a finite number
    raises an error, unless `flags` (id -> problem) is passed. `fields` collects the names of the text fields.
    """
    items = list_documents(candidates, name)
    keys = check_text_keys(text_keys)
    if not set(map(type, items)) - {Hit}:  # the usual case: every candidate is a hit already
        hits = cast("list[Hit]", items)
    else:
        records = _read_records(items, strings_are)
        ids = [record.id if isinstance(record, Hit) else _id(record, i) for i, record in enumerate(records)]
        used_ids = set(ids)
        hits = []
        for number, (item, record) in enumerate(zip(items, records, strict=True)):
            if isinstance(record, Hit):
                hits.append(record)
                continue
            original = item if keys and isinstance(item, Mapping) else record
            text = read_flat_text(record, keys, original=original)
            if fields is not None and not isinstance(item, str):
                fields.update(dict.fromkeys(text.fields))
            id = ids[number]
            if id is None:
                by_content = strings_are == "id" and text.text
                id = content_id(text.text) if by_content else _unused_id(str(number), used_ids)
            nested = record.get("metadata")
            if nested and not isinstance(nested, Mapping):
                raise InvalidHitError(f"Candidate {number}: metadata is {type_name(nested)}; pass a dict.")
            score = _score(record.get("score"), id, number, flags)
            store = str(record.get("source") or record.get("source_store") or source)
            metadata = read_metadata(record, text, without=_NOT_METADATA)
            hits.append(set_original(Hit(id, text.text, score, store, metadata), item))
    positions: dict[str, int] = {}
    for number, hit in enumerate(hits if unique else ()):
        if positions.setdefault(hit.id, number) != number:
            raise DuplicateIdError(
                f"Candidates {positions[hit.id]} and {number} share the id {hit.id!r}. "
                "Give each its own id, or omit the ids to have the candidates numbered."
            )
    # The two usual policies do not change any hit.
    return hits if missing_text in ("last", "empty") else [_fill_text(hit, missing_text, keys) for hit in hits]


def _read_records(items: Sequence[object], strings_are: Literal["text", "id"]) -> list[JsonValue]:
    """Return a flat record per item. Hits are returned unchanged."""
    readers: dict[type, Callable[[Any], JsonObject] | None] = {}
    records: list[JsonValue] = []
    for number, item in enumerate(items):
        try:
            if isinstance(item, Hit):
                records.append(item)
            elif isinstance(item, str):
                records.append({strings_are: str(item)})  # converts subclasses such as NumPy strings
            elif type(item) is dict or isinstance(item, Mapping):
                records.append(flatten_record(item))
            elif type(item) is tuple and len(item) == 2 and isinstance(item[0], (str, Mapping)):
                if isinstance(item[0], str) and isinstance(item[1], str):
                    raise InvalidHitError(f"Candidate {number} is a pair of strings; pass {{'id': …, 'text': …}}.")
                inner = {"id" if strings_are == "id" else "text": item[0]} if isinstance(item[0], str) else item[0]
                records.append({**flatten_record(inner), "score": item[1]})
            else:
                kind = type(item)
                # All objects of a type share one reader, except tuples, whose reader depends on their items.
                if kind not in readers or kind is tuple:
                    readers[kind] = find_reader(item)
                reader = readers[kind]
                if reader is None:
                    raise InvalidHitError(_unknown_candidate(item, number))
                records.append(reader(item))
        except ResiftError:
            raise
        except Exception as exc:  # a known structure with other types inside
            message = f"Candidate {number} looks like a search result, but it cannot be read ({type(exc).__name__})."
            raise InvalidHitError(f"{message} Pass dicts with id, text and score.") from exc
    # The sign of distances and repeated file ids can only be determined from the complete list.
    ranked = [record for record in records if isinstance(record, dict) and DISTANCE in record]
    if ranked:
        for record, score in zip(ranked, orient_scores([record[DISTANCE] for record in ranked]), strict=True):
            record["score"] = score
    used_ids: set[str | None] = set()
    for record in records:
        if isinstance(record, dict) and REPEATABLE_ID in record:
            record["id"] = _unused_id(record["id"], used_ids)
            used_ids.add(record["id"])
    return records


def _unused_id(id: str, used_ids: Collection[str | None]) -> str:
    """Return the id, with the suffix #2, #3 and so on if it is taken."""
    if id not in used_ids:
        return id
    return next(unused for n in count(2) if (unused := f"{id}#{n}") not in used_ids)


def _unknown_candidate(item: object, number: int) -> str:
    if isinstance(item, (tuple, list)):
        kinds = ", ".join(type(part).__name__ for part in item[:6])
        kind = f"a {type(item).__name__} of {kinds}"
        return f"Candidate {number} is {kind}; pass (text, score), a dict, or the cursor, which knows the column names."
    supported = "a string, a dict, a Hit, or a result of a search system that Resift supports"
    return f"Candidate {number} is {type_name(item)}; pass {supported} (docs/rerank-your-results.md)."


def has_id(candidate: object) -> bool:
    """Whether a candidate has an explicit id."""
    if isinstance(candidate, (str, Hit)):
        return isinstance(candidate, Hit)
    [record] = _read_records([candidate], "text")
    return any(record.get(key) is not None for key in ID_KEYS)


def content_id(text: str) -> str:
    """Return an id derived from the text. Equal texts get equal ids, so lists can be fused."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _id(row: JsonMapping, number: int) -> str | None:
    for key in ID_KEYS:
        value = row.get(key)
        if value is None:
            continue
        if isinstance(value, UUID) or (isinstance(value, float) and value.is_integer()):
            value = str(value).removesuffix(".0")  # pandas converts integers to floats in a column with missing values
        if not isinstance(value, (str, int)):
            raise InvalidHitError(f"Candidate {number}: {key} is {value!r}; it must be a string or an int.")
        if value == "":
            raise InvalidHitError(f"Candidate {number}: {key} is empty; give it a value or omit the key.")
        return str(value)
    return None


def _score(value: object, id: str, number: int, flags: dict[str, str] | None) -> float | None:
    if value is None or (type(value) is float and math.isfinite(value)):
        return value
    try:
        return to_finite_float(value, of=f"Candidate {number}")
    except InvalidHitError:
        if flags is None:
            raise
        flags[id] = f"has the score {value!r}, which is not a finite number"
        return None


def _fill_text(hit: Hit, policy: MissingText, keys: Sequence[str] | None) -> Hit:
    if hit.text.strip():
        return hit
    if policy == "id":
        return set_original(replace(hit, text=hit.id), hit.original)
    if policy == "raise":
        why = no_text([hit.metadata], keys, "text_keys=")
        raise InvalidHitError(f"Candidate {hit.id!r} has no text: {why}")
    raise InputError(f"missing_text is {policy!r}; pass 'last', 'empty', 'id' or 'raise'.")


# Paths to the results in a JSON response. The first path that leads to a list of objects is used.
PATHS = (
    "hits.hits",  # Elasticsearch, OpenSearch
    "hits",  # Typesense, Meilisearch, Algolia
    "grouped_hits.hits",  # Typesense, grouped
    "root.children",  # Vespa
    "result.points",  # Qdrant
    "result.hits",  # Pinecone records
    "result",  # Qdrant before 1.10
    "points",
    "matches",  # Pinecone
    "response.docs",  # Solr
    "data",  # OpenAI vector stores, Milvus
    "results.hits",  # Typesense multi-search
    "results",
    "documents",  # Haystack, LangChain chains
    "source_documents",
    "context",
    "source_nodes",  # LlamaIndex
    "value",  # Azure AI Search
    "data.Get.*",  # Weaviate GraphQL
)
# Attributes with the results of a response object. Each name is specific enough to identify its system.
ATTRIBUTES = ("points", "matches", "objects", "source_nodes", "nodes")
_RECORD_KEYS = frozenset({*ID_KEYS, "text", "title", "body", "content", "_source"})
CHROMA_COLUMNS = {"documents": "text", "metadatas": "metadata", "distances": "score", "uris": "uri"}


def list_documents(value: object, name: str) -> list[JsonValue]:
    """Return the documents of a list, an iterator, a table, a cursor or a response of a search system."""
    if type(value) is list or type(value) is tuple:
        # The usual case. The checks below take longer than fusing short lists.
        return _only_query(value, name) if value and isinstance(value[0], list) else list(value)
    # A relation of DuckDB also has columns, but it is read like a cursor.
    if isinstance(value, Table) and not isinstance(value, (type, Mapping, Sequence)) and not hasattr(value, "fetchall"):
        return table_rows(value)
    if hasattr(value, "to_pylist"):  # an Arrow array
        return list(value.to_pylist())
    results = find_results(value, name)
    if results is not None:
        return _only_query(results, name)
    kind = type(value).__name__
    if isinstance(value, Mapping) and is_columns(value):
        columns = ", ".join(map(str, value))
        raise InputError(
            f"{name} is one dict of columns ({columns}); pass one dict per document: "
            "[dict(zip(columns, row)) for row in zip(*columns.values())]."
        )
    # A database row or a named tuple is one document. A pandas Series also has keys, but it has `ndim`.
    record = not hasattr(value, "ndim") and (
        hasattr(value, "keys")
        or hasattr(value, "_fields")
        or (not isinstance(value, Sequence) and find_reader(value) is not None)  # a Ranking is a list
    )
    if record or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise InputError(f"{name} is one {kind}; pass a list of strings, dicts, Hits or results.")
    if isinstance(value, (set, frozenset)):
        raise InputError(f"{name} is a {kind}, which has no order; pass a list, for example sorted({name}).")
    if value is None or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        description = "None" if value is None else f"a {kind}"
        raise InputError(f"{name} is {description}; pass a list of strings, dicts, Hits or results.")
    return list(value)


def is_columns(record: Mapping[str, object]) -> bool:
    """Whether a dict holds one list per field, all of the same length, rather than one record."""
    values = list(record.values())
    all_sized = all(hasattr(column, "__len__") and not isinstance(column, (str, bytes, Mapping)) for column in values)
    return len(values) > 1 and all_sized and len({len(column) for column in values}) == 1  # type: ignore[arg-type]


def table_rows(table: Table) -> list[JsonObject]:
    """Return the rows of a DataFrame or an Arrow table as records, without missing cells."""
    frame: Any = table
    kind = type(table).__name__
    if hasattr(frame, "to_pydict"):
        columns = frame.to_pydict()
    elif hasattr(frame, "to_dicts"):
        columns = frame.to_dict(as_series=False)
    elif hasattr(frame, "iterrows") and not hasattr(frame, "compute"):
        index_names = [name for name in frame.index.names if name is not None and name not in frame.columns]
        if index_names:
            frame = frame.reset_index(index_names)
        if not frame.columns.is_unique:
            raise InputError(f"Two columns of the {kind} have the same name; rename one.")
        columns = {name: column.tolist() for name, column in frame.items()}
        if not any(name in ID_KEYS for name in columns) and _has_labels(frame.index):
            columns["id"] = frame.index.tolist()
    else:
        raise InputError(f"A {kind} cannot be read row by row; pass a DataFrame in memory or a list of dicts.")
    names = [str(name) for name in columns]
    rows = zip(*map(clean_column, columns.values()), strict=True)
    return [{name: cell for name, cell in zip(names, row, strict=True) if cell is not MISSING} for row in rows]


def _has_labels(index: Any) -> bool:
    """Whether the index identifies rows: it contains strings, or it has gaps because rows were removed."""
    labels = index.tolist()
    if index.nlevels > 1 or not index.is_unique or labels == list(range(len(labels))):
        return False
    return all(isinstance(label, (str, int)) and label != "" for label in labels)


def find_results(value: object, name: str) -> list[JsonValue] | None:
    """Return the results in a response of a search system or a cursor; None for anything else."""
    if isinstance(value, (str, bytes, list, tuple)):
        return None
    body = getattr(value, "body", value)  # the Elasticsearch client wraps the JSON
    if isinstance(body, Mapping):
        return _find_in_json(body, name)
    if hasattr(value, "fetchall") and not isinstance(value, type):
        return _fetch_rows(value, name)
    for attribute in ATTRIBUTES:
        results = getattr(value, attribute, None)
        if isinstance(results, (list, tuple)) and not hasattr(value, "columns"):
            return list(results)
    data = getattr(value, "data", None)  # a page of the OpenAI client
    if isinstance(data, list) and data and hasattr(data[0], "file_id"):
        return list(data)
    return None


def _only_query(items: Sequence[JsonValue], name: str) -> list[JsonValue]:
    """Return the results of a single query from a list of lists, as returned by Milvus."""
    if not items or not all(isinstance(item, list) and not hasattr(item, "keys") for item in items):
        return list(items)
    if len(items) > 1:
        raise InputError(f"{name} has the results of {len(items)} queries; pass those of one, such as [0].")
    first: list[JsonValue] = items[0]
    return list(first)


def _find_in_json(value: JsonMapping, name: str) -> list[JsonValue] | None:
    if not _RECORD_KEYS.isdisjoint(value):
        return None  # one document
    if isinstance(value.get("ids"), list) and not value.keys().isdisjoint(CHROMA_COLUMNS):
        return _read_chroma(value, name)
    if "errors" in value and not value.get("data"):
        raise InputError(f"{name} is a response with errors and no results.")
    for path in PATHS:
        results = _follow(value, path.split("."))
        # A record may have the same key, with strings or numbers as values.
        if results is not None and all(
            type(item) is dict or isinstance(item, Mapping) or find_reader(item) for item in results
        ):
            return results
    return None


def _follow(value: object, path: Sequence[str]) -> list[JsonValue] | None:
    if not path:
        return list(value) if isinstance(value, list) else None
    if isinstance(value, list):  # one list per query or per group
        groups = [_follow(group, path) for group in value]
        return [item for group in groups for item in group or ()] if groups and None not in groups else None
    if not isinstance(value, Mapping):
        return None
    if path[0] == "*":
        return _follow(next(iter(value.values())), path[1:]) if len(value) == 1 else None
    return _follow(value[path[0]], path[1:]) if path[0] in value else None


def _read_chroma(value: JsonMapping, name: str) -> list[JsonValue]:
    """Return one dict per result of Chroma's `query` (one list per query) or `get` (one list)."""
    ids: list[JsonValue] = value["ids"]
    nested = bool(ids) and isinstance(ids[0], list)
    if nested and len(ids) > 1:
        raise InputError(f"{name} has the results of {len(ids)} queries; pass those of one.")
    rows: list[JsonObject] = [{"id": id} for id in (ids[0] if nested else ids)]
    for column, key in CHROMA_COLUMNS.items():
        if value.get(column) is None:
            continue
        cells = value[column]
        cells = cells[0] if nested and isinstance(cells, list) and cells else cells
        if not isinstance(cells, list) or len(cells) != len(rows):
            count = len(cells) if isinstance(cells, list) else "no list of"
            raise InputError(f"{name} has {len(rows)} ids and {count} {column}; pass the response unchanged.")
        for row, cell in zip(rows, cells, strict=True):
            if cell is not None:
                row[key] = -to_finite_float(cell, of="A distance") if key == "score" else cell
    return rows


def _fetch_rows(cursor: Any, name: str) -> list[JsonValue]:
    """Return the remaining rows of a DB-API cursor or an SQLAlchemy result as dicts."""
    description = getattr(cursor, "description", None)
    if inspect.iscoroutinefunction(cursor.fetchall):
        raise InputError(f"{name} is an async cursor; pass its rows as dicts: await cursor.fetchall().")
    if description is None and not hasattr(cursor, "keys"):
        raise InputError(f"{name} is a cursor without results; execute a SELECT first.")
    try:
        rows: Iterable[Sequence[object]] = cursor.fetchall()
    except Exception as exc:
        raise InputError(f"The rows of {name} cannot be fetched: {redact(exc)}. Pass them as dicts.") from exc
    if description is None:
        return list(rows)
    names = [str(column[0]) for column in description]
    if len(set(names)) != len(names):
        raise InputError(f"Two columns of {name} have the same name ({', '.join(names)}); rename one with AS.")
    return [clean_row(dict(zip(names, row, strict=True))) if type(row) in (tuple, list) else row for row in rows]
