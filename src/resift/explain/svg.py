"""Draw the rank flow as SVG, and escape text. The basic shapes are shared with the plots of evaluation reports."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Iterable
from importlib import resources
from itertools import pairwise
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from resift.explain.flow import Flow, FlowColumn, HitLine, Layout, Node, hit_body, hit_title, make_layout
from resift.text.snippets import clip, clip_words, short_id

# Control characters, lone surrogates and noncharacters. XML parsers reject them, and some cannot be encoded.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def html(template: str, *values: object, **named: object) -> Markup:
    """Insert escaped values into a template. Format specifications work as in `str.format`."""
    cleaned = {key: _clean(value) for key, value in named.items()}
    return Markup(template).format(*map(_clean, values), **cleaned)  # noqa: S704 - values are escaped


def join_markup(parts: Iterable[object], separator: str = "") -> Markup:
    """Join the parts. Parts that are not Markup are escaped."""
    return escape(separator).join(escape(_clean(part)) for part in parts)


def html_page(title: str, body: Markup, *, style: str, script: str) -> str:
    """Return a self-contained page whose security policy allows only this style and this script."""
    sources = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:"
    policy = f"{sources}; base-uri 'none'; form-action 'none'"
    head = html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="{}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n<title>{}</title>\n',
        Markup(policy),  # noqa: S704 - contains only digests, and its quotes must not be escaped
        title,
    )
    # Style and script are constants, and escaping would change their digests.
    page_start = f"{head}<style>{style}</style>\n</head>\n<body>\n{body}\n"
    return f"{page_start}<script>{script}</script>\n</body>\n</html>\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _clean(value: object) -> object:
    """Replace characters that XML parsers reject. Markup was cleaned when it was created."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _FORBIDDEN.sub("\ufffd", value)
    return value


def asset(name: str) -> str:
    """Return a style sheet, script or template of this package, preceded by a line break."""
    return "\n" + resources.files("resift.explain").joinpath(name).read_text(encoding="utf-8")


_COLORS = asset("colors.css")
FLOW_STYLE = asset("flow.css")  # style of the picture without colors, for pages that define them

PAGE_COLORS = _COLORS.replace("SCOPE", ":root")
PICTURE_STYLE = PAGE_COLORS + ".flow { background: var(--bg); }" + FLOW_STYLE
"""Style of the picture with its colors, for pages that embed it."""

_OWN_COLORS = _COLORS.replace("SCOPE", ".flow")  # so other pictures in a notebook keep their colors
_FILE_STYLE = (
    f"{_OWN_COLORS}.flow {{ background: var(--bg); }} svg.flow {{ max-width: 100%; height: auto; }}{FLOW_STYLE}"
)

Anchor = Literal["start", "middle", "end"]  # the part of a text that is aligned with its x position


def svg_element(
    width: float, height: float, body: Iterable[Markup], *, css: str, label: str, role: str = "img", top: float = 0
) -> Markup:
    """Return an `<svg>` element with a label for screen readers. `top` is the y coordinate of its upper edge."""
    size = html('viewBox="0 {2:g} {0:g} {1:.0f}" width="{0:g}" height="{1:.0f}"', width, height, top)
    return html('<svg class="{}" {} role="{}" aria-label="{}">{}</svg>', css, size, role, label, join_markup(body))


def svg_text(x: float, y: float, text: object, *, css: str, anchor: Anchor = "start") -> Markup:
    """Return a `<text>` element. `text` may contain `<tspan>` markup."""
    alignment = "" if anchor == "start" else html(' text-anchor="{}"', anchor)
    return html('<text class="{}" x="{:.1f}" y="{:.1f}"{}>{}</text>', css, x, y, alignment, text)


def svg_line(x1: float, y1: float, x2: float, y2: float, *, css: str) -> Markup:
    """Return a straight line."""
    return html('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>', css, x1, y1, x2, y2)


def svg_circle(x: float, y: float, radius: float, *, css: str, title: str = "") -> Markup:
    """Return a circle, with a tooltip if it has a title."""
    shape = '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}">{}</circle>'
    return html(shape, css, x, y, radius, svg_title(title))


def svg_rect(x: float, y: float, width: float, height: float, *, css: str, title: str = "") -> Markup:
    """Return a rectangle, with a tooltip if it has a title."""
    shape = '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">{}</rect>'
    return html(shape, css, x, y, width, height, svg_title(title))


