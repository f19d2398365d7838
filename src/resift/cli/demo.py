"""`resift demo`: reranking at work on a bundled sample, in one command."""

from __future__ import annotations

import argparse

from resift import demo
from resift._internal.sync import run_sync
from resift.cli.terminal import (
    Progress,
    bar,
    in_pipe,
    print_error,
    print_json,
    print_table,
    print_text,
    style,
    width,
    wrap,
)
from resift.text.snippets import clip


def run_demo(args: argparse.Namespace) -> int:
    """Run the demo; exit code 0 even if models are missing, which is reported on stderr."""
    with Progress("") as progress:

        def show_progress(label: str, done: int, total: int) -> None:
            if progress.label != label:
                progress.close()
                progress.label = label
            progress.update(done, total)

        result = run_sync(demo.run_demo(question=args.question, progress=show_progress))
    if args.page:
        result.ranking.explain(query=result.question).save(args.page)
    if args.json:
        return print_json(
            {
                "passages": result.passages,
                "questions": len(result.questions),
                "seconds": round(result.total_s, 2),
                "missing": result.missing,
                "quality": [
                    {"name": row.name, "nDCG@10": row.ndcg, "MRR": row.mrr, "p50_ms": round(row.p50_ms, 2)}
                    for row in result.rows
                ],
                "question": result.question,
                "grades": result.grades,
                "ranking": result.ranking.to_dict(),
            }
        )
    if result.missing:
        print_error(f"Keyword search only, without reranking. {result.missing}")
    print_text(style(clip(result.question, width()), "bold"))
    print_text()
    explanation = result.ranking.explain(top=max(1, len(result.ranking)))
    print_text(explanation.text(width=width(), paint=style, curves=not in_pipe()))
    if len(result.ranking):
        best = result.ranking[0]
        grades = {2: style(" (answers the question)", "green"), 1: style(" (helps)", "yellow")}
        print_text()
        print_text(f"1st: {style(best.id, 'bold')}{grades.get(result.grades.get(best.id, 0), '')}")
        print_text(wrap(clip(best.text, 240)))
    print_text()
    rows = [
        (row.name, f"{row.ndcg:.3f}", bar(row.ndcg, 1.0), f"{row.mrr:.3f}", f"{row.p50_ms:.1f}") for row in result.rows
    ]
    print_table(["pipeline", "nDCG@10", "", "MRR", "p50 ms"], rows, stretch=0)
    note = (
        f"{result.passages} passages, {len(result.questions)} judged queries, all computed just now: "
        f"{result.index_s:.1f} s to index, {result.total_s:.1f} s in total."
    )
    print_text(style(wrap(note), "dim"))
    if args.page:
        print_text(f"Wrote the rank flow to {args.page}")
    print_text()
    print_text("Next: resift index YOUR-FILES --store my.db")
    print_text("      resift search your question --store my.db")
    return 0
