"""A self-contained HTML page: the picture, the score parts of each hit, and the hits left out with reasons.

All text is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup

from resift.explain.flow import (
    Flow,
    FlowColumn,
    FlowPosition,
    HitLine,
    Layout,
    find_move,
    hit_body,
    hit_location,
    hit_title,
    make_layout,
    snippet_parts,
)
from resift.explain.reasons import format_score
from resift.explain.svg import FLOW_STYLE, NARROW, PAGE_COLORS, WIDE, asset, html, html_page, join_markup, picture
from resift.text.snippets import clip

MAX_CUT = 200
"""Maximum number of rows in the table of hits that were left out."""

SNIPPET_CHARS = 180
"""Characters of text on a closed card."""

STYLE = PAGE_COLORS + asset("page.css") + FLOW_STYLE
SCRIPT = asset("page.js")
HIT = asset("hit.html")


def page(flow: Flow, *, top: int = 10) -> str:
    """Return the page as one string of HTML."""
    layout = make_layout(flow, top=top)
    title = flow.query or "Rank flow"
    lists = sum(column.first_stage for column in flow.columns)
    summary = [f"{len(flow.kept)} of {len(flow.kept) + len(flow.cut)} candidates"]
    summary += [f"{lists} list{'s' if lists > 1 else ''}"] if lists else []
    summary += [f"{flow.timings['total']:.0f} ms"] if "total" in flow.timings else []
    warnings = [flow.reason or "Degraded."] if flow.degraded else []
    warnings += [f"{store}: {why}" for store, why in flow.failures.items()]
    body = [
        html("<h1><bdi>{}</bdi></h1>", title),
        html('<p class="dim">{}</p>', " · ".join(summary)),
        html('<div class="card warn" role="note">{}</div>', "; ".join(warnings)) if warnings else Markup(),
        _picture(flow, layout),
        _times(flow.timings),
        html("<h2>{}</h2>", "Hits" if flow.kept else "No hits"),
        *_hits(flow, layout),
        _left_out(flow),
        html(
            '<footer class="dim small">Made by Resift from the trace of the ranking. This page loads nothing.</footer>'
        ),
    ]
    return html_page(title, join_markup((part for part in body if part), "\n"), style=STYLE, script=SCRIPT)


def _picture(flow: Flow, layout: Layout) -> Markup:
    if not layout.lines:
        return Markup()
    drawn = join_markup(
        picture(flow, layout, frame=frame, kind=kind, links=True)
        for frame, kind in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    return html('<div class="card picture">{}{}</div>', drawn, html(asset("legend.html")))


def _times(timings: Mapping[str, float]) -> Markup:
    stages = {name: ms for name, ms in timings.items() if name != "total" and ms > 0}
    if not stages:
        return Markup()
    # Drawn as SVG: the page's security policy forbids style attributes.
    total, left, bars = sum(stages.values()), 0.0, []
    for name, ms in stages.items():
        share = 100 * ms / total
        bars.append(html('<rect x="{:.3f}%" width="{:.3f}%" height="8"><title>{}</title></rect>', left, share, name))
        left += share
    text = join_markup((html("{} {:.1f} ms", name, ms) for name, ms in stages.items()), " · ")
    return html('<svg class="times" aria-hidden="true">{}</svg><p class="dim small">{}</p>', join_markup(bars), text)


def _hits(flow: Flow, layout: Layout) -> list[Markup]:
    # The largest absolute score of a column is the full length of a bar.
    scale: dict[str, float] = {}
    for path in (*flow.kept, *flow.cut):
        for key, place in path.places.items():
            sizes = [abs(score) for score in (place.score, *(value for _, value in place.parts)) if score]
            scale[key] = max([scale.get(key, 0.0), *sizes])
    legend = "Bars are relative to the largest score of the stage on this page; negative scores extend to the left."
    shown = [html('<p class="dim small">{}</p>', legend)] if layout.lines else []
    shown += [_details(line, flow, scale) for line in layout.lines]
    more = len(flow.kept) - sum(line.path.final is not None for line in layout.lines)
    if more > 0:
        shown.append(html('<p class="dim">… and {} more hits.</p>', more))
    return shown


def _details(line: HitLine, flow: Flow, scale: Mapping[str, float]) -> Markup:
    path, location = line.path, hit_location(line.path.hit)
    columns = [column for column in flow.columns if column.key in path.places]
    rows = [row for column in columns for row in _rows(column, path.places[column.key], scale)]
    return html(
        HIT,
        number=line.number,
        place=path.final or "–",
        kind=line.move.kind,
        sign=line.move.sign,
        title=hit_title(path.hit),
        location=html('<span class="dim small"><bdi>{}</bdi></span>', location) if location else "",
        snippet=_snippet(hit_body(path.hit), flow.query),
        reason=line.move.reason,
        text=path.hit.text or html("<i>no text</i>"),
        rows=join_markup(rows),
        why=path.why or line.move.reason,
        id=path.id,
    )


def _snippet(text: str, query: str) -> Markup:
    """Return the part of a text that closed cards show, with the query words highlighted."""
    parts = snippet_parts(text, query, length=SNIPPET_CHARS)
    return join_markup(html("<mark>{}</mark>", part) if matches else part for part, matches in parts)


def _rows(column: FlowColumn, place: FlowPosition, scale: Mapping[str, float]) -> list[Markup]:
    largest = scale.get(column.key, 0.0)
    name = column.by if column.first_stage else " · ".join(filter(None, (column.label, column.by)))
    row = html(
        '<tr><td>{}{}</td><td class="n">{}</td><td class="n">{}</td><td>{}</td></tr>',
        name or column.label,
        html('<span class="dim small"> {}</span>', place.note) if place.note else "",
        place.rank,
        format_score(place.score),
        _bar(place.score, largest),
    )
    rows = [row]
    part = '<tr class="part"><td>&nbsp;&nbsp;+ {}</td><td></td><td class="n">{}</td><td>{}</td></tr>'
    if len(place.parts) > 1:
        rows += [html(part, name, format_score(value), _bar(value, largest)) for name, value in place.parts]
    return rows


def _bar(score: float | None, largest: float) -> Markup:
    if score is None or largest <= 0:
        return Markup()
    half = min(50.0, abs(score) / largest * 50)
    start = 50.0 if score >= 0 else 50.0 - half
    return html(
        '<svg class="bar" aria-hidden="true"><rect class="{}" x="{:.1f}%" width="{:.1f}%" height="10"/>'
        '<line x1="50%" x2="50%" y1="0" y2="10"/></svg>',
        "minus" if score < 0 else "plus", start, half,
    )  # fmt: skip


def _left_out(flow: Flow) -> Markup:
    if not flow.cut:
        return Markup()
    row = '<tr><td><bdi>{}</bdi></td><td class="n">{}</td><td>{}</td><td class="dim"><bdi>{}</bdi></td></tr>'
    rows = []
    for path in flow.cut[:MAX_CUT]:
        last_rank = next((place.rank for place in reversed(list(path.places.values()))), "–")
        rows.append(html(row, hit_title(path.hit), last_rank, path.cut, clip(hit_body(path.hit), 90)))
    more = len(flow.cut) - MAX_CUT
    reasons = Counter(path.cut or "cut" for path in flow.cut)
    return html(
        asset("left_out.html"),
        count=len(flow.cut),
        reasons=" · ".join(f"{why}: {count}" for why, count in reasons.items()),
        rows=join_markup(rows),
        more=html('<p class="dim">… and {} more.</p>', more) if more > 0 else "",
    )


def notebook_table(flow: Flow) -> str:
    """Return the hits as a table for a notebook: rank, score, title and the best part of the text."""
    row = (
        '<tr><td>{}</td><td>{}</td><td style="text-align:left"><b><bdi>{}</bdi></b><br><bdi>{}</bdi></td>'
        '<td style="text-align:left">{} {}</td></tr>'
    )
    rows = []
    for path in flow.kept:
        move = find_move(path, flow)
        text = _snippet(hit_body(path.hit), flow.query)
        score = format_score(path.hit.score)
        rows.append(html(row, path.final, score, hit_title(path.hit), text, move.sign, move.reason))
    warning = html("<p><b>Degraded:</b> {}</p>", flow.reason) if flow.degraded else Markup()
    table = html(asset("notebook.html"), rows=join_markup(rows)) if rows else html("<p>No hits.</p>")
    return str(warning + table)
