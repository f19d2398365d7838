"""The rank flow for a terminal: curves of braille dots between columns of ranks, then one line per hit.

Lists that were asked at the same time stand side by side, joined by a plus: no curve leads from one to the
other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from itertools import groupby, pairwise

from resift.explain.escaping import cells, clip, clip_phrase, short_id
from resift.explain.flow import Flow
from resift.explain.layout import Layout, Line, layout_of

Paint = Callable[[str, str], str]
"""Gives a text a style: cyan, green, yellow, magenta, blue, red, dim or bold."""

Cell = tuple[str, str]
"""A character and its colour."""

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_CELL, _LEAST_GAP, _MOST_GAP, _LIST = 4, 4, 12, 10
_BLANK = 0x2800
# Which bit of a braille character is the dot in that row and column (Unicode, block 2800).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def text_picture(
    flow: Flow, *, width: int = 80, top: int = 10, paint: Paint | None = None, curves: bool = True
) -> str:
    """Draw the flow within that many columns; `paint` adds colour, `curves=False` leaves braille out."""
    layout = layout_of(flow, top=top)
    style = paint or (lambda text, _: text)
    if not layout.lines:
        return "Nothing was found, so there is nothing to explain."
    gap = _gap(layout, width)
    draw = _curves if curves else _grid
    picture = [*draw(layout, gap, width, style), ""] if gap else []
    legend = _legend if gap else _ways
    return "\n".join([*picture, *legend(layout, width, style), *_rest(flow, layout, width, style)])


def _gap(layout: Layout, width: int) -> int:
    """Return the columns between two stages, or 0 where the terminal is too narrow for a picture."""
    count = len(layout.columns)
    if count + len(layout.lists) < 2:
        return 0
    name = min(24, max(cells(line.path.id) for line in layout.lines)) + 2
    room = (width - name - len(_list_heads(layout)) - count * _CELL) // max(1, count - 1)
    return min(_MOST_GAP, room) if room >= _LEAST_GAP else 0


def _list_heads(layout: Layout) -> str:
    """Return the names of the lists of the fork, joined."""
    heads = " + ".join(clip(column.label, _LIST).rjust(3) for column in layout.lists)
    return f"{heads}  " if heads else ""


def _list_ranks(line: Line | None, layout: Layout) -> str:
    """Return a hit's ranks in the lists of the fork, below their names."""
    if line is None or not layout.lists:
        return " " * len(_list_heads(layout))
    ranks = [
        str(line.rank_in(at) or "·").rjust(max(3, min(_LIST, cells(column.label))))
        for at, column in enumerate(layout.lists)
    ]
    return " + ".join(ranks) + "  "


def _curves(layout: Layout, gap: int, width: int, style: Paint) -> list[str]:
    step = _CELL + gap
    size = step * (len(layout.columns) - 1) + _CELL
    grid = [[(" ", "")] * size for _ in range(layout.rows)]
    # The best hits last: where curves cross, theirs stay whole.
    for line in reversed(layout.lines):
        for one, other in pairwise(line.nodes):
            start = one.column * step + _CELL
            _draw(grid, start, gap, (one.row, other.row), _colour(line))
    for line in layout.lines:
        for node in line.nodes:
            _put(grid[node.row], node.column * step, node.rank, _colour(line))
    first = {line.nodes[0].row: line for line in layout.lines if line.nodes and not line.nodes[0].column}
    last = {line.nodes[-1].row: line for line in layout.lines if _ends(line, layout)}
    room = width - len(_list_heads(layout)) - size - 1
    drawn = [_heads(layout, step, width, style)]
    for at, row in enumerate(grid):
        lists = _list_ranks(first.get(at), layout)
        lists = style(lists, _colour(first[at])) if at in first and lists.strip() else lists
        name = style(short_id(last[at].path.id, room), _colour(last[at])) if at in last else ""
        drawn.append(f"{lists}{_painted(row, style)} {name}".rstrip())
    return drawn


def _heads(layout: Layout, step: int, width: int, style: Paint) -> str:
    heads = [clip(column.label, step - 1).ljust(step) for column in layout.columns]
    return style((_list_heads(layout) + "".join(heads))[:width].rstrip(), "bold")


