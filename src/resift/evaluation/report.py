"""A self-contained HTML page: tables, plots and examples that can be read without network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from resift import __version__
from resift.evaluation.differences import Difference, differences, moved
from resift.evaluation.rank_flow import rank_flow
from resift.evaluation.report_style import SCRIPT, STYLE
from resift.evaluation.running import Outcome
from resift.evaluation.svg import Frame, Point, difference_bars, quality_against_latency

Qrels = Mapping[str, Mapping[str, int]]

EXAMPLES = 4
"""Of how many queries the flow through the stages is drawn."""


def report(title: str, outcomes: Sequence[Outcome], qrels: Qrels, queries: Mapping[str, str]) -> str:
    """Return the page; it shows query ids and texts, so it is as private as the data."""
    measures = list(outcomes[0].quality.per_query)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{len(qrels)} judged queries · Resift {escape(__version__)}</p>',
        "<h2>Quality and latency</h2>",
        _summary(outcomes, measures),
        _scatter(outcomes, measures[0]),
    ]
    if len(outcomes) > 1:
        parts += ["<h2>Differences</h2>", *_comparisons(outcomes, measures, qrels, queries)]
    parts += _flows(outcomes, measures[0], qrels, queries)
    return _page(title, "\n".join(part for part in parts if part))


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n{body}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _summary(outcomes: Sequence[Outcome], measures: Sequence[str]) -> str:
    timed = any(outcome.latency for outcome in outcomes)
    means = [outcome.quality.means() for outcome in outcomes]
    best = {measure: max(mean[measure] for mean in means) for measure in measures}
    heads = ["", *measures, "queries", *(["p50 ms", "p95 ms", "p99 ms"] if timed else [])]
    rows = []
    for outcome, mean in zip(outcomes, means, strict=True):
        cells = [f"<td>{escape(outcome.name)}</td>"]
        for measure in measures:
            kind = ' class="best"' if mean[measure] == best[measure] and len(outcomes) > 1 else ""
            cells.append(f"<td{kind}>{mean[measure]:.4f}</td>")
        cells.append(f"<td>{len(outcome.quality.per_query[measures[0]])}</td>")
        if timed:
            cells += [f"<td>{outcome.latency.get(name, 0):.1f}</td>" for name in ("p50", "p95", "p99")]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return _table(heads, rows)


def _scatter(outcomes: Sequence[Outcome], measure: str) -> str:
    points = [
        Point(outcome.name, outcome.latency["p50"], outcome.quality.mean(measure))
        for outcome in outcomes
        if outcome.latency
    ]
    if not points:
        return ""
    return "<h2>Quality against latency</h2>" + _both(
        lambda frame, kind: quality_against_latency(points, measure=measure, frame=frame, kind=kind), 380
    )


def _comparisons(
    outcomes: Sequence[Outcome], measures: Sequence[str], qrels: Qrels, queries: Mapping[str, str]
) -> list[str]:
    base, others = outcomes[0], outcomes[1:]
    parts = [
        f'<p class="dim">Against {escape(base.name)}: paired randomisation test, corrected by Holm; '
        "95 % bootstrap interval.</p>",
        _significance(differences(outcomes, measures)),
        _select("difference", [other.name for other in others]),
    ]
    for other in others:
        parts.append(f'<section data-part="difference" data-name="{escape(other.name)}">')
        parts.append(f"<h3>{escape(base.name)} → {escape(other.name)}, {escape(measures[0])} per query</h3>")
        parts.append(_bars(base, other, measures[0]))
        parts.append(_moved(base, other, measures[0], qrels, queries))
        parts.append("</section>")
    return parts


def _significance(rows: Sequence[Difference]) -> str:
    heads = ["", "measure", "difference", "95 % interval", "p (Holm)", "won / tied / lost"]
    body = [
        f"<tr><td>{escape(row.other)}</td><td>{escape(row.measure)}</td><td>{row.mean:+.4f}</td>"
        f"<td>{row.low:+.4f} to {row.high:+.4f}</td><td>{row.p_holm:.4f}</td>"
        f"<td>{row.wins} / {row.ties} / {row.losses}</td></tr>"
        for row in rows
    ]
    return _table(heads, body)


def _bars(base: Outcome, other: Outcome, measure: str) -> str:
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    changes = [(query, after[query] - before[query]) for query in before if query in after]
    return _both(lambda frame, kind: difference_bars(changes, measure=measure, frame=frame, kind=kind), 260)


def _moved(base: Outcome, other: Outcome, measure: str, qrels: Qrels, queries: Mapping[str, str]) -> str:
    parts = []
    for one in moved(base, other, measure, qrels, most=8):
        text = escape(queries.get(one.query, ""))
        rows = "".join(
            f"<li>{escape(document.id)} (grade {document.grade}): {document.before or 'absent'} → "
            f"{document.after or 'absent'}{'. ' if document.why else ''}{escape(document.why)}</li>"
            for document in one.documents
        )
        told = f"{one.before:.4f} → {one.after:.4f} · query {escape(one.query)} {text}"
        parts.append(f"<details><summary>{told}</summary><ul>{rows}</ul></details>")
    return "".join(parts) or "<p>Nothing moved.</p>"


def _flows(outcomes: Sequence[Outcome], measure: str, qrels: Qrels, queries: Mapping[str, str]) -> list[str]:
    explained = [outcome for outcome in outcomes if any(answer.paths for answer in outcome.answers.values())]
    chosen = _examples(outcomes, measure, qrels) if explained else []
    if not chosen:
        return []
    parts = [
        "<h2>How ranks come about</h2>",
        '<p class="dim">One line a document, from the stores\' lists to its final place. '
        '<span class="key"></span> relevant</p>',
        _select("example", chosen),
    ]
    for query in chosen:
        parts.append(f'<section data-part="example" data-name="{escape(query)}">')
        parts.append(f"<h3>Query {escape(query)}: {escape(queries.get(query, ''))}</h3>")
        parts.append('<div class="flows">')
        for outcome in explained:
            label = f"{outcome.name}, query {query}"
            drawn = rank_flow(outcome.answers[query], qrels[query], label=label)
            value = outcome.quality.per_query[measure][query]
            head = f"<p>{escape(outcome.name)} <span class='dim'>{escape(measure)} {value:.4f}</span></p>"
            parts.append(f'<div>{head}<div class="scroll">{drawn}</div></div>')
        parts.append("</div></section>")
    return parts


def _examples(outcomes: Sequence[Outcome], measure: str, qrels: Qrels) -> list[str]:
    """Return the queries that moved most between the first and the last; else the hardest ones."""
    if len(outcomes) > 1:
        found = [one.query for one in moved(outcomes[0], outcomes[-1], measure, qrels, most=EXAMPLES)]
        if found:
            return found
    values = outcomes[0].quality.per_query[measure]
    return sorted(values, key=lambda query: (values[query], query))[:EXAMPLES]


def _select(part: str, names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    options = "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in names)
    return f'<select data-shows="{part}" aria-label="{part}" hidden>{options}</select>'


def _both(draw: object, height: int) -> str:
    """Draw for wide and for narrow windows; the style sheet shows the one that fits."""
    assert callable(draw)  # noqa: S101 - narrows object
    wide, narrow = Frame(1080, height), Frame(350, int(height * 0.85), left=48, right=18)
    return f"{draw(wide, 'wide')}{draw(narrow, 'narrow')}"


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
