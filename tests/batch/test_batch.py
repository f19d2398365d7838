"""Bulk work: each row exactly once, the same bytes after any fault, bad rows named, memory bounded."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from resift._internal.sync import run_sync
from resift.batch import EmbedWork, IndexWork, RerankWork, load_shards, run_batch
from resift.batch.inputs import find_inputs, plan_inputs
from resift.batch.shards import run_shard
from resift.cli.main import main
from resift.errors import DataFormatError, InputError, ResiftError
from tests.batch.inline_engine import InlineEngine
from tests.batch.sample_work import LengthWork

INLINE = InlineEngine()


def write_parquet(path: Path, texts: list[Any]) -> Path:
    pq.write_table(pa.table({"id": [f"r{n}" for n in range(len(texts))], "text": pa.array(texts, pa.string())}), path)
    return path


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for part in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(part).to_pylist()]


def bytes_of(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".")
    }


@pytest.mark.slow
def test_every_row_comes_out_once_in_order(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", [f"text {n}" for n in range(250)])
    report = run_batch(LengthWork(), source, tmp_path / "out", workers=2, shard_rows=40)
    rows = rows_of(tmp_path / "out")
    assert [row["row"] for row in rows] == list(range(250))
    assert [row["id"] for row in rows] == [f"r{n}" for n in range(250)]
    assert (report.rows, report.written, report.failed, report.shards) == (250, 250, 0, 7)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["rows"], len(manifest["shards"])) == (250, 7)


def test_a_second_run_skips_what_is_there_and_another_job_is_refused(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", ["a", "b", "c"])
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=2)
    before = bytes_of(tmp_path / "out")
    again = run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=2)
    assert again.skipped == again.shards == 2
    assert bytes_of(tmp_path / "out") == before
    other = write_parquet(tmp_path / "other.parquet", ["x"])
    with pytest.raises(InputError, match="belongs to another job with different inputs"):
        run_batch(LengthWork(), other, tmp_path / "out", engine=INLINE, shard_rows=2)


def test_workers_start_only_for_missing_shards(tmp_path):
    """A job that is run again reports finished shards at once and passes only the others to its engine."""
    asked: list[list[int]] = []

    class Watched(InlineEngine):
        def run(self, work, shards, folder, *, on_rows):
            asked.append([shard.start for shard in shards])
            yield from super().run(work, shards, folder, on_rows=on_rows)

    source = write_parquet(tmp_path / "in.parquet", list("abcdef"))
    out, seen = tmp_path / "out", []
    run_batch(LengthWork(), source, out, engine=Watched(), shard_rows=2)
    next(out.glob("part-*-0000000002-*.parquet")).unlink()
    run_batch(LengthWork(), source, out, engine=Watched(), shard_rows=2, on_progress=seen.append)
    run_batch(LengthWork(), source, out, engine=Watched(), shard_rows=2)
    assert asked == [[0, 2, 4], [2], []]
    assert [(one.rows, one.skipped) for one in seen][-3:] == [(4, 4), (6, 4), (6, 4)]


def test_a_damaged_shard_is_named(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", ["a"])
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)
    [shard] = (tmp_path / "out").glob("part-*")
    shard.write_bytes(b"PAR1")
    with pytest.raises(ResiftError, match=rf"{shard.name} was damaged after it was written; delete it"):
        run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)
    shard.unlink()
    assert run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE).written == 1


def test_one_changed_byte_of_a_finished_shard_is_named(tmp_path):
    """The file still opens as Parquet, so only the digest in the manifest can tell."""
    source = write_parquet(tmp_path / "in.parquet", [f"text {i}" for i in range(40)])
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=20)
    shard = sorted((tmp_path / "out").glob("part-*"))[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    for _ in range(2):
        with pytest.raises(ResiftError, match=rf"{shard.name} was damaged after it was written; delete it"):
            run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=20)
    shard.unlink()
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=20)
    assert shard.read_bytes() == whole


@pytest.mark.slow
def test_a_killed_worker_changes_no_byte(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", [f"text {n}" for n in range(60)])
    run_batch(LengthWork(), source, tmp_path / "calm", engine=INLINE, shard_rows=20)
    work = LengthWork(kill_once=str(tmp_path / "killed"))
    run_batch(work, source, tmp_path / "stormy", workers=2, shard_rows=20)
    assert (tmp_path / "killed").exists()
    assert bytes_of(tmp_path / "stormy") == bytes_of(tmp_path / "calm")


@pytest.mark.slow
def test_a_row_that_kills_its_worker_fails(tmp_path):
    """Found by going row by row after two deaths; the others of its shard are done."""
    source = write_parquet(tmp_path / "in.parquet", ["a", "die", "bb", "fail", None])
    report = run_batch(LengthWork(), source, tmp_path / "out", workers=1, shard_rows=5)
    assert [row["row"] for row in rows_of(tmp_path / "out")] == [0, 2]
    failed = {row["row"]: row["error"] for row in pq.read_table(tmp_path / "out" / "failed.parquet").to_pylist()}
    assert failed == {1: "three workers died on this row", 3: "this row fails", 4: "TypeError"}
    assert report.failed == 3
    assert [path.name for path in (tmp_path / "out").glob(".*")] == [".lock"]


def test_too_many_failures_stop_the_job(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", ["fail"] * 10)
    with pytest.raises(ResiftError, match="more than 3"):
        run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=5, max_failed=3)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_interrupted_shard_leaves_nothing_behind(tmp_path, monkeypatch):
    """A full disk or a lost machine: no half file under the shard's name, and the next run does it."""
    source = write_parquet(tmp_path / "in.parquet", ["a", "b"])
    _, [shard] = plan_inputs([str(source)], shard_rows=10, columns=("text",))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        run_shard(LengthWork(), shard, tmp_path)
    assert not list(tmp_path.glob("part-*"))
    monkeypatch.undo()
    assert run_shard(LengthWork(), shard, tmp_path).written == 2