def _grid(layout: Layout, gap: int, width: int, style: Paint) -> list[str]:
    """Write one row per hit with its rank in each column, for files and pipes."""
    step = _CELL + min(gap, 6)
    rows = [_heads(layout, step, width, style)]
    for line in layout.lines:
        ranks = {node.column: "·" if node.rank is None else str(node.rank) for node in line.nodes}
        row = [ranks.get(column, "").rjust(3).ljust(step) for column in range(len(layout.columns))]
        head = _list_ranks(line, layout) + "".join(row)
        rows.append(f"{head}{style(short_id(line.path.id, max(8, width - len(head))), _colour(line))}")
    return rows


def _ends(line: Line, layout: Layout) -> bool:
    return bool(line.nodes) and line.nodes[-1].column == len(layout.columns) - 1


def _draw(grid: list[list[Cell]], start: int, gap: int, rows: tuple[int, int], colour: str) -> None:
    """Draw one S-curve into the grid: four dots a row, two a column."""
    samples = gap * 16
    for sample in range(samples + 1):
        part = sample / samples
        # Smoothstep: level where the curve leaves a rank and where it arrives.
        bend = part * part * (3 - 2 * part)
        x = min(gap * 2 - 1, int(part * gap * 2))
        # + 1.5: between the second and the third of the four dots, the middle of the row.
        y = round((rows[0] + (rows[1] - rows[0]) * bend) * 4 + 1.5)
        row, column = y // 4, start + x // 2
        char = grid[row][column][0]
        dots = ord(char) - _BLANK if char != " " else 0
        grid[row][column] = (chr(_BLANK + (dots | _DOTS[y % 4][x % 2])), colour)


def _put(row: list[Cell], at: int, rank: int | None, colour: str) -> None:
    text = "·" if rank is None else str(rank) if rank < 1000 else "…"
    for place, char in enumerate(text.rjust(3) + " ", start=at):
        row[place] = (char, colour)


def _painted(row: list[Cell], style: Paint) -> str:
    """Join cells of one colour before painting them: fewer escape codes."""
    runs = [
        ("".join(char for char, _ in run), colour) for colour, run in groupby(row, key=lambda cell: cell[1])
    ]
    return "".join(style(text, colour) if colour else text for text, colour in runs)


def _legend(layout: Layout, width: int, style: Paint) -> list[str]:
    """Return one line per hit: its place, how far it came, and the stage that moved it most."""
    lines = []
    for line in layout.lines:
        _, first, used = _first(line, layout, width, style)
        room = width - used - 2
        lines.append(f"{first}  {clip_phrase(line.move.reason, room)}" if room >= 12 else first)
    return lines


def _ways(layout: Layout, width: int, style: Paint) -> list[str]:
    """Return each hit's way in words, for terminals that have no room for the picture."""
    lines = []
    for line in layout.lines:
        head, first, _ = _first(line, layout, width, style)
        text = clip(f"{line.move.reason}. {_ranks(line, layout)}", 400)
        wrapped = textwrap.wrap(text, max(8, width - len(head)), max_lines=4, placeholder=" …")
        lines += [first, *(" " * len(head) + style(text, "dim") for text in wrapped)]
    return lines


def _first(line: Line, layout: Layout, width: int, style: Paint) -> tuple[str, str, int]:
    """Return place and sign, both with the id and painted, and how many columns these take."""
    widest = max(len(line.move.sign) for line in layout.lines)
    place = str(line.path.final) if line.path.final else "–"
    head = f"{place:>3} {line.move.sign:<{widest}} "
    name = short_id(line.path.id, min(28, width - len(head)))
    tone = {"rose": "green", "fell": "red", "cut": "dim"}.get(line.move.kind, "")
    painted = f"{style(head, tone) if tone else head}{style(name, _colour(line))}"
    return head, painted, len(head) + cells(name)


def _rest(flow: Flow, layout: Layout, width: int, style: Paint) -> list[str]:
    left = len(flow.kept) + len(flow.cut) - len(layout.lines)
    return [style(clip(f"… and {left} more candidates that are not drawn", width), "dim")] if left > 0 else []


def _ranks(line: Line, layout: Layout) -> str:
    """Return the way of one hit: text 3 + vectors 1 → rrf 1 → rerank 2."""
    lists = [f"{column.label} {line.rank_in(at) or '–'}" for at, column in enumerate(layout.lists)]
    stages = [f"{layout.columns[node.column].label} {node.rank or '–'}" for node in line.nodes]
    return " → ".join([" + ".join(lists), *stages] if lists else stages)


def _colour(line: Line) -> str:
    return "dim" if line.move.kind == "cut" else _COLOURS[(line.number - 1) % len(_COLOURS)]
