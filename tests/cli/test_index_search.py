"""`resift index` and `resift search` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resift.cli.main import main


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "keys.md").write_text("# Keys\n\nRotate the keys every month.\n\n# Doors\n\nDoors are locked at night.\n")
    (folder / "pandas.txt").write_text("Giant pandas eat bamboo.")
    (folder / "rows.jsonl").write_text(
        '{"_id": "r1", "title": "Trains", "text": "Trains cross mountains.", "year": 2020}\n'
    )
    monkeypatch.chdir(tmp_path)
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main([*words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_index_then_search(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files in, hits out, with headings as context and paths as metadata."""
    code, report, _ = run(capsys, "index", "docs", "--store", "d.db", "--text-only")
    assert (code, report["documents"]) == (0, 4)
    code, ranking, _ = run(capsys, "search", "rotating keys", "--store", "d.db", "--no-rerank")
    assert code == 0
    first = ranking["hits"][0]
    assert first["text"] == "Keys\n\nRotate the keys every month."
    assert first["metadata"]["path"] == "docs/keys.md"
    assert first["metadata"]["heading"] == "Keys"
    assert "cut" not in ranking
    code, ranking, _ = run(capsys, "search", "trains", "--store", "d.db", "--text-only", "--explain")
    assert ranking["hits"][0]["id"] == "r1"
    assert ranking["why"]["r1"].startswith("Ranked 1st")


def test_search_opens_its_file_once(
    docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which embedder a file was built with is read from the file that is then searched."""
    from resift.stores.sqlite import sqlite_store as sqlite

    run(capsys, "index", "docs", "--store", "d.db", "--text-only")
    opened: list[str] = []

    class Counted(sqlite.DatabaseFile):
        def __init__(self, path: Any, **options: Any) -> None:
            opened.append(str(path))
            super().__init__(path, **options)

    monkeypatch.setattr(sqlite, "DatabaseFile", Counted)
    code, ranking, _ = run(capsys, "search", "rotating keys", "--store", "d.db", "--no-rerank")
    assert (code, len(ranking["hits"])) == (0, 1)
    assert opened == ["d.db"]


def test_search_prints_a_context_within_its_budget(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "index", "docs", "--store", "d.db", "--text-only")
    words = ("search", "rotate keys", "--store", "d.db", "--no-rerank", "-k", "1", "--context")
    assert main([*words, "200"]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("[1] Keys\nKeys\n\nRotate the keys every month.")
    assert "Doors are locked at night." in out  # the chunk after the hit
    context = run(capsys, *words, "16")[1]["context"]
    assert context["text"] == "[1] Keys\nKeys\n\nRotate the keys every month."
    assert context["tokens"] <= context["max_tokens"] == 16
    assert context["sources"][0]["spans"] == [{"id": context["sources"][0]["id"], "start": 0, "end": 34}]
    with pytest.raises(SystemExit):
        main([*words, "0"])
    assert "--context" in capsys.readouterr().err


def test_search_filters_by_metadata(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "index", "docs", "--store", "d.db", "--text-only")
    where = ("--where", "year=2020", "--no-rerank", "--store", "d.db")
    assert [hit["id"] for hit in run(capsys, "search", "trains keys pandas", *where)[1]["hits"]] == ["r1"]
    code, _, err = run(capsys, "search", "x", "--store", "d.db", "--where", "year")
    assert (code, "key=value" in err) == (1, True)


def test_a_bad_file_is_reported_and_the_others_are_indexed(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, one line on stderr, and everything else is in the index."""
    (docs / "broken.jsonl").write_text("{\n")
    code, report, err = run(capsys, "index", "docs", "--store", "d.db", "--text-only")
    assert (code, report["documents"]) == (1, 4)
    assert err.count("\n") == 1
    assert "broken.jsonl: line 1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["search", "x", "--store", "none.db"], "resift index"),
        (["index", "nowhere", "--store", "d.db", "--text-only"], "No such file"),
        (["index", "docs", "--store", "d.db", "--text-only", "--overlap", "500"], "overlap is 500"),
        (["search", "x", "--store", "docs/pandas.txt"], "not an index"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    docs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, _, err = run(capsys, *words)
    assert code == 1
    assert message in err
    assert err.count("\n") == 1


def test_terminal_output_has_one_card_per_hit(
    docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal: a summary with the next command, and a card per hit."""
    monkeypatch.setattr("resift.cli.search.in_pipe", lambda: False)
    assert main(["index", "docs", "--store", "d.db", "--text-only"]) == 0
    assert "Next: resift search" in capsys.readouterr().out
    assert main(["search", "bamboo", "--store", "d.db", "--no-rerank", "--explain"]) == 0
    message = capsys.readouterr().out
    assert "Giant pandas eat bamboo." in message
    assert "1st" in message
    assert main(["search", "zebra", "--store", "d.db", "--no-rerank"]) == 0
    assert "nothing found" in capsys.readouterr().err


def test_pipes_get_a_line_per_hit(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank, score, id and snippet with tabs between; --ids for ids alone; words need no quotes."""
    assert main(["index", "docs", "--store", "d.db", "--text-only"]) == 0
    capsys.readouterr()
    assert main(["search", "giant", "bamboo", "--store", "d.db", "--text-only"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0][0] == "1"
    assert all(len(row) == 4 for row in rows)
    assert "bamboo" in rows[0][3]
    assert main(["search", "bamboo", "--store", "d.db", "--text-only", "--ids"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == rows[0][2]
    assert main(["search", "zebra", "--store", "d.db", "--text-only"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "resift: nothing found\n")


@pytest.mark.real_model
def test_the_default_pipeline_uses_words_vectors_and_the_cross_encoder(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without options both models are used, and the trace tells it."""
    for package in ("numpy", "tokenizers"):
        pytest.importorskip(package)
    code, _, _ = run(capsys, "index", "docs", "--store", "d.db")
    assert code == 0
    code, ranking, _ = run(capsys, "search", "what do bears in China feed on", "--store", "d.db", "-k", "1")
    assert (code, ranking["degraded"]) == (0, False)
    assert ranking["hits"][0]["text"] == "Giant pandas eat bamboo."
    sources = {record.get("source") for record in ranking["trace"]}
    assert {"sqlite.vectors", "cross-encoder"} <= sources


def test_a_folder_without_text_leaves_no_index_behind(tmp_path, monkeypatch, capsys):
    """Exit code 1 and no empty file; an index that existed before stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["index", "empty", "--store", "new.db", "--text-only"]) == 1
    assert "Nothing to index" in capsys.readouterr().err
    (tmp_path / "empty" / "blank.txt").write_text(" ")
    assert main(["index", "empty", "--store", "new.db", "--text-only"]) == 1
    assert "no text was found" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]
    (tmp_path / "note.txt").write_text("A note.")
    assert main(["index", "note.txt", "--store", "new.db", "--text-only"]) == 0
    main(["index", "empty", "--store", "new.db", "--text-only"])
    assert (tmp_path / "new.db").exists()


def test_a_removed_command_names_its_replacement(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["sbom"])
    assert caught.value.code == 2
    assert "cdx.json" in capsys.readouterr().err
