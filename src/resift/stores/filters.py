"""Metadata filters: the semantics of `where` in all stores, and its syntax on the command line.

    {"topic": "food"}                     equal            {"topic": ["food", "drink"]}    any of them
    {"path": "*.md"}                      pattern          {"title": {"=": "a*b"}}         a literal star
    {"price": {">": 10, "<=": 20}}        in a range       {"day": {">=": "2024-05-01"}}   that day or later
    {"topic": {"!=": "food"}}             anything else, including a missing key
    {"or": [{"topic": "food"}, {"price": {"<": 5}}]}       at least one of these filters passes

All conditions must pass. A list passes a condition if one of its items does, so {"tags": "food"} matches {"tags":
["food", "cheap"]}. `!=` is the opposite of `=`: no item is equal. Types matter: 1 equals 1.0, but neither True nor
"1". ISO dates are compared as dates, other strings by code point. Numbers are never compared with strings.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, TypeAlias, TypeVar

from resift.errors import InputError
from resift.types import JsonObject, JsonValue, Metadata, Where, to_json

T = TypeVar("T")

Value: TypeAlias = str | int | float | bool

_COMPARISONS: dict[str, Callable[[JsonValue, JsonValue], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
OPERATORS = ("=", "!=", *_COMPARISONS)
_OTHER_SPELLINGS = {
    "eq": "'='", "$eq": "'='", "==": "'='", "ne": "'!='", "$ne": "'!='", "not": "'!='", "$not": "'!='",
    "gt": "'>'", "$gt": "'>'", "gte": "'>='", "$gte": "'>='", "lt": "'<'", "$lt": "'<'", "lte": "'<='",
    "$lte": "'<='", "in": "a list of values", "$in": "a list of values", "any_of": "a list of values",
    "nin": "'!=' with a list", "$nin": "'!=' with a list", "not_in": "'!=' with a list",
    "contains": "the value alone", "like": "a pattern such as 'docs/*'",
}  # fmt: skip
"""Operator of another filter language -> its equivalent here."""

MAX_DEPTH = 100  # maximum nesting of `or`

MAX_KEYS_LISTED = 20
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:$|[T ])")


class Pattern(NamedTuple):
    """A string in which `*` matches any characters."""

    text: str

    def accepts(self, value: Value) -> bool:
        """Return whether the pattern matches the whole string, in linear time."""
        if not isinstance(value, str):
            return False
        first, *rest = self.text.split("*")
        if not rest:
            return value == first
        last = rest.pop()
        if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
            return False
        position, end = len(first), len(value) - len(last)
        for part in rest:
            position = value.find(part, position, end)
            if position < 0:
                return False
            position += len(part)
        return True


class Condition(NamedTuple):
    """One test of one metadata key. `values` are the alternatives of = and !=, or the one limit of a range."""

    key: str
    operator: str
    values: tuple[Value | Pattern, ...]

    def accepts(self, value: object) -> bool:
        """Return whether a metadata value passes the test; None means that the document lacks the key."""
        items = filter_values(value)
        if self.operator in _COMPARISONS:
            return any(_compare(self.operator, item, self.values[0]) for item in items)
        equal = any(_is_equal(item, wanted) for item in items for wanted in self.values)
        return equal is (self.operator == "=")

    def passes(self, metadata: Metadata) -> bool:
        """Return whether a document's metadata passes."""
        return self.accepts(metadata.get(self.key))


class AnyOf(NamedTuple):
    """Several filters, at least one of which must pass."""

    filters: tuple[tuple[Test, ...], ...]

    def passes(self, metadata: Metadata) -> bool:
        """Return whether a document's metadata passes."""
        return any(passes_all(metadata, tests) for tests in self.filters)


Test: TypeAlias = Condition | AnyOf


def parse_filter(where: Where | None, *, depth: int = 0) -> list[Test]:
    """Return the tests of a filter; raise InputError for values that cannot be tested, such as None or NaN.

    `depth` counts the `or` around the filter.
    """
    if depth > MAX_DEPTH:
        raise InputError(f"where nests `or` more than {MAX_DEPTH} levels deep.")
    if where is None:
        return []
    if not isinstance(where, Mapping):
        raise InputError(f"where is a {type(where).__name__}; pass a dict of metadata keys and values.")
    tests: list[Test] = []
    for key, value in where.items():
        # A list of dicts cannot be a metadata value, so filters on a metadata key named "or" still work.
        if key == "or" and isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
            tests.append(AnyOf(tuple(tuple(parse_filter(part, depth=depth + 1)) for part in value)))
        elif not isinstance(key, str) or not key:
            raise InputError(f"where has the key {key!r}; use the name of a metadata entry.")
        else:
            tests += _parse_conditions(key, value)
    return tests


