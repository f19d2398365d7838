"""Haystack's filters in the words of `where`."""

from __future__ import annotations

from resift.errors import InputError
from resift.types import JsonMapping, JsonObject, Where

_OPERATORS = {"==": "=", "!=": "!=", "in": "=", "not in": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}


def where_of(filters: JsonMapping | None) -> Where | None:
    """Return Haystack's comparisons, joined by AND, as `where`; what is `where` already stays as it is."""
    if filters is None or not ({"operator", "conditions"} & filters.keys()):
        return filters
    where: dict[str, JsonObject] = {}
    for condition in _comparisons(filters):
        name = str(condition["field"]).removeprefix("meta.")
        tests = where.setdefault(name, {})
        test = _OPERATORS.get(condition["operator"])
        if test is None:
            raise InputError(
                f"filters has the operator {condition['operator']!r}; known are {', '.join(_OPERATORS)}."
            )
        if test in tests:
            raise InputError(f"filters compares {name!r} twice by {condition['operator']}; write it once.")
        tests[test] = condition["value"]
    return where


def _comparisons(filters: JsonMapping) -> list[JsonMapping]:
    if "conditions" not in filters:
        missing = [key for key in ("field", "operator", "value") if key not in filters]
        if missing:
            raise InputError(f"A condition of filters has no {missing[0]!r}; give field, operator and value.")
        return [filters]
    if filters.get("operator") != "AND":
        raise InputError(
            f"filters joins conditions by {filters.get('operator')!r}; stores can join by AND alone. "
            "Write alternatives of one field with the operator 'in'."
        )
    return [one for condition in filters["conditions"] for one in _comparisons(condition)]
