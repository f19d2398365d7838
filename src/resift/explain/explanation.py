"""`Ranking.explain`: the path of each hit as text for a terminal, SVG or HTML."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from resift._internal.files import atomic_write
from resift.errors import InputError
from resift.explain.flow import Flow, HitLine, Layout, make_layout
from resift.text.snippets import clip, clip_phrase, display_width, short_id

Paint = Callable[[str, str], str]
"""Applies a style to a text. Styles: cyan, green, yellow, magenta, blue, red, dim and bold."""

Cell = tuple[str, str]  # a character and its color

_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_RANK_WIDTH, _MIN_GAP, _MAX_GAP, _LIST_WIDTH = 4, 4, 12, 10
_EMPTY_BRAILLE = 0x2800
# Bits of a braille character (Unicode block U+2800), by row and column of the dot.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The path of each hit through the stages. Print it, display it in a notebook, or save it as a page.

    Pages and pictures contain ids and texts of hits, so they are as confidential as the documents.
    """

    flow: Flow
    top: int = 10

    def text(self, *, width: int = 80, paint: Paint | None = None, curves: bool = True) -> str:
        """Return the picture for a terminal with `width` columns. Without curves, return plain rows of ranks."""
        layout = make_layout(self.flow, top=self.top)
        style = paint or (lambda text, _: text)
        if not layout.lines:
            return "No hits to explain."
        count = len(layout.columns)
        name_width = min(24, max(display_width(line.path.id) for line in layout.lines)) + 2
        gap = (width - name_width - len(_list_headings(layout)) - count * _RANK_WIDTH) // max(1, count - 1)
        if gap < _MIN_GAP or count + len(layout.lists) < 2:
            lines = _paths_in_words(layout, width, style)
        else:
            draw = _draw_curves if curves else _draw_rows
            lines = [*draw(layout, min(_MAX_GAP, gap), width, style), ""]
            for line in layout.lines:
                _, heading, heading_width = _hit_heading(line, layout, width, style)
                space = width - heading_width - 2
                lines.append(f"{heading}  {clip_phrase(line.move.reason, space)}" if space >= 12 else heading)
        hidden = len(self.flow.kept) + len(self.flow.cut) - len(layout.lines)
        if hidden > 0:
            lines.append(style(clip(f"… and {hidden} more candidates that are not drawn", width), "dim"))
        return "\n".join(lines)

    def svg(self) -> str:
        """Return the picture as a self-contained SVG file."""
        from resift.explain.svg import svg_file

        return svg_file(self.flow, top=self.top)

    def html(self) -> str:
        """Return a self-contained page with the picture, the score parts of each hit, and the dropped hits."""
        from resift.explain.page import page

        return page(self.flow, top=self.top)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .html, .svg or .txt file atomically."""
        target = Path(path)
        formats: dict[str, Callable[[], str]] = {".html": self.html, ".svg": self.svg, ".txt": self.text}
        render = formats.get(target.suffix.lower())
        if render is None:
            raise InputError(f"Cannot save {target.name!r}; use a file name that ends in .html, .svg or .txt.")
        return atomic_write(target, render().rstrip("\n") + "\n")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        hits = f"{len(self.flow.kept)} hits, {len(self.flow.cut)} left out"
        return f"<Explanation of {hits}; print it, or .save('page.html')>"

    def _repr_html_(self) -> str:
        return self.svg()


def _list_headings(layout: Layout) -> str:
    headings = " + ".join(clip(column.label, _LIST_WIDTH).rjust(3) for column in layout.lists)
    return f"{headings}  " if headings else ""


def _list_ranks(line: HitLine | None, layout: Layout) -> str:
    """Return the ranks of a hit in the first-stage lists, aligned with the headings."""
    if line is None or not layout.lists:
        return " " * len(_list_headings(layout))
    widths = [max(3, min(_LIST_WIDTH, display_width(column.label))) for column in layout.lists]
    return " + ".join(str(line.rank_in(i) or "·").rjust(size) for i, size in enumerate(widths)) + "  "


def _headings(layout: Layout, step: int, width: int, style: Paint) -> str:
    headings = [clip(column.label, step - 1).ljust(step) for column in layout.columns]
    return style((_list_headings(layout) + "".join(headings))[:width].rstrip(), "bold")


def _draw_curves(layout: Layout, gap: int, width: int, style: Paint) -> list[str]:
    step = _RANK_WIDTH + gap
    size = step * (len(layout.columns) - 1) + _RANK_WIDTH
    grid: list[list[Cell]] = [[(" ", "")] * size for _ in range(layout.rows)]
    # Draw the best hits last, so their curves stay on top at crossings.
    for line in reversed(layout.lines):
        for start, end in pairwise(line.nodes):
            _draw_curve(grid, start.column * step + _RANK_WIDTH, gap, (start.row, end.row), _color(line))
    for line in layout.lines:
        for node in line.nodes:
            text = "·" if node.rank is None else str(node.rank) if node.rank < 1000 else "…"
            for i, char in enumerate(text.rjust(3) + " ", start=node.column * step):
                grid[node.row][i] = (char, _color(line))
    last_column = len(layout.columns) - 1
    first = {line.nodes[0].row: line for line in layout.lines if line.nodes and not line.nodes[0].column}
    last = {line.nodes[-1].row: line for line in layout.lines if line.nodes and line.nodes[-1].column == last_column}
    name_width = width - len(_list_headings(layout)) - size - 1
    output = [_headings(layout, step, width, style)]
    for i, row in enumerate(grid):
        lists = _list_ranks(first.get(i), layout)
        lists = style(lists, _color(first[i])) if i in first and lists.strip() else lists
        name = style(short_id(last[i].path.id, name_width), _color(last[i])) if i in last else ""
        # Adjacent cells of one color are painted together to save escape codes.
        runs = [("".join(char for char, _ in run), color) for color, run in groupby(row, key=lambda c: c[1])]
        cells = "".join(style(text, color) if color else text for text, color in runs)
        output.append(f"{lists}{cells} {name}".rstrip())
    return output


def _draw_curve(grid: list[list[Cell]], start: int, gap: int, rows: tuple[int, int], color: str) -> None:
    """Draw one S-curve into the grid. A cell consists of four rows and two columns of dots."""
    samples = gap * 16
    for sample in range(samples + 1):
        part = sample / samples
        # Smoothstep makes the curve horizontal at both ends.
        bend = part * part * (3 - 2 * part)
        x = min(gap * 2 - 1, int(part * gap * 2))
        # Adding 1.5 centers the curve between the second and the third of the four dots.
        y = round((rows[0] + (rows[1] - rows[0]) * bend) * 4 + 1.5)
        row, column = y // 4, start + x // 2
        char = grid[row][column][0]
        dots = ord(char) - _EMPTY_BRAILLE if char != " " else 0
        grid[row][column] = (chr(_EMPTY_BRAILLE + (dots | _DOTS[y % 4][x % 2])), color)


def _draw_rows(layout: Layout, gap: int, width: int, style: Paint) -> list[str]:
    step = _RANK_WIDTH + min(gap, 6)
    rows = [_headings(layout, step, width, style)]
    for line in layout.lines:
        ranks = {node.column: "·" if node.rank is None else str(node.rank) for node in line.nodes}
        row = [ranks.get(column, "").rjust(3).ljust(step) for column in range(len(layout.columns))]
        head = _list_ranks(line, layout) + "".join(row)
        rows.append(f"{head}{style(short_id(line.path.id, max(8, width - len(head))), _color(line))}")
    return rows


def _paths_in_words(layout: Layout, width: int, style: Paint) -> list[str]:
    """Return the path of each hit in words. Used if the terminal is too narrow for the picture."""
    lines = []
    for line in layout.lines:
        head, heading, _ = _hit_heading(line, layout, width, style)
        lists = [f"{column.label} {line.rank_in(i) or '–'}" for i, column in enumerate(layout.lists)]
        stages = [f"{layout.columns[node.column].label} {node.rank or '–'}" for node in line.nodes]
        ranks = " → ".join([" + ".join(lists), *stages] if lists else stages)
        text = clip(f"{line.move.reason}. {ranks}", 400)
        wrapped = textwrap.wrap(text, max(8, width - len(head)), max_lines=4, placeholder=" …")
        lines += [heading, *(" " * len(head) + style(text, "dim") for text in wrapped)]
    return lines


def _hit_heading(line: HitLine, layout: Layout, width: int, style: Paint) -> tuple[str, str, int]:
    """Return the rank and sign, the painted heading that adds the id, and the width of that heading."""
    sign_width = max(len(line.move.sign) for line in layout.lines)
    rank = str(line.path.final) if line.path.final else "–"
    head = f"{rank:>3} {line.move.sign:<{sign_width}} "
    name = short_id(line.path.id, min(28, width - len(head)))
    tone = {"rose": "green", "fell": "red", "cut": "dim"}.get(line.move.kind, "")
    heading = f"{style(head, tone) if tone else head}{style(name, _color(line))}"
    return head, heading, len(head) + display_width(name)


def _color(line: HitLine) -> str:
    return "dim" if line.move.kind == "cut" else _COLORS[(line.number - 1) % len(_COLORS)]
