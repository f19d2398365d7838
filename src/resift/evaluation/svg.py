"""Plots as SVG text: quality against latency, differences per query. Colours are the page's variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from resift._internal.markup import html, joined


class Point(NamedTuple):
    """One pipeline in the plot of quality against latency."""

    name: str
    ms: float
    quality: float
    interval: tuple[float, float]
    """Of the mean quality, 95 %."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing area: size and the room left for axes."""

    width: int
    height: int
    left: int = 56
    right, top, bottom = 18, 14, 46

    @property
    def inner_width(self) -> float:
        """Room between the axes' ends."""
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> float:
        """Room between the axes' ends."""
        return self.height - self.top - self.bottom


def figure(frame: Frame, body: Sequence[Markup], *, label: str, kind: str) -> Markup:
    """Wrap drawn parts into one image with a label for screen readers."""
    size = html('viewBox="0 0 {0} {1}" width="{0}" height="{1}"', frame.width, frame.height)
    return html('<svg class="{}" {} role="img" aria-label="{}">{}</svg>', kind, size, label, joined(body))


def quality_against_latency(points: Sequence[Point], *, measure: str, frame: Frame, kind: str) -> Markup:
    """Draw one dot per pipeline: to the left is quicker, up is better; latency on a logarithmic axis."""
    x_low, x_high = _decades([point.ms for point in points])
    y_low, y_high = _padded([value for point in points for value in (point.quality, *point.interval)])

    def height(value: float) -> float:
        return frame.top + (1 - (value - y_low) / (y_high - y_low)) * frame.inner_height

    def place(point: Point) -> tuple[float, float]:
        across = (math.log10(max(point.ms, 1e-3)) - x_low) / (x_high - x_low)
        return frame.left + across * frame.inner_width, height(point.quality)

    body = _latency_axis(frame, x_low, x_high) + _value_axis(frame, y_low, y_high)
    body.append(
        _text(
            frame.left + frame.inner_width / 2,
            frame.height - 8,
            f"p50 latency in ms (across), {measure} with its 95 % interval (up)",
            "middle",
        )
    )
    taken: list[float] = []
    for point in sorted(points, key=lambda one: (place(one)[1], one.name)):
        x, y = place(point)
        left = x > frame.left + frame.inner_width * 0.6
        # Labels of dots at one height would cover each other: each next one moves down a line.
        line = max([y + 4, *(other + 15 for other in taken if abs(other - (y + 4)) < 15)])
        taken.append(line)
        low, high = point.interval
        label = (
            f"{point.name}: {measure} {point.quality:.4f} ({low:.4f} to {high:.4f}), p50 {point.ms:.1f} ms"
        )
        body += _error_bar(x, height(low), height(high))
        body.append(
            html('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="6">{}</circle>', x, y, _title(label))
        )
        body.append(_text(x - 11 if left else x + 11, line, point.name, "end" if left else "start", "name"))
    return figure(frame, body, label=f"{measure} against latency", kind=kind)


def difference_bars(
    differences: Sequence[tuple[str, float]], *, measure: str, frame: Frame, kind: str
) -> Markup:
    """Draw one bar per query, the largest gain first; bars below the line are losses."""
    ordered = sorted(differences, key=lambda one: (-one[1], one[0]))
    most = max((abs(value) for _, value in ordered), default=0.0) or 1.0
    step = frame.inner_width / max(1, len(ordered))
    zero = frame.top + frame.inner_height / 2
    most = max(map(abs, _ticks(-most, most, outside=True)))
    body = _value_axis(frame, -most, most)
    for at, (query, value) in enumerate(ordered):
        height = abs(value) / most * frame.inner_height / 2
        top = zero - height if value > 0 else zero
        side = "gain" if value > 0 else "loss"
        x, width = frame.left + at * step, max(step * 0.92, 0.4)
        rect = '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">{}</rect>'
        body.append(html(rect, side, x, top, width, height, _title(f"query {query}: {value:+.4f}")))
    body.append(_line(frame.left, frame.width - frame.right, zero, zero, "axis"))
    label = f"{len(ordered)} queries, by difference in {measure}"
    body.append(_text(frame.left + frame.inner_width / 2, frame.height - 14, label, "middle"))
    return figure(frame, body, label=label, kind=kind)


def _latency_axis(frame: Frame, low: float, high: float) -> list[Markup]:
    body: list[Markup] = []
    bottom = frame.top + frame.inner_height
    for decade in range(math.floor(low), math.floor(high) + 1):
        for factor in (1, 2, 5):
            at = decade + math.log10(factor)
            if low <= at <= high:
                x = frame.left + (at - low) / (high - low) * frame.inner_width
                body.append(_line(x, x, frame.top, bottom))
                body.append(_text(x, bottom + 17, f"{10**decade * factor:g}", "middle"))
    return body


def _value_axis(frame: Frame, low: float, high: float) -> list[Markup]:
    body: list[Markup] = []
    for value in _ticks(low, high):
        y = frame.top + (1 - (value - low) / (high - low)) * frame.inner_height
        body.append(_line(frame.left, frame.width - frame.right, y, y))
        body.append(_text(frame.left - 7, y + 4, f"{value:g}", "end"))
    return body


def _error_bar(x: float, low: float, high: float) -> list[Markup]:
    caps = [_line(x - 5, x + 5, y, y, "error") for y in (low, high)]
    return [_line(x, x, low, high, "error"), *caps]


def _ticks(low: float, high: float, *, outside: bool = False) -> list[float]:
    """Return about five round numbers between low and high; with `outside`, as far as they cover both."""
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if (high - low) / (factor * size) <= 6)
    first, last = (
        (math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9))
        if outside
        else (math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9))
    )
    return [round(at * step, 10) for at in range(first, last + 1)]


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> Markup:
    return html('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>', kind, x, y, anchor, text)


def _line(x1: float, x2: float, y1: float, y2: float, kind: str = "grid") -> Markup:
    return html('<line class="{}" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>', kind, x1, x2, y1, y2)


def _title(text: str) -> Markup:
    return html("<title>{}</title>", text)


def _decades(times: Sequence[float]) -> tuple[float, float]:
    logs = [math.log10(max(time, 1e-3)) for time in times]
    low, high = min(logs) - 0.15, max(logs) + 0.15
    # At least one labelled line on either side of the dots.
    return (math.floor(low * 3) / 3, math.ceil(high * 3) / 3) if high - low > 0.5 else (low - 0.3, high + 0.3)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = max((high - low) * 0.15, 0.01)
    return max(0.0, low - room), min(1.0, high + room) if high < 1 else high + room
