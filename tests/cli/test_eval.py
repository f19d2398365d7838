"""`resift eval` from the outside: files in, tables and JSON out, broken files named."""

from __future__ import annotations

import json
import re

import pytest

import resift
from resift.cli.main import main
from resift.evaluation.evaluated_systems import find_system
from tests.evaluation.small import write_collection

FILE = """
stores:
  - {name: docs, kind: sqlite, path: "${RESIFT_COLLECTION}", embedder: none}
k: 3
"""


@pytest.fixture
def folder(tmp_path):
    return write_collection(tmp_path / "small")


def answered(capsys, *words):
    code = main([*map(str, words), "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else None, out.err


def test_eval_prints_pipelines_side_by_side(folder, tmp_path, capsys):
    """A built-in pipeline and a pipeline file whose store is the collection's own index."""
    (tmp_path / "mine.yaml").write_text(FILE)
    words = ["eval", folder, "--pipeline", "bm25", "--pipeline", tmp_path / "mine.yaml", "--cache", tmp_path]
    code, data, err = answered(capsys, *words, "--per-query")
    assert code == 0
    assert [row["name"] for row in data["results"]] == ["bm25", "mine"]
    assert data["results"][0]["mean"]["RR"] == 1.0
    assert data["results"][1]["per_query"]["nDCG@10"]["q3"] == 1.0
    assert err == ""
    _, again, err = answered(capsys, *words)
    assert again["results"][0]["mean"] == data["results"][0]["mean"]
    assert "bm25: 5 of 5 results are from an earlier run" in err


def test_a_report_has_date_command_and_versions(folder, tmp_path, capsys):
    page = tmp_path / "report.html"
    (tmp_path / "mine.yaml").write_text(FILE)
    pipelines = ["--pipeline", "bm25", "--pipeline", tmp_path / "mine.yaml"]
    code, _, err = answered(capsys, "eval", folder, *pipelines, "--cache", tmp_path, "--report", page)
    assert (code, err) == (0, f"resift: report: {page}\n")
    text = page.read_text()
    assert f"<dd>resift eval {folder} --pipeline bm25" in text
    assert f"resift {resift.__version__}" in text
    assert re.search(r"<dt>date</dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d", text)
    assert "<dt>models</dt>" not in text, "neither has one"


def test_a_system_lists_its_models():
    assert find_system("bm25").models == ()
    assert find_system("default").models == ("BAAI/bge-small-en-v1.5", "cross-encoder/ms-marco-MiniLM-L-12-v2")


def test_run_files_against_judgments(tmp_path, capsys):
    (tmp_path / "q.txt").write_text("1 0 a 1\n2 0 b 1\n")
    (tmp_path / "one.run").write_text("1 Q0 a 1 2.0 t\n1 Q0 b 2 1.0 t\n3 Q0 b 2 1.0 t\n")
    code, data, err = answered(capsys, "eval", "--qrels", tmp_path / "q.txt", tmp_path / "one.run")
    assert code == 0
    assert data["results"][0]["mean"]["RR"] == 1.0
    assert data["results"][0]["mean_complete"]["RR"] == 0.5
    assert "1 judged queries are missing" in err
    words = ("eval", "--qrels", tmp_path / "q.txt", tmp_path / "one.run", "--complete", "--measures", "mrr")
    assert answered(capsys, *words)[1]["results"][0]["mean"] == {"RR": 0.5}


def test_broken_inputs_are_reported_with_file_and_line(folder, tmp_path, capsys):
    (tmp_path / "q.txt").write_text("1 0 a 1\n")
    (tmp_path / "bad.run").write_text("1 Q0 a 1 2.0 t\n1 Q0 a 2 1.0 t\n")
    (tmp_path / "other.run").write_text("7 Q0 a 1 2.0 t\n")
    cases = {
        "bad.run:2: document 'a' of query '1' is already on line 1": ["--qrels", "q.txt", "bad.run"],
        "other.run: none of the 1 queries in this file is judged": ["--qrels", "q.txt", "other.run"],
        "Unknown pipeline 'rff'. Did you mean 'rrf'?": [str(folder), "--pipeline", "rff"],
        "Name a pipeline": [str(folder)],
        "no such split": [str(folder), "--pipeline", "bm25", "--split", "dev"],
        "Unknown measure 'ndgc@10'": [str(folder), "--pipeline", "bm25", "--measures", "ndgc@10"],
    }
    for message, words in cases.items():
        full = [tmp_path / word if word.endswith((".run", ".txt")) else word for word in words]
        code, data, err = answered(capsys, "eval", *full, "--cache", tmp_path / "cache")
        assert (code, data) == (1, None)
        assert message in err
        assert err.count("\n") == 1


def test_a_folder_without_a_corpus_works_for_pipelines_with_their_own_store(folder, tmp_path, capsys):
    answered(capsys, "eval", folder, "--pipeline", "bm25", "--cache", tmp_path)
    index = next((tmp_path / "indexes").glob("*.db"))
    (folder / "corpus.jsonl").unlink()
    (tmp_path / "own.yaml").write_text(FILE.replace("${RESIFT_COLLECTION}", str(index)))
    code, data, _ = answered(capsys, "eval", folder, "--pipeline", tmp_path / "own.yaml", "--cache", tmp_path)
    assert (code, data["results"][0]["mean"]["RR"]) == (0, 1.0)
    code, _, err = answered(capsys, "eval", folder, "--pipeline", "bm25", "--cache", tmp_path)
    assert code == 1
    assert "corpus.jsonl: no such file" in err


def test_trec_covid_runs_have_the_published_numbers(data, capsys, tmp_path):
    """The best single run of round 2 has nDCG@10 0.4170, RRF(60) of both 0.4815."""
    folder = data / "trec-covid-runs"
    runs = sorted(folder.glob("round2.*.run.gz"))
    main(["fuse", *map(str, runs), "--trec"])
    (tmp_path / "rrf.run").write_text(capsys.readouterr().out)
    words = ["eval", "--qrels", folder / "qrels.round2.txt", tmp_path / "rrf.run", *runs]
    _, found, _ = answered(capsys, *words, "--measures", "nDCG@10")
    values = [row["mean"]["nDCG@10"] for row in found["results"]]
    assert values[0] == pytest.approx(0.4815, abs=0.0005)
    assert max(values[1:]) == pytest.approx(0.4170, abs=0.0005)
