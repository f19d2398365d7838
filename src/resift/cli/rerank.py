"""`resift rerank`: rerank documents from a file or a pipe with a cross-encoder.

The input format is inferred from the file name and the content. In a pipe, rows are written in the format of
the input, so that the command works as a filter between two other commands.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from resift._internal.sync import run_sync
from resift.cli.arguments import score_scale
from resift.cli.terminal import Progress, in_pipe, print_error, print_json, print_note, print_table, print_text
from resift.errors import DataFormatError, InputError, shell_path
from resift.external.candidates import find_results
from resift.external.records import BODY_NAMES, check_fields, no_text, read_text
from resift.ingest.sources import decode, suffix_by_content
from resift.rerankers.cross_encoder import DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.rescore import relevance, shipped_calibrator_for
from resift.reranking import rerank
from resift.types import JsonObject, JsonValue, Ranking
from resift.validation import type_name

MAX_BYTES = 64 << 20
_PASSAGE_SUFFIXES = {
    ".html", ".htm", ".xhtml", ".pdf", ".docx", ".docm", ".pptx", ".pptm", ".xlsx", ".xlsm", ".epub", ".eml",
    ".ipynb",
}  # fmt: skip


def run_rerank(args: argparse.Namespace) -> int:
    """Rerank and show the result; exit code 1 if nothing could be scored."""
    if not args.query.strip():
        raise InputError("The query is empty; pass the words or the question to rank for.")
    path = Path(args.query)
    if args.file is None and len(path.suffix) > 1 and " " not in path.suffix and path.is_file():
        raise InputError(
            f"{args.query} is a file, and the query is missing. "
            f'Run: resift rerank "your question" {shell_path(args.query)}'
        )
    documents = read_documents(choose_input(args.file, expected="documents"), form=args.format)
    candidates = _candidates(documents, args)
    with Progress("reranking") as progress:
        ranking = rerank(
            args.query,
            candidates,
            k=args.k,
            model=args.model or DEFAULT_MODEL,
            deadline_s=args.deadline,
            fields=args.fields,
            text_keys=args.text_key or None,
            on_progress=progress.update,
            scores="probability" if score_scale(args) == "probability" else "raw",
            calibration=args.calibration,
        )
    if ranking.trace and ranking.trace[0].note:
        print_note(f"{documents.name}: {ranking.trace[0].note}")
    for warning in documents.warnings[:5]:
        print_error(f"{documents.name}: {warning}")
    if ranking.degraded:
        print_error(ranking.reason or "degraded")
    if args.json:
        print_json({"query": args.query, **ranking.to_dict()})
    elif in_pipe():
        write_documents(sys.stdout, documents, list(zip(ranking.indices(), ranking.scores(), strict=True)))
    else:
        _print_ranking(ranking, args)
    scored = len(ranking) + len(ranking.cut) - len(ranking.unscored)
    return 0 if scored else 1


def _candidates(documents: Documents, args: argparse.Namespace) -> list[JsonObject]:
    """Return the rows with the requested ids; add a warning about rows without text."""
    keys = check_fields(args.fields, args.text_key or None)
    candidates = []
    for position, row in enumerate(documents.rows, start=1):
        candidate = {**row, "id": row.get(args.id_key)} if args.id_key else dict(row)
        if args.id_key and candidate["id"] in (None, ""):
            raise DataFormatError(f"document {position} has no {args.id_key!r}", file=documents.name)
        candidates.append(candidate)
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
    form = "+.2f" if scale == "raw" else ".2f"
    rows = [
        (rank, None if score is None else format(score, form), hit.id, hit.text)
        for rank, (hit, score) in enumerate(zip(ranking, scores, strict=True), start=1)
    ]
    print_table(("#", "score" if scale == "raw" else scale, "id", "text"), rows)
    if ranking.cut:
        print_text(f"… and {len(ranking.cut)} more; -k shows them.")


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
        raise DataFormatError(
            "this is a Parquet or Arrow file; convert it to JSONL, or run: resift batch rerank", file=name
        )
    decoded = decode(data, file=name)
    documents = Documents(name, form or _detect_format(file, decoded.text))
    if decoded.flag:
        documents.warnings.append(decoded.flag)
    if documents.form == "lines":
        lines = enumerate(decoded.text.split("\n"), start=1)
        documents.rows += [{"id": str(i), "text": line.strip()} for i, line in lines if line.strip()]
    else:
        read_rows = _read_json if documents.form == "jsonl" else _read_csv
        documents.rows += read_rows(decoded.text, documents)
    if not documents.rows:
        raise DataFormatError("the file is empty; expected one document per line, JSONL or CSV", file=name)
    return documents


def _read_passages(file: str) -> Documents:
    """Read a PDF, an office document, a web page or an e-mail, split into passages as by `resift index`."""
    from collections import Counter

    from resift.ingest.chunking import ChunkSize, split_section
    from resift.ingest.worker import FileReader

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


def write_documents(out: TextIO, documents: Documents, results: Iterable[tuple[int, float | None]]) -> None:
    """Write ranked rows in the format of the input; `results` are (position in the input, score) pairs.

    Lines stay unchanged. Other rows get `score` and `rank`. Existing values under these names move to
    `input_score` and `input_rank`; each further pass adds another `input_`.
    """
    if documents.form == "lines":
        out.writelines(f"{documents.rows[position]['text']}\n" for position, _ in results)
        return
    rows = []
    for rank, (position, score) in enumerate(results, start=1):
        row = dict(documents.rows[position])
        for key in ("score", "rank"):
            if key in row:
                new_name = f"input_{key}"
                while new_name in documents.rows[position]:
                    new_name = f"input_{new_name}"
                row = {new_name if name == key else name: value for name, value in row.items()}
        rows.append({**row, "score": score, "rank": rank})
    if documents.form == "csv":
        columns = list(dict.fromkeys(key for row in rows for key in row))
        writer = csv.DictWriter(out, columns, delimiter=documents.delimiter, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
        return
    out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


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
    items: Iterable[tuple[int | None, JsonValue]]
    if results is not None:
        items = ((None, item) for item in results)
    else:
        lines = enumerate(text.split("\n"), start=1)
        items = ((number, _parse_json(line, documents, line=number)) for number, line in lines if line.strip())
    for number, item in items:
        if not isinstance(item, (str, dict)):
            message = f"this is {type_name(item)}; each document must be an object or a string"
            raise DataFormatError(message, file=documents.name, line=number)
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
        message = "not JSON; write one JSON object per line"
        raise DataFormatError(message, file=documents.name, line=line) from None


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
