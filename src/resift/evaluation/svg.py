"""Plots as SVG text: quality against latency, differences per query. Colours are the page's variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Point:
    """One pipeline in the plot of quality against latency."""

    name: str
    ms: float
    quality: float


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing area: size and the room left for axes."""

    width: int
    height: int
    left: int = 56
    right: int = 18
    top: int = 14
    bottom: int = 46

    @property
    def inner_width(self) -> float:
        """Room between the axes' ends."""
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> float:
        """Room between the axes' ends."""
        return self.height - self.top - self.bottom


def figure(frame: Frame, body: Sequence[str], *, label: str, kind: str) -> str:
    """Wrap drawn parts into one image with a label for screen readers."""
    size = f'viewBox="0 0 {frame.width} {frame.height}" width="{frame.width}" height="{frame.height}"'
    return f'<svg class="{kind}" {size} role="img" aria-label="{escape(label)}">{"".join(body)}</svg>'


def quality_against_latency(points: Sequence[Point], *, measure: str, frame: Frame, kind: str) -> str:
    """Draw one dot per pipeline: to the left is quicker, up is better; latency on a logarithmic axis."""
    x_low, x_high = _decades([point.ms for point in points])
    y_low, y_high = _padded([point.quality for point in points])

    def place(point: Point) -> tuple[float, float]:
        across = (math.log10(max(point.ms, 1e-3)) - x_low) / (x_high - x_low)
        up = (point.quality - y_low) / (y_high - y_low)
        return frame.left + across * frame.inner_width, frame.top + (1 - up) * frame.inner_height

    body = _latency_axis(frame, x_low, x_high) + _value_axis(frame, y_low, y_high)
    body.append(
        _text(
            frame.left + frame.inner_width / 2,
            frame.height - 8,
            f"p50 latency in ms (across), {measure} (up)",
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
        told = f"{point.name}: {measure} {point.quality:.4f}, p50 {point.ms:.1f} ms"
        body.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="6">{_title(told)}</circle>')
        body.append(_text(x - 11 if left else x + 11, line, point.name, "end" if left else "start", "name"))
    return figure(frame, body, label=f"{measure} against latency", kind=kind)


def difference_bars(
    differences: Sequence[tuple[str, float]], *, measure: str, frame: Frame, kind: str
) -> str:
    """Draw one bar per query, the largest gain first; bars below the line are losses."""
    ordered = sorted(differences, key=lambda one: (-one[1], one[0]))
    most = max((abs(value) for _, value in ordered), default=0.0) or 1.0
    step = frame.inner_width / max(1, len(ordered))
    zero = frame.top + frame.inner_height / 2
    body = _value_axis(frame, -most, most)
    for at, (query, value) in enumerate(ordered):
        height = abs(value) / most * frame.inner_height / 2
        top = zero - height if value > 0 else zero
        side = "gain" if value > 0 else "loss"
        told = f"query {query}: {value:+.4f}"
        size = f'width="{max(step * 0.92, 0.4):.2f}" height="{height:.2f}"'
        x = frame.left + at * step
        body.append(f'<rect class="{side}" x="{x:.2f}" y="{top:.2f}" {size}>{_title(told)}</rect>')
    body.append(_line(frame.left, frame.width - frame.right, zero, zero, "axis"))
    told = f"{len(ordered)} queries, by difference in {measure}"
    body.append(_text(frame.left + frame.inner_width / 2, frame.height - 14, told, "middle"))
    return figure(frame, body, label=told, kind=kind)


def _latency_axis(frame: Frame, low: float, high: float) -> list[str]:
    body = []
    bottom = frame.top + frame.inner_height
    for decade in range(math.floor(low), math.floor(high) + 1):
        for factor in (1, 2, 5):
            at = decade + math.log10(factor)
            if low <= at <= high:
                x = frame.left + (at - low) / (high - low) * frame.inner_width
                body.append(_line(x, x, frame.top, bottom))
                body.append(_text(x, bottom + 17, f"{10**decade * factor:g}", "middle"))
    return body


def _value_axis(frame: Frame, low: float, high: float) -> list[str]:
    body = []
    for part in range(5):
        value = low + (high - low) * part / 4
        y = frame.top + (1 - part / 4) * frame.inner_height
        body.append(_line(frame.left, frame.width - frame.right, y, y))
        body.append(_text(frame.left - 7, y + 4, f"{value:.3f}", "end"))
    return body


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, x2: float, y1: float, y2: float, kind: str = "grid") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _decades(times: Sequence[float]) -> tuple[float, float]:
    logs = [math.log10(max(time, 1e-3)) for time in times]
    low, high = min(logs) - 0.15, max(logs) + 0.15
    # At least one labelled line on either side of the dots.
    return (math.floor(low * 3) / 3, math.ceil(high * 3) / 3) if high - low > 0.5 else (low - 0.3, high + 0.3)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = max((high - low) * 0.15, 0.01)
    return max(0.0, low - room), min(1.0, high + room) if high < 1 else high + room
