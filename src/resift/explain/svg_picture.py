"""The rank flow as SVG: one curve per hit from stage to stage. Colours are variables of the style sheet.

Lists that were asked at the same time stand above one another on the left; a hit's curves from them join at
the first stage behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from resift._internal.markup import html, joined
from resift.explain.escaping import clip, clip_words, short_id
from resift.explain.flow import Column, Flow
from resift.explain.layout import Layout, Line, ListRank, Node, layout_of
from resift.explain.style import ALONE_STYLE


@dataclass(frozen=True, slots=True)
class Frame:
    """The measures of a picture in pixels."""

    width: int
    label: int
    row: int = 38
    radius: int = 12
    top: int = 58
    left: int = 30
    name_chars: int = 34
    list_row: int = 19
    """The least height of a row in a list of the fork."""


WIDE = Frame(width=1088, label=330)
NARROW = Frame(width=358, label=40, row=32, radius=11, top=46, left=16)

_ASKED = 40
"""Room for the question above a picture that stands alone."""


class Grid:
    """Where everything of one picture stands."""

    def __init__(self, layout: Layout, frame: Frame) -> None:
        self.layout = layout
        self.frame = frame
        self._fork = 1 if layout.lists else 0
        self._count = len(layout.columns) + self._fork
        # Each list has a row for its name above its hits.
        slots = sum(layout.size_of(at) + 1 for at in range(len(layout.lists)))
        body = max(frame.row * layout.rows, frame.list_row * slots)
        self.step = min(frame.row, body / slots) if slots else 0.0
        self.height = frame.top + body + 10
        self._shift = (body - frame.row * layout.rows) / 2

    def x(self, column: int) -> float:
        """Return the middle of a column; the fork is column -1."""
        room = self.frame.width - self.frame.left - self.frame.label - self.frame.radius
        at = column + self._fork
        return self.frame.left + room * (at / (self._count - 1) if self._count > 1 else 1.0)

    @property
    def space(self) -> float:
        """The room between two columns."""
        return self.x(1) - self.x(0) if self._count > 1 else 200.0

    def y(self, row: int) -> float:
        """Return the middle of a row of the stages."""
        return self.frame.top + self._shift + self.frame.row * (row + 0.5)

    def list_y(self, list: int, row: int) -> float:
        """Return the middle of a row in a list of the fork; row -1 is its name."""
        above = sum(self.layout.size_of(at) + 1 for at in range(list))
        return self.frame.top + self.step * (above + 1 + row + 0.5)

    @property
    def list_radius(self) -> float:
        """The radius of a node in the fork."""
        return min(self.frame.radius, self.step / 2 - 1)


def svg_file(flow: Flow, *, top: int = 10) -> str:
    """Return the wide picture as a file of its own: the question as its title, style included."""
    drawn = str(picture(flow, layout_of(flow, top=top), frame=WIDE, kind="alone"))
    # A file must name its language; inside a page of HTML it is known.
    named = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    heading = html("<title>{}</title>", flow.query) if flow.query else ""
    return named.replace(">", f">{heading}<style>{ALONE_STYLE}</style>", 1)


def picture(
    flow: Flow, layout: Layout, *, frame: Frame, kind: str, links: bool = False, marked: Collection[str] = ()
) -> Markup:
    """Draw the flow; with `links` each line leads to the hit's details; the ids `marked` stand out."""
    grid = Grid(layout, frame)
    summary = f"Rank flow of {len(layout.lines)} hits through {len(flow.columns)} columns"
    label = f"{flow.query}: {summary}" if flow.query else summary
    # Alone, outside of a page, the picture says itself what was asked.
    above = _ASKED if kind == "alone" and flow.query else 0
    size = html(
        'viewBox="0 {2} {0} {1:.0f}" width="{0}" height="{1:.0f}"', frame.width, grid.height + above, -above
    )
    body = [_heading(column, at, grid) for at, column in enumerate(layout.columns)]
    if above:
        asked = _isolated(clip_words(flow.query, 110))
        body.append(html('<text class="asked" x="{}" y="{}">{}</text>', frame.left - 9, 26 - above, asked))
    # The best hits are drawn last, so that their lines lie on top; names of lists stand among the lines.
    body += [_line(line, grid, links=links, marked=line.path.id in marked) for line in reversed(layout.lines)]
    body += [_list_heading(column, at, grid) for at, column in enumerate(layout.lists)]
    return html(
        '<svg class="flow {}" {} role="group" aria-label="{}">{}</svg>', kind, size, label, joined(body)
    )


def _heading(column: Column, at: int, grid: Grid) -> Markup:
    wide = grid.frame is not NARROW
    fits = max(3, int(grid.space / (7.6 if wide else 6.4)) - 1)
    first = at == 0 and not grid.layout.lists
    middle = grid.x(at)
    x, anchor = (middle - grid.frame.radius, "start") if first else (middle, "middle")
    # On a narrow picture neighbours would touch: every second label stands a line lower.
    y = 18 if wide else (14 if at % 2 == 0 else 30)
    label = clip(column.label, fits if wide else fits * 2)
    text = html('<text class="stage" x="{:.1f}" y="{}" text-anchor="{}">{}</text>', x, y, anchor, label)
    by = clip(column.by, fits) if wide and column.by not in ("", column.label) else ""
    if by:
        text += html('<text class="by" x="{:.1f}" y="35" text-anchor="{}">{}</text>', x, anchor, by)
    return _guide(middle, grid.frame.top, grid.y(grid.layout.rows - 1)) + text


