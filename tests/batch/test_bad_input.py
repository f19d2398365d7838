"""Bad rows and bad files: each named with file and row, nothing lost, the others done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from resift.batch import IndexWork, run_batch
from resift.batch.inputs import plan_inputs
from resift.batch.reading import BYTES_AT_ONCE, read_shard
from resift.batch.shards import Attempts
from resift.errors import DataFormatError, InputError
from tests.batch.inline_engine import InlineEngine
from tests.batch.test_batch import LengthWork, bytes_of, rows_of, write_parquet

INLINE = InlineEngine()


def failed_in(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "failed.parquet").to_pylist()


def test_rows_of_a_damaged_page_are_set_aside_and_the_others_done(tmp_path):
    """The middle row group cannot be read: its rows are listed, those before and after are there."""
    source = tmp_path / "in.parquet"
    texts = pa.table({"text": [f"text number {n}" for n in range(300)]})
    pq.write_table(texts, source, row_group_size=100, compression="zstd", write_page_checksum=True)
    chunk = pq.ParquetFile(source).metadata.row_group(1).column(0)
    data = bytearray(source.read_bytes())
    for at in range(chunk.data_page_offset + 40, chunk.data_page_offset + 80):
        data[at] ^= 0xFF
    source.write_bytes(data)
    report = run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=120)
    done = [row["row"] for row in rows_of(tmp_path / "out")]
    failed = failed_in(tmp_path / "out")
    assert sorted(done + [row["row"] for row in failed]) == list(range(300))
    assert {row["row"] for row in failed} == set(range(100, 200))
    assert {row["file"] for row in failed} == {"in.parquet"}
    assert "damaged Parquet" in failed[0]["error"]
    assert report.written == 200


def test_rows_that_arrow_cannot_hold_are_set_aside(tmp_path):
    lines = [
        '{"text": "good"}',
        '{"text": "\\ud800"}',
        '{"text": "n", "n": 1' + "0" * 40 + "}",
        "",
        '{"body": "no text"}',
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines) + "\n")
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)
    assert [row["row"] for row in rows_of(tmp_path / "out")] == [0]
    errors = {row["row"]: row["error"] for row in failed_in(tmp_path / "out")}
    assert list(errors) == [1, 2, 3, 4]
    assert errors[3] == "an empty line"


def test_files_of_one_name_and_of_one_content_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        write_parquet(tmp_path / "in" / folder / "rows.parquet", ["x", "fail"])
    (tmp_path / "in" / "empty.jsonl").touch()
    (tmp_path / "in" / "also-empty.jsonl").touch()
    (tmp_path / "in" / ".hidden.jsonl").write_text("{}")
    report = run_batch(LengthWork(), tmp_path / "in", tmp_path / "out", engine=INLINE)
    assert (report.rows, report.written, report.failed) == (4, 2, 2)
    assert sorted(row["file"] for row in failed_in(tmp_path / "out")) == ["a/rows.parquet", "b/rows.parquet"]
    assert report.empty == ("in/also-empty.jsonl", "in/empty.jsonl")


def test_work_that_forgets_a_row_is_found_out(tmp_path):
    class Forgetful(LengthWork):
        def __call__(self, batch: Any) -> Any:
            return super().__call__(batch.slice(1))

    source = write_parquet(tmp_path / "in.parquet", ["a", "b", "c"])
    run_batch(Forgetful(), source, tmp_path / "out", engine=INLINE)
    [row] = failed_in(tmp_path / "out")
    assert (row["row"], row["error"]) == (0, "the work returned nothing for this row")


def test_addresses_that_cannot_be_opened_are_named(tmp_path):
    pytest.importorskip("fsspec")
    for address in (f"file://{tmp_path}/none.parquet", "nosuch://bucket/x.parquet"):
        with pytest.raises(DataFormatError, match="cannot be read"):
            run_batch(LengthWork(), address, tmp_path / "out", engine=INLINE)


def test_rows_come_from_memory_and_other_file_systems(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bulk/in.jsonl", "w") as file:
        file.write('{"text": "abc"}\n')
    report = run_batch(LengthWork(), "memory://bulk/*.jsonl", tmp_path / "out", engine=INLINE)
    assert report.written == 1


def test_a_folder_in_use_is_refused(tmp_path):
    from resift.file_lock import locked

    source = write_parquet(tmp_path / "in.parquet", ["a"])
    with locked(tmp_path / "out" / ".lock"), pytest.raises(InputError, match="another run"):
        run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)


def test_a_killed_job_blames_no_row(tmp_path):
    """Three drivers killed at the same row, then three workers: only the workers' deaths count."""
    notes = tmp_path / ".part-x.attempts"
    for _ in range(3):
        Attempts(notes).begin()
        Attempts(notes).row(7)
        Attempts.job_started(tmp_path)
    assert not Attempts(notes).careful
    for deaths in range(1, 4):
        Attempts(notes).begin()
        Attempts(notes).row(7)
        attempts = Attempts(notes)
        assert attempts.careful == (deaths >= 2)
        assert attempts.deadly == (frozenset({7}) if deaths == 3 else frozenset())


def test_a_huge_row_group_is_held_only_in_parts(tmp_path):
    """100,000 documents in one row group; a shard of them is read a few rows at a time."""
    source = tmp_path / "in.parquet"
    texts = [f"{n} " + "word " * 100 for n in range(100_000)]
    pq.write_table(pa.table({"text": texts}), source, row_group_size=100_000, compression=None)
    del texts
    _, shards = plan_inputs([str(source)], shard_rows=1000, columns=("text",))
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in read_shard(shards[99]))
    assert source.stat().st_size > 40 << 20
    assert most < 8 << 20


def test_rows_of_many_candidates_are_read_one_by_one(tmp_path):
    """Rows larger than what is held at once come alone, from Parquet and from JSONL."""
    many = ["candidate " * 50] * 10_000
    assert len(json.dumps(many)) > BYTES_AT_ONCE
    pq.write_table(pa.table({"text": ["a"] * 6, "many": [many] * 6}), tmp_path / "in.parquet")
    (tmp_path / "in.jsonl").write_text((json.dumps({"text": "a", "many": many}) + "\n") * 6)
    for name in ("in.parquet", "in.jsonl"):
        _, [shard] = plan_inputs([str(tmp_path / name)], shard_rows=10, columns=("text",))
        assert [batch.num_rows for batch, _ in read_shard(shard) if batch.num_rows] == [1] * 6, name


def test_metadata_has_no_keys_of_its_neighbours():
    rows = [{"id": "a", "text": "x", "metadata": {"p": 1}}, {"id": "b", "text": "y", "metadata": {"q": 2}}]
    made = [IndexWork()._chunks(row) for row in pa.RecordBatch.from_pylist(rows).to_pylist()]
    assert [json.loads(one[0]["metadata"]) for one in made] == [{"p": 1}, {"q": 2}]


def test_small_and_large_batches_give_the_same_bytes(tmp_path, monkeypatch):
    source = write_parquet(tmp_path / "in.parquet", [f"text {n}" for n in range(700)])
    run_batch(LengthWork(), source, tmp_path / "large", engine=INLINE, shard_rows=350)
    monkeypatch.setattr("resift.batch.shards.ROWS_AT_ONCE", 3)
    run_batch(LengthWork(), source, tmp_path / "small", engine=INLINE, shard_rows=350)
    assert bytes_of(tmp_path / "small") == bytes_of(tmp_path / "large")
