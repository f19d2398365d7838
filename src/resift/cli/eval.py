"""`resift eval`: how good and how quick pipelines or run files are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resift.cli.options import add_repeated

if TYPE_CHECKING:
    from resift.evaluation.running import Outcome

EXAMPLES = """\
DATA is a BEIR folder: corpus.jsonl, queries.jsonl, qrels/<split>.tsv. A pipeline is a YAML file or one of
bm25, dense, rrf, linear, cross-encoder, late-interaction, default; `default:approximate` finds vectors by
bit codes as a large index does, `default:exact` compares all. In a file, a store with
`path: ${RESIFT_COLLECTION}` is DATA's own index, which is built once and kept. An evaluation that was stopped
goes on where it was; answers that are already there are not asked for again (--fresh forgets them).

examples:
  resift eval data/scifact --pipeline bm25 --pipeline rrf
  resift eval data/scifact --pipeline default --pipeline mine.yaml --report report.html
  resift eval data/scifact --pipeline default:exact --pipeline default:approximate
  resift eval --qrels qrels.txt bm25.run fused.run --per-query
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift eval`."""
    from resift.cli.evaluating import add_data_options, add_output_options

    parser.epilog = EXAMPLES
    parser.add_argument("data", nargs="*", metavar="DATA", help="a BEIR folder; with --qrels: TREC run files")
    add_repeated(parser, "--pipeline", "NAME|FILE", "what to evaluate; repeat it")
    add_data_options(parser)
    add_output_options(parser)
    parser.add_argument("--per-query", action="store_true", help="show every query's values")


def run(args: argparse.Namespace) -> int:
    """Evaluate and show; exit code 0 unless an input is broken."""
    from resift.cli.evaluating import measured, write_report
    from resift.cli.render import print_json

    found = measured(args, args.pipeline)
    if args.report:
        write_report(args, found)
    if args.json:
        print_json(found.plain(per_query=args.per_query, complete=args.complete))
    else:
        _print_tables(found.outcomes, args)
    return 0


def _print_tables(outcomes: list[Outcome], args: argparse.Namespace) -> None:
    from resift.cli.render import paint, print_text, table

    measures = list(outcomes[0].quality.per_query)
    headers, rows = summary(outcomes, measures, complete=args.complete)
    counts = {row.pop(headers.index("queries")) for row in rows}
    if len(counts) > 1:
        headers, rows = summary(outcomes, measures, complete=args.complete)
    else:
        headers.remove("queries")
    print_text(table(headers, rows, stretch=0))
    if len(counts) == 1:
        print_text(paint(f"{counts.pop()} queries", "dim"))
    if args.per_query:
        for measure in measures:
            print_text()
            print_text(measure)
            print_text(table(["query", *(one.name for one in outcomes)], _per_query(outcomes, measure)))


def summary(
    outcomes: list[Outcome], measures: list[str], *, complete: bool
) -> tuple[list[str], list[list[object]]]:
    """Return the table of means and latencies, one row per outcome."""
    timed = any(outcome.latency for outcome in outcomes)
    headers = [
        "pipeline" if timed else "run",
        *measures,
        "queries",
        *(("p50 ms", "p95 ms", "p99 ms") * timed),
    ]
    rows: list[list[object]] = []
    for outcome in outcomes:
        means = outcome.quality.means(complete=complete)
        answered = len(outcome.quality.per_query[measures[0]])
        times = [f"{outcome.latency.get(name, 0):.1f}" for name in ("p50", "p95", "p99")] if timed else []
        rows.append([outcome.name, *(f"{means[measure]:.4f}" for measure in measures), answered, *times])
    return headers, rows


def _per_query(outcomes: list[Outcome], measure: str) -> list[list[str]]:
    queries = dict.fromkeys(query for one in outcomes for query in one.quality.per_query[measure])
    return [
        [query, *(_shown(one.quality.per_query[measure].get(query)) for one in outcomes)] for query in queries
    ]


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
