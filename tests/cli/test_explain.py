"""`resift explain` on rankings from files and pipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resift.cli.main import main
from tests.explain.rankings import fused_and_reranked


@pytest.fixture
def ranking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "ranking.json"
    file.write_text(fused_and_reranked().to_json(indent=2))
    return file


def test_json_has_ranks_and_reasons(ranking, capsys):
    assert main(["explain", "ranking.json", "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert message["columns"] == ["text", "vectors", "rrf", "rerank"]
    first = message["hits"][0]
    assert first == {
        "id": "f",
        "place": 1,
        "move": 4,
        "reason": "moved up from 5th to 1st by rerank: wise 9.00",
        "ranks": {"vectors": 4, "rrf": 5, "rerank": 1},
    }
    assert [hit["place"] for hit in message["hits"]] == [1, 2, 3, None, None, None]


@pytest.mark.parametrize("name", ["page.html", "page.svg", "page.txt"])
def test_pages_are_written(ranking, name, capsys):
    assert main(["explain", "ranking.json", "-o", name]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{name}\n")
    assert "rerank" in Path(name).read_text()


def test_one_hit_is_explained_in_words(ranking, capsys):
    assert main(["explain", "ranking.json", "--id", "a", "--json"]) == 0
    assert "cut: k=3" in json.loads(capsys.readouterr().out)["why"]


def test_short_json_of_search_lists_every_candidate(tmp_path, monkeypatch, capsys):
    """Without --explain the texts of dropped candidates are left out, but not their ids and ranks."""
    monkeypatch.chdir(tmp_path)
    Path("notes.jsonl").write_text("".join(json.dumps({"id": f"n{n}", "text": f"key {n}"}) + "\n" for n in range(5)))
    main(["index", "notes.jsonl", "--store", "n.db", "--text-only"])
    capsys.readouterr()
    main(["search", "key", "--store", "n.db", "--text-only", "-k", "2", "--json"])
    text = capsys.readouterr().out
    data = json.loads(text)
    assert data["candidates"] == 5
    Path("found.json").write_text(text)
    lost = next(f"n{n}" for n in range(5) if f"n{n}" not in [hit["id"] for hit in data["hits"]])
    main(["explain", "found.json", "--id", lost])
    assert "of 5 candidates and was cut" in " ".join(capsys.readouterr().out.split())
    main(["explain", "found.json", "-o", "page.html"])
    assert "2 of 5 candidates" in Path("page.html").read_text()
    del data["trace"]
    Path("bare.json").write_text(json.dumps(data))
    capsys.readouterr()
    main(["explain", "bare.json", "--id", lost])
    assert "no trace" in " ".join(capsys.readouterr().out.split())


def test_wrapped_rankings_and_jsonl_are_read(ranking, capsys):
    """The JSON of demo, search and fuse: a nested ranking, a ranking with its query, one ranking per line."""
    data = fused_and_reranked().to_dict()
    Path("demo.json").write_text(json.dumps({"ranking": data, "question": "who?"}))
    assert main(["explain", "demo.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == "who?"
    Path("two.jsonl").write_text(json.dumps({"query": "one", "hits": []}) + "\n" + json.dumps({**data, "query": "two"}))
    assert main(["explain", "two.jsonl", "--line", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == "two"


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("{", [], "not JSON"),
        ("[1]", [], 'expected an object with "hits"'),
        ('{"hits": 3}', [], 'no list of "hits"'),
        ('{"hits": [3]}', [], "not a ranking"),
        ('{"hits": [{"id": "a"}], "trace": [["x"]]}', [], "not a ranking"),
        ('{"hits": [{"id": "a", "score": "many"}]}', [], "not a ranking"),
        ('{"hits": []}', ["--line", "2", "--json"], "--line is 2, but the last line with a ranking is 1"),
        ('{"hits": []}', ["-o", "page.pdf"], "ends in .html, .svg or .txt"),
    ],
)
def test_other_files_are_rejected(content, words, message, ranking, capsys):
    Path("bad.json").write_text(content)
    assert main(["explain", "bad.json", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
