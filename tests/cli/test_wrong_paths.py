"""Paths, ports and filters that cannot work: one clear line, an exit code, and no file changed or made."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path

import pytest

from tests.cli.test_every_command import call, place

__all__ = ["place"]

NOTES = "buy milk\ncall the bank\n"


@pytest.fixture
def files(place: Path) -> Path:
    (place / "life").mkdir()
    (place / "life" / "note.md").write_text("# Bank\nThe bank opens at nine.\n")
    (place / "todo.txt").write_text(NOTES)
    return place


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("store", ["life", "todo.txt", "typo.db", "todo.txt/x.db", ":memory:"])
@pytest.mark.parametrize(
    "words",
    [
        ("search", "bank", "--store"),
        ("ask", "bank", "--store"),
        ("index", "--upgrade", "--store"),
        ("doctor", "--store"),
        ("store", "optimise"),
        ("serve", "--port", "0", "--store"),
        ("mcp", "--store"),
    ],
)
def test_a_path_that_is_not_an_index_is_left_unchanged(words, store, files, capsys):
    before = listing(files)
    code, _, err = call(capsys, *words, store)
    assert (code, len(err.splitlines())) == (1, 1), err
    assert "Traceback" not in err
    assert "move" not in err
    assert listing(files) == before


@pytest.mark.parametrize("store", ["life", "todo.txt", "todo.txt/x.db", ":memory:"])
def test_indexing_never_writes_over_something_else(store, files, capsys):
    before = listing(files)
    code, _, err = call(capsys, "index", "life/note.md", "--text-only", "--store", store)
    assert (code, len(err.splitlines())) == (1, 1), err
    assert listing(files) == before


def test_a_missing_path_leaves_no_empty_index(files, capsys):
    before = listing(files)
    assert call(capsys, "index", "nope", "--store", "new.db")[0] == 1
    assert listing(files) == before


@pytest.mark.parametrize("port", ["99999", "-1", "abc"])
def test_an_impossible_port_is_wrong_usage(port, capsys):
    code, _, err = call(capsys, "serve", f"--port={port}")
    assert code == 2
    assert "65535" in err
    assert len(err.splitlines()) == 1


def test_an_unavailable_address_or_port_is_named(capsys):
    code, _, err = call(capsys, "serve", "--host", "nonsense.invalid", "--port", "0")
    assert code == 1
    assert "--host" in err
    assert "--port" not in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = call(capsys, "serve", "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "another --port" in err


def test_hints_can_be_pasted_into_a_shell(files, capsys):
    store = "my dir/my 'index'.db"
    os.mkdir("my dir")
    for words in (("index", "life", "--text-only", "--store", store), ("search", "x", "--store", "a b.db")):
        _, out, err = call(capsys, *words)
        line = next(line for line in (out + err).splitlines() if "resift " in line and "--store" in line)
        command = shlex.split(line[line.index("resift ") :].removeprefix("resift: "))
        assert words[-1] in command


def test_an_index_without_documents_suggests_no_search(files, capsys):
    os.mkdir("empty")
    _, out, err = call(capsys, "index", "empty", "--text-only", "--store", "x.db")
    assert "resift search" not in out + err
