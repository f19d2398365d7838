"""A self-contained HTML page: the picture, the score parts of each hit, and the hits left out with reasons.

All text is escaped.
"""

# ruff: noqa: E501 - markup reads better on one line

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
)
from resift.explain.reasons import format_score
from resift.explain.svg import FLOW_STYLE, NARROW, PAGE_COLORS, WIDE, html, html_page, join_markup, picture
from resift.text.snippets import clip, snippet

MAX_CUT = 200
"""Maximum number of rows in the table of hits that were left out."""

SNIPPET_CHARS = 180
"""Characters of text on a closed card."""

STYLE = (
    PAGE_COLORS
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1160px; padding: 28px 20px 56px; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 1.12rem; margin: 34px 0 10px; } p { margin: 4px 0 10px; } bdi { overflow-wrap: anywhere; }
.dim { color: var(--dim); } .small { font-size: .87rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 14px 16px; box-shadow: 0 1px 3px var(--shade); }
.picture { margin-top: 16px; overflow-x: auto; } svg.flow.wide { max-width: 100%; height: auto; } svg.flow.narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 10px 2px 0; color: var(--dim); font-size: .87rem; }
.legend b { font-weight: 700; } .rose b, .chip.rose { color: var(--rose); } .fell b, .chip.fell { color: var(--fell); }
.stayed b, .chip.stayed { color: var(--stayed); } .cut b, .chip.cut { color: var(--cut); }
.warn { border-left: 4px solid var(--wrong); margin: 14px 0; }
.times { display: block; width: 100%; margin-top: 12px; height: 8px; border-radius: 5px; overflow: hidden; }
.times rect { fill: var(--stayed); stroke: var(--bg); stroke-width: 1; } .times rect:nth-child(2n) { fill: var(--rose); }
.times rect:nth-child(3n) { fill: var(--cut); }
details.hit { padding: 0; margin: 0 0 8px; scroll-margin-top: 12px; } details.hit > div { padding: 4px 16px 14px 58px; }
details.hit.on, details.hit:target { border-color: var(--stayed); }
summary { display: flex; align-items: baseline; gap: 12px; padding: 10px 16px; cursor: pointer; border-radius: 14px; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary:focus-visible { outline: 3px solid var(--stayed); outline-offset: -2px; }
summary .place { font-weight: 700; font-variant-numeric: tabular-nums; min-width: 30px; text-align: right; font-size: 1.05rem; }
summary .chip { font-weight: 700; min-width: 40px; font-variant-numeric: tabular-nums; } summary .what { flex: 1; min-width: 0; }
summary .id { font-weight: 650; } summary .what > span { display: block; } summary .text { font-size: .93rem; } details[open] .text { display: none; }
mark { background: none; color: inherit; font-weight: 650; }
summary::after { content: "+"; color: var(--dim); font-weight: 700; } details[open] > summary::after { content: "–"; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th { color: var(--dim); font-weight: 600; font-size: .82rem; } th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; } tr.part td { color: var(--dim); border-bottom-style: dotted; }
.bar { display: inline-block; width: 120px; height: 10px; vertical-align: middle; background: var(--line); border-radius: 5px; overflow: hidden; }
.bar rect { fill: var(--rose); } .bar rect.minus { fill: var(--fell); } .bar line { stroke: var(--dim); }
footer { margin-top: 36px; }
@media (max-width: 760px) { body { padding: 18px 12px 40px; } .picture { padding: 12px 3px; } svg.flow.wide { display: none; }
  svg.flow.narrow { display: block; width: 100%; height: auto; } details.hit > div { padding: 2px 12px 12px; } summary { padding: 10px 12px; gap: 9px; }
  summary .place { min-width: 20px; } summary .chip { min-width: 34px; } .bar { width: 56px; } th, td { padding-right: 8px; } }
@media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
"""
    + FLOW_STYLE
)

SCRIPT = """
(function () {
  var parts = document.querySelectorAll("[data-hit]");
  function light(number) {
    parts.forEach(function (part) { part.classList.toggle("on", number !== null && part.dataset.hit === number); });
  }
  parts.forEach(function (part) {
    part.addEventListener("mouseenter", function () { light(part.dataset.hit); });
    part.addEventListener("mouseleave", function () { light(null); });
    part.addEventListener("focusin", function () { light(part.dataset.hit); });
    part.addEventListener("focusout", function () { light(null); });
  });
  function open() {
    var hit = document.getElementById(location.hash.slice(1));
    if (hit && hit.tagName === "DETAILS") { hit.open = true; hit.querySelector("summary").focus(); }
  }
  window.addEventListener("hashchange", open);
  open();
})();
"""


def page(flow: Flow, *, top: int = 10) -> str:
    """Return the page as one string of HTML."""
    layout = make_layout(flow, top=top)
    title = flow.query or "Rank flow"
    body = [
        html("<h1><bdi>{}</bdi></h1>", title),
        html('<p class="dim">{}</p>', _summary(flow)),
        _warning(flow),
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


def _summary(flow: Flow) -> str:
    lists = sum(column.first_stage for column in flow.columns)
    parts = [f"{len(flow.kept)} of {len(flow.kept) + len(flow.cut)} candidates"]
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
    drawn = join_markup(
        picture(flow, layout, frame=frame, kind=kind, links=True)
        for frame, kind in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    legend = html(
        '<div class="legend"><span class="rose"><b>▲</b> rose</span><span class="fell"><b>▼</b> fell</span>'
        '<span class="stayed"><b>=</b> stayed</span><span class="cut"><b>✕</b> left out</span>'
        "<span>circles show ranks; a list without a line to the hit does not have it</span></div>"
    )
    return html('<div class="card picture">{}{}</div>', drawn, legend)


def _times(timings: Mapping[str, float]) -> Markup:
    stages = {name: ms for name, ms in timings.items() if name != "total" and ms > 0}
    if not stages:
        return Markup()
    # Drawn as SVG: the page's security policy forbids style attributes.
    total, left, bars = sum(stages.values()), 0.0, []
    for name, ms in stages.items():
        share = 100 * ms / total
        bars.append(
            html('<rect x="{:.3f}%" width="{:.3f}%" height="8"><title>{}</title></rect>', left, share, name)
        )
        left += share
    text = join_markup((html("{} {:.1f} ms", name, ms) for name, ms in stages.items()), " · ")
    return html(
        '<svg class="times" aria-hidden="true">{}</svg><p class="dim small">{}</p>', join_markup(bars), text
    )


def _hits(flow: Flow, layout: Layout) -> list[Markup]:
    scale = _scales(flow)
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
        '<details class="card hit" id="hit-{number}" data-hit="{number}"><summary>'
        '<span class="place">{place}</span><span class="chip {kind}">{sign}</span>'
        '<span class="what"><bdi class="id">{title}</bdi>{location}<span class="text"><bdi>{snippet}</bdi></span>'
        '<span class="dim small">{reason}</span></span></summary><div>'
        '<p><bdi>{text}</bdi></p><p class="dim small"><bdi>{why}</bdi></p>'
        '<div class="scroll"><table><thead><tr><th>stage</th><th class="n">rank</th><th class="n">score</th><th></th>'
        "</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="dim small"><bdi>id {id}</bdi></p></div></details>',
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
    best = snippet(text, query, length=SNIPPET_CHARS)
    parts, done = [], 0
    for start, end in best.matches:
        parts += [best.text[done:start], html("<mark>{}</mark>", best.text[start:end])]
        done = end
    return join_markup([*parts, best.text[done:]])


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


def _scales(flow: Flow) -> dict[str, float]:
    """Return column key -> largest absolute score, the full length of a bar."""
    largest: dict[str, float] = {}
    for path in (*flow.kept, *flow.cut):
        for key, place in path.places.items():
            sizes = [abs(score) for score in (place.score, *(value for _, value in place.parts)) if score]
            largest[key] = max([largest.get(key, 0.0), *sizes])
    return largest


def _left_out(flow: Flow) -> Markup:
    if not flow.cut:
        return Markup()
    row = '<tr><td><bdi>{}</bdi></td><td class="n">{}</td><td>{}</td><td class="dim"><bdi>{}</bdi></td></tr>'
    rows = join_markup(
        html(row, hit_title(path.hit), path.last_rank or "–", path.cut, clip(hit_body(path.hit), 90))
        for path in flow.cut[:MAX_CUT]
    )
    more = len(flow.cut) - MAX_CUT
    reasons = Counter(path.cut or "cut" for path in flow.cut)
    return html(
        '<h2>Left out ({})</h2><p class="dim small">{}</p>'
        '<div class="card scroll"><table><thead><tr><th>hit</th><th class="n">last rank</th><th>why</th><th>text</th></tr></thead>'
        "<tbody>{}</tbody></table></div>{}",
        len(flow.cut),
        join_markup((html("{}: {}", why, count) for why, count in reasons.items()), " · "),
        rows,
        html('<p class="dim">… and {} more.</p>', more) if more > 0 else "",
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
    table = html(
        '{}<table style="max-width:100%"><thead><tr><th>rank</th><th>score</th><th style="text-align:left">hit</th>'
        '<th style="text-align:left">why</th></tr></thead><tbody>{}</tbody></table>',
        warning,
        join_markup(rows),
    )
    return str(table if rows else html("{}<p>No hits.</p>", warning))
