"""Whether a model's JSON is plain data: bounded, and asking for no code from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import NoReturn

from resift.errors import ModelFileError
from resift.types import JsonObject, JsonValue

_MAX_BYTES = 64 << 20
_MAX_DEPTH = 64
_CODE_KEYS = frozenset(
    {"auto_map", "trust_remote_code", "custom_pipelines", "custom_pipeline", "custom_code"}
)
_VOCABULARIES = frozenset({"tokenizer.json", "vocab.json", "added_tokens.json"})
_MAX_CONTAINERS = 2_000_000
# Possessive, and a string that never ends counts as one: no input makes the scan go over a place twice.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def inspect_json(name: str, data: bytes) -> None:
    """Raise `ModelFileError` with the reason if the JSON must not be used."""
    parse_json(name, data)


def parse_json(name: str, data: bytes) -> JsonValue:
    """Return the parsed JSON of a file that asks for no code and cannot exhaust the parser."""
    if len(data) > _MAX_BYTES:
        raise ModelFileError(f"{name!r} holds {len(data):,} bytes; the limit for JSON is {_MAX_BYTES:,}.")
    _check_depth(name, data)
    base = PurePosixPath(name).name

    def see(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
        # Every pair is seen, so a second key of the same name cannot hide the first.
        for key, value in pairs:
            if key in _CODE_KEYS and not _harmless(base, value):
                raise ModelFileError(f"{name!r} asks for code from elsewhere ({key!r}). It is never loaded.")
        return dict(pairs)

    def refuse_constant(word: str) -> NoReturn:
        raise ModelFileError(f"{name!r} holds {word}, which is not JSON.")

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=see, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise ModelFileError(f"{name!r} is not valid JSON.") from exc


def _harmless(base: str, value: object) -> bool:
    if value is False or value is None:
        return True
    # In a vocabulary the same word may be a token with its number.
    return base in _VOCABULARIES and type(value) is int


def _check_depth(name: str, data: bytes) -> None:
    """Count brackets outside strings, so that no parser recurses into a bomb or unpacks one."""
    depth = containers = 0
    for match in _BRACKETS.finditer(data):
        char = data[match.start()]
        if char in b"[{":
            depth += 1
            containers += 1
            if depth > _MAX_DEPTH:
                raise ModelFileError(f"{name!r} nests deeper than {_MAX_DEPTH} levels.")
            if containers > _MAX_CONTAINERS:
                raise ModelFileError(f"{name!r} holds more than {_MAX_CONTAINERS:,} lists and objects.")
        elif char in b"]}":
            depth -= 1
