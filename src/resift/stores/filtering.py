"""The meaning of `where` in every store: tests on metadata values, all of which must pass.

    {"topic": "food"}                     equal            {"topic": ["food", "drink"]}    any of them
    {"path": "*.md"}                      pattern          {"title": {"=": "a*b"}}         a literal star
    {"price": {">": 10, "<=": 20}}        in a range       {"day": {">=": "2024-05-01"}}   from that day on
    {"topic": {"!=": "food"}}             anything else, including a missing key
    {"or": [{"topic": "food"}, {"price": {"<": 5}}]}       at least one of these filters passes

A list passes a test when one of its items does, so {"tags": "food"} finds {"tags": ["food", "cheap"]}.
`!=` is the opposite of `=`: no item is equal. Types count: 1 equals 1.0, but neither True nor "1". Strings
that are ISO dates compare as dates, others by code point; a number is never compared with a string.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from resift.errors import InputError
from resift.types import Metadata, Where, to_json

Value = str | int | float | bool

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
OPERATORS = ("=", "!=", *_COMPARISONS)
_SPELLED_OTHERWISE = {
    "eq": "'='", "$eq": "'='", "==": "'='", "ne": "'!='", "$ne": "'!='", "not": "'!='", "$not": "'!='",
    "gt": "'>'", "$gt": "'>'", "gte": "'>='", "$gte": "'>='", "lt": "'<'", "$lt": "'<'", "lte": "'<='",
    "$lte": "'<='", "in": "a list of values", "$in": "a list of values", "any_of": "a list of values",
    "nin": "'!=' with a list", "$nin": "'!=' with a list", "not_in": "'!=' with a list",
    "contains": "the value alone", "like": "a pattern such as 'docs/*'",
}  # fmt: skip
"""Operators of other filter languages -> how to write them here."""

MAX_KEYS_NAMED = 20
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:$|[T ])")


class Pattern(NamedTuple):
    """A string with `*` for any letters."""

    text: str

    def accepts(self, value: Value) -> bool:
        """Say whether the whole string fits; takes time in proportion to both lengths."""
        if not isinstance(value, str):
            return False
        first, *rest = self.text.split("*")
        if not rest:
            return value == first
        last = rest.pop()
        if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
            return False
        at, end = len(first), len(value) - len(last)
        for part in rest:
            at = value.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


class Condition(NamedTuple):
    """One test on one metadata key; `values` are alternatives of = and !=, else the one compared with."""

    key: str
    operator: str
    values: tuple[Value | Pattern, ...]

    def accepts(self, value: Any) -> bool:
        """Return whether a metadata value passes; None means that the document lacks the key."""
        items = filter_values(value)
        if self.operator in ("=", "!="):
            equal = any(_equal(item, wanted) for item in items for wanted in self.values)
            return equal is (self.operator == "=")
        return any(_compared(self.operator, item, self.values[0]) for item in items)

    def passes(self, metadata: Metadata) -> bool:
        """Return whether a document's metadata passes."""
        return self.accepts(metadata.get(self.key))


class AnyOf(NamedTuple):
    """Several filters of which at least one must pass."""

    filters: tuple[tuple[Test, ...], ...]

    def passes(self, metadata: Metadata) -> bool:
        """Return whether a document's metadata passes."""
        return any(passes(metadata, tests) for tests in self.filters)


Test: TypeAlias = Condition | AnyOf


def conditions(where: Where | None) -> list[Test]:
    """Return the tests of a filter; None and {} have none.

    Raises InputError for values without a defined test (None, nested lists, NaN, unknown operators).
    """
    if where is None:
        return []
    if not isinstance(where, Mapping):
        raise InputError(f"where is a {type(where).__name__}; pass a dict of metadata keys and values.")
    tests: list[Test] = []
    for key, value in where.items():
        # A list of dicts is no metadata value, so a metadata key named "or" keeps working.
        if key == "or" and isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
            tests.append(AnyOf(tuple(tuple(conditions(part)) for part in value)))
        else:
            tests += _conditions(_key(key), value)
    return tests


def single_conditions(tests: Iterable[Test]) -> list[Condition]:
    """Return every condition of a filter, those inside `or` included."""
    found: list[Condition] = []
    for test in tests:
        if isinstance(test, AnyOf):
            found += [condition for part in test.filters for condition in single_conditions(part)]
        else:
            found.append(test)
    return found


def matches(metadata: Metadata, where: Where | None) -> bool:
    """Say whether metadata passes the filter; the reference that engines' own filters must equal."""
    return passes(metadata, conditions(where))


def passes(metadata: Metadata, tests: Iterable[Test]) -> bool:
    """Return whether metadata passes all tests."""
    return all(test.passes(metadata) for test in tests)


