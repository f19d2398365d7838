"""From what a model wrote to an order: every number once, whatever the model left out or made up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from resift.types import JsonValue

_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)|\A.*</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*\n?(.*?)```", re.DOTALL)
_CHAIN = re.compile(r"\[?\b\d{1,6}\b\]?(?:\s*>\s*\[?\b\d{1,6}\b\]?)+")
_BRACKETED = re.compile(r"\[\s*(\d{1,6})\s*\]")
_BARE_LIST = re.compile(r"\A\s*\d{1,6}(?:[\s,;.>)]+\d{1,6})*[\s.]*+")
_ARRAY = re.compile(r"\[[^\[\]{}]*\]|\[\s*(?:\[[^\[\]]*\]\s*(?:,\s*)?)+\]|\[\s*(?:\{[^{}]*\}\s*(?:,\s*)?)+\]")
_NUMBER = re.compile(r"\d{1,6}")
_ID_KEYS = ("id", "index", "number", "passage")
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Order:
    """Positions from 0, best first, each exactly once; `repaired` counts what the model left out."""

    positions: tuple[int, ...]
    repaired: int


def read_order(text: str, count: int, *, finished: bool = True) -> Order | None:
    """Return the order that a model's text means for `count` passages; None if it names none of them.

    Unknown numbers are dropped, of duplicates the first counts, and missing ones follow in old order.
    """
    given = _numbers(_THOUGHT.sub(" ", text)[-_LONGEST:], count, finished=finished)
    named = list(dict.fromkeys(number - 1 for number in given if 1 <= number <= count))
    if not named:
        return None
    known = set(named)
    missing = [position for position in range(count) if position not in known]
    return Order((*named, *missing), len(missing))


def _numbers(text: str, count: int, *, finished: bool) -> list[int]:
    if not finished:
        # The last number may have lost digits: 12 looks like 1.
        text = text.rstrip().rstrip("0123456789")
    for part in (*_FENCE.findall(text), text):
        found = _from_json(part) or _from_chain(part, count) or _from_brackets(part) or _from_bare(part)
        if found:
            return found
    return []


def _from_json(text: str) -> list[int]:
    """Read a whole answer that is JSON, else the longest JSON array in it."""
    whole = _loaded(text)
    if isinstance(whole, dict):
        whole = max((value for value in whole.values() if isinstance(value, list)), key=len, default=None)
    if isinstance(whole, list):
        return _ids(whole)
    arrays = [_ids(value) for value in map(_loaded, _ARRAY.findall(text)) if isinstance(value, list)]
    longest = max(arrays, key=len, default=[])
    # [7] alone is a mention in prose, not a list.
    return longest if len(longest) > 1 else []


def _loaded(text: str) -> JsonValue:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _ids(values: Iterable[JsonValue]) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, dict):
            value = next((value[key] for key in _ID_KEYS if key in value), None)  # noqa: PLW2901
        if isinstance(value, list) and len(value) == 1:
            value = value[0]  # noqa: PLW2901 - [[2], [1]]
        if isinstance(value, str):
            digits = _NUMBER.search(value)
            value = int(digits[0]) if digits else None  # noqa: PLW2901
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
    return found


def _from_chain(text: str, count: int) -> list[int]:
    """Read "[2] > [1]"; of several chains the one that names most, the last of equals."""
    best: list[int] = []
    for chain in _CHAIN.findall(text):
        numbers = [int(digits) for digits in _NUMBER.findall(chain)]
        if _known(numbers, count) >= _known(best, count):
            best = numbers
    return best


def _known(numbers: Iterable[int], count: int) -> int:
    return len({number for number in numbers if 1 <= number <= count})


def _from_brackets(text: str) -> list[int]:
    return [int(digits) for digits in _BRACKETED.findall(text)]


def _from_bare(text: str) -> list[int]:
    """Read bare numbers only from an answer that is nothing else: prose is full of numbers."""
    return [int(digits) for digits in _NUMBER.findall(text)] if _BARE_LIST.fullmatch(text) else []
