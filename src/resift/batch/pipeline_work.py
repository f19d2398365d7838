"""Work with a pipeline file: answer queries with their traces, or record raw scores for tuning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from resift._internal.files import atomic_file
from resift._internal.sync import run_sync
from resift.batch.job import MANIFEST
from resift.batch.work import (
    STATUS_COLUMNS,
    OutputRow,
    Row,
    StopJobError,
    map_rows,
    ranking_status,
    require_query,
    text_or_none,
    to_batch,
)
from resift.errors import InputError, ResiftError, require
from resift.evaluation.recording import (
    Header,
    RecordedQuery,
    header_line,
    make_header,
    query_line,
    raw_scores,
)
from resift.evaluation.running import cache_key, code_digest
from resift.evaluation.systems import System, find_system
from resift.pipeline.pipeline import Pipeline
from resift.protocols import CanReopenVectors
from resift.types import to_json

if TYPE_CHECKING:
    from pyarrow import RecordBatch

RECORDING = "recording.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateWork:
    """Answers the `query` of each row: `ids` and `scores`, best first, and `trace`.

    `pipeline` is a YAML file. `trace` is the complete ranking as JSON: `Ranking.from_json` reads it, for
    `why`, `explain` and recordings.
    """

    pipeline: str
    k: int = 100
    query_column: str = "query"

    kind = "eval"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return (self.query_column,)

    def describe(self) -> dict[str, object]:
        """Return the options and the digest of the pipeline and its stores."""
        return {"k": self.k, "query": self.query_column, **_pipeline_identity(self.pipeline)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the answers."""
        columns = {"id": "text", "ids": "texts", "scores": "scores", **STATUS_COLUMNS, "trace": "text"}
        return to_batch(map_rows(batch.to_pylist(), self._search), columns)

    def _search(self, row: Row) -> list[OutputRow]:
        query = require_query(row, self.query_column)
        ranking = _open_pipeline(self.pipeline).rank(query, k=self.k)
        return [
            {
                "id": text_or_none(row.get("id")),
                "ids": ranking.ids,
                "scores": [hit.score for hit in ranking],
                **ranking_status(ranking),
                "trace": to_json({"query": query, **ranking.to_dict()}),
            }
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWork:
    """Records raw scores for the `query` of each row. Rows have an `id`, and may have `qrels` and `split`.

    `qrels` are the relevance grades: a mapping id -> grade, a list of structs with `id` and `grade`, or a
    list of ids, which get grade 1. `write_recording` merges the shards into one file for `resift tune`.
    """

    pipeline: str
    depth: int = 20
    query_column: str = "query"

    kind = "record"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return (self.query_column, "id")

    def describe(self) -> dict[str, object]:
        """Return the options, the digest of the pipeline and its stores, and the recording's header."""
        identity = _pipeline_identity(self.pipeline)
        pipeline, system = _open_pipeline(self.pipeline), _find_system(self.pipeline)
        header = make_header(pipeline, system, key=identity["key"], depth=self.depth)
        return {"query": self.query_column, **identity, "header": asdict(header)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the lines of the recording."""
        return to_batch(map_rows(batch.to_pylist(), self._record), {"id": "text", "line": "text"})

    def _record(self, row: Row) -> list[OutputRow]:
        query, id = require_query(row, self.query_column), text_or_none(row.get("id"))
        if id is None:
            raise InputError("id is null; a recorded query needs one.")
        qrels = read_grades(row.get("qrels"))
        try:
            scores = run_sync(raw_scores(_open_pipeline(self.pipeline), query, self.depth))
        except ResiftError as exc:
            # A store or a reranker failed, not the row, and a recording must be complete.
            raise StopJobError(str(exc)) from exc
        recorded = RecordedQuery(query=id, split=str(row.get("split") or "test"), qrels=qrels, **scores)
        return [{"id": id, "line": query_line(recorded)}]


def write_recording(folder: str | Path) -> Path:
    """Merge the shards of a finished record job, in the order of its inputs, into one file."""
    pq = require("pyarrow.parquet", extra="batch")
    path = Path(folder)
    manifest = json.loads((path / MANIFEST).read_text())
    if manifest["kind"] != "record":
        raise InputError(f"{path} is a {manifest['kind']} job; only record jobs make a recording.")
    order = [file["sha256"][:16] for file in manifest["inputs"]]
    names = sorted(
        (shard["name"] for shard in manifest["shards"]),
        key=lambda name: (order.index(name[len("part-") :][:16]), name),
    )
    with atomic_file(path / RECORDING) as file:
        file.write(header_line(Header(**manifest["options"]["header"])).encode())
        for name in names:
            for line in pq.read_table(path / name, columns=["line"]).column("line").to_pylist():
                file.write(line.encode())
    return path / RECORDING


def read_grades(qrels: object) -> dict[str, int]:
    """Return id -> grade from any of the accepted forms."""
    if qrels is None:
        return {}
    try:
        if isinstance(qrels, Mapping):
            # In a batch, every row has the keys of all rows, with null for the missing ones.
            return {str(id): int(grade) for id, grade in qrels.items() if grade is not None}
        grades = {}
        for item in qrels if isinstance(qrels, Iterable) else [None]:
            if isinstance(item, Mapping):
                grades[str(item["id"])] = int(item["grade"])
            elif isinstance(item, (list, tuple)):  # a map column of Parquet
                id, grade = item
                grades[str(id)] = int(grade)
            else:
                grades[str(item)] = 1
        return grades
    except (KeyError, TypeError, ValueError):
        raise InputError("qrels are neither id -> grade, nor structs with id and grade, nor ids.") from None


def _find_system(file: str) -> System:
    """Return the pipeline of a file, whose stores must exist."""
    system = find_system(file)
    if system.needs_corpus:
        raise InputError(f"{file}: name a pipeline file whose stores exist, each with its path.")
    return system


def _pipeline_identity(file: str) -> dict[str, str]:
    """Return a digest of everything that could change the answers: the file, its stores now, the code."""
    system = _find_system(file)
    # An index file counts its writes, including those that are still in the write-ahead log.
    owners = [ref.owner for ref in _open_pipeline(file).stores]
    writes = [
        owner.metadata().generation if isinstance(owner, CanReopenVectors) else None for owner in owners
    ]
    return {"pipeline": system.name, "key": cache_key(code_digest(), system.identity["file"], writes)}


@cache
def _open_pipeline(file: str) -> Pipeline:
    """Return this process's pipeline of a file."""
    return _find_system(file).open(None)
