"""`resift fuse`: ranked lists from files, fused into one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.options import at_least_one
from resift.types import JsonObject, JsonValue

if TYPE_CHECKING:
    from resift.types import Ranking

EXAMPLES = """\
A file is JSONL (one candidate a line, best first: {"id": …, "text": …, "score": …}, or a bare string id)
or a TREC run (qid Q0 docid rank score tag). Run files are fused per query. In a pipe each line is: rank,
score, id, found at, text.

examples:
  resift fuse bm25.jsonl dense.jsonl -k 10
  resift fuse bm25.jsonl dense.jsonl | cut -f3
  resift fuse bm25.run dense.run --method rrf --json > fused.jsonl
  resift fuse bm25.run dense.run --trec > fused.run
  resift fuse bm25.jsonl dense.jsonl --compare
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift fuse`."""
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="a ranked list: JSONL, or a TREC run file")
    parser.add_argument(
        "-k", type=at_least_one, default=None, help="keep the best K (default: 10 on a terminal, else all)"
    )
    parser.add_argument("--method", default="rrf", help="fusion method (default: rrf)")
    parser.add_argument("--k-param", type=float, default=None, help="the constant of rrf (default: 60)")
    parser.add_argument("--weights", default=None, help="one weight per file, for example 0.7,0.3")
    parser.add_argument("--normalize", default=None, help="min-max, z-score, rank or none, for score fusions")
    parser.add_argument("--dialect", default=None, help="compute as this engine does, for example langchain")
    parser.add_argument("--compare", action="store_true", help="show how engines would disagree")
    parser.add_argument("--trec", action="store_true", help="write a TREC run file")
    parser.add_argument("--json", action="store_true", help="write JSON lines, one query a line")


def run(args: argparse.Namespace) -> int:
    """Read the files, fuse per query, write the result."""
    from resift.cli.ranked_files import read_ranked_file
    from resift.cli.render import in_pipe
    from resift.ranking.fusion import fuse

    per_file = [read_ranked_file(Path(file)) for file in args.files]
    names = _names(args.files)
    options = _options(args)
    queries = list(dict.fromkeys(query for lists in per_file for query in lists))
    as_data = args.trec or args.json or in_pipe()
    k = args.k if args.k is not None or as_data else 10
    for query in queries:
        lists = {name: lists.get(query, []) for name, lists in zip(names, per_file, strict=True)}
        if args.compare:
            _print_comparison(query, lists, options, k=10 if k is None else k, as_json=args.json)
            continue
        _print_ranking(query, fuse(lists, k=k, method=args.method, **options), args)
    return 0


def _names(files: list[str]) -> list[str]:
    """Name each list by its file's stem; a stem that comes twice gets its place added."""
    stems = [Path(file).stem for file in files]
    return [stem if stems.count(stem) == 1 else f"{stem}#{at}" for at, stem in enumerate(stems, start=1)]


def _options(args: argparse.Namespace) -> JsonObject:
    from resift.errors import InputError

    options: JsonObject = {}
    if args.weights is not None:
        try:
            options["weights"] = [float(weight) for weight in args.weights.split(",")]
        except ValueError:
            raise InputError(f"--weights is {args.weights!r}; write numbers with commas: 0.7,0.3") from None
    for name in ("k_param", "normalize", "dialect"):
        value = getattr(args, name)
        if value is not None:
            options[name] = value
    return _accepted(args.method, options)


def _accepted(method: str, options: JsonObject) -> JsonObject:
    from resift.errors import InputError
    from resift.ranking.fusion.methods import fusion_method, options_of

    allowed = options_of(fusion_method(method))
    for name in options:
        if name not in allowed:
            raise InputError(f"{method} takes no --{name.replace('_', '-')}.")
    return options


def _print_ranking(query: str, ranking: Ranking, args: argparse.Namespace) -> None:
    from resift.cli.render import bar, in_pipe, print_json, print_text, print_tsv, table
    from resift.explain.escaping import clip, short_id

    if args.trec:
        for line in _trec_lines(query or "1", ranking, args.method):
            print_text(line)
        return
    if args.json:
        whole = ranking.to_dict()
        data = {"hits": whole["hits"], "trace": whole["trace"]}
        print_json({"query": query, **data} if query else data)
        return
    if in_pipe():
        for rank, hit in enumerate(ranking, start=1):
            found = _found(ranking, hit.id)
            print_tsv(*([query] if query else []), rank, hit.score, hit.id, found, hit.text)
        return
    most = max((hit.score or 0.0 for hit in ranking), default=0.0)
    rows = [
        (
            rank,
            short_id(hit.id, 24),
            f"{hit.score or 0.0:.5f}",
            bar(hit.score or 0.0, most, 10),
            _found(ranking, hit.id),
            clip(hit.text, 200),
        )
        for rank, hit in enumerate(ranking, start=1)
    ]
    if query:
        print_text(f"query {query}")
    print_text(table(["#", "id", "score", "", "found at", "text"], rows))
    if ranking.cut:
        print_text(f"… and {len(ranking.cut)} more; -k shows them.")


def _trec_lines(query: str, ranking: Ranking, method: str) -> list[str]:
    """Return the ranking as lines of a run file, where white space ends a field and a line end a row."""
    from resift.errors import InputError

    for name in (query, *ranking.ids):
        if not name or name != "".join(name.split()) or not name.isprintable():
            raise InputError(
                f"The id {name!r} has white space or control characters, which a TREC run cannot hold. "
                "Write --json instead."
            )
    return [
        f"{query} Q0 {hit.id} {rank} {hit.score!r} resift-{method}"
        for rank, hit in enumerate(ranking, start=1)
    ]


def _found(ranking: Ranking, id: str) -> str:
    from resift.types import StageKind

    lists = [step for step in ranking.path(id) if step.kind is StageKind.RETRIEVE]
    return " ".join(f"{step.source}:{step.rank}" for step in lists)


def _print_comparison(
    query: str, lists: dict[str, list[JsonValue]], options: JsonObject, *, k: int, as_json: bool
) -> None:
    from resift.cli.render import print_json, print_text, table
    from resift.errors import InputError
    from resift.explain.escaping import short_id
    from resift.external.candidates import hits_from
    from resift.ranking.fusion import compare

    hits = [
        hits_from(candidates, source=name, strings_are="id", unique=False)
        for name, candidates in lists.items()
    ]
    for name in options.keys() - {"weights"}:
        raise InputError(
            f"--compare fuses as each engine does by itself: leave --{name.replace('_', '-')} out."
        )
    comparison = compare(hits, k=k, weights=options.get("weights"))
    if as_json:
        print_json({"query": query, "ranks": comparison.ranks(), "disagreements": comparison.disagreements()})
        return
    rows = [(short_id(id, 20), *ranks.values()) for id, ranks in comparison.ranks().items()]
    print_text(table(["id", *comparison.orders], rows, stretch=0))
    moved = comparison.disagreements()
    print_text(f"{len(moved)} of {len(rows)} hits have no place that all engines agree on.")
