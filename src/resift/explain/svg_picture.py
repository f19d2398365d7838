"""The rank flow as SVG: one curve per hit from list to list. Colours are variables of the style sheet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from markupsafe import Markup

from resift.explain.escaping import clip
from resift.explain.flow import Column, Flow
from resift.explain.layout import Layout, Line, Node, layout_of
from resift.explain.style import PICTURE_STYLE
from resift.markup import html, joined


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

    def x(self, column: int, columns: int) -> float:
        """Return the middle of a column."""
        room = self.width - self.left - self.label - self.radius
        return self.left + room * (column / (columns - 1) if columns > 1 else 1.0)

    def y(self, row: int) -> float:
        """Return the middle of a row."""
        return self.top + self.row * (row + 0.5)


WIDE = Frame(width=1088, label=330)
NARROW = Frame(width=358, label=40, row=32, radius=11, top=46, left=16)


def svg_file(flow: Flow, *, top: int = 10) -> str:
    """Return the wide picture as a file of its own, style included."""
    drawn = str(picture(flow, layout_of(flow, top=top), frame=WIDE, kind="alone"))
    # A file must name its language; inside a page of HTML it is known.
    named = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return named.replace(">", f"><style>{PICTURE_STYLE}</style>", 1)


def picture(
    flow: Flow, layout: Layout, *, frame: Frame, kind: str, links: bool = False, marked: Collection[str] = ()
) -> Markup:
    """Draw the flow; with `links` each line leads to the hit's details; the ids `marked` stand out."""
    height = frame.top + frame.row * layout.rows + 10
    label = f"Rank flow of {len(layout.lines)} hits through {len(layout.columns)} columns"
    size = html('viewBox="0 0 {0} {1}" width="{0}" height="{1}"', frame.width, height)
    body = [_heading(column, at, layout, flow, frame) for at, column in enumerate(layout.columns)]
    # The best hits are drawn last, so that their lines lie on top.
    body += [
        _line(line, layout, frame, links=links, marked=line.path.id in marked)
        for line in reversed(layout.lines)
    ]
    return html(
        '<svg class="flow {}" {} role="group" aria-label="{}">{}</svg>',
        kind,
        size,
        label,
        joined(body),
    )


def _heading(column: Column, at: int, layout: Layout, flow: Flow, frame: Frame) -> Markup:
    count = len(layout.columns)
    x = frame.x(at, count)
    space = frame.x(1, count) - frame.x(0, count) if count > 1 else 200.0
    wide = frame is not NARROW
    fits = max(3, int(space / (7.6 if wide else 6.4)) - 1)
    anchor = "start" if at == 0 else "middle"
    x = x - frame.radius if at == 0 else x
    # On a narrow picture neighbours would touch: every second label stands a line lower.
    y = 18 if wide else (14 if at % 2 == 0 else 30)
    label = clip(column.label, fits if wide else fits * 2)
    text = html('<text class="stage" x="{:.1f}" y="{}" text-anchor="{}">{}</text>', x, y, anchor, label)
    by = clip(column.by, fits) if wide and column.by not in ("", column.label) else ""
    if by:
        text += html('<text class="by" x="{:.1f}" y="35" text-anchor="{}">{}</text>', x, anchor, by)
    middle, bottom = frame.x(at, count), frame.y(layout.rows - 1)
    guide = html(
        '<line class="guide" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2:.1f}"/>', middle, frame.top, bottom
    )
    return guide + text


def _line(line: Line, layout: Layout, frame: Frame, *, links: bool, marked: bool) -> Markup:
    label = _label(line, layout)
    inside = [html("<title>{}</title>", label)]
    inside += [
        _curve(one, other, len(layout.columns), frame)
        for one, other in zip(line.nodes, line.nodes[1:], strict=False)
    ]
    inside += [_node(node, line, len(layout.columns), frame) for node in line.nodes]
    if line.nodes:
        inside.append(_name(line, line.nodes[-1], len(layout.columns), frame))
    classes = f"{line.move.kind} marked" if marked else line.move.kind
    attributes = html(
        'class="hit {}" data-hit="{}" aria-label="{}" tabindex="0"', classes, line.number, label
    )
    if links:
        return html('<a href="#hit-{}" {}>{}</a>', line.number, attributes, joined(inside))
    return html('<g {} role="img">{}</g>', attributes, joined(inside))


def _curve(one: Node, other: Node, columns: int, frame: Frame) -> Markup:
    x1, y1 = frame.x(one.column, columns), frame.y(one.row)
    x2, y2 = frame.x(other.column, columns), frame.y(other.row)
    bend = (x2 - x1) * 0.5
    kind = html(' class="unknown"') if one.rank is None or other.rank is None else ""
    ends = (x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2)
    return html('<path{} d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}"/>', kind, *ends)


def _node(node: Node, line: Line, columns: int, frame: Frame) -> Markup:
    x, y = frame.x(node.column, columns), frame.y(node.row)
    if node.rank is None:
        return html('<circle class="unknown" cx="{:.1f}" cy="{:.1f}" r="5"/>', x, y)
    end = " end" if node.column == columns - 1 and line.path.final else ""
    text = str(node.rank) if node.rank < 1000 else "…"
    circle = html('<circle class="node{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>', end, x, y, frame.radius)
    number = html(
        '<text class="rank{}" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>', end, x, y + 4, text
    )
    return circle + number


def _name(line: Line, node: Node, columns: int, frame: Frame) -> Markup:
    x, y = frame.x(node.column, columns) + frame.radius + 8, frame.y(node.row)
    sign = html('<tspan class="sign">{}</tspan>', line.move.sign)
    name = '<text class="name" x="{:.1f}" y="{:.1f}">{} {}</text>'
    if frame is NARROW:
        return html('<text class="name" x="{:.1f}" y="{:.1f}">{}</text>', x - 4, y + 4, sign)
    if node.column < columns - 1:
        return html(name, x, y + 4, sign, _isolated(line.path.id, 20))
    snippet = '<text class="snippet" x="{:.1f}" y="{:.1f}">{}</text>'
    named = html(name, x, y - 2, sign, _isolated(line.path.id, frame.name_chars))
    if not line.path.hit.text:
        return named
    return named + html(snippet, x, y + 13, _isolated(line.path.hit.text, 46))


def _isolated(text: str, most: int) -> Markup:
    """Return text whose direction cannot turn its neighbours round."""
    return html('<tspan class="isolated">{}</tspan>', clip(text, most))


def _label(line: Line, layout: Layout) -> str:
    ranks = [
        f"{layout.columns[node.column].label} {node.rank if node.rank is not None else 'not found'}"
        for node in line.nodes
    ]
    return f"{line.path.id}: {', '.join(ranks)}. {line.move.reason}."