def explain_filter(where: Where | None, documents: Sequence[Metadata]) -> dict[str, str]:
    """Return key -> note for each test that none of the documents passes, or whose key none of them has."""
    known = sorted({key for metadata in documents for key in metadata})
    notes: dict[str, str] = {}
    for test in single_conditions(conditions(where)):
        if test.key not in known:
            notes[test.key] = unknown_key_note(test.key, known)
        elif not any(test.passes(metadata) for metadata in documents):
            values = (value for metadata in documents for value in filter_values(metadata.get(test.key)))
            notes[test.key] = unmatched_note(test.key, list(islice(values, 2)))
    return notes


def unknown_key_note(key: str, known: Iterable[str]) -> str:
    """Return a note about a filter on a key that no document has."""
    names = list(known)
    more = f" and {len(names) - MAX_KEYS_NAMED} more" if len(names) > MAX_KEYS_NAMED else ""
    return f"no document has the key {key!r}. Known keys: {', '.join(names[:MAX_KEYS_NAMED]) or 'none'}{more}"


def unmatched_note(key: str, examples: Iterable[object]) -> str:
    """Return a note about a filter that no value of a key passes."""
    shown = " and ".join(repr(value)[:80] for value in examples)
    return f"no document passes the filter on {key!r}" + (f"; its values look like {shown}" if shown else "")


def filter_values(value: object) -> list[Value]:
    """Return the values of a metadata entry that filters compare: itself, or the items of a list."""
    items = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return [item for item in items if is_scalar(item)]  # type: ignore[misc]


def is_scalar(value: object) -> bool:
    """Say whether a metadata value can be filtered on: a string, a finite number or a boolean."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int, bool))


def canonical(value: Value) -> str:
    """Return a string that is equal exactly for equal values: 1 equals 1.0, but not True or "1"."""
    return to_json(int(value) if isinstance(value, float) and value.is_integer() else value)


def is_date(value: object) -> bool:
    """Say whether a string is an ISO date, with or without a time."""
    return isinstance(value, str) and _instant(value) is not None


def _conditions(key: str, value: object) -> list[Condition]:
    if not isinstance(value, Mapping):
        return [Condition(key, "=", tuple(_pattern(_value(key, one)) for one in _alternatives(value)))]
    if not value:
        raise InputError(f"where[{key!r}] is an empty dict; name an operator: {', '.join(OPERATORS)}.")
    found = []
    for name, operand in value.items():
        if name not in OPERATORS:
            hint = _SPELLED_OTHERWISE.get(name) if isinstance(name, str) else None
            advice = f"write {hint}. Known are" if hint else "known are"
            raise InputError(f"where[{key!r}] has the operator {name!r}; {advice} {', '.join(OPERATORS)}.")
        if name in _COMPARISONS:
            found.append(Condition(key, name, (_comparable(key, name, operand),)))
        else:
            found.append(Condition(key, name, tuple(_value(key, one) for one in _alternatives(operand))))
    return found


def _equal(value: Value, wanted: Value | Pattern) -> bool:
    if isinstance(wanted, Pattern):
        return wanted.accepts(value)
    return isinstance(value, bool) is isinstance(wanted, bool) and value == wanted


def _compared(name: str, value: Value, wanted: object) -> bool:
    compare = _COMPARISONS[name]
    if isinstance(wanted, str):
        if not isinstance(value, str):
            return False
        limit = _instant(wanted)
        if limit is None:
            return compare(value, wanted)
        held = _instant(value)
        if held is None:
            return False
        # A limit without a time means the whole day.
        return compare(held.date(), limit.date()) if len(wanted) == 10 else compare(held, limit)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and compare(value, wanted)


@lru_cache(maxsize=4096)
def _instant(text: str) -> datetime | None:
    if not _ISO_DATE.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _alternatives(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InputError(f"where has the key {key!r}; keys are names of metadata entries.")
    return key


def _value(key: str, value: Any) -> Value:
    if isinstance(value, date):
        value = value.isoformat()
    if not is_scalar(value):
        raise InputError(
            f"where[{key!r}] holds a {type(value).__name__}; "
            "pass a string, a number, a boolean, a list of them, or {operator: value}."
        )
    scalar: Value = value
    return scalar


def _pattern(value: Value) -> Value | Pattern:
    return Pattern(value) if isinstance(value, str) and "*" in value else value


def _comparable(key: str, name: str, value: object) -> Value:
    given = _value(key, value)
    if isinstance(given, bool):
        raise InputError(f"where[{key!r}] compares {name} with {given}; pass a number, a date or a string.")
    return given
