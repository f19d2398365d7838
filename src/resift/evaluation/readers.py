"""Readers of TREC runs, judgments (qrels) and BEIR folders, as strict as trec_eval; errors name file and line."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from resift.errors import DataFormatError, did_you_mean
from resift.types import JsonMapping, JsonObject
from resift.validation import check_arguments, type_name

MAX_BYTES = 1 << 30

Qrels = dict[str, dict[str, int]]  # query id -> document id -> grade
Run = dict[str, list[str]]  # query id -> document ids, best first

RUN_COLUMNS = "qid Q0 docid rank score tag"
QRELS_COLUMNS = "qid iteration docid grade"


class Retrieved(NamedTuple):
    """A line of a run file."""

    line: int
    query: str
    id: str
    score: float


@check_arguments
def read_run(path: Path | str) -> Run:
    """Return the documents of each query in trec_eval's order. A duplicate document is an error."""
    path = Path(path)
    queries: dict[str, dict[str, Retrieved]] = {}
    for row in run_lines(path):
        rows = queries.setdefault(row.query, {})
        if row.id in rows:
            message = f"document {row.id!r} of query {row.query!r} is already on line {rows[row.id].line}"
            raise DataFormatError(f"{message}; keep one", file=path, line=row.line)
        rows[row.id] = row
    return {query: [row.id for row in sort_like_trec(rows.values())] for query, rows in queries.items()}


def run_lines(path: Path, lines: Sequence[tuple[int, str]] | None = None) -> Iterator[Retrieved]:
    """Yield the lines of a run file, including duplicates."""
    for number, line in lines or numbered_lines(path, expected=f"a TREC run: {RUN_COLUMNS}"):
        columns = line.split()
        if len(columns) != 6:
            raise DataFormatError(f"{len(columns)} columns; a TREC run has 6: {RUN_COLUMNS}", file=path, line=number)
        try:
            score = float(columns[4])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise DataFormatError(f"score {columns[4]!r} is not a finite number", file=path, line=number)
        yield Retrieved(number, columns[0], columns[2], score)


def sort_like_trec(rows: Iterable[Retrieved]) -> list[Retrieved]:
    """Sort by single-precision score, then by descending id, like trec_eval. Ranks in the file are ignored."""
    return sorted(rows, key=lambda row: (c_float(row.score).value, row.id), reverse=True)


@check_arguments
def read_qrels(path: Path | str) -> tuple[Qrels, dict[str, int]]:
    """Return the judgments and the first line number of each query, from a TREC (4 columns) or BEIR file (3)."""
    path = Path(path)
    lines = numbered_lines(path, expected=f"judgments: {QRELS_COLUMNS}")
    # The last column of a header is a name such as "score". If it contains a digit, it is an invalid grade.
    first = _split_columns(lines[0][1])
    last = first[-1].strip().lower().replace("-", "").replace("_", "")
    if len(first) in (3, 4) and last.isalpha() and last != "nan":
        lines = lines[1:]
        if not lines:
            raise DataFormatError("contains only a header and no judgments", file=path, line=1)
    columns = len(_split_columns(lines[0][1]))
    if columns not in (3, 4):
        message = f"{columns} columns; judgments have 4 ({QRELS_COLUMNS}) or 3 (qid docid grade)"
        raise DataFormatError(message, file=path, line=lines[0][0])
    qrels: Qrels = {}
    first_lines: dict[str, int] = {}
    for number, line in lines:
        values = [value.strip() for value in _split_columns(line)]
        if len(values) != columns:
            message = f"{len(values)} columns, but the preceding lines have {columns}"
            raise DataFormatError(message, file=path, line=number)
        query, id = values[0], values[-2]
        if id in qrels.setdefault(query, {}):
            message = f"document {id!r} of query {query!r} is judged twice; keep one line"
            raise DataFormatError(message, file=path, line=number)
        try:
            qrels[query][id] = grade = int(values[-1])
        except ValueError:
            raise DataFormatError(f"grade {values[-1]!r} is not an integer", file=path, line=number) from None
        if not -(2**31) < grade < 2**31:
            raise DataFormatError(f"grade {grade} is out of range", file=path, line=number)
        first_lines.setdefault(query, number)
    return qrels, first_lines


def _split_columns(line: str) -> list[str]:
    # BEIR separates columns by tabs, so its ids may contain spaces.
    return line.split("\t") if line.count("\t") == 2 else line.split()


