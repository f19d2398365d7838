"""The self-contained page: picture, score parts per hit, what was left out and why. All text is escaped."""

# ruff: noqa: E501 - markup reads better on one line

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from resift._internal.markup import document, html, joined
from resift.explain.escaping import clip
from resift.explain.flow import Column, Flow, Path, Place
from resift.explain.layout import Layout, Line, layout_of
from resift.explain.reasons import format_score
from resift.explain.style import SCRIPT, STYLE
from resift.explain.svg_picture import NARROW, WIDE, picture
from resift.text.snippets import snippet

MOST_CUT = 200
"""Rows of the table of hits that were left out."""

SNIPPET = 180
"""Characters of text on a closed card."""


def page(flow: Flow, *, top: int = 10) -> str:
    """Return the page as one string of HTML."""
    layout = layout_of(flow, top=top)
    title = flow.query or "How this ranking came about"
    body = [
        html("<h1><bdi>{}</bdi></h1>", title),
        html('<p class="dim">{}</p>', _summary(flow)),
        _warning(flow),
        _picture(flow, layout),
        _times(flow.timings),
        html("<h2>{}</h2>", "Hits" if flow.kept else "Nothing was found"),
        *_hits(flow, layout),
        _left_out(flow),
        html(
            '<footer class="dim small">Made by Resift from the ranking’s own trace. This page loads nothing.</footer>'
        ),
    ]
    return document(title, joined((part for part in body if part), "\n"), style=STYLE, script=SCRIPT)


def _summary(flow: Flow) -> str:
    lists = sum(column.first_stage for column in flow.columns)
    pool = len(flow.kept) + len(flow.cut)
    parts = [f"{len(flow.kept)} of {pool} candidates"]
    if lists:
        parts.append(f"{lists} list" + ("s" if lists > 1 else ""))
    if "total" in flow.timings:
        parts.append(f"{flow.timings['total']:.0f} ms")
    return " · ".join(parts)


def _warning(flow: Flow) -> Markup:
    lines = [flow.reason] if flow.degraded and flow.reason else ["Degraded."] if flow.degraded else []
    lines += [f"{store}: {why}" for store, why in flow.failures.items()]
    return html('<div class="card warn" role="note">{}</div>', "; ".join(lines)) if lines else Markup()