def test_jsonl_of_mixed_rows_is_read_row_by_row(tmp_path):
    lines = ['{"id": "a", "text": "one"}', "{oops", "[1]", '{"id": 7, "text": 3}', '{"text": "x", "more": [1, "y"]}']
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines) + "\n")
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE, shard_rows=2)
    assert [(row["row"], row["id"]) for row in rows_of(tmp_path / "out")] == [(0, "a")]
    failed = pq.read_table(tmp_path / "out" / "failed.parquet").to_pylist()
    assert [row["row"] for row in failed] == [1, 2, 3, 4]
    assert "not JSON" in failed[0]["error"]
    assert "mixed types" in failed[3]["error"]


def test_wrong_work_engines_and_endless_patterns_are_refused(tmp_path):
    """Each in a sentence, at once: `glob` takes minutes over a pattern of 50,000 brackets."""
    for work, inputs, engine, reason in (
        ("rerank", "in.jsonl", "local", "work is a str; pass BatchWork"),
        (RerankWork(), "[" * 50_000, "local", "One of the inputs is too long"),
        (RerankWork(), "in.jsonl", "spark", "pass 'local' or 'ray' or BatchEngine"),
    ):
        with pytest.raises(InputError, match=reason):
            run_batch(work, inputs, tmp_path / "out", engine=engine)


def test_bad_files_columns_and_places_are_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "a.txt").write_text("x")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "b.parquet")
    (tmp_path / "empty").mkdir()
    for name, reason in [
        ("a.parquet", "not Parquet, or damaged"),
        ("a.txt", "neither Parquet nor JSONL"),
        ("b.parquet", "no column 'text'; available: body"),
        ("nothing.parquet", "no such file"),
        ("empty", "No Parquet or JSONL"),
    ]:
        with pytest.raises((DataFormatError, InputError), match=reason):
            run_batch(LengthWork(), tmp_path / name, tmp_path / "out", engine=INLINE)


def test_an_empty_input_makes_an_empty_job(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", [])
    assert run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE).rows == 0
    assert (tmp_path / "out" / "manifest.json").exists()


def test_inputs_are_files_folders_patterns_and_addresses(tmp_path):
    one = write_parquet(tmp_path / "a.parquet", ["x"])
    two = write_parquet(tmp_path / "b.parquet", ["y"])
    assert find_inputs(tmp_path) == find_inputs(str(tmp_path / "*.parquet")) == [str(one), str(two)]
    pytest.importorskip("fsspec")
    assert [Path(address).name for address in find_inputs(f"file://{tmp_path}")] == ["a.parquet", "b.parquet"]
    assert run_batch(LengthWork(), f"file://{one}", tmp_path / "out", engine=INLINE).written == 1


