"""Questions in bulk: answers with their trace."""

from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from resift._internal.sync import run_sync
from resift.batch import EvaluateWork, run_batch
from resift.batch.job import BatchProgress
from resift.cli.batch import show_progress
from resift.cli.main import main
from resift.errors import InputError
from resift.stores import SQLiteStore
from resift.types import Ranking
from tests.batch.inline_engine import InlineEngine

INLINE = InlineEngine()
QUESTIONS = [
    {"id": "q1", "query": "bees and honey"},
    {"id": "q2", "query": "steam engines"},
    {"id": "q3", "query": " "},
]


@pytest.fixture
def pipeline(tmp_path):
    documents = {"d1": "Bees make honey.", "d2": "Steam engines need water.", "d3": "Honey is sweet."}
    store = SQLiteStore(tmp_path / "docs.db", create=True)

    async def fill() -> None:
        await store.add([{"id": id, "text": text} for id, text in documents.items()])
        await store.close()

    run_sync(fill())
    file = tmp_path / "words.yaml"
    file.write_text("stores:\n  - name: docs\n    kind: sqlite\n    path: docs.db\n    embedder: none\n")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return file


def test_answers_come_with_their_trace(tmp_path, pipeline):
    work = EvaluateWork(pipeline=str(pipeline), k=2)
    report = run_batch(work, tmp_path / "q.jsonl", tmp_path / "out", engine=INLINE)
    assert (report.written, report.failed) == (2, 1)
    [part] = (tmp_path / "out").glob("part-*.parquet")
    rows = pq.read_table(part).to_pylist()
    assert [(row["id"], row["ids"][0]) for row in rows] == [("q1", "d1"), ("q2", "d2")]
    ranking = Ranking.from_json(rows[0]["trace"])
    assert ranking.ids == rows[0]["ids"]
    assert "bees" in ranking.why("d1").lower() or ranking.path("d1")


def test_an_index_that_changed_is_another_job(tmp_path, pipeline):
    work = EvaluateWork(pipeline=str(pipeline), k=2)
    run_batch(work, tmp_path / "q.jsonl", tmp_path / "out", engine=INLINE)
    store = SQLiteStore(tmp_path / "docs.db")
    run_sync(store.add([{"id": f"n{n}", "text": "Bees, bees, bees. " * 50} for n in range(200)]))
    run_sync(store.close())
    with pytest.raises(InputError, match="another job with different options"):
        run_batch(work, tmp_path / "q.jsonl", tmp_path / "out", engine=INLINE)


def test_the_command_estimates_time_and_cost(tmp_path, pipeline, capsys):
    words = ["batch", "eval", str(tmp_path / "q.jsonl"), "-o", str(tmp_path / "out"), "--workers", "1"]
    assert main([*words, "--pipeline", str(pipeline), "--price", "2"]) == 1
    told = capsys.readouterr()
    assert "1 row failed" in told.err
    assert "A million rows take" in told.out
    assert "at 2 per hour" in " ".join(told.out.split())


def test_the_progress_bar_shows_rate_and_failed_rows(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("INDEX_COLUMNS", "100")
    clock = iter(range(100))
    monkeypatch.setattr("resift.cli.terminal.Progress.__init__.__kwdefaults__", {"clock": lambda: next(clock)})
    with show_progress("rows") as progress:
        progress(BatchProgress(0, 9100, 0, 0.1))
        progress(BatchProgress(100, 9100, 0, 2.0))
        progress(BatchProgress(150, 9100, 3, 3.0, skipped=60))
    assert "rows (50.0/s)" in screen.getvalue()
    assert "rows (starting)" in screen.getvalue()
    last = screen.getvalue().rpartition("rows (30.0/s, 3 failed)")[2]
    assert "150/9100" in last
    assert "02:59" in last
