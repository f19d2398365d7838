"""`resift explain`: why a ranking is as it is, as a picture in the terminal or a page."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.options import add_count
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.explain import Explanation
    from resift.types import Hit, Ranking

MAX_BYTES = 256 << 20

EXAMPLES = """\
FILE is a ranking as JSON: what search, rerank, fuse and demo write with --json, or `Ranking.to_json()`.
Without FILE the standard input is read. The page is one file that loads nothing; it holds the texts, so it
is as private.

examples:
  resift search "rotate the keys" --store docs.db --explain --json | resift explain
  resift explain ranking.json -o page.html
  resift explain ranking.json --id docs/keys.md#3
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift explain`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a ranking as JSON (default, and -: the standard input)"
    )
    parser.add_argument("-o", "--output", metavar="PAGE", help="write a .html, .svg or .txt file instead")
    parser.add_argument("--id", metavar="ID", help="say of this hit alone why it stands there or is absent")
    add_count(parser, "--top", 10, "draw the first N")
    add_count(parser, "--line", 1, "of JSONL: which ranking")
    parser.add_argument("--json", action="store_true", help="write places and reasons as JSON")


def run(args: argparse.Namespace) -> int:
    """Explain; exit code 0 unless the file is no ranking."""
    from resift.cli.documents import input_file
    from resift.cli.render import in_pipe, painter, print_json, print_note, print_text, prose, width

    ranking, query = _read(input_file(args.file, expected="a ranking as JSON"), args.line)
    if args.id:
        reason = ranking.why(args.id)
        if args.json:
            print_json({"id": args.id, "why": reason})
        else:
            print_text(prose(reason))
        return 0
    explanation = ranking.explain(query=query, top=args.top)
    if args.output:
        written = explanation.save(args.output)
        print_note(str(written))
    elif args.json:
        print_json(_data(explanation))
    else:
        print_text(explanation.text(width=width(), paint=painter(), curves=not in_pipe()))
    return 0


def _read(file: str, line: int) -> tuple[Ranking, str]:
    from resift.errors import DataFormatError, InputError
    from resift.types import Ranking

    name = "stdin" if file == "-" else file
    data = _parsed(_text(file, name), name, line)
    ranking = data.get("ranking", data)
    if not isinstance(ranking, dict) or not isinstance(ranking.get("hits"), list):
        raise DataFormatError('no ranking: there is no list of "hits"', file=name)
    query = data.get("query") or data.get("question") or ""
    try:
        read = Ranking.from_dict(ranking)
        # Short JSON leaves out the dropped candidates, but its trace has them.
        read = read if "cut" in ranking else replace(read, cut=_dropped(read))
        return read, query if isinstance(query, str) else ""
    except (InputError, TypeError, AttributeError, ValueError) as exc:
        raise DataFormatError(f"no ranking: {exc}", file=name) from exc


def _dropped(ranking: Ranking) -> tuple[Hit, ...]:
    """Return the candidates that the stages of the trace dropped, without their texts."""
    from resift.types import Hit

    kept = set(ranking.ids)
    dropped = [id for record in ranking.trace for id in record.left_out if id not in kept]
    return tuple(Hit(id) for id in dict.fromkeys(dropped))


def _text(file: str, name: str) -> str:
    from resift.cli.documents import refuse_index
    from resift.errors import DataFormatError
    from resift.ingest.sources import decode

    if file == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    elif not Path(file).is_file():
        raise DataFormatError("no such file" if not Path(file).exists() else "not a file", file=name)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DataFormatError(f"larger than {MAX_BYTES >> 20} MiB", file=name)
    refuse_index(data, name, "a ranking as JSON, from: resift search … --store INDEX --explain --json")
    return decode(data, file=name).text


def _parsed(text: str, name: str, line: int) -> JsonObject:
    """Return the JSON object of a file, or of one line of JSONL."""
    from resift.errors import DataFormatError

    lines = [part for part in text.split("\n") if part.strip()]
    if not lines:
        raise DataFormatError("the file is empty; expected a ranking as JSON", file=name)
    try:
        data = json.loads(text)
        count = 1
    except (ValueError, RecursionError):
        count = len(lines)
        data = None
    if line > count:
        raise DataFormatError(f"--line {line}, but there is {count} here", file=name)
    if data is None:
        try:
            data = json.loads(lines[line - 1])
        except (ValueError, RecursionError):
            raise DataFormatError("not JSON; expected a ranking as JSON", file=name) from None
    if not isinstance(data, dict):
        raise DataFormatError('no ranking: expected an object with "hits"', file=name)
    return data


def _data(explanation: Explanation) -> JsonObject:
    from resift.explain.moves import move_of

    flow = explanation.flow
    hits = [
        {
            "id": path.id,
            "place": path.final,
            "move": move_of(path, flow).up,
            "reason": move_of(path, flow).reason,
            "ranks": {
                column.label: path.places[column.key].rank
                for column in flow.columns
                if column.key in path.places
            },
        }
        for path in (*flow.kept, *flow.cut)
    ]
    return {"query": flow.query, "columns": [column.label for column in flow.columns], "hits": hits}
