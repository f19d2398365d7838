"""`resift rerank`: rerank documents from a file or a pipe; `resift fuse`: fuse ranked lists from files.

In a pipe, reranked rows are written in the format of the input, so the command works as a filter.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from resift._internal.sync import run_sync
from resift.cli.arguments import score_scale, select
from resift.cli.terminal import Progress, bar, in_pipe, out
from resift.errors import DataFormatError, InputError, shell_path
from resift.evaluation.readers import numbered_lines, run_lines, sort_like_trec
from resift.external.candidates import find_results, has_id, read_hits
from resift.external.records import BODY_NAMES, check_fields, no_text, read_text
from resift.ingest.chunking import ChunkSize, split_section
from resift.ingest.sources import decode, suffix_by_content
from resift.ingest.worker import FileReader
from resift.ranking.fusion import compare, fuse
from resift.ranking.fusion.methods import fusion_method, method_options
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.rescore import relevance, shipped_calibrator_for
from resift.reranking import rerank
from resift.text.snippets import clip, short_id
from resift.types import JsonObject, JsonValue, Ranking, StageKind
from resift.validation import type_name

RankedLists = dict[str, list[JsonValue]]

MAX_BYTES = 64 << 20
_PASSAGE_SUFFIXES = frozenset(
    [".html", ".htm", ".xhtml", ".pdf", ".docx", ".docm", ".pptx", ".pptm", ".xlsx", ".xlsm", ".epub", ".eml", ".ipynb"]
)


def run_rerank(args: argparse.Namespace) -> int:
    """Rerank and show the result; exit code 1 if nothing could be scored."""
    if not args.query.strip():
        raise InputError("The query is empty; pass the words or the question to rank for.")
    path = Path(args.query)
    if args.file is None and len(path.suffix) > 1 and " " not in path.suffix and path.is_file():
        command = f'resift rerank "your question" {shell_path(args.query)}'
        raise InputError(f"{args.query} is a file, and the query is missing. Run: {command}")
    documents = read_documents(choose_input(args.file, expected="documents"), form=args.format)
    candidates = _candidates(documents, args)
    with Progress("reranking") as progress:
        ranking = rerank(
            args.query,
            candidates,
            model=args.model or DEFAULT_MODEL,
            deadline_s=args.deadline,
            text_keys=args.text_key or None,
            on_progress=progress.update,
            scores="probability" if score_scale(args) == "probability" else "raw",
            **select(args, "k", "fields", "calibration"),
        )
    if ranking.trace and ranking.trace[0].note:
        out.note(f"{documents.name}: {ranking.trace[0].note}")
    for warning in documents.warnings[:5]:
        out.error(f"{documents.name}: {warning}")
    if ranking.degraded:
        out.error(ranking.reason or "degraded")
    if args.json:
        out.json({"query": args.query, **ranking.to_dict()})
    elif in_pipe():
        write_documents(sys.stdout, documents, list(zip(ranking.indices(), ranking.scores(), strict=True)))
    else:
        _print_ranking(ranking, args)
    scored = len(ranking) + len(ranking.cut) - len(ranking.unscored)
    return 0 if scored else 1


def _candidates(documents: Documents, args: argparse.Namespace) -> list[JsonObject]:
    """Return the rows with the requested ids; add a warning about rows without text."""
    keys = check_fields(args.fields, args.text_key or None)
    candidates = [{**row, "id": row.get(args.id_key)} if args.id_key else dict(row) for row in documents.rows]
    for position, candidate in enumerate(candidates if args.id_key else (), start=1):
        if candidate["id"] in (None, ""):
            raise DataFormatError(f"document {position} has no {args.id_key!r}", file=documents.name)
    num_empty = sum(not read_text(row, keys).text.strip() for row in documents.rows)
    if num_empty == len(documents.rows):
        reason = no_text(documents.rows[:50], keys, "--fields or --text-key")
        raise DataFormatError(f"no document has text: {reason}", file=documents.name)
    if num_empty:
        documents.warnings.append(f"{num_empty} of {len(documents.rows)} documents have no text and are ranked last")
    return candidates


def _print_ranking(ranking: Ranking, args: argparse.Namespace) -> None:
    scale = score_scale(args)
    scores: Sequence[float | None] = [hit.score for hit in ranking]
    if scale == "relevance":
        calibrator = shipped_calibrator_for(CrossEncoderReranker(args.model or DEFAULT_MODEL, lazy=True))
        pairs = zip(relevance(ranking, calibrator), ranking.scores(), strict=True)
        scores = [None if score is None else value for value, score in pairs]
    rows = []
    for rank, (hit, score) in enumerate(zip(ranking, scores, strict=True), start=1):
        text = None if score is None else format(score, "+.2f" if scale == "raw" else ".2f")
        rows.append((rank, text, hit.id, hit.text))
    out.table(("#", "score" if scale == "raw" else scale, "id", "text"), rows)
    if ranking.cut:
        out.text(f"… and {len(ranking.cut)} more; -k shows them.")


@dataclass
class Documents:
    """Rows of one file, with warnings about them."""

    name: str
    form: str
    rows: list[JsonObject] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    delimiter: str = ","


def choose_input(file: str | None, *, expected: str) -> str:
    """Return the file to read, or `-` if input is piped in."""
    if file is not None:
        return file
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(f"Name a file with {expected}, or use a pipe.")
    return "-"


def read_input(file: str, *, max_bytes: int, hint: str = "") -> bytes:
    """Return the content of a file, or of standard input for `-`."""
    name = "stdin" if file == "-" else file
    if file == "-":
        data = sys.stdin.buffer.read(max_bytes + 1)
    else:
        with Path(file).open("rb") as stream:
            data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise DataFormatError(f"larger than {max_bytes >> 20} MiB{hint}", file=name)
    return data


def refuse_index(data: bytes, name: str, expected: str) -> None:
    """Raise DataFormatError if the data is an index or another SQLite file."""
    if data.startswith(b"SQLite format 3\0"):
        raise DataFormatError(f"this is an index or another SQLite file; pass {expected}", file=name)


def read_documents(file: str, *, form: str | None = None) -> Documents:
    """Read the rows of a file, or of standard input for `-`; raise DataFormatError if there are none."""
    name = "stdin" if file == "-" else file
    data = read_input(file, max_bytes=MAX_BYTES, hint="; index it with resift index and search the index")
    if form is None and Path(file).suffix.lower() in _PASSAGE_SUFFIXES:
        return _read_passages(file)
    if file == "-" and suffix_by_content(data) == ".pdf":
        raise DataFormatError("this is a PDF; name the file instead of piping it in", file=name)
    refuse_index(data, name, "documents to rerank; search it with: resift search")
    if data.startswith((b"PAR1", b"ARROW1")):
        reason = "this is a Parquet or Arrow file; convert it to JSONL, or run: resift batch rerank"
        raise DataFormatError(reason, file=name)
    decoded = decode(data, file=name)
    documents = Documents(name, form or _detect_format(file, decoded.text))
    documents.warnings += filter(None, [decoded.flag])
    if documents.form == "lines":
        lines = enumerate(decoded.text.split("\n"), start=1)
        documents.rows += [{"id": str(i), "text": line.strip()} for i, line in lines if line.strip()]
    else:
        documents.rows += (_read_json if documents.form == "jsonl" else _read_csv)(decoded.text, documents)
    if not documents.rows:
        raise DataFormatError("the file is empty; expected one document per line, JSONL or CSV", file=name)
    return documents


def _read_passages(file: str) -> Documents:
    """Read a PDF, an office document, a web page or an e-mail, split into passages as by `resift index`."""
    documents = Documents(file, "jsonl")

    async def read() -> None:
        copies, reader = Counter[str](), FileReader()
        try:
            async for section in reader.sections(Path(file), name=file):
                documents.warnings += filter(None, (section.flag, section.problem))
                for row in split_section(section, file, size=ChunkSize(), row_ids="own", copies=copies):
                    documents.rows.append({key: row[key] for key in ("id", "text", "metadata")})
        finally:
            await reader.close()

    run_sync(read())
    if not documents.rows:
        raise DataFormatError("the file contains no text", file=file)
    return documents


def write_documents(stream: TextIO, documents: Documents, results: Iterable[tuple[int, float | None]]) -> None:
    """Write ranked rows in the format of the input; `results` are (position in the input, score) pairs.

    Lines stay unchanged. Other rows get `score` and `rank`; old values move to `input_score` and `input_rank`.
    """
    if documents.form == "lines":
        stream.writelines(f"{documents.rows[position]['text']}\n" for position, _ in results)
        return
    rows = []
    for rank, (position, score) in enumerate(results, start=1):
        row = documents.rows[position]
        names: dict[str, str] = {}
        for key in ("score", "rank"):
            names[key] = f"input_{key}"
            while names[key] in row:
                names[key] = f"input_{names[key]}"
        rows.append({**{names.get(name, name): value for name, value in row.items()}, "score": score, "rank": rank})
    if documents.form != "csv":
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(stream, columns, delimiter=documents.delimiter, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)


def _detect_format(file: str, text: str) -> str:
    suffix = Path(file).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix in (".jsonl", ".ndjson", ".json") or text.lstrip()[:1] == "{":
        return "jsonl"
    # Piped input has no file name. If its first line names columns that include a text, it is a CSV header.
    names = {name.strip().strip('"').lower() for name in re.split(r"[,;\t]", text.partition("\n")[0])}
    has_text = not names.isdisjoint({"title", *BODY_NAMES}) and not any(" " in name for name in names)
    return "csv" if not suffix and len(names) > 1 and has_text else "lines"


def _read_json(text: str, documents: Documents) -> Iterator[JsonObject]:
    results = read_response(text, documents.name)
    if results is None and text.lstrip()[:1] == "[":
        results = _parse_json(text, documents, line=None)
    lines = enumerate(text.split("\n"), start=1)
    items: Iterable[tuple[int | None, JsonValue]]
    items = ((number, _parse_json(line, documents, line=number)) for number, line in lines if line.strip())
    for number, item in items if results is None else ((None, item) for item in results):
        if not isinstance(item, (str, dict)):
            reason = f"this is {type_name(item)}; each document must be an object or a string"
            raise DataFormatError(reason, file=documents.name, line=number)
        yield {"text": item} if isinstance(item, str) else item


def read_response(text: str, name: str) -> list[JsonValue] | None:
    """Return the results in the JSON response of a search system; None for lists and JSONL."""
    if text.lstrip()[:1] != "{":
        return None
    try:
        response = json.loads(text)
    except (ValueError, RecursionError):
        return None  # JSONL, with one object per line
    results = find_results(response, name)
    if results is None and "\n" in text.strip():
        return [response]  # a single document that spans several lines
    return results


def _parse_json(text: str, documents: Documents, *, line: int | None) -> JsonValue:
    def read_constant(word: str) -> None:
        prefix = f"line {line}: " if line else ""
        documents.warnings.append(f"{prefix}{word} is not a JSON value and was read as null")

    try:
        return json.loads(text, parse_constant=read_constant)
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; write one JSON object per line", file=documents.name, line=line) from None


def _read_csv(text: str, documents: Documents) -> Iterator[JsonObject]:
    csv.field_size_limit(MAX_BYTES)
    try:
        dialect: type[csv.Dialect] = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    documents.delimiter = dialect.delimiter
    reader = csv.DictReader(io.StringIO(text, newline=""), dialect=dialect, restkey="more", restval="")
    try:
        for row in reader:
            yield {str(key).strip(): value for key, value in row.items() if key is not None}
    except csv.Error as exc:
        raise DataFormatError(f"not CSV: {exc}", file=documents.name, line=reader.line_num) from exc


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
            _print_fused(query, fuse(lists, k=k, method=args.method, **options), args)
    return 0


def list_names(stems: list[str]) -> list[str]:
    """Return a unique name for each file; its position is appended to a stem that is not unique."""
    return [stem if stems.count(stem) == 1 else f"{stem}#{i}" for i, stem in enumerate(stems, start=1)]


def read_ranked_file(path: Path) -> RankedLists:
    """Return the candidates of each query, best first; a JSONL file has a single, unnamed query."""
    lines = numbered_lines(path, expected="JSONL or a TREC run")
    results = read_response(path.read_text("utf-8-sig"), str(path)) if lines[0][1].lstrip()[0] == "{" else None
    if results is not None:
        return {"": results}
    if lines[0][1].lstrip()[0] in '{["':
        return {"": [_parse_candidate(path, number, line) for number, line in lines]}
    per_query: RankedLists = {row.query: [] for row in run_lines(path, lines)}
    for row in sort_like_trec(run_lines(path, lines)):
        per_query[row.query].append({"id": row.id, "score": row.score})
    return per_query


def _parse_candidate(path: Path, number: int, line: str) -> JsonValue:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; write one JSON value per line", file=str(path), line=number) from None
    if not isinstance(value, (str, dict)):
        raise DataFormatError("expected an object or a string id", file=str(path), line=number)
    if isinstance(value, dict) and not has_id(value):
        raise DataFormatError('no "id"; lists are fused by id', file=str(path), line=number)
    return value


def _fusion_options(args: argparse.Namespace) -> JsonObject:
    names = ("weights", "k_param", "normalize", "dialect")
    options = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.weights is not None:
        try:
            options["weights"] = [float(weight) for weight in args.weights.split(",")]
        except ValueError:
            raise InputError(f"--weights is {args.weights!r}; pass comma-separated numbers: 0.7,0.3") from None
    allowed = method_options(fusion_method(args.method))
    for name in options:
        if name not in allowed:
            raise InputError(f"{args.method} has no option --{name.replace('_', '-')}.")
    return options


def _print_fused(query: str, ranking: Ranking, args: argparse.Namespace) -> None:
    if args.trec:
        _print_trec(query or "1", ranking, args.method)
    elif args.json:
        data = ranking.to_dict()
        out.json({**({"query": query} if query else {}), "hits": data["hits"], "trace": data["trace"]})
    elif in_pipe():
        for rank, hit in enumerate(ranking, start=1):
            values = rank, hit.score, hit.id, _ranks_in_lists(ranking, hit.id), hit.text
            out.tsv(*([query] if query else []), *values)
    else:
        best = max((hit.score or 0.0 for hit in ranking), default=0.0)
        rows = []
        for rank, hit in enumerate(ranking, start=1):
            score, ranks = hit.score or 0.0, _ranks_in_lists(ranking, hit.id)
            rows.append((rank, short_id(hit.id, 24), f"{score:.5f}", bar(score, best, 10), ranks, clip(hit.text, 200)))
        if query:
            out.text(f"query {query}")
        out.table(["#", "id", "score", "", "ranks", "text"], rows)
        if ranking.cut:
            out.text(f"… and {len(ranking.cut)} more; -k shows them.")


def _print_trec(query: str, ranking: Ranking, method: str) -> None:
    """Print the lines of a TREC run file; ids must not contain whitespace, which separates its fields."""
    for name in (query, *ranking.ids):
        if not name or name != "".join(name.split()) or not name.isprintable():
            reason = "is empty or contains whitespace or control characters, which a TREC run does not allow"
            raise InputError(f"The id {name!r} {reason}. Use --json instead.")
    for rank, hit in enumerate(ranking, start=1):
        out.text(f"{query} Q0 {hit.id} {rank} {hit.score!r} resift-{method}")


def _ranks_in_lists(ranking: Ranking, id: str) -> str:
    return " ".join(f"{step.source}:{step.rank}" for step in ranking.path(id) if step.kind is StageKind.RETRIEVE)


def _print_comparison(query: str, lists: RankedLists, options: JsonObject, *, k: int, as_json: bool) -> None:
    for name in options.keys() - {"weights"}:
        raise InputError(f"--compare uses the options of each engine; omit --{name.replace('_', '-')}.")
    hits = [read_hits(candidates, source=name, strings_are="id", unique=False) for name, candidates in lists.items()]
    comparison = compare(hits, k=k, weights=options.get("weights"))
    disagreements = comparison.disagreements()
    if as_json:
        out.json({"query": query, "ranks": comparison.ranks(), "disagreements": disagreements})
        return
    rows = [(short_id(id, 20), *ranks.values()) for id, ranks in comparison.ranks().items()]
    out.table(["id", *comparison.orders], rows, stretch=0)
    out.text(f"The engines disagree about the rank of {len(disagreements)} of {len(rows)} hits.")
