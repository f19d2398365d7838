"""The self-contained page: picture, score parts per hit, what was left out and why. All text is escaped."""

# ruff: noqa: E501 - markup reads better on one line

from __future__ import annotations

from collections.abc import Mapping

from resift.explain.escaping import clip, escape
from resift.explain.flow import Column, Flow, Path, Place
from resift.explain.layout import Layout, Line, layout_of
from resift.explain.reasons import format_score
from resift.explain.style import SCRIPT, STYLE
from resift.explain.svg_picture import NARROW, WIDE, picture

MOST_CUT = 200
"""Rows of the table of hits that were left out."""

# Nothing may be loaded or sent, whatever a title tries.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(flow: Flow, *, top: int = 10) -> str:
    """Return the page as one string of HTML."""
    layout = layout_of(flow, top=top)
    title = flow.query or "How this ranking came about"
    body = [
        f"<h1><bdi>{escape(title)}</bdi></h1>",
        f'<p class="dim">{escape(_summary(flow))}</p>',
        _warning(flow),
        _picture(flow, layout),
        _times(flow.timings),
        f"<h2>{'Hits' if flow.kept else 'Nothing was found'}</h2>",
        *_hits(flow, layout),
        _left_out(flow),
        '<footer class="dim small">Made by Resift from the ranking’s own trace. This page loads nothing.</footer>',
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
        + "\n".join(part for part in body if part)
        + f"\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _summary(flow: Flow) -> str:
    lists = sum(column.first_stage for column in flow.columns)
    pool = len(flow.kept) + len(flow.cut)
    parts = [f"{len(flow.kept)} of {pool} candidates"]
    if lists:
        parts.append(f"{lists} list" + ("s" if lists > 1 else ""))
    if "total" in flow.timings:
        parts.append(f"{flow.timings['total']:.0f} ms")
    return " · ".join(parts)


def _warning(flow: Flow) -> str:
    lines = [flow.reason] if flow.degraded and flow.reason else ["Degraded."] if flow.degraded else []
    lines += [f"{store}: {why}" for store, why in flow.failures.items()]
    return f'<div class="card warn" role="note">{escape("; ".join(lines))}</div>' if lines else ""


def _picture(flow: Flow, layout: Layout) -> str:
    if not layout.lines:
        return ""
    drawn = "".join(
        picture(flow, layout, frame=frame, kind=kind, links=True)
        for frame, kind in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    legend = (
        '<div class="legend"><span class="rose"><b>▲</b> rose</span><span class="fell"><b>▼</b> fell</span>'
        '<span class="stayed"><b>=</b> stayed</span><span class="cut"><b>✕</b> left out</span>'
        "<span>circles hold the rank in that list; dashes: that list did not have it</span></div>"
    )
    return f'<div class="card picture">{drawn}{legend}</div>'


def _times(timings: Mapping[str, float]) -> str:
    stages = {name: ms for name, ms in timings.items() if name != "total" and ms > 0}
    if not stages:
        return ""
    bars = "".join(f'<i style="flex:{ms:.3f}" title="{escape(name)}"></i>' for name, ms in stages.items())
    text = " · ".join(f"{escape(name)} {ms:.1f} ms" for name, ms in stages.items())
    return f'<div class="times" aria-hidden="true">{bars}</div><p class="dim small">{text}</p>'


def _hits(flow: Flow, layout: Layout) -> list[str]:
    scale = _scales(flow)
    shown = [_details(line, flow.columns, scale) for line in layout.lines]
    more = len(flow.kept) - sum(line.path.final is not None for line in layout.lines)
    if more > 0:
        shown.append(f'<p class="dim">… and {more} more hits.</p>')
    return shown


def _details(line: Line, columns: tuple[Column, ...], scale: Mapping[str, float]) -> str:
    path = line.path
    place = str(path.final) if path.final else "–"
    rows = [
        row
        for column in columns
        if column.key in path.places
        for row in _rows(column, path.places[column.key], scale)
    ]
    return (
        f'<details class="card hit" id="hit-{line.number}" data-hit="{line.number}"><summary>'
        f'<span class="place">{place}</span><span class="chip {line.move.kind}">{escape(line.move.sign)}</span>'
        f'<span class="what"><bdi class="id">{escape(path.id)}</bdi>'
        f'<span class="dim">{escape(line.move.reason)}</span></span></summary><div>'
        f"<p><bdi>{escape(path.hit.text) or '<i>no text</i>'}</bdi></p>"
        f'<div class="scroll"><table><thead><tr><th>stage</th><th class="n">rank</th><th class="n">score</th><th></th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="dim small"><bdi>{escape(path.why or line.move.reason)}</bdi></p></div></details>'
    )


def _rows(column: Column, place: Place, scale: Mapping[str, float]) -> list[str]:
    named = (
        column.by if column.first_stage else " · ".join(part for part in (column.label, column.by) if part)
    )
    notes = f'<span class="dim small"> {escape(place.note)}</span>' if place.note else ""
    cells = [
        f"<td>{escape(named or column.label)}{notes}</td>",
        f'<td class="n">{place.rank}</td>',
        f'<td class="n">{escape(format_score(place.score))}</td>',
        f"<td>{_bar(place.score, scale.get(column.key, 0.0))}</td>",
    ]
    rows = [f"<tr>{''.join(cells)}</tr>"]
    if len(place.parts) > 1:
        rows += [_part(*part, scale.get(column.key, 0.0)) for part in place.parts]
    return rows


def _part(name: str, value: float, most: float) -> str:
    return (
        f'<tr class="part"><td>&nbsp;&nbsp;+ {escape(name)}</td><td></td>'
        f'<td class="n">{escape(format_score(value))}</td><td>{_bar(value, most)}</td></tr>'
    )


def _bar(score: float | None, most: float) -> str:
    if score is None or most <= 0:
        return ""
    half = min(50.0, abs(score) / most * 50)
    start = 50.0 if score >= 0 else 50.0 - half
    kind = ' class="minus"' if score < 0 else ""
    return f'<span class="bar" aria-hidden="true"><i{kind} style="left:{start:.1f}%;width:{half:.1f}%"></i><u></u></span>'


def _scales(flow: Flow) -> dict[str, float]:
    """Return the largest size of a score per column, so that bars of one stage can be compared."""
    most: dict[str, float] = {}
    for path in (*flow.kept, *flow.cut):
        for key, place in path.places.items():
            sizes = [abs(score) for score in (place.score, *(value for _, value in place.parts)) if score]
            most[key] = max([most.get(key, 0.0), *sizes])
    return most


def _left_out(flow: Flow) -> str:
    if not flow.cut:
        return ""
    rows = "".join(_cut_row(path) for path in flow.cut[:MOST_CUT])
    more = len(flow.cut) - MOST_CUT
    text = f'<p class="dim">… and {more} more.</p>' if more > 0 else ""
    reasons: dict[str, int] = {}
    for path in flow.cut:
        reasons[path.cut or "cut"] = reasons.get(path.cut or "cut", 0) + 1
    counted = " · ".join(f"{escape(why)}: {count}" for why, count in reasons.items())
    return (
        f'<h2>Left out ({len(flow.cut)})</h2><p class="dim small">{counted}</p>'
        '<div class="card scroll"><table><thead><tr><th>hit</th><th class="n">last rank</th><th>why</th><th>text</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{text}"
    )


def _cut_row(path: Path) -> str:
    last = path.last_rank or "–"
    short = clip(path.hit.text, 90)
    return (
        f'<tr><td><bdi>{escape(path.id)}</bdi></td><td class="n">{last}</td><td>{escape(path.cut)}</td>'
        f'<td class="dim"><bdi>{escape(short)}</bdi></td></tr>'
    )
