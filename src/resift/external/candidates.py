"""Convert strings, dicts and results of search systems to hits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Literal, cast
from uuid import UUID

from resift.errors import DuplicateIdError, InputError, InvalidHitError
from resift.external.records import HIT_KEYS, ID_KEYS, check_text_keys, no_text, read_flat_text, read_metadata
from resift.external.responses import Table, list_documents
from resift.external.systems import DISTANCE, REPEATABLE_ID, find_reader, flatten_record, orient_scores
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, set_original, to_finite_float
from resift.validation import type_name

Candidate = str | JsonMapping | Hit | object
"""A text, a record, a hit, or one result of a search system."""
Candidates = Iterable[Candidate] | Table | object
"""A list of candidates, a table, a cursor, or the full response of a search system."""
MissingText = Literal["last", "empty", "id", "raise"]
_NOT_METADATA = frozenset({*HIT_KEYS, DISTANCE, REPEATABLE_ID})


def first_text(row: JsonMapping, keys: Sequence[str]) -> str:
    """Return the first non-empty text among the keys, or an empty string."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


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
    Results of search systems are recognized by their structure. `hit.original` is the object that was passed.
    Candidates without an id are numbered from "0", or "0#2" if that id is taken. With `strings_are="id"`, lists
    are fused by id, so a text without an id gets one from its content. A score that is not a finite number
    raises an error, unless `flags` (id -> problem) is passed to collect such problems. `fields` collects the
    names of the text fields.
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
    first_positions: dict[str, int] = {}
    for number, hit in enumerate(hits if unique else ()):
        if hit.id in first_positions:
            raise DuplicateIdError(
                f"Candidates {first_positions[hit.id]} and {number} share the id {hit.id!r}. "
                "Give each its own id, or omit the ids to have the candidates numbered."
            )
        first_positions[hit.id] = number
    # The two usual policies do not change any hit.
    return hits if missing_text in ("last", "empty") else [_fill_text(hit, missing_text, keys) for hit in hits]


def _read_records(items: Sequence[object], strings_are: Literal["text", "id"]) -> list[JsonValue]:
    """Return a flat record per item. Hits are returned unchanged."""
    readers: dict[type, Callable[[Any], JsonObject] | None] = {}
    records: list[JsonValue] = []
    for number, item in enumerate(items):
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
        return (
            f"Candidate {number} is a {type(item).__name__} of {kinds}; pass (text, score), a dict, "
            "or the cursor, which knows the column names."
        )
    return (
        f"Candidate {number} is {type_name(item)}; pass a string, a dict, a Hit, or a result of a search "
        "system that Resift supports (docs/rerank-your-results.md)."
    )


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
