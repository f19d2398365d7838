"""Evaluation reports: a self-contained HTML page with tables, charts and examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources

from markupsafe import Markup

from resift import __version__
from resift.evaluation.measures import bootstrap_interval, format_p
from resift.evaluation.runner import Answer, Outcome, differences, moved_queries
from resift.explain import svg
from resift.explain.flow import Flow, FlowColumn, FlowPosition, HitPath, make_layout
from resift.explain.svg import html, join_markup, svg_circle, svg_element, svg_line, svg_rect, svg_text
from resift.types import Hit, StageKind

FLOW_HITS = 10  # number of top documents in a rank flow. Relevant documents that rank lower are added.

FLOW_SIZE = svg.PictureSize(width=440, label=150, row=24, radius=10, top=46, left=18, name_chars=16)


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


def quality_against_latency(outcomes: Sequence[Outcome], *, measure: str, area: ChartArea, css: str) -> Markup:
    """Draw a dot per system, with latency on a logarithmic axis and the 95 % interval as an error bar."""
    points = []
    for outcome in outcomes:
        values = list(outcome.quality.per_query[measure].values())
        ms = outcome.latency["p50"]
        points.append((outcome.name, ms, outcome.quality.mean(measure), bootstrap_interval(values)))
    logs = [math.log10(max(ms, 1e-3)) for _, ms, _, _ in points]
    x_low, x_high = min(logs) - 0.15, max(logs) + 0.15
    # Widen the axis, so that there is at least one labeled grid line on either side of the dots.
    wide = x_high - x_low > 0.5
    x_low = math.floor(x_low * 3) / 3 if wide else x_low - 0.3
    x_high = math.ceil(x_high * 3) / 3 if wide else x_high + 0.3
    heights = [value for _, _, quality, interval in points for value in (quality, *interval)]
    padding = max((max(heights) - min(heights)) * 0.15, 0.01)
    y_low, y_high = max(0.0, min(heights) - padding), max(heights) + padding
    y_high = min(1.0, y_high) if max(heights) < 1 else y_high

    def x_position(log: float) -> float:
        return area.left + (log - x_low) / (x_high - x_low) * area.inner_width

    body = _value_axis(area, y_low, y_high)
    bottom = area.top + area.inner_height
    for decade in range(math.floor(x_low), math.floor(x_high) + 1):
        for factor in (1, 2, 5):
            if x_low <= (log := decade + math.log10(factor)) <= x_high:
                x, label = x_position(log), f"{10**decade * factor:g}"
                body.append(svg_line(x, area.top, x, bottom, css="grid"))
                body.append(svg_text(x, bottom + 17, label, css="tick", anchor="middle"))
    caption = f"p50 latency in ms (horizontal), {measure} with its 95 % interval (vertical)"
    body.append(svg_text(area.left + area.inner_width / 2, area.height - 8, caption, css="tick", anchor="middle"))
    label_lines: list[float] = []
    for log, (name, ms, quality, interval) in sorted(zip(logs, points, strict=True), key=lambda row: -row[1][2]):
        x, y = x_position(log), area.y(quality, y_low, y_high)
        is_right = x > area.left + area.inner_width * 0.6
        # A label that would cover an earlier one moves down a line.
        line = max([y + 4, *(other + 15 for other in label_lines if abs(other - (y + 4)) < 15)])
        label_lines.append(line)
        low, high = (area.y(end, y_low, y_high) for end in interval)
        body.append(svg_line(x, low, x, high, css="error"))
        body += [svg_line(x - 5, end, x + 5, end, css="error") for end in (low, high)]
        title = f"{name}: {measure} {quality:.4f} ({interval[0]:.4f} to {interval[1]:.4f}), p50 {ms:.1f} ms"
        body.append(svg_circle(x, y, 6, css="dot", title=title))
        label_x = x - 11 if is_right else x + 11
        body.append(svg_text(label_x, line, name, css="name", anchor="end" if is_right else "start"))
    return svg_element(area.width, area.height, body, css=css, label=f"{measure} against latency")


def difference_bars(differences: Sequence[tuple[str, float]], *, measure: str, area: ChartArea, css: str) -> Markup:
    """Draw a bar per query, largest gain first. Bars below the line are losses."""
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
    label = f"{len(ordered)} queries, sorted by difference in {measure}"
    body.append(svg_text(area.left + area.inner_width / 2, area.height - 14, label, css="tick", anchor="middle"))
    return svg_element(area.width, area.height, body, css=css, label=label)


def _value_axis(area: ChartArea, low: float, high: float) -> list[Markup]:
    body: list[Markup] = []
    for value in _ticks(low, high):
        y = area.y(value, low, high)
        body.append(svg_line(area.left, y, area.width - area.right, y, css="grid"))
        body.append(svg_text(area.left - 7, y + 4, f"{value:g}", css="tick", anchor="end"))
    return body


def _ticks(low: float, high: float, *, outside: bool = False) -> list[float]:
    """Return about five round numbers between low and high. With `outside`, they enclose both."""
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if (high - low) / (factor * size) <= 6)
    first, last = (
        (math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9))
        if outside
        else (math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9))
    )
    return [round(i * step, 10) for i in range(first, last + 1)]


def rank_flow(answer: Answer, grades: Mapping[str, int]) -> Markup:
    """Draw a line per document from its first list to its final rank, with relevant documents highlighted."""
    longest_first = sorted(answer.paths.values(), key=len, reverse=True)
    steps = {(step.kind, step.where): None for path in longest_first for step in path}
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
        positions = {f"{step.kind}:{step.where}": FlowPosition(step.rank, None) for step in path}
        if id in final_ranks:
            positions["final"] = FlowPosition(final_ranks[id], None)
        hit = Hit(id, metadata={"title": answer.titles.get(id, "")})
        paths.append(HitPath(hit, positions, final_ranks.get(id), ""))
    ranked_paths = sorted((path for path in paths if path.final), key=lambda path: path.final or 0)
    flow = Flow(tuple(columns), tuple(ranked_paths), tuple(path for path in paths if not path.final))
    relevant = {id for id, grade in grades.items() if grade > 0}
    return svg.picture(flow, make_layout(flow, top=FLOW_HITS), frame=FLOW_SIZE, kind="report", marked=relevant)


Qrels = Mapping[str, Mapping[str, int]]

EXAMPLES = 4  # number of queries whose rank flow is drawn


def report(
    title: str,
    outcomes: Sequence[Outcome],
    qrels: Qrels,
    queries: Mapping[str, str],
    *,
    facts: Mapping[str, str] | None = None,
) -> str:
    """Return the HTML page, which contains queries; `facts` describes the run: date, command, models, versions."""
    measures = list(outcomes[0].quality.per_query)
    rows = join_markup(html("<dt>{}</dt><dd>{}</dd>", *fact) for fact in (facts or {}).items())
    parts = [
        html("<h1>{}</h1>", title),
        html('<p class="dim">{} judged queries · Resift {}</p>', len(qrels), __version__),
        html('<dl class="facts">{}</dl>', rows) if facts else Markup(),
        html("<h2>Quality and latency</h2>"),
        _summary(outcomes, measures),
    ]
    if timed := [outcome for outcome in outcomes if outcome.latency]:
        chart = partial(quality_against_latency, timed, measure=measures[0])
        parts += [html("<h2>Quality against latency</h2>"), _draw_both_widths(chart, 380)]
    if len(outcomes) > 1:
        parts += [html("<h2>Differences</h2>"), *_comparisons(outcomes, measures, qrels, queries)]
    parts += _flows(outcomes, measures[0], qrels, queries)
    folder = resources.files("resift.evaluation")
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    body = join_markup((part for part in parts if part), "\n")
    return svg.html_page(title, body, style=svg.FLOW_STYLE + style, script=script)


def _summary(outcomes: Sequence[Outcome], measures: Sequence[str]) -> Markup:
    timed = any(outcome.latency for outcome in outcomes)
    means = [outcome.quality.means() for outcome in outcomes]
    best = {measure: max(mean[measure] for mean in means) for measure in measures}
    heads = ["", *measures, "queries", *(["p50 ms", "p95 ms", "p99 ms"] if timed else [])]
    rows = []
    for outcome, mean in zip(outcomes, means, strict=True):
        cells = [html("<td>{}</td>", outcome.name)]
        for measure in measures:
            kind = html(' class="best"') if mean[measure] == best[measure] and len(outcomes) > 1 else ""
            cells.append(html("<td{}>{:.4f}</td>", kind, mean[measure]))
        cells.append(html("<td>{}</td>", len(outcome.quality.per_query[measures[0]])))
        if timed:
            cells += [html("<td>{:.1f}</td>", outcome.latency.get(name, 0)) for name in ("p50", "p95", "p99")]
        rows.append(html("<tr>{}</tr>", join_markup(cells)))
    return _table(heads, rows)


def _comparisons(
    outcomes: Sequence[Outcome], measures: Sequence[str], qrels: Qrels, queries: Mapping[str, str]
) -> list[Markup]:
    base, others = outcomes[0], outcomes[1:]
    heads = ["", "measure", "difference", "95 % interval", "p (Holm)", "won / tied / lost"]
    significance = [
        html(
            "<tr><td>{0.other}</td><td>{0.measure}</td><td>{0.mean:+.4f}</td>"
            "<td>{0.low:+.4f} to {0.high:+.4f}</td><td>{1}</td>"
            "<td>{0.wins} / {0.ties} / {0.losses}</td></tr>",
            row,
            format_p(row.p_holm),
        )
        for row in differences(outcomes, measures)
    ]
    parts = [
        html('<p class="dim">Compared with {}: randomization test (Holm), 95 % bootstrap interval.</p>', base.name),
        _table(heads, significance),
        _select("difference", [other.name for other in others]),
    ]
    before = base.quality.per_query[measures[0]]
    for other in others:
        after = other.quality.per_query[measures[0]]
        changes = [(query, after[query] - before[query]) for query in before if query in after]
        heading = html("<h3>{} → {}, {} per query</h3>", base.name, other.name, measures[0])
        chart = _draw_both_widths(partial(difference_bars, changes, measure=measures[0]), 260)
        listed = _list_changes(base, other, measures[0], qrels, queries)
        section = '<section data-part="difference" data-name="{}">{}{}{}</section>'
        parts.append(html(section, other.name, heading, chart, listed))
    return parts


def _list_changes(base: Outcome, other: Outcome, measure: str, qrels: Qrels, queries: Mapping[str, str]) -> Markup:
    parts = []
    for query in moved_queries(base, other, measure, qrels, limit=8):
        rows = []
        for moved in query.documents:
            ranks = f"{moved.before or 'absent'} → {moved.after or 'absent'}"
            reason = f". {moved.why}" if moved.why else ""
            rows.append(html("<li>{} (grade {}): {}{}</li>", moved.title or moved.id, moved.grade, ranks, reason))
        text = queries.get(query.query, "")
        summary = html("{:.4f} → {:.4f} · query {} {}", query.before, query.after, query.query, text)
        parts.append(html("<details><summary>{}</summary><ul>{}</ul></details>", summary, join_markup(rows)))
    return join_markup(parts) if parts else html("<p>No query changed.</p>")


def _flows(outcomes: Sequence[Outcome], measure: str, qrels: Qrels, queries: Mapping[str, str]) -> list[Markup]:
    explained = [outcome for outcome in outcomes if any(answer.paths for answer in outcome.answers.values())]
    if not explained:
        return []
    # Show the queries that changed most between the first and the last outcome, or else the hardest ones.
    changed = moved_queries(outcomes[0], outcomes[-1], measure, qrels, limit=EXAMPLES)
    values = outcomes[0].quality.per_query[measure]
    hardest = sorted(values, key=lambda query: (values[query], query))[:EXAMPLES]
    examples = [query.query for query in changed] or hardest
    parts = [
        html("<h2>How ranks change</h2>"),
        html(
            '<p class="dim">One line per document, from the result lists of the stores to its final rank. '
            '<span class="key"></span> relevant</p>'
        ),
        _select("example", examples),
    ]
    for query in examples:
        flows = []
        for outcome in explained:
            value = html('<span class="dim">{} {:.4f}</span>', measure, outcome.quality.per_query[measure][query])
            flow = rank_flow(outcome.answers[query], qrels[query])
            flows.append(html('<div><p>{} {}</p><div class="scroll">{}</div></div>', outcome.name, value, flow))
        heading = html("<h3>Query {}: {}</h3>", query, queries.get(query, ""))
        section = '<section data-part="example" data-name="{}">{}<div class="flows">{}</div></section>'
        parts.append(html(section, query, heading, join_markup(flows)))
    return parts


def _select(part: str, names: Sequence[str]) -> Markup:
    if len(names) < 2:
        return Markup()
    options = join_markup(html('<option value="{0}">{0}</option>', name) for name in names)
    return html('<select data-shows="{0}" aria-label="{0}" hidden>{1}</select>', part, options)


def _draw_both_widths(draw: Callable[..., Markup], height: int) -> Markup:
    """Draw a chart for wide and one for narrow windows. The style sheet shows the one that fits."""
    wide, narrow = ChartArea(1080, height), ChartArea(350, int(height * 0.85), left=48)
    return draw(area=wide, css="wide") + draw(area=narrow, css="narrow")


def _table(heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    return html(
        '<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        join_markup(html("<th>{}</th>", text) for text in heads),
        join_markup(rows),
    )
