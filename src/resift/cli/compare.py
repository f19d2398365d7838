"""`resift compare`: is one pipeline or run better than another, or is it chance."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.cli.evaluating import Measured
    from resift.evaluation.differences import Difference, MovedQuery

EXAMPLES = """\
Compares every pipeline with the first one. p is from a paired randomisation test, corrected by Holm for how
many tests there are; the interval is the 95 % bootstrap interval of the mean difference.

examples:
  resift compare data/scifact rrf default
  resift compare data/scifact old.yaml new.yaml --report report.html
  resift compare --qrels qrels.txt bm25.run fused.run
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift compare`."""
    from resift.cli.evaluating import add_data_options, add_output_options

    parser.epilog = EXAMPLES
    parser.add_argument(
        "data",
        nargs="+",
        metavar="DATA",
        help="a BEIR folder and two or more pipelines; with --qrels: run files",
    )
    add_data_options(parser)
    add_output_options(parser)
    parser.add_argument(
        "--moved", type=int, default=5, metavar="N", help="show the N queries that moved most"
    )


def run(args: argparse.Namespace) -> int:
    """Compare and show."""
    from resift.cli.evaluating import measured, write_report
    from resift.cli.render import print_json
    from resift.errors import InputError
    from resift.evaluation.differences import differences, moved

    pipelines: list[str] = []
    if args.qrels is None:
        args.data, pipelines = args.data[:1], args.data[1:]
    if len(pipelines or args.data) < 2:
        raise InputError("Name two or more to compare: resift compare DATA rrf default")
    found = measured(args, pipelines)
    measures = list(found.outcomes[0].quality.per_query)
    rows = differences(found.outcomes, measures)
    base, others = found.outcomes[0], found.outcomes[1:]
    shifts = {
        other.name: moved(base, other, measures[0], found.qrels, limit=max(0, args.moved)) for other in others
    }
    if args.report:
        write_report(args, found)
    if args.json:
        print_json(_plain(found, rows, shifts))
    else:
        _print(rows, shifts, measures[0], found.queries)
    return 0


def _plain(found: Measured, rows: list[Difference], shifts: dict[str, list[MovedQuery]]) -> JsonObject:
    return {
        "data": found.title,
        "base": found.outcomes[0].name,
        "differences": [{**asdict(row), "difference": row.mean} for row in rows],
        "moved": {name: [asdict(query) for query in queries] for name, queries in shifts.items()},
    }


def _print(
    rows: list[Difference], shifts: dict[str, list[MovedQuery]], measure: str, queries: dict[str, str]
) -> None:
    from resift.cli.render import paint, print_text, prose, table, width
    from resift.explain.escaping import clip_words

    base = rows[0].base
    for at, (name, changed) in enumerate(shifts.items()):
        if at:
            print_text()
        headers = ["measure", base, name, "difference", "95 % interval", "p (Holm)", "won/tied/lost"]
        print_text(table(headers, [_row(row) for row in rows if row.other == name], stretch=0))
        print_text()
        print_text(paint(f"{measure}: what moved most from {base} to {name}", "bold"))
        if not changed:
            print_text("Nothing moved.")
        for one in changed:
            change = f"{one.before:.4f} → {one.after:.4f}  query {one.query}"
            print_text(clip_words(f"{change}  {queries.get(one.query, '')}", width()))
            for document in one.documents[:3]:
                places = f"{document.before or 'absent'} → {document.after or 'absent'}"
                reason = f" because {document.why}" if document.why else ""
                print_text(prose(f"{document.id} (grade {document.grade}): {places}{reason}", indent="    "))


def _row(row: Difference) -> list[str]:
    from resift.evaluation.significance import format_p

    return [
        row.measure,
        f"{row.base_mean:.4f}",
        f"{row.other_mean:.4f}",
        f"{row.mean:+.4f}",
        f"{row.low:+.4f} to {row.high:+.4f}",
        format_p(row.p_holm),
        f"{row.wins}/{row.ties}/{row.losses}",
    ]
