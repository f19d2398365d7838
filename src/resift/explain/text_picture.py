"""The rank flow for a terminal: curves of braille dots between columns of ranks, then one line per hit."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from itertools import groupby

from resift.explain.escaping import clip
from resift.explain.flow import Flow
from resift.explain.layout import Layout, Line, layout_of

Paint = Callable[[str, str], str]
"""Gives a text a style: cyan, green, yellow, magenta, blue, red, dim or bold."""

Cell = tuple[str, str]
"""A character and its colour."""

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_CELL, _LEAST_GAP, _MOST_GAP, _NARROW = 4, 5, 12, 60
_BLANK = 0x2800
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
    picture = draw(layout, gap, width, style) if gap else []
    return "\n".join([*picture, *([""] if picture else []), *_legend(flow, layout, width, style)])


def _gap(layout: Layout, width: int) -> int:
    """Return the columns between two stages, or 0 where the terminal is too narrow for a picture."""
    count = len(layout.columns)
    if count < 2:
        return 0
    name = min(24, max(len(line.path.id) for line in layout.lines)) + 2
    room = (width - name - count * _CELL) // (count - 1)
    return min(_MOST_GAP, room) if room >= _LEAST_GAP else 0


def _curves(layout: Layout, gap: int, width: int, style: Paint) -> list[str]:
    step = _CELL + gap
    size = step * (len(layout.columns) - 1) + _CELL
    cells = [[(" ", "")] * size for _ in range(layout.rows)]
    for line in reversed(layout.lines):
        for one, other in zip(line.nodes, line.nodes[1:], strict=False):
            start = one.column * step + _CELL
            _draw(cells, start, gap, (one.row, other.row), _colour(line))
    for line in layout.lines:
        for node in line.nodes:
            _put(cells[node.row], node.column * step, node.rank, _colour(line))
    last = {line.nodes[-1].row: line for line in layout.lines if _ends(line, layout)}
    heads = [clip(column.label, step - 1).ljust(step) for column in layout.columns]
    drawn = [style("".join(heads)[:width].rstrip(), "bold")]
    for at, row in enumerate(cells):
        name = clip(last[at].path.id, width - size - 1) if at in last else ""
        drawn.append(f"{_painted(row, style)} {style(name, _colour(last[at])) if name else ''}".rstrip())
    return drawn


def _grid(layout: Layout, gap: int, width: int, style: Paint) -> list[str]:
    """Write one row per hit with its rank in each column, for files and pipes."""
    step = _CELL + min(gap, 6)
    heads = [clip(column.label, step - 1).ljust(step) for column in layout.columns]
    rows = [style("".join(heads)[:width].rstrip(), "bold")]
    for line in layout.lines:
        ranks = {node.column: "–" if node.rank is None else str(node.rank) for node in line.nodes}
        cells = [ranks.get(column, "").rjust(3).ljust(step) for column in range(len(layout.columns))]
        name = clip(line.path.id, max(8, width - step * len(cells)))
        rows.append(f"{''.join(cells)}{style(name, _colour(line))}")
    return rows


def _ends(line: Line, layout: Layout) -> bool:
    return bool(line.nodes) and line.nodes[-1].column == len(layout.columns) - 1


def _draw(cells: list[list[Cell]], start: int, gap: int, rows: tuple[int, int], colour: str) -> None:
    """Draw one S-curve into the grid: four dots a row, two a column."""
    samples = gap * 16
    for sample in range(samples + 1):
        part = sample / samples
        bend = part * part * (3 - 2 * part)
        x = min(gap * 2 - 1, int(part * gap * 2))
        y = round((rows[0] + (rows[1] - rows[0]) * bend) * 4 + 1.5)
        row, column = y // 4, start + x // 2
        char = cells[row][column][0]
        dots = ord(char) - _BLANK if char != " " else 0
        cells[row][column] = (chr(_BLANK + (dots | _DOTS[y % 4][x % 2])), colour)


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


def _legend(flow: Flow, layout: Layout, width: int, style: Paint) -> list[str]:
    lines = []
    widest = max(len(line.move.sign) for line in layout.lines)
    for line in layout.lines:
        place = str(line.path.final) if line.path.final else "–"
        head = f"{place:>3} {line.move.sign:<{widest}} "
        name = clip(line.path.id, min(28, width - len(head)))
        tone = {"rose": "green", "fell": "red", "cut": "dim"}.get(line.move.kind, "")
        first = f"{style(head, tone) if tone else head}{style(name, _colour(line))}"
        room = width - len(head) - len(name) - 2
        if width >= _NARROW:
            lines.append(f"{first}  {clip(line.move.reason, room)}" if room >= 12 else first)
        else:
            text = f"{line.move.reason}. {_ranks(line, layout)}"
            wrapped = textwrap.wrap(clip(text, 400), max(8, width - len(head)), max_lines=4, placeholder=" …")
            lines += [first, *(" " * len(head) + style(text, "dim") for text in wrapped)]
    left = len(flow.kept) + len(flow.cut) - len(layout.lines)
    if left > 0:
        lines.append(style(clip(f"… and {left} more candidates that are not drawn", width), "dim"))
    return lines


def _ranks(line: Line, layout: Layout) -> str:
    """Return the way in words, for terminals that have no room for the picture."""
    text = [f"{layout.columns[node.column].label} {node.rank or '–'}" for node in line.nodes]
    return " → ".join(text)


def _colour(line: Line) -> str:
    return "dim" if line.move.kind == "cut" else _COLOURS[(line.number - 1) % len(_COLOURS)]
