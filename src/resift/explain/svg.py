"""Basic SVG shapes for pictures and plots. CSS classes set the colors; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from markupsafe import Markup

from resift._internal.markup import html, join_markup

Anchor = Literal["start", "middle", "end"]
"""Which part of a text is at its x position."""


def svg_element(
    width: float,
    height: float,
    body: Iterable[Markup],
    *,
    css: str,
    label: str,
    role: str = "img",
    top: float = 0,
) -> Markup:
    """Return an `<svg>` element with a label for screen readers; `top` is the y of its upper edge."""
    size = html('viewBox="0 {2:g} {0:g} {1:.0f}" width="{0:g}" height="{1:.0f}"', width, height, top)
    return html(
        '<svg class="{}" {} role="{}" aria-label="{}">{}</svg>', css, size, role, label, join_markup(body)
    )


def svg_text(x: float, y: float, text: object, *, css: str, anchor: Anchor = "start") -> Markup:
    """Return a text; `text` may contain `<tspan>` markup."""
    aligned = "" if anchor == "start" else html(' text-anchor="{}"', anchor)
    return html('<text class="{}" x="{:.1f}" y="{:.1f}"{}>{}</text>', css, x, y, aligned, text)


def svg_line(x1: float, y1: float, x2: float, y2: float, *, css: str) -> Markup:
    """Return a straight line."""
    return html('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>', css, x1, y1, x2, y2)


def svg_circle(x: float, y: float, radius: float, *, css: str, title: str = "") -> Markup:
    """Return a circle, with a tooltip if it has a title."""
    return html(
        '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}">{}</circle>',
        css,
        x,
        y,
        radius,
        svg_title(title),
    )


def svg_rect(x: float, y: float, width: float, height: float, *, css: str, title: str = "") -> Markup:
    """Return a rectangle, with a tooltip if it has a title."""
    return html(
        '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">{}</rect>',
        css, x, y, width, height, svg_title(title),
    )  # fmt: skip


def svg_curve(x1: float, y1: float, x2: float, y2: float, *, css: str = "") -> Markup:
    """Return an S-shaped curve that leaves and arrives horizontally."""
    middle = (x1 + x2) / 2
    kind = html(' class="{}"', css) if css else ""
    return html(
        '<path{} d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}"/>',
        kind, x1, y1, middle, y1, middle, y2, x2, y2,
    )  # fmt: skip


def svg_title(text: str) -> Markup:
    """Return a tooltip, or nothing for an empty text."""
    return html("<title>{}</title>", text) if text else Markup()