def _picture(flow: Flow, layout: Layout) -> Markup:
    if not layout.lines:
        return Markup()
    drawn = joined(
        picture(flow, layout, frame=frame, kind=kind, links=True)
        for frame, kind in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    legend = html(
        '<div class="legend"><span class="rose"><b>▲</b> rose</span><span class="fell"><b>▼</b> fell</span>'
        '<span class="stayed"><b>=</b> stayed</span><span class="cut"><b>✕</b> left out</span>'
        "<span>circles hold ranks; where no line comes from a list, it did not have the hit</span></div>"
    )
    return html('<div class="card picture">{}{}</div>', drawn, legend)


def _times(timings: Mapping[str, float]) -> Markup:
    stages = {name: ms for name, ms in timings.items() if name != "total" and ms > 0}
    if not stages:
        return Markup()
    # Drawn and not styled: the policy of the page forbids styles in attributes.
    most, left, bars = sum(stages.values()), 0.0, []
    for name, ms in stages.items():
        share = 100 * ms / most
        bars.append(
            html('<rect x="{:.3f}%" width="{:.3f}%" height="8"><title>{}</title></rect>', left, share, name)
        )
        left += share
    text = joined((html("{} {:.1f} ms", name, ms) for name, ms in stages.items()), " · ")
    return html(
        '<svg class="times" aria-hidden="true">{}</svg><p class="dim small">{}</p>', joined(bars), text
    )


def _hits(flow: Flow, layout: Layout) -> list[Markup]:
    scale = _scales(flow)
    legend = "Bars are shares of the largest score that the stage gave on this page: to the left below zero."
    shown = [html('<p class="dim small">{}</p>', legend)] if layout.lines else []
    shown += [_details(line, flow, scale) for line in layout.lines]
    more = len(flow.kept) - sum(line.path.final is not None for line in layout.lines)
    if more > 0:
        shown.append(html('<p class="dim">… and {} more hits.</p>', more))
    return shown


def _details(line: Line, flow: Flow, scale: Mapping[str, float]) -> Markup:
    path, query, columns = line.path, flow.query, flow.columns
    place = str(path.final) if path.final else "–"
    rows = [
        row
        for column in columns
        if column.key in path.places
        for row in _rows(column, path.places[column.key], scale)
    ]
    text = path.hit.text or html("<i>no text</i>")
    return html(
        '<details class="card hit" id="hit-{number}" data-hit="{number}"><summary>'
        '<span class="place">{place}</span><span class="chip {kind}">{sign}</span>'
        '<span class="what"><bdi class="id">{id}</bdi><span class="text"><bdi>{snippet}</bdi></span>'
        '<span class="dim small">{reason}</span></span></summary><div>'
        "<p><bdi>{text}</bdi></p>"
        '<div class="scroll"><table><thead><tr><th>stage</th><th class="n">rank</th><th class="n">score</th><th></th>'
        "</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="dim small"><bdi>{why}</bdi></p></div></details>',
        number=line.number,
        place=place,
        kind=line.move.kind,
        sign=line.move.sign,
        id=path.id,
        snippet=_snippet(path.hit.text, query),
        reason=line.move.reason,
        text=text,
        rows=joined(rows),
        why=path.why or line.move.reason,
    )


def _snippet(text: str, query: str) -> Markup:
    """Return the part of a text that closed cards show, the words asked for marked."""
    found = snippet(text, query, length=SNIPPET)
    parts, at = [], 0
    for start, end in found.matches:
        parts += [found.text[at:start], html("<mark>{}</mark>", found.text[start:end])]
        at = end
    return joined([*parts, found.text[at:]])


def _rows(column: Column, place: Place, scale: Mapping[str, float]) -> list[Markup]:
    named = (
        column.by if column.first_stage else " · ".join(part for part in (column.label, column.by) if part)
    )
    notes = html('<span class="dim small"> {}</span>', place.note) if place.note else ""
    cells = [
        html("<td>{}{}</td>", named or column.label, notes),
        html('<td class="n">{}</td>', place.rank),
        html('<td class="n">{}</td>', format_score(place.score)),
        html("<td>{}</td>", _bar(place.score, scale.get(column.key, 0.0))),
    ]
    rows = [html("<tr>{}</tr>", joined(cells))]
    if len(place.parts) > 1:
        rows += [_part(*part, scale.get(column.key, 0.0)) for part in place.parts]
    return rows


def _part(name: str, value: float, most: float) -> Markup:
    return html(
        '<tr class="part"><td>&nbsp;&nbsp;+ {}</td><td></td><td class="n">{}</td><td>{}</td></tr>',
        name,
        format_score(value),
        _bar(value, most),
    )


def _bar(score: float | None, most: float) -> Markup:
    if score is None or most <= 0:
        return Markup()
    half = min(50.0, abs(score) / most * 50)
    start = 50.0 if score >= 0 else 50.0 - half
    kind = "minus" if score < 0 else "plus"
    return html(
        '<svg class="bar" aria-hidden="true"><rect class="{}" x="{:.1f}%" width="{:.1f}%" height="10"/>'
        '<line x1="50%" x2="50%" y1="0" y2="10"/></svg>',
        kind,
        start,
        half,
    )


def _scales(flow: Flow) -> dict[str, float]:
    """Return the largest size of a score per column, so that bars of one stage can be compared."""
    most: dict[str, float] = {}
    for path in (*flow.kept, *flow.cut):
        for key, place in path.places.items():
            sizes = [abs(score) for score in (place.score, *(value for _, value in place.parts)) if score]
            most[key] = max([most.get(key, 0.0), *sizes])
    return most


def _left_out(flow: Flow) -> Markup:
    if not flow.cut:
        return Markup()
    rows = joined(_cut_row(path) for path in flow.cut[:MOST_CUT])
    more = len(flow.cut) - MOST_CUT
    text = html('<p class="dim">… and {} more.</p>', more) if more > 0 else ""
    reasons: dict[str, int] = {}
    for path in flow.cut:
        reasons[path.cut or "cut"] = reasons.get(path.cut or "cut", 0) + 1
    counted = joined((html("{}: {}", why, count) for why, count in reasons.items()), " · ")
    return html(
        '<h2>Left out ({})</h2><p class="dim small">{}</p>'
        '<div class="card scroll"><table><thead><tr><th>hit</th><th class="n">last rank</th><th>why</th><th>text</th></tr></thead>'
        "<tbody>{}</tbody></table></div>{}",
        len(flow.cut),
        counted,
        rows,
        text,
    )


def _cut_row(path: Path) -> Markup:
    return html(
        '<tr><td><bdi>{}</bdi></td><td class="n">{}</td><td>{}</td><td class="dim"><bdi>{}</bdi></td></tr>',
        path.id,
        path.last_rank or "–",
        path.cut,
        clip(path.hit.text, 90),
    )
