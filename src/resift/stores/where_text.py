"""Filters as people type them in a shell: `topic=food`, `price>=10`, `path=*.md`, `topic in food,drink`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from resift.errors import InputError
from resift.stores.filtering import conditions
from resift.types import JsonObject, JsonValue

_TEST = re.compile(r"\A([^=!<>]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_AMONG = re.compile(r"\A([^=!<>]*\S)\s+in\s+(\S.*)", re.DOTALL)
_NUMBER = re.compile(r"\A[+-]?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,3})?")


def where_from(tests: Iterable[str]) -> JsonObject:
    """Return the filter of some typed tests; `=` of one key twice means either of the values.

    What looks like a number or true/false is looked for as that and as text, for a shell has no types.
    """
    where: JsonObject = {}
    for test in _without_in(tests):
        found = _TEST.fullmatch(test)
        if found is None or not found[1].strip() or _is_unfinished(found[2], found[3].strip()):
            raise InputError(
                f"{test!r} is no filter; write key=value, key!=value, key>value, key<value "
                "or 'key in one,other' (in quotes)."
            )
        key, operator, value = found[1].strip(), found[2], found[3].strip()
        held = where.setdefault(key, {})
        if operator in ("=", "!="):
            held[operator] = [*held.get(operator, []), *_spellings(value)]
        else:
            held[operator] = _typed(value)
    return {key: _plain(tests) for key, tests in where.items()}


def _is_unfinished(operator: str, value: str) -> bool:
    """Tell a slip such as `price>`, `price<<3` or `topic==food`: taken as text it would find nothing."""
    if operator in ("=", "!="):
        return value.startswith("=")
    return not value or value[0] in "=!<>"


def _without_in(tests: Iterable[str]) -> Iterator[str]:
    """Yield the tests; "key in a,b" as key=a and key=b."""
    for test in tests:
        among = None if _TEST.fullmatch(test) else _AMONG.fullmatch(test)
        if among is None:
            yield test
        else:
            yield from (f"{among[1]}={value}" for value in among[2].split(","))


def _plain(tests: JsonObject) -> JsonValue:
    """Return `=` alone as a plain list, in which `*` is a pattern."""
    if set(tests) == {"="}:
        return tests["="]
    if "=" in tests:
        raise InputError("One key has = and another operator; = alone says it all.")
    conditions({"key": tests})
    return tests


def _spellings(value: str) -> list[JsonValue]:
    typed = _typed(value)
    return [value] if typed == value else [typed, value]


def _typed(value: str) -> JsonValue:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if _NUMBER.fullmatch(value):
        number = float(value)
        return int(value) if value.lstrip("+-").isdigit() and len(value) < 300 else number
    return value
