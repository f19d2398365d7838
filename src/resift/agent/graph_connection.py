"""What a pack uses of Ladybug's connection."""

from __future__ import annotations

from typing import Protocol

from resift.types import JsonMapping, JsonValue


class Answer(Protocol):
    """The rows that a statement found, one at a time."""

    def has_next(self) -> bool:
        """Whether there is a further row."""

    def get_next(self) -> list[JsonValue]:
        """Return the next row."""

    def close(self) -> None:
        """Give the engine's memory back."""


class GraphConnection(Protocol):
    """An open database that takes one statement at a time."""

    def execute(self, statement: str, parameters: JsonMapping = ..., /) -> Answer:
        """Run one statement."""

    def close(self) -> None:
        """Close the database."""


def rows_of(
    connection: GraphConnection, statement: str, parameters: JsonMapping | None = None
) -> list[list[JsonValue]]:
    """Return all rows of a statement; the answer holds memory of the engine, so it is closed at once."""
    answer = connection.execute(statement, dict(parameters or {}))
    rows = []
    while answer.has_next():
        rows.append(list(answer.get_next()))
    answer.close()
    return rows
