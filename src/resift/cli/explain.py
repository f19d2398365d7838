"""`resift explain`: explain a ranking, as a picture in the terminal or as a page."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from resift.cli.arguments import add_count, add_json
from resift.cli.rerank import choose_input, read_input, refuse_index
from resift.cli.terminal import in_pipe, print_json, print_note, print_text, style_picture, width, wrap
from resift.errors import DataFormatError, InputError
from resift.types import Hit, JsonObject, Ranking

if TYPE_CHECKING:
    from resift.explain import Explanation

MAX_BYTES = 256 << 20

EXAMPLES = """\
FILE is a ranking as JSON: the output of search, rerank, fuse or demo with --json, or of `Ranking.to_json()`.
Without FILE, standard input is read. The page is a single file that loads nothing else. It contains the
texts, so keep it as private as they are.

examples:
  resift search "rotate the keys" --store docs.db --explain --json | resift explain
  resift explain ranking.json -o page.html
  resift explain ranking.json --id docs/keys.md#3
"""


def configure_explain(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift explain`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a ranking as JSON (default, and -: standard input)"
    )
    parser.add_argument("-o", "--output", metavar="PAGE", help="write a .html, .svg or .txt file instead")
    parser.add_argument("--id", metavar="ID", help="explain only this hit, or why it is missing")
    add_count(parser, "--top", 10, "draw the first N")
    add_count(parser, "--line", 1, "ranking to explain if FILE is JSONL")
    add_json(parser, "positions and reasons")


def run_explain(args: argparse.Namespace) -> int:
    """Explain a ranking; exit code 0 unless the file is not a ranking."""
    ranking, query = _read_ranking(choose_input(args.file, expected="a ranking as JSON"), args.line)
    if args.id:
        reason = ranking.why(args.id)
        if args.json:
            print_json({"id": args.id, "why": reason})
        else:
            print_text(wrap(reason))
        return 0
    explanation = ranking.explain(query=query, top=args.top)
    if args.output:
        print_note(str(explanation.save(args.output)))
    elif args.json:
        print_json(_explanation_data(explanation))
    else:
        print_text(explanation.text(width=width(), paint=style_picture, curves=not in_pipe()))
    return 0


def _read_ranking(file: str, line: int) -> tuple[Ranking, str]:
    from resift.ingest.sources import decode

    name = "stdin" if file == "-" else file
    content = read_input(file, max_bytes=MAX_BYTES)
    refuse_index(content, name, "a ranking as JSON, from: resift search … --store INDEX --explain --json")
    text = decode(content, file=name).text
    lines = [part for part in text.split("\n") if part.strip()]
    if not lines:
        raise DataFormatError("the file is empty; expected a ranking as JSON", file=name)
    try:
        data = json.loads(text)
        rankings = 1
    except (ValueError, RecursionError):
        data, rankings = None, len(lines)
    if line > rankings:
        raise DataFormatError(f"--line {line}, but the file has only {rankings}", file=name)
    if data is None:
        try:
            data = json.loads(lines[line - 1])
        except (ValueError, RecursionError):
            raise DataFormatError("not JSON; expected a ranking as JSON", file=name) from None
    if not isinstance(data, dict):
        raise DataFormatError('not a ranking: expected an object with "hits"', file=name)
    ranking = data.get("ranking", data)
    if not isinstance(ranking, dict) or not isinstance(ranking.get("hits"), list):
        raise DataFormatError('not a ranking: there is no list of "hits"', file=name)
    query = data.get("query") or data.get("question") or ""
    try:
        result = Ranking.from_dict(ranking)
        if "cut" not in ranking:
            # Short JSON leaves out the dropped candidates, but the trace has their ids.
            kept = set(result.ids)
            ids = [id for record in result.trace for id in record.dropped if id not in kept]
            result = replace(result, cut=tuple(Hit(id) for id in dict.fromkeys(ids)))
    except (InputError, TypeError, AttributeError, ValueError) as exc:
        raise DataFormatError(f"not a ranking: {exc}", file=name) from exc
    return result, query if isinstance(query, str) else ""


def _explanation_data(explanation: Explanation) -> JsonObject:
    from resift.explain.flow import find_move

    flow = explanation.flow
    hits = []
    for path in (*flow.kept, *flow.cut):
        move = find_move(path, flow)
        ranks = {
            column.label: path.places[column.key].rank for column in flow.columns if column.key in path.places
        }
        hits.append(
            {"id": path.id, "place": path.final, "move": move.up, "reason": move.reason, "ranks": ranks}
        )
    return {"query": flow.query, "columns": [column.label for column in flow.columns], "hits": hits}
