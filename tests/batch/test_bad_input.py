"""Bad rows and bad files: each named with file and row, nothing lost, the others done."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from resift.batch import IndexWork, RerankWork, run_batch
from resift.batch.inputs import BATCH_BYTES, find_inputs, plan_inputs, read_shard
from resift.batch.shards import Attempts
from resift.cli.main import main
from resift.errors import DataFormatError, InputError, ResiftError
from tests.batch.inline_engine import InlineEngine
from tests.batch.sample_work import LengthWork
from tests.batch.test_batch import bytes_of, rows_of, write_parquet

INLINE = InlineEngine()


class CountedFiles(LocalFileSystem):
    """Local files by another name, which counts the bytes that are read of them."""

    protocol = "counted"
    bytes_read = 0

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        class Counted(io.FileIO):
            def read(self, size: int | None = -1, /) -> bytes:
                data = super().read(-1 if size is None else size) or b""
                CountedFiles.bytes_read += len(data)
                return data

        return Counted(path)


def failed_in(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "failed.parquet").to_pylist()


def test_rows_of_a_damaged_page_fail_and_the_others_are_processed(tmp_path):
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


def test_rows_that_arrow_cannot_hold_fail(tmp_path):
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


def test_files_with_equal_names_or_content_are_distinguished(tmp_path):
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


def test_a_missing_output_row_is_a_failure(tmp_path):
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


@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.slow
def test_in_memory_inputs_are_refused_before_workers_start(tmp_path, engine):
    if engine == "ray":
        pytest.importorskip("ray")
    with fsspec.open("memory://alone/in.jsonl", "w") as file:
        file.write('{"text": "abc"}\n')
    with pytest.raises(DataFormatError, match=r"in\.jsonl: is in the memory of this process"):
        run_batch(LengthWork(), "memory://alone", tmp_path / "out", engine=engine)


def test_a_missing_address_is_an_error():
    with pytest.raises(DataFormatError, match="cannot be read: no such file"):
        plan_inputs(["memory://alone/none.jsonl"], shard_rows=1, columns=())


def test_hidden_files_are_left_out(tmp_path):
    for name in (".cache/a.jsonl", "in/.b.jsonl", "in/c.jsonl", "d.jsonl", "e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "abc"}\n')
    here = [str(tmp_path / name) for name in ("d.jsonl", "in/c.jsonl")]
    assert find_inputs(tmp_path) == here
    assert find_inputs(f"file://{tmp_path}") == [f"file://{path}" for path in here]


@pytest.mark.parametrize("form", ["{}", "{}/**/*.*", "file://{}"])
def test_a_job_does_not_read_its_own_shards(tmp_path, form):
    """The output is inside the input's folder: the second run finds the same inputs, and all is done."""
    write_parquet(tmp_path / "in.parquet", ["a", "b"])
    inputs, out = form.format(tmp_path), tmp_path / "made" / "out"
    for skipped in (0, 1):
        report = run_batch(LengthWork(), inputs, out, engine=INLINE)
        assert (report.rows, report.skipped) == (2, skipped)


@pytest.mark.parametrize(
    ("name", "value", "minimum"), [("shard_rows", 0, 1), ("max_failed", -1, 0), ("workers", -1, 1)]
)
def test_counts_that_are_out_of_range_are_refused(tmp_path, name, value, minimum):
    source = write_parquet(tmp_path / "in.parquet", ["a"])
    with pytest.raises(InputError, match=rf"{name} is {value}; pass {minimum} or more"):
        run_batch(LengthWork(), source, tmp_path / "out", **{name: value})


@pytest.mark.parametrize("option", ["--price=0", "--price=nan", "--price=much", "--most-failed=-1"])
def test_options_that_are_out_of_range_are_refused(tmp_path, option, capsys):
    with pytest.raises(SystemExit):
        main(["batch", "embed", str(tmp_path), "-o", str(tmp_path / "out"), option])
    assert f"{option.partition('=')[2]} is not valid; use " in capsys.readouterr().err


def test_wrong_types_are_named_in_english(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("null\n7\n[1]\n2.5\n")
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)
    said = [row["error"].partition(";")[0] for row in failed_in(tmp_path / "out")]
    assert said == ["null", "an int", "a list", "a float"]
    bad = RerankWork()(pa.RecordBatch.from_pylist([{"row": 0, "query": "q", "candidates": 5}]))
    assert bad.column("error").to_pylist() == ["candidates is an int; pass a list, which may be empty."]
    bad = IndexWork()(pa.RecordBatch.from_pylist([{"row": 0, "text": 5}, {"row": 1, "text": None}]))
    number, null = bad.column("error").to_pylist()
    assert "text (int)" in number
    assert "none" in null
    bad = RerankWork()(pa.RecordBatch.from_pylist([{"row": 0, "query": 5, "candidates": []}]))
    assert bad.column("error").to_pylist() == ["query is an int; it must be a non-empty string."]