@dataclass(frozen=True, slots=True)
class Collection:
    """One split of a BEIR folder: queries with judgments. The corpus is read on demand."""

    folder: Path
    split: str
    queries: Mapping[str, str]
    qrels: Qrels

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    @property
    def corpus_file(self) -> Path:
        """The file with the documents. It may be missing if a pipeline has its own store."""
        return self.folder / "corpus.jsonl"

    def corpus_digest(self) -> str:
        """Return a digest of the documents, or "" if there is no corpus file."""
        if not self.corpus_file.exists():
            return ""
        with self.corpus_file.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def documents(self) -> Iterator[JsonObject]:
        """Yield the documents with their title and text joined, and with metadata."""
        lines: dict[str, int] = {}
        for line, row in json_rows(self.corpus_file, expected="documents"):
            id = _read_id(row, self.corpus_file, line, lines)
            parts = [_read_text(row, key, self.corpus_file, line) for key in ("title", "text")]
            metadata = row.get("metadata") or {}
            if not isinstance(metadata, Mapping):
                raise DataFormatError('"metadata" is not an object', file=self.corpus_file, line=line)
            metadata = {**({"title": parts[0]} if parts[0] else {}), **metadata}
            yield {"id": id, "text": " ".join(part for part in parts if part), "metadata": metadata}


@check_arguments
def read_collection(folder: Path | str, *, split: str = "test") -> Collection:
    """Read the judged queries of one split of a BEIR folder."""
    folder = Path(folder)
    if not os.path.isdir(folder):
        message = "this is a file" if os.path.isfile(folder) else "no such folder"
        raise DataFormatError(f"{message}; pass a BEIR folder with queries.jsonl and qrels/", file=folder)
    qrels_file = folder / "qrels" / f"{split}.tsv"
    splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
    if split not in splits:
        raise DataFormatError(f"no such split. {did_you_mean(split, splits)}", file=qrels_file)
    qrels, first_lines = read_qrels(qrels_file)
    queries_file = folder / "queries.jsonl"
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, row in json_rows(queries_file, expected="queries"):
        texts[_read_id(row, queries_file, line, lines)] = _read_text(row, "text", queries_file, line)
    for query, line in first_lines.items():
        if query not in texts:
            message = f"query {query!r} has judgments but is not in queries.jsonl"
            raise DataFormatError(message, file=qrels_file, line=line)
        if not texts[query]:
            raise DataFormatError(f'query {query!r} has no "text"', file=queries_file, line=lines[query])
    return Collection(folder, split, {query: texts[query] for query in qrels}, qrels)


def _read_id(row: JsonMapping, file: Path, line: int, lines: dict[str, int]) -> str:
    value = row.get("_id")
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise DataFormatError('no "_id"; every line must have one', file=file, line=line)
    id = str(value)
    if id in lines:
        raise DataFormatError(f"id {id!r} is already on line {lines[id]}", file=file, line=line)
    lines[id] = line
    return id


def _read_text(row: JsonMapping, key: str, file: Path, line: int) -> str:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise DataFormatError(f'"{key}" is {type_name(value)}, not a string', file=file, line=line)
    return (value or "").strip()


def json_rows(path: Path, *, expected: str) -> Iterator[tuple[int, JsonMapping]]:
    """Yield (line number, object) for each line of a JSONL file."""
    for number, line in numbered_lines(path, expected=expected):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise DataFormatError("not JSON; write one JSON object per line", file=path, line=number) from None
        if not isinstance(row, dict):
            raise DataFormatError(f"{type_name(row)}; write one JSON object per line", file=path, line=number)
        yield number, row


def numbered_lines(path: Path, *, expected: str) -> list[tuple[int, str]]:
    """Return (line number, line) for all non-blank lines. An empty file is an error."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), start=1) if line.strip()]
    if not lines:
        raise DataFormatError(f"the file is empty; expected {expected}", file=path)
    return lines


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, which may be gzipped."""
    try:
        if path.is_dir():
            raise DataFormatError("this is a folder; pass a file", file=path)
        if not path.exists():
            raise DataFormatError("no such file", file=path)
        if path.stat().st_size > MAX_BYTES:
            raise DataFormatError("larger than 1 GiB; split it", file=path)
        raw = _read_gzip(path) if path.suffix == ".gz" else path.read_bytes()
    except OSError as exc:  # for example, the name is too long or permission is missing
        raise DataFormatError(f"cannot be read: {exc.strerror}", file=str(path)[:200]) from exc
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw[: exc.start].count(b"\n") + 1
        raise DataFormatError("not UTF-8 text; convert it first", file=path, line=line) from None
    if "\0" in text:
        raise DataFormatError("this is a binary file; expected text", file=path)
    # Not splitlines(): texts may contain U+2028 and similar characters, which do not end a line.
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read_gzip(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataFormatError("not a complete gzip file", file=path) from None
    if len(raw) > MAX_BYTES:
        raise DataFormatError("larger than 1 GiB when unpacked; split it", file=path)
    return raw
