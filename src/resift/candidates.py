"""Strings, dicts and hits in; hits out. Every entry point takes candidates through here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from resift.errors import DuplicateIdError, InputError, InvalidHitError
from resift.types import Hit, JsonMapping, finite
from resift.validation import check_list, check_text

Candidate = str | JsonMapping | Hit
MissingText = Literal["last", "empty", "id", "raise"]

TEXT_KEYS = ("text", "content", "title")
ID_KEYS = ("id", "_id", "doc_id")
_OWN_KEYS = frozenset({*ID_KEYS, "score", "source", "source_store", "metadata"})


def text_of(row: JsonMapping, *, keys: Sequence[str] = TEXT_KEYS) -> str:
    """Return the first non-empty text among the keys, or an empty string."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def hits_from(
    candidates: Iterable[Candidate],
    *,
    source: str = "",
    text_keys: Sequence[str] = TEXT_KEYS,
    missing_text: MissingText = "last",
    strings_are: Literal["text", "id"] = "text",
    unique: bool = True,
    flags: dict[str, str] | None = None,
) -> list[Hit]:
    """Return one hit per candidate, in order.

    Strings and dicts without an id are numbered from "0". Other keys of a dict become metadata. A score
    that is no finite number is refused, unless there are `flags` to note it in (id -> what came).
    """
    given: list[Any] = check_list(candidates, "The candidates", "strings, dicts or Hits")
    if text_keys is not TEXT_KEYS:
        text_keys = [check_text(key, "text_keys") for key in check_list(text_keys, "text_keys", "strings")]
    hits: list[Hit] = [] if set(map(type, given)) - {Hit} else given  # the usual case: all are hits already
    for number, candidate in enumerate(given if hits is not given else ()):
        if isinstance(candidate, Hit):
            hits.append(candidate)
        elif isinstance(candidate, str):
            as_id = strings_are == "id"
            hits.append(Hit(candidate if as_id else str(number), "" if as_id else candidate, source=source))
        elif isinstance(candidate, Mapping):
            hits.append(_from_mapping(candidate, number, source=source, text_keys=text_keys, flags=flags))
        else:
            kind = type(candidate).__name__
            raise InvalidHitError(f"Candidate {number} is a {kind}; pass a string, a dict or a Hit.")
    if unique:
        _refuse_duplicates(hits)
    # The two usual policies leave every hit as it is.
    return hits if missing_text in ("last", "empty") else [_filled(hit, missing_text) for hit in hits]


def _from_mapping(
    row: JsonMapping,
    number: int,
    *,
    source: str,
    text_keys: Sequence[str],
    flags: dict[str, str] | None,
) -> Hit:
    text = text_of(row, keys=text_keys)
    used = next((key for key in text_keys if row.get(key) == text), None) if text else None
    extra = {key: value for key, value in row.items() if key not in _OWN_KEYS and key != used}
    nested = row.get("metadata") or {}
    if not isinstance(nested, Mapping):
        raise InvalidHitError(f"Candidate {number}: metadata is a {type(nested).__name__}; pass a dict.")
    id = _id(row, number)
    score = _score(row.get("score"), id, number, flags)
    store = str(row.get("source") or row.get("source_store") or source)
    return Hit(id, text or text_of(nested, keys=text_keys), score, store, {**nested, **extra})


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
        return finite(given, of=f"Candidate {number}")
    except InvalidHitError:
        if flags is None:
            raise
        flags[id] = f"came with score {given!r}, which is no number"
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


def _filled(hit: Hit, policy: MissingText) -> Hit:
    if hit.text.strip():
        return hit
    if policy == "id":
        return replace(hit, text=hit.id)
    if policy == "raise":
        raise InvalidHitError(f"Candidate {hit.id!r} has no text; looked in its text keys.")
    raise InputError(f"missing_text is {policy!r}; pass 'last', 'empty', 'id' or 'raise'.")
