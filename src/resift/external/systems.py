"""Convert single results of search systems, which are recognized by their structure, to flat records.

A flat record has the fields of the document, `id`, `score` and, if the system separates it, `metadata`.
`DICT_READERS` and `OBJECT_READERS` list the supported formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from resift.types import JsonMapping, JsonObject, JsonValue

DISTANCE = "_resift_distance"  # key of a score that may be a distance; `orient_scores` decides
REPEATABLE_ID = "_resift_repeatable_id"  # key of a record whose id is a file id shared by all chunks of the file

_TAG = re.compile(r"</?(?:em|mark|b|strong)>")


class DictReader(NamedTuple):
    """Reads dicts that have any of the keys in `any_of` and, if `fields` is set, an object under that key."""

    system: str
    any_of: frozenset[str]
    fields: str
    read: Callable[[JsonMapping], JsonObject]


def _record(
    fields: object, id: object = None, score: object = None, metadata: object = None, **extra: object
) -> JsonObject:
    """Return the fields of a document with its id and score. These replace fields of the same name."""
    record = {**fields, **extra} if type(fields) is dict or isinstance(fields, Mapping) else extra
    if id is not None:
        record["id"] = id if isinstance(id, (str, int)) else str(id)  # UUIDs
    if score is None:
        record.pop("score", None)
    else:
        record["score"] = score
    if metadata:
        record["metadata"] = metadata
    if extra.get("text") == "":
        del record["text"]
    return record


def _ranked_record(fields: object, id: object, score: object) -> JsonObject:
    """Return a result whose score is a similarity or a distance, depending on the metric of its index."""
    return _record(fields, id, **{DISTANCE: score})


def _similarity(score: JsonValue, distance: JsonValue) -> JsonValue:
    return -distance if score is None and distance is not None else score


def _without(record: JsonMapping, *prefixes: str) -> JsonObject:
    """Return a copy without the fields whose names begin with a prefix."""
    return {key: record[key] for key in _keys_without(tuple(record), prefixes)}


@lru_cache(maxsize=1024)
def _keys_without(keys: tuple[str, ...], prefixes: tuple[str, ...]) -> list[str]:
    return [key for key in keys if not str(key).startswith(prefixes)]  # a dict of Python may have numbers as keys


def _read_elasticsearch(hit: JsonMapping) -> JsonObject:
    record = _record(hit.get("_source"), hit.get("_id"), hit.get("_score"))
    # The `fields` option returns one list per field. Highlights are the fallback if no source was requested.
    for name, values in (hit.get("fields") or {}).items():
        record.setdefault(name, values[0] if isinstance(values, list) and len(values) == 1 else values)
    if not any(key not in ("id", "score") for key in record):
        for name, fragments in (hit.get("highlight") or {}).items():
            record[name] = " … ".join(_TAG.sub("", str(fragment)) for fragment in fragments)
    return record


def _read_weaviate_graphql(hit: JsonMapping) -> JsonObject:
    extra = hit["_additional"]
    score = _similarity(extra.get("score", extra.get("certainty")), extra.get("distance"))
    return _record(_without(hit, "_additional"), extra.get("id"), to_number(score))


def _read_typesense(hit: JsonMapping) -> JsonObject:
    document, fusion = hit["document"], hit.get("hybrid_search_info") or {}
    score = _similarity(fusion.get("rank_fusion_score", hit.get("text_match")), hit.get("vector_distance"))
    return _record(document, document.get("id"), score)


def _read_azure(hit: JsonMapping) -> JsonObject:
    score = hit.get("@search.rerankerScore")
    return _record(_without(hit, "@search."), hit.get("id"), hit.get("@search.score") if score is None else score)


def _read_lancedb(row: JsonMapping) -> JsonObject:
    document = {key: value for key, value in row.items() if key not in _LANCEDB_KEYS}
    score = next((row[key] for key in ("_relevance_score", "_score") if row.get(key) is not None), None)
    return _record(document, None, _similarity(score, row.get("_distance")))


def _read_openai(hit: JsonMapping) -> JsonObject:
    parts = [part for part in hit.get("content") or () if part]
    text = "\n\n".join(part["text"] if isinstance(part, Mapping) else str(part.text) for part in parts)
    metadata = {"filename": hit.get("filename"), **(hit.get("attributes") or {})}
    return _record({}, hit["file_id"], hit.get("score"), metadata, text=text, **{REPEATABLE_ID: True})


def _read_node_dict(hit: JsonMapping) -> JsonObject:
    node = hit["node"]
    id = node.get("id_") or node.get("node_id") or node.get("id")
    return _record({}, id, hit.get("score"), node.get("metadata"), text=node.get("text") or "")


_LANCEDB_KEYS = frozenset({"_distance", "_score", "_relevance_score", "_rowid"})

# The first matching reader is used.
DICT_READERS = (
    DictReader("Elasticsearch", frozenset({"_id", "_score", "_index"}), "_source", _read_elasticsearch),
    DictReader("Elasticsearch", frozenset({"_index"}), "fields", _read_elasticsearch),
    DictReader("Pinecone records", frozenset({"_score"}), "fields", lambda hit: _ranked_record(
        hit["fields"], hit.get("_id"), hit["_score"])),
    DictReader("Elasticsearch", frozenset({"_score"}), "highlight", _read_elasticsearch),
    DictReader("Vespa", frozenset({"relevance"}), "fields", lambda hit: _record(
        hit["fields"], hit.get("id"), hit["relevance"])),
    DictReader("Qdrant", frozenset({"id"}), "payload", lambda hit: _ranked_record(
        hit["payload"], hit["id"], hit.get("score"))),
    DictReader("Milvus", frozenset({"distance"}), "entity", lambda hit: _ranked_record(
        hit["entity"], hit.get("id", hit["entity"].get("id")), hit.get("distance"))),
    DictReader("Typesense", frozenset(
        {"text_match", "text_match_info", "highlights", "highlight", "vector_distance"}
    ), "document", _read_typesense),
    DictReader("LlamaIndex", frozenset({"node"}), "node", _read_node_dict),
    DictReader("Weaviate", frozenset({"_additional"}), "_additional", _read_weaviate_graphql),
    DictReader("Haystack", frozenset({"content"}), "meta", lambda hit: _record(
        {}, hit.get("id"), hit.get("score"), hit["meta"], text=hit["content"] or "")),
    DictReader("Pinecone", frozenset({"values", "sparse_values", "sparseValues"}), "metadata", lambda hit:
        _ranked_record(hit["metadata"], hit.get("id"), hit.get("score"))),
    DictReader("OpenAI", frozenset({"file_id"}), "", _read_openai),
    DictReader("Algolia", frozenset({"objectID"}), "", lambda hit: _record(
        _without(hit, "_", "objectID"), hit["objectID"], hit.get("score"))),
    DictReader("Azure AI Search", frozenset({"@search.score"}), "", _read_azure),
    DictReader("LanceDB", frozenset({"_distance", "_relevance_score", "_rowid"}), "", _read_lancedb),
    DictReader("Meilisearch", frozenset({"_rankingScore", "_formatted"}), "", lambda hit: _record(
        _without(hit, "_ranking", "_formatted", "_match"), hit.get("id"), hit.get("_rankingScore"))),
    DictReader("LanceDB", frozenset({"_score"}), "", _read_lancedb),
)  # fmt: skip
# Keys that identify such results. "id" and "content" are left out because they are too common.
_MARKS = frozenset[str]().union(*(reader.any_of for reader in DICT_READERS), ("payload", "meta")) - {"id", "content"}


@lru_cache(maxsize=1024)
def _find_dict_readers(keys: tuple[object, ...]) -> list[DictReader]:
    """Return the readers that match these keys. The result is cached, because the dicts of a list share their keys."""
    return [
        reader
        for reader in DICT_READERS
        if not reader.any_of.isdisjoint(keys) and (not reader.fields or reader.fields in keys)
    ]


def flatten_record(record: JsonMapping) -> JsonMapping:
    """Return a result of a search system as a flat record, and any other dict unchanged."""
    if _MARKS.isdisjoint(record):
        return record
    for reader in _find_dict_readers(tuple(record)):
        inner = record[reader.fields] if reader.fields else record
        if type(inner) is dict or isinstance(inner, Mapping):
            flat = reader.read(record)
            if "id" not in flat and record.get("id") is not None:
                flat["id"] = record["id"]
            return flat
    return record


def _read_weaviate(item: Any) -> JsonObject:
    score, certainty, distance = (getattr(item.metadata, name, None) for name in ("score", "certainty", "distance"))
    return _record(item.properties, item.uuid, _similarity(certainty if score is None else score, distance))


def _read_node(item: Any, score: object = None) -> JsonObject:
    return _record({}, item.node_id, score, item.metadata, text=item.get_content())


def _read_milvus_object(item: Any) -> JsonObject:
    entity = item.entity
    document = entity.to_dict() if hasattr(entity, "to_dict") else dict(entity)
    return _ranked_record(document.get("entity", document), item.id, item.distance)


def _read_openai_object(item: Any) -> JsonObject:
    names = ("file_id", "filename", "score", "content", "attributes")
    return _read_openai({name: getattr(item, name, None) for name in names})


def _read_row(row: Mapping[str, object]) -> JsonObject:
    return dict(flatten_record(clean_row(row)))


def clean_row(row: Mapping[str, object]) -> JsonObject:
    """Return a row as JSON values, without missing and binary cells."""
    cells = zip(row, clean_column(row.values()), strict=True)
    return {str(name): cell for name, cell in cells if cell is not MISSING}


def clean_column(cells: Collection[object]) -> list[JsonValue]:
    """Return cells as JSON values, with `MISSING` in place of missing and binary cells."""
    if _PLAIN.issuperset(map(type, cells)):
        return list(cells)
    return [cell if type(cell) in _PLAIN else MISSING if _is_missing(cell) else _plain_cell(cell) for cell in cells]


MISSING = object()
_PLAIN = frozenset({str, int, bool, list, dict})


def _is_missing(cell: object) -> bool:
    """Whether a cell is empty, binary, or NaN, NaT or pandas.NA, which do not equal themselves."""
    if cell is None or isinstance(cell, (bytes, bytearray, memoryview)):
        return True
    if hasattr(cell, "__len__"):
        return False
    try:
        return bool(cell != cell)  # noqa: PLR0124 - true only for missing values
    except TypeError:  # pandas.NA has no truth value
        return True


def _plain_cell(cell: object) -> JsonValue:
    """Return a cell as a JSON value: NumPy numbers as numbers, dates as ISO 8601, arrays as lists."""
    if cell is None or isinstance(cell, (str, int, float, bool, list, dict)):
        return cell
    for method in ("isoformat", "tolist"):
        if hasattr(cell, method):
            return getattr(cell, method)()
    return float(cell) if isinstance(cell, Decimal) else str(cell)


# Required attributes of an object -> its reader. The first matching entry is used.
OBJECT_READERS: Mapping[tuple[str, ...], Callable[[Any], JsonObject]] = {
    # LangChain, LlamaIndex (with and without a score), Haystack
    ("page_content", "metadata"): lambda item: _record(
        {}, getattr(item, "id", None), None, item.metadata, text=item.page_content),
    ("node", "score"): lambda item: _read_node(item.node, item.score),
    ("node_id", "get_content"): _read_node,
    ("content", "meta", "id"): lambda item: _record({}, item.id, item.score, item.meta, text=item.content or ""),
    # Qdrant, Weaviate, Milvus, OpenAI, Pinecone, elasticsearch-dsl (its fields are attributes)
    ("id", "payload"): lambda item: _ranked_record(item.payload, item.id, getattr(item, "score", None)),
    ("uuid", "properties"): _read_weaviate,
    ("id", "distance", "entity"): _read_milvus_object,
    ("file_id", "content"): _read_openai_object,
    ("id", "score", "metadata"): lambda item: _ranked_record(item.metadata, item.id, item.score),
    ("meta", "to_dict"): lambda item: _record(
        item.to_dict(), getattr(item.meta, "id", None), getattr(item.meta, "score", None)),
    # Rows with column names: SQLAlchemy, named tuples, sqlite3.Row and similar, dataclasses, pydantic
    ("_mapping",): lambda row: _read_row(row._mapping),
    ("_asdict",): lambda row: _read_row(row._asdict()),
    ("keys", "__getitem__"): lambda row: _read_row(
        {key: row[key] for key in row.keys()}),  # noqa: SIM118 - iterating over a row yields values
    ("__dataclass_fields__",): lambda item: _read_row(
        {field.name: getattr(item, field.name) for field in fields(item)}),
    ("model_fields", "model_dump"): lambda item: _read_row(item.model_dump()),
}  # fmt: skip


def find_reader(item: object) -> Callable[[Any], JsonObject] | None:
    """Return the reader for an object of another system, or None if it is not recognized."""
    if isinstance(item, (str, bytes, int, float, type)):
        return None
    if isinstance(item, tuple) and len(item) == 2 and not hasattr(item, "_fields"):
        inner = find_reader(item[0])
        if inner is None or to_number(item[1]) is None:
            return None
        return lambda pair, read=inner: {**read(pair[0]), DISTANCE: pair[1]}  # type: ignore[misc]
    matching = (names for names in OBJECT_READERS if all(hasattr(item, name) for name in names))
    return next((OBJECT_READERS[names] for names in matching), None)


def orient_scores(scores: Sequence[object]) -> list[float | None]:
    """Return scores with the best one highest. Scores in ascending order are distances and are negated."""
    numbers = [to_number(score) for score in scores]
    valid_numbers = [number for number in numbers if number is not None]
    if len(valid_numbers) > 1 and valid_numbers[0] < valid_numbers[-1] and valid_numbers == sorted(valid_numbers):
        return [None if number is None else -number for number in numbers]
    return numbers


def to_number(value: object) -> float | None:
    """Convert a number, a numeric string (GraphQL) or a NumPy scalar to a float; None for anything else."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
