"""`resift rerank`: documents from a file or a pipe, in the order of a cross-encoder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resift.cli.options import add_scores, add_text_keys, at_least_one, scale_of, seconds
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.cli.documents import Documents
    from resift.types import Ranking

EXAMPLES = """\
FILE has one document a line, or is JSONL (objects with text and an id), a JSON list, or CSV with a header;
without FILE the standard input is read. Of an object or a row the title and every other text field is read,
or what --text-key names. PDF, Word, HTML and e-books are read as passages. On a terminal you see a table. In
a pipe it is a filter: lines come out as lines, best first; JSONL and CSV as they were, with score and rank
added. Documents without text come last, and documents that are not scored in time follow the scored ones in
their old order. The table shows a relevance from 0 to 1; --scores raw, and every other output, shows the
logits of the model.

examples:
  resift rerank "who signs off travel costs?" notes.txt -k 3
  resift rerank "capital of France" hits.jsonl --text-key title,body --id-key url
  grep -rih travel notes/ | resift rerank "who signs off travel costs?" --deadline 2 | head -3
  resift rerank "travel costs" hits.jsonl --scores probability > reranked.jsonl
  resift rerank "travel costs" faq.csv --json | resift explain
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift rerank`."""
    parser.epilog = EXAMPLES
    parser.add_argument("query", help="what to rank for")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the documents (default, and -: the standard input)"
    )
    parser.add_argument("-k", type=at_least_one, default=None, help="keep the best K (default: all)")
    parser.add_argument("--model", default=None, metavar="ID", help="an allowed cross-encoder")
    add_scores(parser)
    parser.add_argument("--format", choices=("lines", "jsonl", "csv"), help="instead of guessing it")
    add_text_keys(parser)
    parser.add_argument("--id-key", metavar="KEY", help="where the id is (default: id, _id, doc_id)")
    parser.add_argument(
        "--deadline", type=seconds, default=None, metavar="S", help="return within so many seconds"
    )
    parser.add_argument("--json", action="store_true", help="write the whole ranking as JSON")


def run(args: argparse.Namespace) -> int:
    """Rerank and show; exit code 1 when nothing could be scored."""
    from resift.cli.documents import input_file, read_documents
    from resift.cli.render import complain, in_pipe, print_json, print_note

    if not args.query.strip():
        from resift.errors import InputError

        raise InputError("The query is empty; pass the words or the question to rank for.")
    _refuse_missing_query(args)
    file = input_file(args.file, expected="documents")
    found = read_documents(file, form=args.format)
    candidates = _candidates(found, args)
    ranking = _reranked(args, candidates)
    if ranking.trace and ranking.trace[0].note:
        print_note(f"{found.name}: {ranking.trace[0].note}")
    for flag in found.flags[:5]:
        complain(f"{found.name}: {flag}")
    if ranking.degraded:
        complain(ranking.reason or "degraded")
    if args.json:
        print_json({"query": args.query, **ranking.to_dict()})
    elif in_pipe():
        _print_rows(ranking, found)
    else:
        _print(ranking, args)
    scored = len(ranking) + len(ranking.cut) - len(ranking.unscored)
    return 0 if scored else 1


def _reranked(args: argparse.Namespace, candidates: list[JsonObject]) -> Ranking:
    from resift.cli.render import Progress
    from resift.rerankers.cross_encoder import DEFAULT_MODEL
    from resift.reranking import rerank

    meter = Progress("reranking", len(candidates))
    try:
        return rerank(
            args.query,
            candidates,
            k=args.k,
            model=args.model or DEFAULT_MODEL,
            deadline_s=args.deadline,
            text_keys=args.text_key,
            on_progress=lambda done, total: meter.show(done),
            scores="probability" if scale_of(args) == "probability" else "raw",
            calibration=args.calibration,
        )
    finally:
        meter.close()


def _refuse_missing_query(args: argparse.Namespace) -> None:
    from pathlib import Path

    from resift.errors import InputError, shell_path

    path = Path(args.query)
    if args.file is None and len(path.suffix) > 1 and " " not in path.suffix and path.is_file():
        raise InputError(
            f"{args.query} is a file, and there is no query. "
            f'Write: resift rerank "your question" {shell_path(args.query)}'
        )


def _candidates(found: Documents, args: argparse.Namespace) -> list[JsonObject]:
    """Return the rows with the ids asked for, each with its place in the file as the first step."""
    from resift.errors import DataFormatError
    from resift.external.records import check_text_keys, no_text, read_text

    keys = check_text_keys(args.text_key)
    candidates = []
    for place, row in enumerate(found.rows, start=1):
        named = {**row, "id": row.get(args.id_key)} if args.id_key else row
        if args.id_key and named["id"] in (None, ""):
            raise DataFormatError(f"document {place} has no {args.id_key!r}", file=found.name)
        candidates.append(dict(named))
    bare = sum(not read_text(row, keys).text.strip() for row in found.rows)
    if bare == len(found.rows):
        why = no_text(found.rows[:50], keys, "--text-key")
        raise DataFormatError(f"no document has text: {why}", file=found.name)
    if bare:
        found.flags.append(f"{bare} of {len(found.rows)} documents have no text and stand last")
    return candidates


def _print_rows(ranking: Ranking, found: Documents) -> None:
    """Write the rows of the file in the new order, for the next program of a pipe."""
    import sys

    from resift.cli.documents import write_documents

    write_documents(sys.stdout, found, list(zip(ranking.indices(), ranking.scores(), strict=True)))


def _print(ranking: Ranking, args: argparse.Namespace) -> None:
    from resift.cli.render import print_text, table
    from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
    from resift.rerankers.probability import relevance, shipped_calibrator_for

    scale = scale_of(args)
    shown: Sequence[float | None] = [hit.score for hit in ranking]
    if scale == "relevance":
        calibrator = shipped_calibrator_for(CrossEncoderReranker(args.model or DEFAULT_MODEL, lazy=True))
        values = zip(relevance(ranking, calibrator), ranking.scores(), strict=True)
        shown = [None if score is None else value for value, score in values]
    form = "+.2f" if scale == "raw" else ".2f"
    rows = [
        (rank, None if score is None else format(score, form), hit.id, hit.text)
        for rank, (hit, score) in enumerate(zip(ranking, shown, strict=True), start=1)
    ]
    print_text(table(("#", "score" if scale == "raw" else scale, "id", "text"), rows))
    if ranking.cut:
        print_text(f"… and {len(ranking.cut)} more; -k shows them.")
