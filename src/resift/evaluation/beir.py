"""A BEIR folder: corpus.jsonl, queries.jsonl, qrels/<split>.tsv."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from resift.errors import DataFormatError, did_you_mean
from resift.evaluation.text_files import json_rows
from resift.evaluation.trec import Qrels, read_qrels
from resift.types import JsonMapping, JsonObject
from resift.validation import check_arguments


@dataclass(frozen=True, slots=True)
class Collection:
    """One split of a collection: the judged queries and their judgements. The corpus is read on demand."""

    folder: Path
    split: str
    queries: Mapping[str, str]
    qrels: Qrels

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def corpus_file(self) -> Path:
        """The documents; may be absent where a pipeline brings its own store."""
        return self.folder / "corpus.jsonl"

    def corpus_digest(self) -> str:
        """Return a digest of the documents, "" where there are none."""
        if not self.corpus_file.exists():
            return ""
        with self.corpus_file.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def documents(self) -> Iterator[JsonObject]:
        """Yield the documents: title and text as one text, and the metadata."""
        seen: dict[str, int] = {}
        for line, row in json_rows(self.corpus_file, expected="documents"):
            id = _id(row, self.corpus_file, line, seen)
            parts = [_text(row, key, self.corpus_file, line) for key in ("title", "text")]
            metadata = row.get("metadata") or {}
            if not isinstance(metadata, Mapping):
                raise DataFormatError('"metadata" is no object', file=str(self.corpus_file), line=line)
            yield {"id": id, "text": " ".join(part for part in parts if part), "metadata": dict(metadata)}


@check_arguments
def read_collection(folder: Path | str, *, split: str = "test") -> Collection:
    """Read the judged queries of one split; raises DataFormatError with file and line."""
    folder = Path(folder)
    if not os.path.isdir(folder):
        message = "this is a file" if os.path.isfile(folder) else "no such folder"
        raise DataFormatError(
            f"{message}; name a BEIR folder with queries.jsonl and qrels/", file=str(folder)
        )
    file = _qrels_file(folder, split)
    qrels, first_lines = read_qrels(file)
    asked = folder / "queries.jsonl"
    texts, lines = _queries(asked)
    for query, line in first_lines.items():
        if query not in texts:
            raise DataFormatError(
                f"query {query!r} is judged but not in queries.jsonl", file=str(file), line=line
            )
        if not texts[query]:
            raise DataFormatError(f'query {query!r} has no "text"', file=str(asked), line=lines[query])
    return Collection(folder, split, {query: texts[query] for query in qrels}, qrels)


def _qrels_file(folder: Path, split: str) -> Path:
    file = folder / "qrels" / f"{split}.tsv"
    known = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
    if split not in known:
        raise DataFormatError(f"no such split. {did_you_mean(split, known)}", file=str(file))
    return file


def _queries(file: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Return the text of each query and its line; only what is judged will be asked, so a text may lack."""
    seen: dict[str, int] = {}
    found: dict[str, str] = {}
    for line, row in json_rows(file, expected="queries"):
        id = _id(row, file, line, seen)
        found[id] = _text(row, "text", file, line)
    return found, seen


def _id(row: JsonMapping, file: Path, line: int, seen: dict[str, int]) -> str:
    given = row.get("_id")
    if isinstance(given, bool) or not isinstance(given, (str, int)) or given == "":
        raise DataFormatError('no "_id"; each line needs one', file=str(file), line=line)
    id = str(given)
    if id in seen:
        raise DataFormatError(f"id {id!r} is already in line {seen[id]}", file=str(file), line=line)
    seen[id] = line
    return id


def _text(row: JsonMapping, key: str, file: Path, line: int) -> str:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        message = f'"{key}" is a {type(value).__name__}, not a string'
        raise DataFormatError(message, file=str(file), line=line)
    return (value or "").strip()
