"""`resift demo`: reranking at work on a shipped sample, in one command."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.demo.demo_run import Shown

EXAMPLES = """\
Indexes 231 short passages of a made-up trust that keeps a lighthouse (handbook, wiki, tickets, chat), asks 60
judged questions full of traps, and shows who rose and who fell on one of them. Everything runs here and now,
in a temporary folder: no key, no download.

examples:
  resift demo
  resift demo --question "what must not be used to clean the lens?"
  resift demo --page demo.html
  resift demo --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift demo`."""
    from resift.demo.demo_run import SHOWN

    parser.epilog = EXAMPLES
    parser.add_argument("--question", default=SHOWN, metavar="TEXT", help=f"show this one (default: {SHOWN})")
    parser.add_argument("--page", metavar="FILE", help="also write the rank flow as a .html or .svg file")
    parser.add_argument("--json", action="store_true", help="write the numbers and the ranking as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit code 0 also where models are missing, which the output says."""
    from resift._internal.sync import run_sync
    from resift.cli.render import Progress, print_json
    from resift.demo.demo_run import run_demo

    meters: dict[str, Progress] = {}

    def progress(label: str, done: int, total: int) -> None:
        meters.setdefault(label, Progress(label, total)).show(done)

    try:
        shown = run_sync(run_demo(question=args.question, progress=progress))
    finally:
        for meter in meters.values():
            meter.close()
    if args.page:
        shown.ranking.explain(query=shown.question).save(args.page)
    if args.json:
        print_json(_data(shown))
    else:
        _print(shown, args)
    return 0


def _data(shown: Shown) -> JsonObject:
    return {
        "passages": shown.passages,
        "questions": len(shown.questions),
        "seconds": round(shown.total_s, 2),
        "missing": shown.missing,
        "quality": [
            {"name": row.name, "nDCG@10": row.ndcg, "MRR": row.mrr, "p50_ms": round(row.p50_ms, 2)}
            for row in shown.rows
        ],
        "question": shown.question,
        "grades": shown.grades,
        "ranking": shown.ranking.to_dict(),
    }


def _print(shown: Shown, args: argparse.Namespace) -> None:
    from resift.cli.render import complain, paint, print_text, width
    from resift.explain.escaping import clip

    if shown.missing:
        complain(f"Words alone are searched, nothing is reranked. {shown.missing}")
    print_text(paint(clip(shown.question, width()), "bold"))
    print_text()
    _print_flow(shown)
    print_text()
    _print_quality(shown)
    if args.page:
        print_text(f"The rank flow as a page: {args.page}")
    print_text()
    print_text("Next: resift index YOUR-FILES --store my.db")
    print_text("      resift search your question --store my.db")


def _print_flow(shown: Shown) -> None:
    from resift.cli.render import in_pipe, paint, painter, print_text, prose, width
    from resift.explain.escaping import clip

    explanation = shown.ranking.explain(top=max(1, len(shown.ranking)))
    print_text(explanation.text(width=width(), paint=painter(), curves=not in_pipe()))
    if not len(shown.ranking):
        return
    best = shown.ranking[0]
    grade = {2: ("answers the question", "green"), 1: ("helps", "yellow")}.get(shown.grades.get(best.id, 0))
    print_text()
    verdict = paint(f" ({grade[0]})", grade[1]) if grade else ""
    print_text(f"1st: {paint(best.id, 'bold')}{verdict}")
    print_text(prose(clip(best.text, 240)))


def _print_quality(shown: Shown) -> None:
    from resift.cli.render import bar, paint, print_text, prose, table, width

    size = 12 if width() >= 70 else 0
    rows = [
        (
            row.name,
            f"{row.ndcg:.3f}",
            *([bar(row.ndcg, 1.0, size)] if size else []),
            f"{row.mrr:.3f}",
            f"{row.p50_ms:.1f}",
        )
        for row in shown.rows
    ]
    heads = ["way of ranking", "nDCG@10", *([""] if size else []), "MRR", "p50 ms"]
    print_text(table(heads, rows, stretch=0))
    print_text(
        paint(
            prose(
                f"{shown.passages} passages, {len(shown.questions)} judged questions, all computed just now: "
                f"{shown.index_s:.1f} s to index, {shown.total_s:.1f} s in all."
            ),
            "dim",
        )
    )
    reranked = {row.name: row.ndcg for row in shown.rows}
    if reranked.get("fused, cross-encoder only", 0.0) > reranked.get("default pipeline", 1.0):
        print_text(
            paint(
                prose("Here the cross-encoder alone is ahead of the default blend; resift tune finds yours."),
                "dim",
            )
        )
