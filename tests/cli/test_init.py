"""`resift init`: what it finds, what it asks, and what it refuses."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import pytest

from resift.cli.config import find_source, pipeline_text
from resift.cli.main import main
from resift.config import load_yaml
from resift.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    connection = sqlite3.connect("library.db")
    connection.executescript(
        "CREATE TABLE articles (nr INTEGER PRIMARY KEY, headline TEXT, body TEXT, note TEXT);"
        "INSERT INTO articles VALUES (1, 'Travel', 'Travel costs are signed off.', 'x'), (2, 'Lunch', 'At noon.', 'y');"
        "CREATE TABLE \"odd: 'name'\" (id INTEGER PRIMARY KEY, title TEXT);"
    )
    connection.close()
    return tmp_path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_flags_answer_everything_and_the_file_works(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "init",
        "--store",
        "library.db",
        "--table",
        "articles",
        "--text",
        "headline,note",
        "--id",
        "nr",
        "-o",
        "sub/p.yaml",
    ]
    assert main(argv) == 0
    assert "resift search WORDS --pipeline sub/p.yaml" in capsys.readouterr().out
    store = load_yaml(folder / "sub" / "p.yaml")["stores"][0]
    assert (store["kind"], list(store["fields"]), list(store["id"])) == ("sqlite-table", ["headline", "note"], ["nr"])
    text = (folder / "sub" / "p.yaml").read_text()
    (folder / "sub" / "p.yaml").write_text(text.partition("rerank:")[0])
    assert main(["search", "travel", "--pipeline", "sub/p.yaml", "--ids"]) == 0
    assert capsys.readouterr().out == "1\n"


def test_an_existing_file_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pipeline.yaml").write_text("mine")
    argv = ["init", "--store", "library.db", "--table", "articles"]
    assert main(argv) == 1
    assert "--force" in capsys.readouterr().err
    assert (folder / "pipeline.yaml").read_text() == "mine"
    assert main([*argv, "--force"]) == 0
    assert "articles" in (folder / "pipeline.yaml").read_text()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--store"),
        (["--store", "nowhere"], "does not exist"),
        (["--store", "library.db"], "articles"),
        (["--store", "library.db", "--table", "artikles"], "articles"),
        (["--store", "library.db", "--table", "articles", "--text", "bodi"], "body"),
        (["--store", "mysql://host/db"], "sql-statement"),
        (["--store", "notes.txt"], "resift index"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(
    folder: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes.txt").write_text("some notes")
    assert main(["init", *argv]) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "pipeline.yaml").exists()


def test_three_questions_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("library.db\narticles\nbody,headline\n"))
    assert main(["init"]) == 0
    asked = capsys.readouterr().err
    assert asked.count("?") == 3
    assert "headline" in asked
    assert list(load_yaml(folder / "pipeline.yaml")["stores"][0]["fields"]) == ["body", "headline"]


def test_folders_and_indexes_get_the_default_pipeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "docs").mkdir()
    assert main(["init", "--store", "docs", "-o", "a.yaml"]) == 0
    assert "resift index docs --store docs.db" in capsys.readouterr().out
    assert "kind: sqlite " in (folder / "a.yaml").read_text()


def test_odd_names_are_quoted_and_passwords_stay_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["init", "--store", "library.db", "--table", "odd: 'name'"]) == 0
    assert load_yaml(folder / "pipeline.yaml")["stores"][0]["table"] == "odd: 'name'"
    source = find_source("postgresql://me:s3cret@localhost/library")
    text = pipeline_text(source, "docs", {**source.arguments, "table": "docs", "fields": ["body"]})
    assert "s3cret" not in text
    (folder / "pg.yaml").write_text(text)
    monkeypatch.setenv("PGPASSWORD", "other")
    assert load_yaml(folder / "pg.yaml")["stores"][0]["dsn"] == "postgresql://me:other@localhost/library"


def test_database_folders_are_recognized(folder: Path) -> None:
    (folder / "lance" / "articles.lance").mkdir(parents=True)
    assert find_source("lance").tables == ["articles"]
    (folder / "chroma").mkdir()
    (folder / "chroma" / "chroma.sqlite3").touch()
    assert find_source("chroma").kind == "chroma-collection"
    (folder / "qdrant" / "collection").mkdir(parents=True)
    (folder / "qdrant" / "meta.json").write_text('{"collections": {"docs": {}}}')
    assert (find_source("qdrant").kind, find_source("qdrant").tables) == ("qdrant-collection", ["docs"])
    with pytest.raises(InputError, match="exist"):
        find_source("nothing")
