"""Which hits a picture shows and in which row of which column. Rows are dense; nodes carry the true rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resift.explain.flow import Column, Flow, Path
from resift.explain.moves import Move, move_of

FALLEN = 3
"""How many hits are shown that did well at first and were left out."""


@dataclass(frozen=True, slots=True)
class Node:
    """A hit in one column: its row from 0, and its rank, None where that list did not have it."""

    column: int
    row: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """One hit's way through the picture."""

    number: int
    path: Path
    move: Move
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything a picture needs: columns, lines and the number of rows."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    rows: int


def layout_of(flow: Flow, *, top: int = 10, fallen: int = FALLEN) -> Layout:
    """Choose the first `top` hits and a few that fell, and give each a row per column."""
    shown = [*flow.kept[:top], *_fallen(flow, top, fallen)]
    nodes: dict[str, list[Node]] = {path.id: [] for path in shown}
    for at, column in enumerate(flow.columns):
        for row, path in enumerate(_in_column(column, flow.columns[at:], shown)):
            place = path.places.get(column.key)
            nodes[path.id].append(Node(at, row, place.rank if place else None))
    lines = tuple(
        Line(number, path, move_of(path, flow), tuple(nodes[path.id]))
        for number, path in enumerate(shown, start=1)
    )
    return Layout(flow.columns, lines, len(shown))


def _in_column(column: Column, rest: Sequence[Column], shown: Sequence[Path]) -> list[Path]:
    """Return a column from top to bottom: hits it has, then hits that come later; none that left before."""
    there = [path for path in shown if column.key in path.places]
    there.sort(key=lambda path: (path.places[column.key].rank, path.id))
    later = {after.key for after in rest}
    absent = [path for path in shown if column.key not in path.places and later & set(path.places)]
    return [*there, *absent]


def _fallen(flow: Flow, top: int, most: int) -> list[Path]:
    """Return hits that stood in the first `top` of some column and were left out, the best placed first."""
    pool = [path for path in (*flow.kept[top:], *flow.cut) if path.places]
    placed = [(min(place.rank for place in path.places.values()), path.id, path) for path in pool]
    return [path for best, _, path in sorted(placed, key=lambda one: one[:2]) if best <= top][:most]
