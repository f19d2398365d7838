"""Record in bulk what stores and reranker say of each question, for `resift tune` and replays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from resift._internal.atomic_files import atomic_file
from resift._internal.sync import run_sync
from resift.batch.arrow import RecordBatch
from resift.batch.manifest import MANIFEST
from resift.batch.pipelines import identity_of_pipeline, opened, subject_of
from resift.batch.work import NotTheRow, each_row, question_in, text_or_none, to_batch
from resift.errors import InputError, ResiftError, require
from resift.evaluation.recording import Header, Recorded, header_line, header_of, query_line, raw_scores
from resift.types import JsonMapping, JsonObject, JsonValue

RECORDING = "recording.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWork:
    """Rows with a `query` and an `id`, and perhaps `qrels` and `split`. Each becomes its line of a recording.

    `qrels` are the judgements: a mapping id -> grade, a list of structs with `id` and `grade`, or a list of
    ids, which then have grade 1. `write_recording` makes one file of the shards.
    """

    pipeline: str
    depth: int = 20
    query_column: str = "query"

    kind = "record"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return (self.query_column, "id")

    def describe(self) -> JsonObject:
        """Return the options, the digest of the pipeline and its stores, and the recording's header."""
        subject = subject_of(self.pipeline)
        identity = identity_of_pipeline(self.pipeline)
        header = header_of(opened(self.pipeline), subject, key=identity["key"], depth=self.depth)
        return {"query": self.query_column, **identity, "header": asdict(header)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of lines."""
        return to_batch(each_row(batch.to_pylist(), self._line), {"id": "text", "line": "text"})

    def _line(self, row: JsonMapping) -> list[JsonObject]:
        query, id = question_in(row, self.query_column), text_or_none(row.get("id"))
        if id is None:
            raise InputError("id is null; a recorded question needs one.")
        qrels = _grades(row.get("qrels"))
        try:
            said = run_sync(raw_scores(opened(self.pipeline), query, self.depth))
        except ResiftError as exc:
            # A store or a reranker that fails: the row is not to blame, and a recording must not lack it.
            raise NotTheRow(str(exc)) from exc
        recorded = Recorded(query=id, split=str(row.get("split") or "test"), qrels=qrels, **said)
        return [{"id": id, "line": query_line(recorded)}]


def write_recording(folder: str | Path) -> Path:
    """Put the lines of a finished record job, in the order of its inputs, into one file; return its path."""
    pq = require("pyarrow.parquet", extra="batch")
    place = Path(folder)
    manifest = json.loads((place / MANIFEST).read_text())
    if manifest["kind"] != "record":
        raise InputError(f"{place} is a {manifest['kind']} job; only record jobs make a recording.")
    order = [file["sha256"][:16] for file in manifest["inputs"]]
    names = sorted(
        (shard["name"] for shard in manifest["shards"]),
        key=lambda name: (order.index(name[len("part-") :][:16]), name),
    )
    with atomic_file(place / RECORDING) as file:
        file.write(header_line(Header(**manifest["options"]["header"])).encode())
        for name in names:
            for line in pq.read_table(place / name, columns=["line"]).column("line").to_pylist():
                file.write(line.encode())
    return place / RECORDING


def _grades(given: JsonValue) -> dict[str, int]:
    if given is None:
        return {}
    try:
        if isinstance(given, Mapping):
            # In a batch every row has the keys of all, null where it has none.
            return {str(id): int(grade) for id, grade in given.items() if grade is not None}
        return dict(_grade(one) for one in given)
    except (KeyError, TypeError, ValueError):
        raise InputError("qrels are neither id -> grade, nor structs with id and grade, nor ids.") from None


def _grade(one: JsonValue) -> tuple[str, int]:
    if isinstance(one, Mapping):
        return str(one["id"]), int(one["grade"])
    if isinstance(one, (list, tuple)):  # a map column of Parquet
        id, grade = one
        return str(id), int(grade)
    return str(one), 1