def list_conditions(tests: Iterable[Test]) -> list[Condition]:
    """Return every condition of a filter, including those inside `or`."""
    conditions: list[Condition] = []
    for test in tests:
        conditions += list_conditions(chain(*test.filters)) if isinstance(test, AnyOf) else [test]
    return conditions


def translate_tests(
    tests: Iterable[Test], translate: Callable[[Condition], T | None], any_of: Callable[[list[list[T]]], T]
) -> list[T]:
    """Return the parts of a filter that an engine can test. All documents that pass the filter pass these parts.

    `translate` returns None for a condition that the engine cannot express, and is never called for `!=`.
    """
    parts: list[T] = []
    for test in tests:
        part = None
        if isinstance(test, AnyOf):
            alternatives = [translate_tests(alternative, translate, any_of) for alternative in test.filters]
            part = any_of(alternatives) if all(alternatives) else None
        elif test.operator != "!=":
            part = translate(test)
        if part is not None:
            parts.append(part)
    return parts


def matches(metadata: Metadata, where: Where | None) -> bool:
    """Return whether metadata passes the filter. This is the reference for the filters of all engines."""
    return passes_all(metadata, parse_filter(where))


def passes_all(metadata: Metadata, tests: Iterable[Test]) -> bool:
    """Return whether metadata passes all tests."""
    return all(test.passes(metadata) for test in tests)


def filter_values(value: object) -> list[Value]:
    """Return the values of a metadata entry that filters compare: the value itself, or the items of a list."""
    items = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return [item for item in items if is_scalar(item)]  # type: ignore[misc]


def is_scalar(value: object) -> bool:
    """Return whether a value can be filtered on: a string, a finite number or a boolean."""
    return isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


def canonical_text(value: Value) -> str:
    """Return a string that is the same for equal values only: 1 equals 1.0, but not True or "1"."""
    return to_json(int(value) if isinstance(value, float) and value.is_integer() else value)


def is_date(value: object) -> bool:
    """Return whether a value is an ISO date string, with or without a time."""
    return isinstance(value, str) and _parse_date(value) is not None


# Notes about filters that match nothing


def explain_filter(where: Where | None, documents: Sequence[Metadata]) -> dict[str, str]:
    """Return key -> note for each condition that no document passes, or whose key no document has."""
    keys = {key for metadata in documents for key in metadata}
    known = sorted(keys)
    notes: dict[str, str] = {}
    for condition in list_conditions(parse_filter(where)):
        if condition.key not in keys:
            notes[condition.key] = unknown_key_note(condition.key, known)
        elif not any(condition.passes(metadata) for metadata in documents):
            values = (value for metadata in documents for value in filter_values(metadata.get(condition.key)))
            notes[condition.key] = unmatched_note(condition.key, list(islice(values, 2)))
    return notes


def unknown_key_note(key: str, known: Sequence[str]) -> str:
    """Return a note about a filter on a key that no document has."""
    more = f" and {len(known) - MAX_KEYS_LISTED} more" if len(known) > MAX_KEYS_LISTED else ""
    names = ", ".join(known[:MAX_KEYS_LISTED]) or "none"
    return f"no document has the key {key!r}. Known keys: {names}{more}"


def unmatched_note(key: str, examples: Iterable[object]) -> str:
    """Return a note about a filter on a key whose values all fail it."""
    shown = " and ".join(repr(value)[:80] for value in examples)
    return f"no document passes the filter on {key!r}" + (f"; its values look like {shown}" if shown else "")


# Parsing


