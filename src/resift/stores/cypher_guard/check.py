"""The front door of the guard: the statement as written, and as an engine may decode it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from resift.errors import InputError, UnsafeCypherError
from resift.stores.cypher_guard.lexer import place, tokens
from resift.stores.cypher_guard.walk import Walk
from resift.stores.cypher_guard.words import FUNCTIONS, PROCEDURES

MAX_LENGTH = 200_000


@runtime_checkable
class AllowsMore(Protocol):
    """A graph store whose owner allows more than the built-in lists, for instance macros by name."""

    procedures: Iterable[str]
    functions: Iterable[str]


_ESCAPE = re.compile(r"\\u+([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_ESCAPE_OR_PAIR = re.compile(r"\\\\|\\u+([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")


def check_cypher(statement: str, *, procedures: Iterable[str] = (), functions: Iterable[str] = ()) -> None:
    """Return when the statement is one that provably only reads; raise UnsafeCypherError otherwise.

    `procedures` and `functions` extend the built-in allow-lists, for instance by the macros of a
    database; names are compared without case. Nothing is executed and no engine is needed.
    """
    if not isinstance(statement, str):
        raise UnsafeCypherError(f"the statement is a {type(statement).__name__}, not a string")
    if len(statement) > MAX_LENGTH:
        raise UnsafeCypherError(f"the statement has {len(statement)} characters, more than {MAX_LENGTH}")
    callable_procedures = PROCEDURES | _lower("procedures", procedures)
    callable_functions = FUNCTIONS | _lower("functions", functions)
    for text in _readings(statement):
        _check_reading(text, callable_procedures, callable_functions)


def _lower(what: str, names: Iterable[str]) -> frozenset[str]:
    listed = None if isinstance(names, (str, bytes)) or not isinstance(names, Iterable) else list(names)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise InputError(f"{what} is a {type(names).__name__}; pass a list of names.")
    return frozenset(name.lower() for name in listed)


def check_cypher_for(store: object, statement: str) -> None:
    """Check a statement before it is sent to a graph store, whoever wrote the store.

    What the owner of the database allows beside the built-in lists is read from the store's own
    `procedures` and `functions`, where it has them.
    """
    if isinstance(store, AllowsMore):
        check_cypher(statement, procedures=store.procedures, functions=store.functions)
    else:
        check_cypher(statement)


def _readings(statement: str) -> list[str]:
    """Return the statement as written and every way in which an engine may decode its escapes."""
    if "\\" not in statement:
        return [statement]
    anywhere = _ESCAPE.sub(_decoded, statement)
    after_pairs = _ESCAPE_OR_PAIR.sub(_decoded, statement)
    return list(dict.fromkeys((statement, anywhere, after_pairs)))


def _decoded(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    if digits is None:
        return match[0]
    code = int(digits, 16)
    return chr(code) if code < 0x110000 else "\ufffe"


def _check_reading(text: str, procedures: frozenset[str], functions: frozenset[str]) -> None:
    walk = Walk(text, tokens(text), procedures=procedures, functions=functions)
    try:
        walk.run()
    except RecursionError as exc:  # the walk does not recurse; a caller's deep stack may still end here
        line, column = place(text, 0)
        raise UnsafeCypherError("the statement could not be read", line=line, column=column) from exc
