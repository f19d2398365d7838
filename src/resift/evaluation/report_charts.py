"""Charts of the report as SVG: quality against latency, differences per query, and rank flows.

Colors are variables of the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from resift.evaluation.running import Answer
from resift.explain.flow import Flow, FlowColumn, FlowPosition, HitPath, make_layout
from resift.explain.svg import PictureSize, picture, svg_circle, svg_element, svg_line, svg_rect, svg_text
from resift.types import Hit, StageKind

FLOW_HITS = 10
"""Number of first documents in a rank flow; relevant documents with lower ranks are added."""

FLOW_SIZE = PictureSize(width=440, label=150, row=24, radius=10, top=46, left=18, name_chars=16)


class Point(NamedTuple):
    """A system in the chart of quality against latency."""

    name: str
    ms: float
    quality: float
    interval: tuple[float, float]
    """95 % interval of the mean quality."""


@dataclass(frozen=True, slots=True)
class ChartArea:
    """The size of a chart and the margins for its axes."""

    width: int
    height: int
    left: int = 56
    right, top, bottom = 18, 14, 46

    @property
    def inner_width(self) -> float:
        """Width between the margins."""
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> float:
        """Height between the margins."""
        return self.height - self.top - self.bottom

    def y(self, value: float, low: float, high: float) -> float:
        """Return the vertical position of a value on an axis from low to high."""
        return self.top + (1 - (value - low) / (high - low)) * self.inner_height


def quality_against_latency(points: Sequence[Point], *, measure: str, area: ChartArea, css: str) -> Markup:
    """Draw a dot per system, with latency on a logarithmic axis and the interval as an error bar."""
    x_low, x_high = _log_range([point.ms for point in points])
    y_low, y_high = _padded_range([value for point in points for value in (point.quality, *point.interval)])

    def position(point: Point) -> tuple[float, float]:
        across = (math.log10(max(point.ms, 1e-3)) - x_low) / (x_high - x_low)
        return area.left + across * area.inner_width, area.y(point.quality, y_low, y_high)

    body = _latency_axis(area, x_low, x_high) + _value_axis(area, y_low, y_high)
    caption = f"p50 latency in ms (across), {measure} with its 95 % interval (up)"
    center = area.left + area.inner_width / 2
    body.append(svg_text(center, area.height - 8, caption, css="tick", anchor="middle"))
    label_lines: list[float] = []
    for point in sorted(points, key=lambda point: (position(point)[1], point.name)):
        x, y = position(point)
        is_right = x > area.left + area.inner_width * 0.6
        # A label that would cover an earlier one moves down a line.
        line = max([y + 4, *(other + 15 for other in label_lines if abs(other - (y + 4)) < 15)])
        label_lines.append(line)
        low, high = (area.y(end, y_low, y_high) for end in point.interval)
        body.append(svg_line(x, low, x, high, css="error"))
        body += [svg_line(x - 5, end, x + 5, end, css="error") for end in (low, high)]
        interval = f"({point.interval[0]:.4f} to {point.interval[1]:.4f})"
        title = f"{point.name}: {measure} {point.quality:.4f} {interval}, p50 {point.ms:.1f} ms"
        body.append(svg_circle(x, y, 6, css="dot", title=title))
        label_x = x - 11 if is_right else x + 11
        body.append(svg_text(label_x, line, point.name, css="name", anchor="end" if is_right else "start"))
    return svg_element(area.width, area.height, body, css=css, label=f"{measure} against latency")


def difference_bars(
    differences: Sequence[tuple[str, float]], *, measure: str, area: ChartArea, css: str
) -> Markup:
    """Draw a bar per query, the largest gain first; bars below the line are losses."""
    ordered = sorted(differences, key=lambda row: (-row[1], row[0]))
    largest = max((abs(value) for _, value in ordered), default=0.0) or 1.0
    largest = max(map(abs, _ticks(-largest, largest, outside=True)))
    step = area.inner_width / max(1, len(ordered))
    zero = area.top + area.inner_height / 2
    body = _value_axis(area, -largest, largest)
    for i, (query, value) in enumerate(ordered):
        height = abs(value) / largest * area.inner_height / 2
        top = zero - height if value > 0 else zero
        side = "gain" if value > 0 else "loss"
        title = f"query {query}: {value:+.4f}"
        x, width = area.left + i * step, max(step * 0.92, 0.4)
        body.append(svg_rect(x, top, width, height, css=side, title=title))
    body.append(svg_line(area.left, zero, area.width - area.right, zero, css="axis"))
    label = f"{len(ordered)} queries, by difference in {measure}"
    center = area.left + area.inner_width / 2
    body.append(svg_text(center, area.height - 14, label, css="tick", anchor="middle"))
    return svg_element(area.width, area.height, body, css=css, label=label)


def _latency_axis(area: ChartArea, low: float, high: float) -> list[Markup]:
    body: list[Markup] = []
    bottom = area.top + area.inner_height
    for decade in range(math.floor(low), math.floor(high) + 1):
        for factor in (1, 2, 5):
            position = decade + math.log10(factor)
            if low <= position <= high:
                x = area.left + (position - low) / (high - low) * area.inner_width
                body.append(svg_line(x, area.top, x, bottom, css="grid"))
                label = f"{10**decade * factor:g}"
                body.append(svg_text(x, bottom + 17, label, css="tick", anchor="middle"))
    return body


def _value_axis(area: ChartArea, low: float, high: float) -> list[Markup]:
    body: list[Markup] = []
    for value in _ticks(low, high):
        y = area.y(value, low, high)
        body.append(svg_line(area.left, y, area.width - area.right, y, css="grid"))
        body.append(svg_text(area.left - 7, y + 4, f"{value:g}", css="tick", anchor="end"))
    return body


def _ticks(low: float, high: float, *, outside: bool = False) -> list[float]:
    """Return about five round numbers between low and high; with `outside` they enclose both."""
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if (high - low) / (factor * size) <= 6)
    first, last = (
        (math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9))
        if outside
        else (math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9))
    )
    return [round(i * step, 10) for i in range(first, last + 1)]


def _log_range(times: Sequence[float]) -> tuple[float, float]:
    logs = [math.log10(max(time, 1e-3)) for time in times]
    low, high = min(logs) - 0.15, max(logs) + 0.15
    # At least one labeled line on either side of the dots.
    return (math.floor(low * 3) / 3, math.ceil(high * 3) / 3) if high - low > 0.5 else (low - 0.3, high + 0.3)


def _padded_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    padding = max((high - low) * 0.15, 0.01)
    return max(0.0, low - padding), min(1.0, high + padding) if high < 1 else high + padding


def rank_flow(answer: Answer, grades: Mapping[str, int]) -> Markup:
    """Draw a line per document from its first list to its final rank, with relevant ones highlighted."""
    steps = {
        (step.kind, step.where): None
        for path in sorted(answer.paths.values(), key=len, reverse=True)
        for step in path
    }
    columns = [
        FlowColumn(f"{kind}:{name}", name.rpartition(".")[2], name, True)
        for kind, name in steps
        if kind == StageKind.RETRIEVE
    ]
    columns += [FlowColumn(f"{kind}:{name}", name) for kind, name in steps if kind != StageKind.RETRIEVE]
    columns.append(FlowColumn("final", "final"))
    final_ranks = {id: rank for rank, id in enumerate(answer.ids, start=1)}
    paths = []
    for id, path in answer.paths.items():
        places = {f"{step.kind}:{step.where}": FlowPosition(step.rank, None) for step in path}
        if id in final_ranks:
            places["final"] = FlowPosition(final_ranks[id], None)
        paths.append(HitPath(Hit(id), places, final_ranks.get(id), ""))
    kept = sorted((path for path in paths if path.final), key=lambda path: path.final or 0)
    flow = Flow(tuple(columns), tuple(kept), tuple(path for path in paths if not path.final))
    relevant = {id for id, grade in grades.items() if grade > 0}
    layout = make_layout(flow, top=FLOW_HITS)
    return picture(flow, layout, frame=FLOW_SIZE, kind="report", marked=relevant)