def test_a_folder_that_cannot_be_listed_stops_the_job(tmp_path, monkeypatch):
    """Its rows would be missing from the output without a word."""
    for folder in ("open", "closed", ".hidden"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_text("{}\n")
    assert find_inputs(tmp_path) == [str(tmp_path / folder / "a.jsonl") for folder in ("closed", "open")]
    real = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataFormatError, match=r"closed.*: cannot be listed: Permission denied"):
        find_inputs(tmp_path)


def test_a_huge_row_group_is_read_in_small_parts(tmp_path):
    """100,000 rows in one row group: a worker holds only a few of them."""
    source = write_parquet(tmp_path / "in.parquet", [f"t{n}" for n in range(100_000)])
    _, shards = plan_inputs([str(source)], shard_rows=20_000, columns=("text",))
    assert run_shard(LengthWork(), shards[4], tmp_path).written == 20_000


@pytest.mark.real_model
class TestWithModels:
    """The real models on a few rows."""

    def test_rerank_gives_the_order_of_rerank(self, tmp_path):
        import resift

        texts = ["Lunch is at noon.", "Paris is the capital of France."]
        rows = {"query": ["capital of France?", " "], "candidates": [texts, texts], "id": ["q1", "q2"]}
        pq.write_table(pa.table(rows), tmp_path / "in.parquet")
        report = run_batch(RerankWork(), tmp_path / "in.parquet", tmp_path / "out", engine=INLINE)
        [row] = rows_of(tmp_path / "out")
        ranking = resift.rerank("capital of France?", texts)
        assert row["order"] == [int(hit.id) for hit in ranking] == [1, 0]
        assert row["scores"] == [hit.score for hit in ranking]
        assert (row["tier"], row["degraded"], report.failed) == ("cross-encoder", False, 1)

    @pytest.mark.slow
    def test_index_and_load(self, tmp_path, capsys):
        """`resift batch index --store` ends in an index that is searched like any other."""
        source = tmp_path / "in.jsonl"
        rows = [{"id": f"d{n}", "text": f"Passage number {n} about bees.", "page": n} for n in range(5)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ["batch", "index", str(source), "-o", str(tmp_path / "out"), "--workers", "1"]
        assert main([*words, "--store", str(tmp_path / "n.db"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["loaded"] == 5
        assert main(["search", "bees", "number", "3", "--store", str(tmp_path / "n.db"), "--ids", "-k", "1"]) == 0
        assert capsys.readouterr().out == "d3\n"

    def test_vectors_are_the_embedders(self, tmp_path):
        from resift import Embedder

        source = write_parquet(tmp_path / "in.parquet", ["bees", None])
        run_batch(EmbedWork(), source, tmp_path / "out", engine=INLINE)
        [row] = rows_of(tmp_path / "out")
        assert row["vector"] == run_sync(Embedder().embed(["bees"], kind="document"))[0].tolist()


def test_only_finished_index_jobs_are_loaded(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", ["a"])
    run_batch(LengthWork(), source, tmp_path / "out", engine=INLINE)
    with pytest.raises(InputError, match="only index jobs"):
        load_shards(tmp_path / "out", tmp_path / "n.db")
    with pytest.raises(InputError, match="finish the job"):
        load_shards(tmp_path, tmp_path / "n.db")


def test_documents_are_cut_into_named_chunks():
    batch = pa.RecordBatch.from_pylist([{"id": "d", "title": "Bees", "text": "word " * 50, "page": 3, "row": 0}])
    rows = IndexWork(words=20, overlap=5).split(batch.to_pylist()[0])
    assert [row["id"] for row in rows][:2] == ["d#1", "d#2"]
    assert json.loads(rows[0]["metadata"]) == {"title": "Bees", "page": 3, "chunk": 1}
    assert rows[0]["text"].startswith("Bees\n\nword")


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)
@pytest.mark.slow
def test_ray_does_the_same_and_survives_a_killed_actor(tmp_path):
    """Start, 200 rows, one killed actor, stop: the bytes of the local run."""
    pytest.importorskip("ray")
    from resift.batch.engines import RayEngine

    source = write_parquet(tmp_path / "in.parquet", [f"text {n}" for n in range(200)])
    run_batch(LengthWork(), source, tmp_path / "local", engine=INLINE, shard_rows=50)
    work = LengthWork(kill_once=str(tmp_path / "killed"))
    report = run_batch(work, source, tmp_path / "ray", engine=RayEngine(1), shard_rows=50)
    assert (tmp_path / "killed").exists()
    assert report.written == 200
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "local")
