"""`resift compare` from the outside."""

from __future__ import annotations

import json

from resift.cli.main import main
from tests.evaluation.small import write_collection


def test_a_pipeline_compared_with_itself_shows_no_difference(tmp_path, capsys):
    folder = write_collection(tmp_path / "small")
    assert main(["compare", str(folder), "bm25", "bm25", "--cache", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {row["p"] for row in data["differences"]} == {1.0}
    assert {row["difference"] for row in data["differences"]} == {0.0}
    assert data["moved"] == {"bm25#2": []}


def test_compare_explains_why_a_hit_moved(tmp_path, capsys):
    """The share of each list in a hit that moved, and the weight of the list."""
    folder = write_collection(tmp_path / "small")
    stores = [
        f"- {{name: {name}, kind: sqlite, path: '${{RESIFT_COLLECTION}}', mode: text, embedder: none}}"
        for name in ("one", "two")
    ]
    fused = "\n".join(["stores:", *stores, "fusion: {method: weighted}", "shape: {mmr: 0.1}"])
    (tmp_path / "fused.yaml").write_text(fused)
    (tmp_path / "plain.yaml").write_text(fused.partition("shape")[0])
    shown = [str(tmp_path / name) for name in ("fused.yaml", "plain.yaml")]
    assert main(["compare", str(folder), *shown, "--cache", str(tmp_path), "--moved", "9"]) == 0
    message = capsys.readouterr().out
    assert " from one + " in message
    assert "one weight 0.5, two weight 0.5" in message


def test_compare_accepts_run_files(tmp_path, capsys):
    (tmp_path / "q.txt").write_text("1 0 a 1\n2 0 b 1\n")
    (tmp_path / "one.run").write_text("1 Q0 a 1 2 t\n2 Q0 x 1 2 t\n2 Q0 b 2 1 t\n")
    (tmp_path / "two.run").write_text("1 Q0 a 1 2 t\n2 Q0 b 1 2 t\n")
    words = ["--qrels", tmp_path / "q.txt", tmp_path / "one.run", tmp_path / "two.run", "--measures", "RR"]
    assert main(["compare", *map(str, words), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    row = data["differences"][0]
    assert (row["base"], row["other"], row["wins"], row["ties"]) == ("one", "two", 1, 1)
    assert data["moved"]["two"][0]["query"] == "2"


def test_compare_needs_two_pipelines(tmp_path, capsys):
    assert main(["compare", str(tmp_path), "bm25"]) == 1
    assert "two or more" in capsys.readouterr().err
