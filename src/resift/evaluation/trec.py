"""TREC run files and judgements (qrels), read as strictly as trec_eval reads them."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from resift.errors import DataFormatError
from resift.evaluation.text_files import numbered
from resift.validation import check_arguments

Qrels = dict[str, dict[str, int]]
"""Query id -> document id -> grade."""

Run = dict[str, list[str]]
"""Query id -> document ids, best first."""

RUN_COLUMNS = "qid Q0 docid rank score tag"
QRELS_COLUMNS = "qid iteration docid grade"


class Retrieved(NamedTuple):
    """One line of a run file."""

    line: int
    query: str
    id: str
    score: float


def run_lines(path: Path, lines: Sequence[tuple[int, str]] | None = None) -> Iterator[Retrieved]:
    """Yield the lines of a run file; duplicates are left to the caller."""
    for number, line in lines or numbered(path, expected=f"a TREC run: {RUN_COLUMNS}"):
        parts = line.split()
        if len(parts) != 6:
            message = f"{len(parts)} columns; a TREC run has 6: {RUN_COLUMNS}"
            raise DataFormatError(message, file=str(path), line=number)
        yield Retrieved(number, parts[0], parts[2], _score(path, number, parts[4]))


@check_arguments
def read_run(path: Path | str) -> Run:
    """Return each query's documents in trec_eval's order; a document that comes twice is refused."""
    path = Path(path)
    found: dict[str, dict[str, Retrieved]] = {}
    for one in run_lines(path):
        seen = found.setdefault(one.query, {})
        if one.id in seen:
            message = f"document {one.id!r} of query {one.query!r} is already in line {seen[one.id].line}"
            raise DataFormatError(f"{message}; keep one", file=str(path), line=one.line)
        seen[one.id] = one
    return {query: [one.id for one in in_trec_order(rows.values())] for query, rows in found.items()}


def in_trec_order(rows: Iterable[Retrieved]) -> list[Retrieved]:
    """Sort as trec_eval does: by score in single precision, equal scores by descending id, ranks ignored."""
    return sorted(rows, key=lambda one: (_single(one.score), one.id), reverse=True)


@check_arguments
def read_qrels(path: Path | str) -> tuple[Qrels, dict[str, int]]:
    """Return the judgements and each query's first line; reads TREC's four columns and BEIR's three."""
    path = Path(path)
    lines = numbered(path, expected=f"judgements: {QRELS_COLUMNS}")
    if _is_header(lines[0][1]):
        lines = lines[1:]
        if not lines:
            raise DataFormatError("only a header; no judgements", file=str(path), line=1)
    columns = len(_columns(lines[0][1]))
    if columns not in (3, 4):
        message = f"{columns} columns; judgements have 4 ({QRELS_COLUMNS}) or 3 (qid docid grade)"
        raise DataFormatError(message, file=str(path), line=lines[0][0])
    qrels: Qrels = {}
    first: dict[str, int] = {}
    for number, line in lines:
        query, id, grade = _judgement(path, number, line, columns)
        if id in qrels.setdefault(query, {}):
            message = f"document {id!r} of query {query!r} is judged twice; keep one line"
            raise DataFormatError(message, file=str(path), line=number)
        qrels[query][id] = grade
        first.setdefault(query, number)
    return qrels, first


def _judgement(path: Path, number: int, line: str, columns: int) -> tuple[str, str, int]:
    parts = _columns(line)
    if len(parts) != columns:
        message = f"{len(parts)} columns, but the lines before have {columns}"
        raise DataFormatError(message, file=str(path), line=number)
    try:
        grade = int(parts[-1])
    except ValueError:
        message = f"grade {parts[-1]!r} is no whole number"
        raise DataFormatError(message, file=str(path), line=number) from None
    if not -(2**31) < grade < 2**31:
        raise DataFormatError(f"grade {grade} is out of range", file=str(path), line=number)
    return parts[0].strip(), parts[-2].strip(), grade


def _columns(line: str) -> list[str]:
    # BEIR separates by tabs, and ids may then hold blanks.
    return line.split("\t") if line.count("\t") == 2 else line.split()


def _is_header(line: str) -> bool:
    # A header's last word is a name ("score"); anything with a digit in it is a broken grade instead.
    columns = _columns(line)
    last = columns[-1].strip().lower()
    return len(columns) in (3, 4) and last.replace("-", "").replace("_", "").isalpha() and last != "nan"


def _score(path: Path, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataFormatError(f"score {text!r} is no finite number", file=str(path), line=number)
    return score


def _single(score: float) -> float:
    """Round to single precision, as trec_eval keeps scores: what is equal there must be equal here."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", score))[0]
    except OverflowError:
        return math.copysign(math.inf, score)
    return rounded
