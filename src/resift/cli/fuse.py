"""`resift fuse`: fuse ranked lists from files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from resift.cli.terminal import bar, in_pipe, print_json, print_table, print_text, print_tsv
from resift.errors import DataFormatError, InputError
from resift.evaluation.readers import Retrieved, numbered_lines, run_lines, sort_like_trec
from resift.external.candidates import has_id, read_hits
from resift.ranking.fusion import compare, fuse
from resift.ranking.fusion.methods import fusion_method, method_options
from resift.text.snippets import clip, short_id
from resift.types import JsonObject, JsonValue, Ranking, StageKind


def run_fuse(args: argparse.Namespace) -> int:
    """Read the files, fuse per query, write the result."""
    files = [read_ranked_file(file) for file in args.files]
    names = list_names([file.stem for file in args.files])
    options = _fusion_options(args)
    for_programs = args.trec or args.json or in_pipe()
    k = args.k if args.k is not None or for_programs else 10
    for query in dict.fromkeys(query for lists in files for query in lists):
        lists = {name: lists.get(query, []) for name, lists in zip(names, files, strict=True)}
        if args.compare:
            _print_comparison(query, lists, options, k=10 if k is None else k, as_json=args.json)
        else:
            _print_ranking(query, fuse(lists, k=k, method=args.method, **options), args)
    return 0


def list_names(stems: list[str]) -> list[str]:
    """Return a unique name for each file; its position is appended to a stem that is not unique."""
    return [stem if stems.count(stem) == 1 else f"{stem}#{i}" for i, stem in enumerate(stems, start=1)]


def read_ranked_file(path: Path) -> dict[str, list[JsonValue]]:
    """Return the candidates of each query, best first; a JSONL file has a single, unnamed query."""
    from resift.cli.rerank import read_response  # imported here because it loads the model modules

    lines = numbered_lines(path, expected="JSONL or a TREC run")
    results = read_response(path.read_text("utf-8-sig"), str(path)) if lines[0][1].lstrip()[0] == "{" else None
    if results is not None:
        return {"": results}
    if lines[0][1].lstrip()[0] in '{["':
        return {"": [_parse_candidate(path, number, line) for number, line in lines]}
    per_query: dict[str, list[Retrieved]] = {}
    for row in run_lines(path, lines):
        per_query.setdefault(row.query, []).append(row)
    return {
        query: [{"id": row.id, "score": row.score} for row in sort_like_trec(rows)] for query, rows in per_query.items()
    }


def _parse_candidate(path: Path, number: int, line: str) -> JsonValue:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        message = "not JSON; write one JSON value per line"
        raise DataFormatError(message, file=str(path), line=number) from None
    if not isinstance(value, (str, dict)):
        raise DataFormatError("expected an object or a string id", file=str(path), line=number)
    if isinstance(value, dict) and not has_id(value):
        raise DataFormatError('no "id"; lists are fused by id', file=str(path), line=number)
    return value


def _fusion_options(args: argparse.Namespace) -> JsonObject:
    options: JsonObject = {}
    if args.weights is not None:
        try:
            options["weights"] = [float(weight) for weight in args.weights.split(",")]
        except ValueError:
            raise InputError(f"--weights is {args.weights!r}; pass comma-separated numbers: 0.7,0.3") from None
    for name in ("k_param", "normalize", "dialect"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    allowed = method_options(fusion_method(args.method))
    for name in options:
        if name not in allowed:
            raise InputError(f"{args.method} has no option --{name.replace('_', '-')}.")
    return options


def _print_ranking(query: str, ranking: Ranking, args: argparse.Namespace) -> None:
    if args.trec:
        _print_trec(query or "1", ranking, args.method)
    elif args.json:
        data = ranking.to_dict()
        print_json({**({"query": query} if query else {}), "hits": data["hits"], "trace": data["trace"]})
    elif in_pipe():
        for rank, hit in enumerate(ranking, start=1):
            values = rank, hit.score, hit.id, _ranks_in_lists(ranking, hit.id), hit.text
            print_tsv(*([query] if query else []), *values)
    else:
        best = max((hit.score or 0.0 for hit in ranking), default=0.0)
        rows = []
        for rank, hit in enumerate(ranking, start=1):
            score, ranks = hit.score or 0.0, _ranks_in_lists(ranking, hit.id)
            rows.append((rank, short_id(hit.id, 24), f"{score:.5f}", bar(score, best, 10), ranks, clip(hit.text, 200)))
        if query:
            print_text(f"query {query}")
        print_table(["#", "id", "score", "", "ranks", "text"], rows)
        if ranking.cut:
            print_text(f"… and {len(ranking.cut)} more; -k shows them.")


def _print_trec(query: str, ranking: Ranking, method: str) -> None:
    """Print the lines of a TREC run file; ids must not contain whitespace, which separates its fields."""
    for name in (query, *ranking.ids):
        if not name or name != "".join(name.split()) or not name.isprintable():
            raise InputError(
                f"The id {name!r} is empty or contains whitespace or control characters, which a TREC run does "
                "not allow. Use --json instead."
            )
    for rank, hit in enumerate(ranking, start=1):
        print_text(f"{query} Q0 {hit.id} {rank} {hit.score!r} resift-{method}")


def _ranks_in_lists(ranking: Ranking, id: str) -> str:
    steps = [step for step in ranking.path(id) if step.kind is StageKind.RETRIEVE]
    return " ".join(f"{step.source}:{step.rank}" for step in steps)


def _print_comparison(
    query: str, lists: dict[str, list[JsonValue]], options: JsonObject, *, k: int, as_json: bool
) -> None:
    for name in options.keys() - {"weights"}:
        flag = f"--{name.replace('_', '-')}"
        raise InputError(f"--compare uses the options of each engine; omit {flag}.")
    hits = [read_hits(candidates, source=name, strings_are="id", unique=False) for name, candidates in lists.items()]
    comparison = compare(hits, k=k, weights=options.get("weights"))
    disagreements = comparison.disagreements()
    if as_json:
        print_json({"query": query, "ranks": comparison.ranks(), "disagreements": disagreements})
        return
    rows = [(short_id(id, 20), *ranks.values()) for id, ranks in comparison.ranks().items()]
    print_table(["id", *comparison.orders], rows, stretch=0)
    print_text(f"The engines disagree about the rank of {len(disagreements)} of {len(rows)} hits.")