def _list_heading(column: Column, at: int, grid: Grid) -> Markup:
    """Name a list of the fork above its hits, with a guide along them."""
    x, y = grid.x(-1), grid.list_y(at, -1)
    fits = max(3, int(grid.space / 8))
    text = html(
        '<text class="stage list" x="{:.1f}" y="{:.1f}">{}</text>',
        x - grid.list_radius,
        y + 4,
        clip(column.label, fits),
    )
    size = grid.layout.size_of(at)
    return text + (_guide(x, grid.list_y(at, 0), grid.list_y(at, size - 1)) if size else Markup())


def _guide(x: float, top: float, bottom: float) -> Markup:
    return html('<line class="guide" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>', x, top, bottom)


def _line(line: Line, grid: Grid, *, links: bool, marked: bool) -> Markup:
    label = _label(line, grid.layout)
    inside = [html("<title>{}</title>", label), *_curves(line, grid)]
    inside += [_list_rank(one, grid) for one in line.list_ranks]
    inside += [_node(node, line, grid) for node in line.nodes]
    if line.nodes:
        inside.append(_name(line, line.nodes[-1], grid))
    classes = f"{line.move.kind} marked" if marked else line.move.kind
    attributes = html(
        'class="hit {}" data-hit="{}" aria-label="{}" tabindex="0"', classes, line.number, label
    )
    if links:
        return html('<a href="#hit-{}" {}>{}</a>', line.number, attributes, joined(inside))
    return html('<g {} role="img">{}</g>', attributes, joined(inside))


def _curves(line: Line, grid: Grid) -> Iterator[Markup]:
    if line.nodes:
        join = (grid.x(0), grid.y(line.nodes[0].row))
        for place in line.list_ranks:
            yield _curve((grid.x(-1), grid.list_y(place.list, place.row)), join)
    for one, other in pairwise(line.nodes):
        ends = [(grid.x(node.column), grid.y(node.row)) for node in (one, other)]
        yield _curve(*ends, known=one.rank is not None and other.rank is not None)


def _curve(one: tuple[float, float], other: tuple[float, float], *, known: bool = True) -> Markup:
    (x1, y1), (x2, y2) = one, other
    bend = (x2 - x1) * 0.5
    kind = "" if known else html(' class="unknown"')
    ends = (x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2)
    return html('<path{} d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}"/>', kind, *ends)


def _node(node: Node, line: Line, grid: Grid) -> Markup:
    x, y = grid.x(node.column), grid.y(node.row)
    if node.rank is None:
        return html('<circle class="unknown" cx="{:.1f}" cy="{:.1f}" r="5"/>', x, y)
    last = node.column == len(grid.layout.columns) - 1 and line.path.final
    return _rank(node.rank, (x, y), grid.frame.radius, " end" if last else "")


def _list_rank(one: ListRank, grid: Grid) -> Markup:
    place = (grid.x(-1), grid.list_y(one.list, one.row))
    return _rank(one.rank, place, grid.list_radius, " small")


def _rank(rank: int, place: tuple[float, float], radius: float, kind: str) -> Markup:
    x, y = place
    text = str(rank) if rank < 1000 else "…"
    circle = html('<circle class="node{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>', kind, x, y, radius)
    number = '<text class="rank{}" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>'
    return circle + html(number, kind, x, y + (3 if kind == " small" else 4), text)


def _name(line: Line, node: Node, grid: Grid) -> Markup:
    frame = grid.frame
    x, y = grid.x(node.column) + frame.radius + 8, grid.y(node.row)
    sign = html('<tspan class="sign">{}</tspan>', line.move.sign)
    name = '<text class="name" x="{:.1f}" y="{:.1f}">{} {}</text>'
    if frame is NARROW:
        return html('<text class="name" x="{:.1f}" y="{:.1f}">{}</text>', x - 4, y + 4, sign)
    if node.column < len(grid.layout.columns) - 1:
        return html(name, x, y + 4, sign, _isolated(short_id(line.path.id, 20)))
    named = html(name, x, y - 2, sign, _isolated(short_id(line.path.id, frame.name_chars)))
    if not line.path.hit.text:
        return named
    snippet = '<text class="snippet" x="{:.1f}" y="{:.1f}">{}</text>'
    return named + html(snippet, x, y + 13, _isolated(clip_words(line.path.hit.text, 46)))


def _isolated(text: str) -> Markup:
    """Return text whose direction cannot turn its neighbours round."""
    return html('<tspan class="isolated">{}</tspan>', text)


def _label(line: Line, layout: Layout) -> str:
    ranks = [f"{column.label} {line.rank_in(at) or 'not found'}" for at, column in enumerate(layout.lists)]
    ranks += [
        f"{layout.columns[node.column].label} {node.rank if node.rank is not None else 'not found'}"
        for node in line.nodes
    ]
    return f"{line.path.id}: {', '.join(ranks)}. {line.move.reason}."
