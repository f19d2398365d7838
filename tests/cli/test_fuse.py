"""`resift fuse` and the command line around it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from resift.cli.main import main


@pytest.fixture
def lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bm25.jsonl").write_text('{"id": "a", "text": "alpha", "score": 3}\n\n{"id": "b", "text": "beta"}\n')
    (tmp_path / "dense.jsonl").write_text('"b"\n"c"\n')
    (tmp_path / "one.run").write_text("q1 Q0 a 2 0.5 x\nq1 Q0 b 1 0.9 x\nq2 Q0 c 1 1 x\n")
    with gzip.open(tmp_path / "two.run.gz", "wt") as file:
        file.write("q1 Q0 a 1 7 y\n")
    return tmp_path


def fused(capsys, *words: str) -> list[dict]:
    assert main(["fuse", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_jsonl_lists(lists, capsys):
    """Piped output is JSON, whole hits and the trace."""
    (answer,) = fused(capsys, "bm25.jsonl", "dense.jsonl")
    assert [hit["id"] for hit in answer["hits"]] == ["b", "a", "c"]
    assert answer["hits"][0]["text"] == "beta"


def test_run_files_are_fused_per_query_by_score(lists, capsys):
    """TREC runs: the score column decides, as in trec_eval; gzip is read too."""
    first, second = fused(capsys, "one.run", "two.run.gz", "-k", "1")
    assert (first["query"], [hit["id"] for hit in first["hits"]]) == ("q1", ["a"])
    assert (second["query"], [hit["id"] for hit in second["hits"]]) == ("q2", ["c"])


def test_trec_output_is_a_run_file(lists, capsys):
    """What comes out can go in again."""
    assert main(["fuse", "one.run", "--trec"]) == 0
    (lists / "again.run").write_text(capsys.readouterr().out)
    assert [hit["id"] for hit in fused(capsys, "again.run")[0]["hits"]] == ["b", "a"]


def test_options_reach_the_method(lists, capsys):
    """Method, weights, constant, normalization, dialect."""
    (weighted,) = fused(capsys, "bm25.jsonl", "dense.jsonl", "--weights", "0,1")
    assert [hit["id"] for hit in weighted["hits"]] == ["b", "c"]
    (scaled,) = fused(capsys, "one.run", "--method", "linear", "--normalize", "rank")[:1]
    assert scaled["hits"][0]["score"] == 1.0
    (as_qdrant,) = fused(capsys, "dense.jsonl", "--dialect", "qdrant")
    assert as_qdrant["hits"][0]["score"] == 0.5


def test_compare_shows_engines(lists, capsys):
    """How engines would disagree, as data in a pipe."""
    assert main(["fuse", "bm25.jsonl", "dense.jsonl", "--compare", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ranks"]["b"]["resift"] == 1
    assert main(["fuse", "bm25.jsonl", "dense.jsonl", "--compare", "--json", "--weights", "0,1"]) == 0
    weighted = json.loads(capsys.readouterr().out)["ranks"]
    assert weighted["c"]["resift"] == 2
    assert "a" not in weighted or weighted["a"]["resift"] is None
    assert main(["fuse", "bm25.jsonl", "--compare", "--k-param", "9"]) == 1
    assert "omit --k-param" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (b"", [], "empty"),
        (b"{bad\n", [], "list.txt:1: not JSON"),
        (b'{"id": "a"}\n[1]\n', [], "list.txt:2: expected an object"),
        (b'{"text": "a"}\n', [], 'no "id"'),
        (b"q1 Q0 a 1 0.5\n", [], "5 columns"),
        (b"q1 Q0 a 1 nan x\n", [], "not a finite number"),
        (b"q1 Q0 a 1 high x\n", [], "not a finite number"),
        (b"\xff\xfe\x00a", [], "not UTF-8"),
        (b"q1 \x00", [], "binary"),
        (b'"a"\n', ["--method", "rff"], "Did you mean 'rrf'"),
        (b'"a"\n', ["--weights", "x"], "--weights is 'x'"),
        (b'"a"\n', ["--normalize", "rank"], "rrf has no option --normalize"),
        (b'{"id": "a", "score": NaN}\n', [], "finite number"),
    ],
)
def test_bad_input_is_reported_with_file_and_line(tmp_path, monkeypatch, capsys, content, words, message):
    """File and line, exit code 1, nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_bytes(content)
    assert main(["fuse", "list.txt", *words]) == 1
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


def test_missing_files_and_folders(tmp_path, monkeypatch, capsys):
    """What is not there, what is a folder, what is no gzip."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.gz").write_bytes(b"not gzip")
    for name, message in [("nowhere.run", "no such file"), (".", "a folder"), ("x.gz", "not a complete gzip file")]:
        assert main(["fuse", name]) == 1
        assert message in capsys.readouterr().err


def run(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "resift.cli.main", *words], capture_output=True, text=True, **options)


def test_wrong_usage_exits_with_2():
    """Usage errors: code 2, one line that names the help."""
    answer = run("fuse")
    assert answer.returncode == 2
    assert "See: resift fuse --help" in answer.stderr


def test_help_and_version():
    """--help shows examples; --version the version."""
    assert "examples:" in run("fuse", "--help").stdout
    assert run("--version").stdout.startswith("resift ")


def test_fuse_ignores_a_closed_pipe(lists):
    """`resift fuse … | head -0` ends quietly."""
    command = f"{sys.executable} -m resift.cli.main fuse bm25.jsonl | true"
    answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=lists)
    assert "Traceback" not in answer.stderr


def test_pipes_get_tab_separated_values(tmp_path, monkeypatch, capsys):
    """In a pipe: rank, score, id, where it was found, text; no tab or line end within a value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.jsonl").write_text(json.dumps({"id": "a\tb", "text": "two\nlines"}) + "\n")
    assert main(["fuse", "odd.jsonl"]) == 0
    assert capsys.readouterr().out == "1\t0.0163934\ta b\todd:1\ttwo lines\n"
