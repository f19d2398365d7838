"""Strings, dicts and hits in; hits out. Every entry point takes candidates through here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from resift.errors import DuplicateIdError, InputError, InvalidHitError
from resift.types import Hit, Ledger, Step, finite

Candidate = str | Mapping[str, Any] | Hit
MissingText = Literal["last", "empty", "id", "raise"]

TEXT_KEYS = ("text", "content", "title")
ID_KEYS = ("id", "_id", "doc_id")
_OWN_KEYS = frozenset({"id", "_id", "doc_id", "score", "source", "source_store", "metadata", "ledger"})


def text_of(row: Mapping[str, Any], *, keys: Sequence[str] = TEXT_KEYS) -> str:
    """Return the first non-empty text among the keys, or an empty string (V4)."""
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
    bad_score: Literal["flag", "raise"] = "flag",
) -> list[Hit]:
    """Return one hit per candidate, in order.

    Strings and dicts without an id are numbered from "0". Other keys of a dict become metadata.
    A score that is no finite number counts as none, and the hit's ledger says so; with
    bad_score="raise" it is refused.
    """
    if isinstance(candidates, (str, bytes, Mapping)):
        kind = type(candidates).__name__
        raise InputError(f"Candidates are one {kind}; pass a list of strings, dicts or Hits.")
    hits = [
        _hit(
            candidate,
            number,
            source=source,
            text_keys=text_keys,
            strings_are=strings_are,
            bad_score=bad_score,
        )
        for number, candidate in enumerate(candidates)
    ]
    if unique:
        _refuse_duplicates(hits)
    return [_filled(hit, missing_text) for hit in hits]


def _hit(
    candidate: Candidate,
    number: int,
    *,
    source: str,
    text_keys: Sequence[str],
    strings_are: str,
    bad_score: str,
) -> Hit:
    if isinstance(candidate, Hit):
        return candidate
    if isinstance(candidate, str):
        if strings_are == "id":
            return Hit(candidate, source=source)
        return Hit(str(number), candidate, source=source)
    if isinstance(candidate, Mapping):
        return _from_mapping(candidate, number, source=source, text_keys=text_keys, bad_score=bad_score)
    raise InvalidHitError(
        f"Candidate {number} is a {type(candidate).__name__}; pass a string, a dict or a Hit."
    )


def _from_mapping(
    row: Mapping[str, Any], number: int, *, source: str, text_keys: Sequence[str], bad_score: str
) -> Hit:
    text = text_of(row, keys=text_keys)
    used = next((key for key in text_keys if row.get(key) == text), None) if text else None
    extra = {key: value for key, value in row.items() if key not in _OWN_KEYS and key != used}
    nested = row.get("metadata") or {}
    if not isinstance(nested, Mapping):
        raise InvalidHitError(f"Candidate {number}: metadata is a {type(nested).__name__}; pass a dict.")
    given = row.get("score")
    score, note = _score(given)
    store = str(row.get("source") or row.get("source_store") or source)
    ledger = Ledger(Step(*step) for step in row.get("ledger", ()))
    if note and bad_score == "raise":
        finite(given, of=f"Candidate {number}")
    if note:
        ledger = ledger.then(Step("input", store, number + 1, None, note))
    return Hit(_id(row, number), text, score, store, {**nested, **extra}, ledger)


def _id(row: Mapping[str, Any], number: int) -> str:
    for key in ID_KEYS:
        value = row.get(key)
        if value is not None and not isinstance(value, (str, int)):
            raise InvalidHitError(f"Candidate {number}: {key} is {value!r}; it must be a string or an int.")
        if value == "":
            raise InvalidHitError(f"Candidate {number}: {key} is empty; name it or leave the key out.")
        if value is not None:
            return str(value)
    return str(number)


def _score(given: Any) -> tuple[float, str]:
    if given is None:
        return 0.0, ""
    try:
        number = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    return (number, "") if math.isfinite(number) else (0.0, f"came with score {given!r}, which is no number")


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
    if hit.text.strip() or policy in ("last", "empty"):
        return hit
    if policy == "id":
        return Hit(hit.id, hit.id, hit.score, hit.source, hit.metadata, hit.ledger)
    if policy == "raise":
        raise InvalidHitError(f"Candidate {hit.id!r} has no text; looked in its text keys.")
    raise InputError(f"missing_text is {policy!r}; pass 'last', 'empty', 'id' or 'raise'.")
