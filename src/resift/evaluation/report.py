"""A self-contained HTML page: tables, plots and examples that can be read without network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from resift import __version__
from resift._internal.markup import document, html, joined
from resift.evaluation.differences import Difference, differences, moved
from resift.evaluation.rank_flow import rank_flow
from resift.evaluation.report_style import SCRIPT, STYLE
from resift.evaluation.running import Outcome
from resift.evaluation.significance import bootstrap_interval, format_p
from resift.evaluation.svg import Frame, Point, difference_bars, quality_against_latency

Qrels = Mapping[str, Mapping[str, int]]

EXAMPLES = 4
"""Of how many queries the flow through the stages is drawn."""


def report(
    title: str,
    outcomes: Sequence[Outcome],
    qrels: Qrels,
    queries: Mapping[str, str],
    *,
    facts: Mapping[str, str] | None = None,
) -> str:
    """Return the page; it shows query ids and texts, so it is as private as the data.

    `facts` say how it came about: date, command, models, versions.
    """
    measures = list(outcomes[0].quality.per_query)
    parts = [
        html("<h1>{}</h1>", title),
        html('<p class="dim">{} judged queries · Resift {}</p>', len(qrels), __version__),
        _facts(facts or {}),
        html("<h2>Quality and latency</h2>"),
        _summary(outcomes, measures),
        _scatter(outcomes, measures[0]),
    ]
    if len(outcomes) > 1:
        parts += [html("<h2>Differences</h2>"), *_comparisons(outcomes, measures, qrels, queries)]
    parts += _flows(outcomes, measures[0], qrels, queries)
    return document(title, joined((part for part in parts if part), "\n"), style=STYLE, script=SCRIPT)


def _facts(facts: Mapping[str, str]) -> Markup:
    rows = joined(html("<dt>{}</dt><dd>{}</dd>", name, value) for name, value in facts.items())
    return html('<dl class="facts">{}</dl>', rows) if facts else Markup()


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
        rows.append(html("<tr>{}</tr>", joined(cells)))
    return _table(heads, rows)


def _scatter(outcomes: Sequence[Outcome], measure: str) -> Markup:
    points = [
        Point(
            outcome.name,
            outcome.latency["p50"],
            outcome.quality.mean(measure),
            bootstrap_interval(list(outcome.quality.per_query[measure].values())),
        )
        for outcome in outcomes
        if outcome.latency
    ]
    if not points:
        return Markup()
    return html("<h2>Quality against latency</h2>") + _both(
        lambda frame, kind: quality_against_latency(points, measure=measure, frame=frame, kind=kind), 380
    )


def _comparisons(
    outcomes: Sequence[Outcome], measures: Sequence[str], qrels: Qrels, queries: Mapping[str, str]
) -> list[Markup]:
    base, others = outcomes[0], outcomes[1:]
    parts = [
        html(
            '<p class="dim">Against {}: paired randomisation test, corrected by Holm; '
            "95 % bootstrap interval.</p>",
            base.name,
        ),
        _significance(differences(outcomes, measures)),
        _select("difference", [other.name for other in others]),
    ]
    return [*parts, *(_comparison(base, other, measures[0], qrels, queries) for other in others)]


def _comparison(
    base: Outcome, other: Outcome, measure: str, qrels: Qrels, queries: Mapping[str, str]
) -> Markup:
    return html(
        '<section data-part="difference" data-name="{}"><h3>{} → {}, {} per query</h3>{}{}</section>',
        other.name,
        base.name,
        other.name,
        measure,
        _bars(base, other, measure),
        _moved(base, other, measure, qrels, queries),
    )


def _significance(rows: Sequence[Difference]) -> Markup:
    heads = ["", "measure", "difference", "95 % interval", "p (Holm)", "won / tied / lost"]
    body = [
        html(
            "<tr><td>{0.other}</td><td>{0.measure}</td><td>{0.mean:+.4f}</td>"
            "<td>{0.low:+.4f} to {0.high:+.4f}</td><td>{1}</td>"
            "<td>{0.wins} / {0.ties} / {0.losses}</td></tr>",
            row,
            format_p(row.p_holm),
        )
        for row in rows
    ]
    return _table(heads, body)


def _bars(base: Outcome, other: Outcome, measure: str) -> Markup:
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    changes = [(query, after[query] - before[query]) for query in before if query in after]
    return _both(lambda frame, kind: difference_bars(changes, measure=measure, frame=frame, kind=kind), 260)


def _moved(base: Outcome, other: Outcome, measure: str, qrels: Qrels, queries: Mapping[str, str]) -> Markup:
    parts = []
    for one in moved(base, other, measure, qrels, most=8):
        rows = joined(
            html(
                "<li>{} (grade {}): {} → {}{}{}</li>",
                found.id,
                found.grade,
                found.before or "absent",
                found.after or "absent",
                ". " if found.why else "",
                found.why,
            )
            for found in one.documents
        )
        text = queries.get(one.query, "")
        parts.append(
            html(
                "<details><summary>{:.4f} → {:.4f} · query {} {}</summary><ul>{}</ul></details>",
                one.before,
                one.after,
                one.query,
                text,
                rows,
            )
        )
    return joined(parts) if parts else html("<p>Nothing moved.</p>")


def _flows(
    outcomes: Sequence[Outcome], measure: str, qrels: Qrels, queries: Mapping[str, str]
) -> list[Markup]:
    explained = [outcome for outcome in outcomes if any(answer.paths for answer in outcome.answers.values())]
    chosen = _examples(outcomes, measure, qrels) if explained else []
    if not chosen:
        return []
    parts = [
        html("<h2>How ranks come about</h2>"),
        html(
            '<p class="dim">One line a document, from the stores\' lists to its final place. '
            '<span class="key"></span> relevant</p>'
        ),
        _select("example", chosen),
    ]
    for query in chosen:
        flows = joined(_flow(outcome, query, measure, qrels[query]) for outcome in explained)
        parts.append(
            html(
                '<section data-part="example" data-name="{0}"><h3>Query {0}: {1}</h3>'
                '<div class="flows">{2}</div></section>',
                query,
                queries.get(query, ""),
                flows,
            )
        )
    return parts


def _flow(outcome: Outcome, query: str, measure: str, judged: Mapping[str, int]) -> Markup:
    return html(
        '<div><p>{} <span class="dim">{} {:.4f}</span></p><div class="scroll">{}</div></div>',
        outcome.name,
        measure,
        outcome.quality.per_query[measure][query],
        rank_flow(outcome.answers[query], judged),
    )


def _examples(outcomes: Sequence[Outcome], measure: str, qrels: Qrels) -> list[str]:
    """Return the queries that moved most between the first and the last; else the hardest ones."""
    if len(outcomes) > 1:
        found = [one.query for one in moved(outcomes[0], outcomes[-1], measure, qrels, most=EXAMPLES)]
        if found:
            return found
    values = outcomes[0].quality.per_query[measure]
    return sorted(values, key=lambda query: (values[query], query))[:EXAMPLES]


def _select(part: str, names: Sequence[str]) -> Markup:
    if len(names) < 2:
        return Markup()
    options = joined(html('<option value="{0}">{0}</option>', name) for name in names)
    return html('<select data-shows="{0}" aria-label="{0}" hidden>{1}</select>', part, options)


def _both(draw: Callable[[Frame, str], Markup], height: int) -> Markup:
    """Draw for wide and for narrow windows; the style sheet shows the one that fits."""
    wide, narrow = Frame(1080, height), Frame(350, int(height * 0.85), left=48)
    return draw(wide, "wide") + draw(narrow, "narrow")


def _table(heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    return html(
        '<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        joined(html("<th>{}</th>", text) for text in heads),
        joined(rows),
    )