def test_jobs_of_0_2_resume_and_those_of_unknown_versions_do_not(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", ["a", "b"])
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=1)
    plan = tmp_path / "out" / "job.json"
    next((tmp_path / "out").glob("part-*.parquet")).unlink()
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "resift": "0.2.7"}))
    report = run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=1)
    assert (report.written, report.skipped) == (2, 1)
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "resift": "0.1.0"}))
    with pytest.raises(InputError, match="different resift"):
        run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=1)


def test_the_old_name_of_max_failed_is_accepted(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", ["fail"])
    with pytest.deprecated_call(), pytest.raises(ResiftError, match="more than 0"):
        run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, most_failed=0)


def test_a_folder_in_use_is_refused(tmp_path):
    from resift._internal.files import file_lock

    source = write_parquet(tmp_path / "in.parquet", ["a"])
    with file_lock(tmp_path / "out" / ".lock"), pytest.raises(InputError, match="another run"):
        run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)


def test_a_killed_job_blames_no_row(tmp_path):
    """Three drivers killed at the same row, then three workers: only the workers' deaths count."""
    notes = tmp_path / ".part-x.attempts"
    for _ in range(3):
        Attempts(notes).add("begin")
        Attempts(notes).add("7")
        Attempts.job_started(tmp_path)
    assert not Attempts(notes).careful
    for deaths in range(1, 4):
        Attempts(notes).add("begin")
        Attempts(notes).add("7")
        attempts = Attempts(notes)
        assert attempts.careful == (deaths >= 2)
        assert attempts.deadly == (frozenset({7}) if deaths == 3 else frozenset())


def test_a_huge_row_group_is_never_in_memory_as_a_whole(tmp_path):
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


def test_reading_continues_where_the_last_shard_ended(tmp_path):
    """A worker does not read the rows before its next shard again: a file is read about once."""
    source = tmp_path / "in.parquet"
    texts = [f"{n} " + "word " * 20 for n in range(20_000)]
    pq.write_table(pa.table({"text": texts}), source, row_group_size=20_000, compression=None)
    fsspec.register_implementation("counted", CountedFiles, clobber=True)
    _, shards = plan_inputs([f"counted://{source}"], shard_rows=333, columns=("text",))
    CountedFiles.bytes_read = 0
    # As one of two workers gets them.
    read = [batch for shard in shards[::2] for batch, _ in read_shard(shard)]
    assert CountedFiles.bytes_read < 3 * source.stat().st_size
    alone = [batch for shard in reversed(shards[::2]) for batch, _ in reversed(list(read_shard(shard)))]
    assert CountedFiles.bytes_read > 20 * source.stat().st_size
    assert read == alone[::-1]
    assert [batch.column("text")[0].as_py() for batch in read[:1]] == texts[:1]


def test_a_shard_that_is_tried_again_goes_back(tmp_path):
    """A reader that was left in the middle or is past a shard does not lose its rows."""
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(500)]}), source, row_group_size=200)
    _, shards = plan_inputs([str(source)], shard_rows=130, columns=("text",))
    for at in (2, 0, 0, 1, 3, 1):
        begun = read_shard(shards[at])
        next(begun)
        begun.close()
        rows = [row for batch, _ in read_shard(shards[at]) for row in batch.column("row").to_pylist()]
        assert rows == list(range(shards[at].start, shards[at].stop))


def test_rows_of_many_candidates_are_read_one_by_one(tmp_path):
    """Rows larger than what is held at once come alone, from Parquet and from JSONL."""
    many = ["candidate " * 50] * 10_000
    assert len(json.dumps(many)) > BATCH_BYTES
    pq.write_table(pa.table({"text": ["a"] * 6, "many": [many] * 6}), tmp_path / "in.parquet")
    (tmp_path / "in.jsonl").write_text((json.dumps({"text": "a", "many": many}) + "\n") * 6)
    for name in ("in.parquet", "in.jsonl"):
        _, [shard] = plan_inputs([str(tmp_path / name)], shard_rows=10, columns=("text",))
        assert [batch.num_rows for batch, _ in read_shard(shard) if batch.num_rows] == [1] * 6, name


def test_metadata_has_no_keys_of_its_other_rows():
    rows = [{"id": "a", "text": "x", "metadata": {"p": 1}}, {"id": "b", "text": "y", "metadata": {"q": 2}}]
    made = [IndexWork().split(row) for row in pa.RecordBatch.from_pylist(rows).to_pylist()]
    assert [json.loads(one[0]["metadata"]) for one in made] == [{"p": 1}, {"q": 2}]


def test_small_and_large_batches_give_the_same_bytes(tmp_path, monkeypatch):
    source = write_parquet(tmp_path / "in.parquet", [f"text {n}" for n in range(700)])
    run_batch(LengthWork(), source, tmp_path / "large", engine=INLINE, shard_rows=350)
    monkeypatch.setattr("resift.batch.shards.BATCH_ROWS", 3)
    run_batch(LengthWork(), source, tmp_path / "small", engine=INLINE, shard_rows=350)
    assert bytes_of(tmp_path / "small") == bytes_of(tmp_path / "large")