def svg_curve(x1: float, y1: float, x2: float, y2: float, *, css: str = "") -> Markup:
    """Return an S-shaped curve that leaves and arrives horizontally."""
    middle = (x1 + x2) / 2
    points = html("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x1, y1, middle, y1, middle, y2, x2, y2)
    return html('<path{} d="{}"/>', html(' class="{}"', css) if css else "", points)


def svg_title(text: str) -> Markup:
    """Return a tooltip, or empty markup for an empty text."""
    return html("<title>{}</title>", text) if text else Markup()


class PictureSize(NamedTuple):
    """The dimensions of a picture in pixels."""

    width: int
    label: int
    row: int = 38
    radius: int = 12
    top: int = 58
    left: int = 30
    name_chars: int = 34


WIDE = PictureSize(width=1088, label=330)
NARROW = PictureSize(width=358, label=40, row=32, radius=11, top=46, left=16)
_LIST_ROW = 19  # minimum height of a row in a list
_QUERY_HEIGHT = 40  # space for the query above a standalone picture


class Grid:
    """Coordinates of the rows and columns of a picture."""

    def __init__(self, layout: Layout, size: PictureSize) -> None:
        self.layout = layout
        self.size = size
        self._fork = 1 if layout.lists else 0
        self._count = len(layout.columns) + self._fork
        # Each list has a row for its name above its hits.
        slots = sum(layout.list_size(i) + 1 for i in range(len(layout.lists)))
        body = max(size.row * layout.rows, _LIST_ROW * slots)
        self.step = min(size.row, body / slots) if slots else 0.0
        self.height = size.top + body + 10
        self._shift = (body - size.row * layout.rows) / 2

    def x(self, column: int) -> float:
        """Return the x coordinate of the center of a column. The lists are column -1."""
        width = self.size.width - self.size.left - self.size.label - self.size.radius
        i = column + self._fork
        return self.size.left + width * (i / (self._count - 1) if self._count > 1 else 1.0)

    @property
    def space(self) -> float:
        """The distance between two columns."""
        return self.x(1) - self.x(0) if self._count > 1 else 200.0

    def y(self, row: int) -> float:
        """Return the y coordinate of the center of a row in the stage columns."""
        return self.size.top + self._shift + self.size.row * (row + 0.5)

    def list_y(self, list: int, row: int) -> float:
        """Return the y coordinate of the center of a row in a list. Row -1 is its name."""
        rows_above = sum(self.layout.list_size(i) + 1 for i in range(list))
        return self.size.top + self.step * (rows_above + 1 + row + 0.5)

    @property
    def list_radius(self) -> float:
        """The radius of a node in a list."""
        return min(self.size.radius, self.step / 2 - 1)


def svg_file(flow: Flow, *, top: int = 10) -> str:
    """Return the wide picture as a self-contained file, with the query as its title."""
    svg = str(picture(flow, make_layout(flow, top=top), frame=WIDE, kind="alone"))
    # A standalone file needs the namespace; inside an HTML page it is implied.
    svg_with_namespace = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    heading = svg_title(flow.query)
    return svg_with_namespace.replace(">", f">{heading}<style>{_FILE_STYLE}</style>", 1)


def pictures(flow: Flow, *, top: int = 10) -> dict[str, Markup]:
    """Return the picture for wide and narrow screens, or nothing if there are no hits."""
    layout = make_layout(flow, top=top)
    sizes = {"wide": WIDE, "narrow": NARROW} if layout.lines else {}
    return {kind: picture(flow, layout, frame=frame, kind=kind, links=True) for kind, frame in sizes.items()}


def picture(
    flow: Flow, layout: Layout, *, frame: PictureSize, kind: str, links: bool = False, marked: Collection[str] = ()
) -> Markup:
    """Draw the flow. `links` links each line to the details of its hit; the ids in `marked` are highlighted."""
    grid = Grid(layout, frame)
    summary = f"Rank flow of {len(layout.lines)} hits through {len(flow.columns)} columns"
    label = f"{flow.query}: {summary}" if flow.query else summary
    # A standalone file shows the query; a page has it in its heading.
    query_height = _QUERY_HEIGHT if kind == "alone" and flow.query else 0
    body = [_column_heading(column, i, grid) for i, column in enumerate(layout.columns)]
    if query_height:
        query = _isolate(clip_words(flow.query, 110))
        body.append(svg_text(frame.left - 9, 26 - query_height, query, css="query"))
    # The best hits are drawn last, on top of the others.
    lines = reversed(layout.lines)
    body += [_hit_line(line, grid, links=links, marked=line.path.id in marked) for line in lines]
    for i, column in enumerate(layout.lists):
        x, y, size = grid.x(-1), grid.list_y(i, -1), layout.list_size(i)
        name = clip(column.label, max(3, int(grid.space / 8)))
        body.append(svg_text(x - grid.list_radius, y + 4, name, css="stage list"))
        if size:
            body.append(svg_line(x, grid.list_y(i, 0), x, grid.list_y(i, size - 1), css="guide"))
    height, css = grid.height + query_height, f"flow {kind}"
    return svg_element(frame.width, height, body, css=css, label=label, role="group", top=-query_height)


def _column_heading(column: FlowColumn, i: int, grid: Grid) -> Markup:
    wide = grid.size is not NARROW
    chars = max(3, int(grid.space / (7.6 if wide else 6.4)) - 1)
    first = i == 0 and not grid.layout.lists
    center = grid.x(i)
    x = center - grid.size.radius if first else center
    anchor: Anchor = "start" if first else "middle"
    # In a narrow picture labels would touch, so every second one is placed a line lower.
    y = 18 if wide else (14 if i % 2 == 0 else 30)
    label = clip(column.label, chars if wide else chars * 2)
    text = svg_text(x, y, label, css="stage", anchor=anchor)
    subtitle = clip(column.by, chars) if wide and column.by not in ("", column.label) else ""
    if subtitle:
        text += svg_text(x, 35, subtitle, css="by", anchor=anchor)
    return svg_line(center, grid.size.top, center, grid.y(grid.layout.rows - 1), css="guide") + text


def _hit_line(line: HitLine, grid: Grid, *, links: bool, marked: bool) -> Markup:
    layout = grid.layout
    ranks = [f"{column.label} {line.rank_in(i) or 'not found'}" for i, column in enumerate(layout.lists)]
    ranks += [f"{layout.columns[node.column].label} {node.rank or 'not found'}" for node in line.nodes]
    label = f"{hit_title(line.path.hit)}: {', '.join(ranks)}. {line.move.reason}."
    shapes = [svg_title(label)]
    for node in line.list_nodes if line.nodes else ():
        start_y, end_y = grid.list_y(node.column, node.row), grid.y(line.nodes[0].row)
        shapes.append(svg_curve(grid.x(-1), start_y, grid.x(0), end_y))
    for start, end in pairwise(line.nodes):
        css = "unknown" if start.rank is None or end.rank is None else ""
        shapes.append(svg_curve(grid.x(start.column), grid.y(start.row), grid.x(end.column), grid.y(end.row), css=css))
    for node in line.list_nodes:
        y = grid.list_y(node.column, node.row)
        shapes.append(_rank_circle(node.rank or 0, grid.x(-1), y, grid.list_radius, " small"))
    for node in line.nodes:
        x, y = grid.x(node.column), grid.y(node.row)
        if node.rank is None:
            shapes.append(svg_circle(x, y, 5, css="unknown"))
        else:
            last = node.column == len(layout.columns) - 1 and line.path.final
            shapes.append(_rank_circle(node.rank, x, y, grid.size.radius, " end" if last else ""))
    if line.nodes:
        shapes.append(_hit_name(line, line.nodes[-1], grid))
    classes = f"{line.move.kind} marked" if marked else line.move.kind
    attributes = html('class="hit {}" data-hit="{}" aria-label="{}" tabindex="0"', classes, line.number, label)
    if links:
        return html('<a href="#hit-{}" {}>{}</a>', line.number, attributes, join_markup(shapes))
    return html('<g {} role="img">{}</g>', attributes, join_markup(shapes))


def _rank_circle(rank: int, x: float, y: float, radius: float, kind: str) -> Markup:
    text = str(rank) if rank < 1000 else "…"
    number = svg_text(x, y + (3 if kind == " small" else 4), text, css=f"rank{kind}", anchor="middle")
    return svg_circle(x, y, radius, css=f"node{kind}") + number


def _hit_name(line: HitLine, node: Node, grid: Grid) -> Markup:
    size = grid.size
    x, y = grid.x(node.column) + size.radius + 8, grid.y(node.row)
    sign = html('<tspan class="sign">{}</tspan>', line.move.sign)
    if size is NARROW:
        return svg_text(x - 4, y + 4, sign, css="name")
    if node.column < len(grid.layout.columns) - 1:
        return svg_text(x, y + 4, html("{} {}", sign, _isolate(short_id(hit_title(line.path.hit), 20))), css="name")
    name = html("{} {}", sign, _isolate(short_id(hit_title(line.path.hit), size.name_chars)))
    text = svg_text(x, y - 2, name, css="name")
    if line.path.hit.text:
        text += svg_text(x, y + 13, _isolate(clip_words(hit_body(line.path.hit), 46)), css="snippet")
    return text


def _isolate(text: str) -> Markup:
    """Return text whose direction does not affect the text next to it."""
    return html('<tspan class="isolated">{}</tspan>', text)
