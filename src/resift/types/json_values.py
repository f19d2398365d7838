"""Names for plain data: what JSON holds, what a document brings along, what a search is narrowed by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

# The values are Any on purpose: what they are is known only after a check, and each reader has its own.
JsonValue: TypeAlias = Any
"""What `json.loads` returns before anybody looked at it, and values as plain as that."""
JsonObject: TypeAlias = dict[str, Any]
"""An object as `json.loads` returns it, or one that is on its way to `json.dumps`."""
JsonMapping: TypeAlias = Mapping[str, Any]
"""The same, where it is only read."""
Metadata: TypeAlias = Mapping[str, Any]
"""What a document brings along beside its text; users choose the keys."""
Where: TypeAlias = Mapping[str, Any]
"""Conditions on metadata: key -> value, list of values, or operator -> value."""
