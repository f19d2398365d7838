"""Read candidates: strings, dicts and hits become hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from resift.errors import DuplicateIdError, InputError, InvalidHitError
from resift.external.records import (
    HIT_KEYS,
    ID_KEYS,
    Table,
    check_text_keys,
    list_documents,
    no_text,
    read_metadata,
    read_text,
)
from resift.types import Hit, JsonMapping, to_finite_float

Candidate = str | JsonMapping | Hit
Candidates = Iterable[Candidate] | Table
MissingText = Literal["last", "empty", "id", "raise"]


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
    """Return one hit per candidate, in order; `name` is the name of the argument in messages.

    The text of a dict is read as `resift.external.records` describes; its other fields become metadata.
    Strings and dicts without an id are numbered from "0". A score that is not a finite number is refused,
    unless `flags` (id -> problem) is given to note it. `fields` collects the names
    of the text fields.
    """
    items: list[Any] = list_documents(candidates, name)
    keys = check_text_keys(text_keys)
    hits: list[Hit] = [] if set(map(type, items)) - {Hit} else items  # usually, all are hits already
    for number, candidate in enumerate(items if hits is not items else ()):
        if isinstance(candidate, Hit):
            hits.append(candidate)
        elif isinstance(candidate, str):
            as_id = strings_are == "id"
            hits.append(Hit(candidate if as_id else str(number), "" if as_id else candidate, source=source))
        elif isinstance(candidate, Mapping):
            hits.append(
                _from_mapping(candidate, number, source=source, text_keys=keys, flags=flags, fields=fields)
            )
        else:
            kind = type(candidate).__name__
            raise InvalidHitError(f"Candidate {number} is a {kind}; pass a string, a dict or a Hit.")
    if unique:
        _refuse_duplicates(hits)
    # The two usual policies leave every hit as it is.
    return hits if missing_text in ("last", "empty") else [_filled(hit, missing_text, keys) for hit in hits]


def _from_mapping(
    row: JsonMapping,
    number: int,
    *,
    source: str,
    text_keys: Sequence[str] | None,
    flags: dict[str, str] | None,
    fields: dict[str, None] | None,
) -> Hit:
    text = read_text(row, text_keys)
    if fields is not None:
        fields.update(dict.fromkeys(text.fields))
    nested = row.get("metadata") or {}
    if not isinstance(nested, Mapping):
        raise InvalidHitError(f"Candidate {number}: metadata is a {type(nested).__name__}; pass a dict.")
    id = _id(row, number)
    score = _score(row.get("score"), id, number, flags)
    store = str(row.get("source") or row.get("source_store") or source)
    return Hit(id, text.text, score, store, read_metadata(row, text, without=HIT_KEYS))


def _id(row: JsonMapping, number: int) -> str:
    for key in ID_KEYS:
        value = row.get(key)
        if value is not None and not isinstance(value, (str, int)):
            raise InvalidHitError(f"Candidate {number}: {key} is {value!r}; it must be a string or an int.")
        if value == "":
            raise InvalidHitError(f"Candidate {number}: {key} is empty; name it or leave the key out.")
        if value is not None:
            return str(value)
    return str(number)


def _score(given: object, id: str, number: int, flags: dict[str, str] | None) -> float | None:
    if given is None:
        return None
    try:
        return to_finite_float(given, of=f"Candidate {number}")
    except InvalidHitError:
        if flags is None:
            raise
        flags[id] = f"came with score {given!r}, which is not a finite number"
        return None


def _refuse_duplicates(hits: Sequence[Hit]) -> None:
    seen: dict[str, int] = {}
    for number, hit in enumerate(hits):
        if hit.id in seen:
            raise DuplicateIdError(
                f"Candidates {seen[hit.id]} and {number} share the id {hit.id!r}. "
                "Give each its own id, or leave ids out to have them numbered."
            )
        seen[hit.id] = number


def _filled(hit: Hit, policy: MissingText, keys: Sequence[str] | None) -> Hit:
    if hit.text.strip():
        return hit
    if policy == "id":
        return replace(hit, text=hit.id)
    if policy == "raise":
        why = no_text([hit.metadata], keys, "text_keys=")
        raise InvalidHitError(f"Candidate {hit.id!r} has no text: {why}")
    raise InputError(f"missing_text is {policy!r}; pass 'last', 'empty', 'id' or 'raise'.")


hits_from = read_hits  # OLD NAME: remove
