"""`resift record`: what stores and reranker say, written down once for replays."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """\
Writes every store's list and every reranker score per query, without texts. `resift tune` tries other
fusions, weights, depths and blends on it without asking a model again. A recording that was stopped goes on.

examples:
  resift record data/scifact --pipeline default -o scifact.jsonl
  resift record data/scifact --pipeline mine.yaml --split train --split test -o run.jsonl
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift record`."""
    parser.epilog = EXAMPLES
    parser.add_argument("data", nargs=1, metavar="DATA", help="a BEIR folder")
    parser.add_argument("--pipeline", default="default", metavar="NAME|FILE", help="what to record")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="the recording")
    parser.add_argument("--split", action="append", default=[], help="qrels/<split>.tsv; repeat it (test)")
    parser.add_argument("--depth", type=int, default=20, help="how many fused hits are reranked (20)")
    parser.add_argument("--cache", type=Path, default=None, metavar="DIR", help="keep indexes here")
    parser.add_argument("--json", action="store_true", help="write the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Record and say how much is new."""
    from resift.cli.evaluating import opened
    from resift.cli.render import Progress, print_json, print_text
    from resift.errors import InputError, shell_path
    from resift.evaluation.readers import read_collection
    from resift.evaluation.recording import record
    from resift.evaluation.running import work_file_key

    if args.depth < 1:
        raise InputError(f"--depth is {args.depth}; rerank at least 1 hit.")
    splits = args.split or ["test"]
    args.split = splits[0]
    first, subjects, index, _ = opened(args, [args.pipeline])
    collections = [first, *(read_collection(Path(args.data[0]), split=split) for split in splits[1:])]
    key = work_file_key(subjects[0], first)
    with Progress("recording") as meter:
        new = record(
            subjects[0],
            collections,
            args.out,
            index=index,
            key=key,
            depth=args.depth,
            progress=meter.update,
        )
    total = sum(len(collection.queries) for collection in collections)
    if args.json:
        print_json({"recording": str(args.out), "queries": total, "new": new})
    else:
        print_text(f"{args.out} holds {total} queries, {new} of them new.")
        print_text(f"Next: resift tune {shell_path(args.out)}")
    return 0