def _parse_conditions(key: str, value: object) -> list[Condition]:
    if not isinstance(value, Mapping):
        plain = [_check_value(key, item) for item in _list_alternatives(value)]
        patterns = (Pattern(item) if isinstance(item, str) and "*" in item else item for item in plain)
        return [Condition(key, "=", tuple(patterns))]
    if not value:
        raise InputError(f"where[{key!r}] is an empty dict; use an operator: {', '.join(OPERATORS)}.")
    conditions = []
    for name, operand in value.items():
        if name not in OPERATORS:
            hint = _OTHER_SPELLINGS.get(name) if isinstance(name, str) else None
            advice = f"; use {hint} instead. Supported" if hint else "; supported"
            raise InputError(f"where[{key!r}] has the operator {name!r}{advice}: {', '.join(OPERATORS)}.")
        if name in _COMPARISONS:
            limit = _check_value(key, operand)
            if isinstance(limit, bool):
                raise InputError(f"where[{key!r}] compares {name} with {limit}; pass a number, a date or a string.")
            conditions.append(Condition(key, name, (limit,)))
        else:
            values = tuple(_check_value(key, item) for item in _list_alternatives(operand))
            conditions.append(Condition(key, name, values))
    return conditions


def _list_alternatives(value: object) -> list[JsonValue]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _check_value(key: str, value: JsonValue) -> Value:
    if isinstance(value, date):
        value = value.isoformat()
    if not is_scalar(value):
        raise InputError(
            f"where[{key!r}] contains a {type(value).__name__}; "
            "pass a string, a number, a boolean, a list of them, or {operator: value}."
        )
    scalar: Value = value
    return scalar


def _is_equal(value: Value, wanted: Value | Pattern) -> bool:
    if isinstance(wanted, Pattern):
        return wanted.accepts(value)
    return isinstance(value, bool) is isinstance(wanted, bool) and value == wanted


def _compare(name: str, value: Value, limit: Value | Pattern) -> bool:
    compare = _COMPARISONS[name]
    if isinstance(limit, str):
        if not isinstance(value, str):
            return False
        limit_date, value_date = _parse_date(limit), _parse_date(value)
        if limit_date is None:
            return compare(value, limit)
        if value_date is None:
            return False
        # A limit without a time means the whole day.
        return compare(value_date.date(), limit_date.date()) if len(limit) == 10 else compare(value_date, limit_date)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and compare(value, limit)


@lru_cache(maxsize=4096)
def _parse_date(text: str) -> datetime | None:
    if not _ISO_DATE.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


# Filters on the command line

_SHELL_TEST = re.compile(r"\A([^=!<>]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_SHELL_IN = re.compile(r"\A([^=!<>]*\S)\s+in\s+(\S.*)", re.DOTALL)
_NUMBER = re.compile(r"\A[+-]?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,3})?")


def parse_shell_filter(tests: Iterable[str]) -> JsonObject:
    """Parse tests such as `topic=food`, `price>=10`, `path=*.md` or `topic in food,drink` into a filter.

    A shell has no types, so a value that looks like a number or a boolean matches that value and the text.
    """
    expanded: list[str] = []
    for test in tests:
        several = None if _SHELL_TEST.fullmatch(test) else _SHELL_IN.fullmatch(test)
        expanded += [test] if several is None else [f"{several[1]}={value}" for value in several[2].split(",")]
    where: JsonObject = {}
    for test in expanded:
        match = _SHELL_TEST.fullmatch(test)
        key, operator_, value = (part.strip() for part in match.groups()) if match else ("", "", "")
        # `price>`, `price<<3` and `topic==food` are typos; taken literally they would match nothing.
        is_equality = operator_ in ("=", "!=")
        incomplete = value.startswith("=") if is_equality else not value or value[0] in "=!<>"
        if not key or incomplete:
            raise InputError(
                f"{test!r} is not a filter; write key=value, key!=value, key>value, key<value "
                "or 'key in one,other' (in quotes)."
            )
        tests_of_key = where.setdefault(key, {})
        typed: JsonValue = value
        if value.lower() in ("true", "false"):
            typed = value.lower() == "true"
        elif _NUMBER.fullmatch(value):
            typed = int(value) if value.lstrip("+-").isdigit() and len(value) < 300 else float(value)
        if is_equality:
            spellings = [value] if typed == value else [typed, value]
            tests_of_key[operator_] = [*tests_of_key.get(operator_, []), *spellings]
        else:
            tests_of_key[operator_] = typed
    for key, tests_of_key in where.items():
        if set(tests_of_key) == {"="}:
            where[key] = tests_of_key["="]  # a plain list, in which `*` is a pattern
        elif "=" in tests_of_key:
            raise InputError(f"{key} has = and another operator; = cannot be combined with others.")
    parse_filter(where)
    return where
