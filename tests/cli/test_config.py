"""`resift config init | check | show | reference`."""

from __future__ import annotations

import asyncio
import json

import pytest

from resift.cli.main import main
from resift.stores import SQLiteStore


@pytest.fixture
def folder(tmp_path):
    async def fill():
        store = SQLiteStore(tmp_path / "docs.db", create=True)
        await store.add([{"id": "d1", "text": "some words"}])
        await store.close()

    asyncio.run(fill())
    return tmp_path


def test_check_prints_one_line_per_mistake(folder, capsys):
    """Exit code 1, one line per mistake with file and line number."""
    file = folder / "p.yaml"
    file.write_text("stores: [{name: docs, kind: sqlite, path: docs.db}]\nk: 0\nfusoin: {}\n")
    assert main(["config", "check", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in lines[:2]] == [f"{file}:2", f"{file}:3"]
    assert lines[2:] == ["2 mistakes"]


def test_check_as_json(folder, capsys):
    """Scripts get the same as data."""
    file = folder / "p.yaml"
    file.write_text("k: 0\n")
    assert main(["config", "check", "--json", str(file)]) == 1
    assert len(json.loads(capsys.readouterr().out)["mistakes"]) == 2
    file.write_text("stores: [{name: docs, kind: sqlite, path: docs.db}]\n")
    assert main(["config", "check", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_check_summarizes_a_valid_file(folder, capsys, monkeypatch):
    """OK and a summary, with notes on what will be missing at run time."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
    file = folder / "p.yaml"
    file.write_text(
        "stores: [{name: docs, kind: sqlite, path: docs.db}]\n"
        "rerank: {kind: voyage, api_key_env: VOYAGE_API_KEY}\n"
        "capabilities: [net.voyage]\n"
    )
    assert main(["config", "check", str(file)]) == 0
    out = capsys.readouterr().out
    assert "OK" in out
    assert "docs (sqlite)" in out
    assert "VOYAGE_API_KEY is not set" in out
    assert "db.docs:read is not granted" in out


@pytest.mark.parametrize("text", ["k: [", "k: 1\nk: 2\n", ""])
def test_check_of_broken_yaml_is_one_line(folder, capsys, text):
    """Syntax errors have file and line as well."""
    file = folder / "p.yaml"
    file.write_text(text)
    assert main(["config", "check", str(file)]) == 1
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:")
    assert rest == ["1 mistake"]


def test_check_of_a_missing_file(folder, capsys):
    """A file that is not there is named."""
    assert main(["config", "check", str(folder / "absent.yaml")]) == 1
    assert "absent.yaml: Cannot read the file" in capsys.readouterr().err


def test_show_prints_the_file_with_defaults(folder, capsys):
    """`show` gives YAML that loads again, with variables as written."""
    import yaml

    file = folder / "p.yaml"
    file.write_text("stores: [{name: docs, kind: sqlite, path: '${HOME_OF_DOCS}/docs.db'}]\n")
    assert main(["config", "show", str(file)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["k"] == 10
    assert shown["stores"][0]["path"] == "${HOME_OF_DOCS}/docs.db"
    assert main(["config", "show", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == shown


@pytest.mark.slow
def test_reference_prints_the_page(capsys):
    """`reference` is the page of the docs."""
    from resift.config.sections import reference_page

    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out == reference_page()


def test_check_describes_what_runs(tmp_path, capsys):
    """With RRF exactly 20 hits are reranked; blend and guard run unless switched off."""
    file = tmp_path / "p.yaml"
    stores = "stores: [{name: a, kind: memory}]\nrerank: {kind: semantic-bm25}\n"
    for extra, depth, blend in (
        ("", "adaptive", "on"),
        ("fusion: {method: rrf}\n", "top 20", "on"),
        ("gate: {floor: 0.01}\n", "top 20", "on"),
        ("guard: {blend: false}\n", "adaptive", "off"),
    ):
        file.write_text(stores + extra)
        assert main(["config", "check", str(file), "--json"]) == 0
        rows = {row["part"]: row["is"] for row in json.loads(capsys.readouterr().out)["summary"]}
        assert depth in rows["rerank"]
        assert (rows["blend"], rows["guard"]) == (blend, "on")


def test_init_writes_a_file_that_check_accepts(folder, capsys, monkeypatch):
    """The file searches the named index from its own folder, and an existing file is never replaced."""
    monkeypatch.chdir(folder)
    (folder / "my conf").mkdir()
    file = folder / "my conf" / "p.yaml"
    assert main(["config", "init", "--store", "docs.db", "-o", "my conf/p.yaml"]) == 0
    assert "'my conf/p.yaml'" in capsys.readouterr().out
    assert main(["config", "check", "--json", str(file)]) == 0
    rows = {row["part"]: row["is"] for row in json.loads(capsys.readouterr().out)["summary"]}
    assert (rows["fusion"], rows["blend"], rows["guard"]) == ("weighted", "on", "on")
    assert main(["search", "some words", "--pipeline", str(file), "--json"]) == 0
    assert "d1" in capsys.readouterr().out
    before = file.read_bytes()
    assert main(["config", "init", "-o", str(file)]) == 1
    assert "exists" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_init_writes_to_stdout_what_show_makes_of_a_minimal_file(folder, capsys):
    """Every value in the file is a default: leaving it out changes nothing."""
    import yaml

    assert main(["config", "init"]) == 0
    text = capsys.readouterr().out
    assert text.count("#") > 5
    (folder / "whole.yaml").write_text(text)
    data = yaml.safe_load(text)
    minimal = {"stores": data["stores"], "rerank": {"kind": data["rerank"]["kind"]}}
    (folder / "minimal.yaml").write_text(yaml.safe_dump(minimal))
    shown = []
    for name in ("whole.yaml", "minimal.yaml"):
        assert main(["config", "show", "--json", str(folder / name)]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    whole, least = shown
    assert {key: whole[key] for key in least} == least
    # Sections that a minimal file leaves out are compared by what they build in tests/config.
    assert whole.keys() - least.keys() == {"fetch", "guard"}
