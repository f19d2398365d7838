"""The rank flow as SVG: one curve per hit from list to list. Colours are variables of the style sheet."""

# ruff: noqa: E501 - markup reads better on one line

from __future__ import annotations

from dataclasses import dataclass

from resift.explain.escaping import clip, escape
from resift.explain.flow import Column, Flow
from resift.explain.layout import Layout, Line, Node, layout_of
from resift.explain.style import PICTURE_STYLE


@dataclass(frozen=True, slots=True)
class Frame:
    """The measures of a picture in pixels."""

    width: int
    label: int
    row: int = 38
    radius: int = 12
    top: int = 58
    left: int = 30

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
    drawn = picture(flow, layout_of(flow, top=top), frame=WIDE, kind="alone")
    return drawn.replace(">", f"><style>{PICTURE_STYLE}</style>", 1)


def picture(flow: Flow, layout: Layout, *, frame: Frame, kind: str, links: bool = False) -> str:
    """Draw the flow; with `links` each line leads to the hit's details on the page."""
    height = frame.top + frame.row * layout.rows + 10
    label = f"Rank flow of {len(layout.lines)} hits through {len(layout.columns)} columns"
    size = f'viewBox="0 0 {frame.width} {height}" width="{frame.width}" height="{height}"'
    body = [_heading(column, at, layout, flow, frame) for at, column in enumerate(layout.columns)]
    # The best hits are drawn last, so that their lines lie on top.
    body += [_line(line, layout, frame, links=links) for line in reversed(layout.lines)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flow {kind}" {size} role="group" '
        f'aria-label="{escape(label)}">{"".join(body)}</svg>'
    )


def _heading(column: Column, at: int, layout: Layout, flow: Flow, frame: Frame) -> str:
    count = len(layout.columns)
    x = frame.x(at, count)
    space = frame.x(1, count) - frame.x(0, count) if count > 1 else 200.0
    wide = frame is not NARROW
    fits = max(3, int(space / (7.6 if wide else 6.4)) - 1)
    anchor = "start" if at == 0 else "middle"
    x = x - frame.radius if at == 0 else x
    # On a narrow picture neighbours would touch: every second label stands a line lower.
    y = 18 if wide else (14 if at % 2 == 0 else 30)
    text = f'<text class="stage" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(clip(column.label, fits if wide else fits * 2))}</text>'
    by = clip(column.by, fits) if wide and column.by not in ("", column.label) else ""
    if by:
        text += f'<text class="by" x="{x:.1f}" y="35" text-anchor="{anchor}">{escape(by)}</text>'
    guide = f'<line class="guide" x1="{frame.x(at, count):.1f}" x2="{frame.x(at, count):.1f}" y1="{frame.top}" y2="{frame.y(layout.rows - 1):.1f}"/>'
    return guide + text


def _line(line: Line, layout: Layout, frame: Frame, *, links: bool) -> str:
    inside = [f"<title>{escape(_label(line, layout))}</title>"]
    inside += [
        _curve(one, other, len(layout.columns), frame)
        for one, other in zip(line.nodes, line.nodes[1:], strict=False)
    ]
    inside += [_node(node, line, len(layout.columns), frame) for node in line.nodes]
    if line.nodes:
        inside.append(_name(line, line.nodes[-1], len(layout.columns), frame))
    attributes = f'class="hit {line.move.kind}" data-hit="{line.number}"'
    label = escape(_label(line, layout))
    if links:
        return f'<a href="#hit-{line.number}" {attributes} aria-label="{label}" tabindex="0">{"".join(inside)}</a>'
    return f'<g {attributes} tabindex="0" role="img" aria-label="{label}">{"".join(inside)}</g>'


def _curve(one: Node, other: Node, columns: int, frame: Frame) -> str:
    x1, y1 = frame.x(one.column, columns), frame.y(one.row)
    x2, y2 = frame.x(other.column, columns), frame.y(other.row)
    bend = (x2 - x1) * 0.5
    kind = ' class="unknown"' if one.rank is None or other.rank is None else ""
    return f'<path{kind} d="M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"/>'


def _node(node: Node, line: Line, columns: int, frame: Frame) -> str:
    x, y = frame.x(node.column, columns), frame.y(node.row)
    if node.rank is None:
        return f'<circle class="unknown" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    end = " end" if node.column == columns - 1 and line.path.final else ""
    text = str(node.rank) if node.rank < 1000 else "…"
    return (
        f'<circle class="node{end}" cx="{x:.1f}" cy="{y:.1f}" r="{frame.radius}"/>'
        f'<text class="rank{end}" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{text}</text>'
    )


def _name(line: Line, node: Node, columns: int, frame: Frame) -> str:
    x, y = frame.x(node.column, columns) + frame.radius + 8, frame.y(node.row)
    sign = f'<tspan class="sign">{escape(line.move.sign)}</tspan>'
    if frame is NARROW:
        return f'<text class="name" x="{x - 4:.1f}" y="{y + 4:.1f}">{sign}</text>'
    if node.column < columns - 1:
        return f'<text class="name" x="{x:.1f}" y="{y + 4:.1f}">{sign} {_isolated(line.path.id, 20)}</text>'
    return (
        f'<text class="name" x="{x:.1f}" y="{y - 2:.1f}">{sign} {_isolated(line.path.id, 34)}</text>'
        f'<text class="snippet" x="{x:.1f}" y="{y + 13:.1f}">{_isolated(line.path.hit.text, 46)}</text>'
    )


def _isolated(text: str, most: int) -> str:
    """Return escaped text whose direction cannot turn its neighbours round."""
    return f'<tspan class="isolated">{escape(clip(text, most))}</tspan>'


def _label(line: Line, layout: Layout) -> str:
    ranks = [
        f"{layout.columns[node.column].label} {node.rank if node.rank is not None else 'not found'}"
        for node in line.nodes
    ]
    return f"{line.path.id}: {', '.join(ranks)}. {line.move.reason}."
