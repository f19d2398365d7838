"""Which hits a picture shows and in which row of which column. Rows are dense; nodes carry the true rank.

Lists that were asked at the same time are no steps of one another: where there are two or more, their ranks
are a fork that joins at the first column behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
class ListRank:
    """A hit in one of several lists: which list, its row among the hits shown of it, its rank."""

    list: int
    row: int
    rank: int


class Line(NamedTuple):
    """One hit's way through the picture: from the lists that have it, if they fork, from stage to stage."""

    number: int
    path: Path
    move: Move
    nodes: tuple[Node, ...]
    list_ranks: tuple[ListRank, ...] = ()

    def rank_in(self, list: int) -> int | None:
        """Return the rank in one of the lists of the fork, None where it does not have the hit."""
        return next((one.rank for one in self.list_ranks if one.list == list), None)


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything a picture needs: the lists of the fork, if any, columns, lines and the number of rows."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    rows: int
    lists: tuple[Column, ...] = ()

    def size_of(self, list: int) -> int:
        """Return how many of the hits shown one of the lists has."""
        return sum(line.rank_in(list) is not None for line in self.lines)


def layout_of(flow: Flow, *, top: int = 10, fallen: int = FALLEN) -> Layout:
    """Choose the first `top` hits and a few that fell, and give each a row per column."""
    shown = [*flow.kept[:top], *_fallen(flow, top, fallen)]
    lists = tuple(column for column in flow.columns if column.first_stage)
    forked = len(lists) > 1 and len(lists) < len(flow.columns)
    columns = flow.pooled if forked else flow.columns
    nodes: dict[str, list[Node]] = {path.id: [] for path in shown}
    for at, column in enumerate(columns):
        for row, path in enumerate(_in_column(column, columns[at:], shown)):
            place = path.places.get(column.key)
            nodes[path.id].append(Node(at, row, place.rank if place else None))
    ranks = _list_ranks(lists, shown) if forked else {}
    lines = tuple(
        Line(number, path, move_of(path, flow), tuple(nodes[path.id]), tuple(ranks.get(path.id, ())))
        for number, path in enumerate(shown, start=1)
    )
    return Layout(columns, lines, len(shown), lists if forked else ())


def _list_ranks(lists: Sequence[Column], shown: Sequence[Path]) -> dict[str, list[ListRank]]:
    found: dict[str, list[ListRank]] = {}
    for at, column in enumerate(lists):
        having = [path for path in shown if column.key in path.places]
        having.sort(key=lambda path: (path.places[column.key].rank, path.id))
        for row, path in enumerate(having):
            found.setdefault(path.id, []).append(ListRank(at, row, path.places[column.key].rank))
    return found


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
