"""`resift graph` and `resift ask`, end to end with the real embedder."""

from __future__ import annotations

import json

import pytest

from resift.cli.main import main
from tests.agent.small import write_sources

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("ask")
    pack = folder / "fruit.lbug"
    assert main(["graph", "build", str(write_sources(folder / "sources")), "-o", str(pack), "--json"]) == 0
    return pack


def message(capsys, *words):
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_graph_info_describes_a_pack(built, capsys):
    """Counts, embedder and the most linked articles."""
    code, facts = message(capsys, "graph", "info", str(built), "--json")
    assert code == 0
    assert (facts["articles"], facts["links"]) == (7, 9)
    assert facts["embedder"] == "BAAI/bge-small-en-v1.5"


@pytest.mark.parametrize("flag", ["--cross-encoder", "--no-cross-encoder"])
def test_ask_answers_with_sources_and_reasons(built, capsys, flag):
    """An extractive answer, its sources, and how each passage got its place."""
    code, answer = message(
        capsys, "ask", "How many bees live in a hive?", "--pack", str(built), flag, "--explain", "--json"
    )
    assert code == 0
    assert "40,000" in answer["answer"]
    assert answer["extractive"]
    assert answer["sources"][0]["title"] == "Bee"
    assert "Vector search: 1st" in answer["explanation"][0]["why"]


def test_extractive_answers_are_labeled(built, capsys, monkeypatch):
    """On a terminal: a label, the answer, numbered sources, explanations."""
    assert main(["ask", "How many bees live in a hive?", "--pack", str(built), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "Extractive answer" in shown
    assert "[1] Bee" in shown
    assert "Vector search" in shown


def test_an_unanswerable_question_has_no_answer(built, capsys):
    """Exit code 0, no sources."""
    code, answer = message(capsys, "ask", "Who won the chess championship in 1972?", "--pack", str(built), "--json")
    assert code == 0
    assert answer["sources"] == []
    assert answer["answer"].startswith("Not found")


def test_mistakes_are_reported_in_one_line(tmp_path, capsys):
    """No pack, no source, an endpoint without a model."""
    assert main(["ask", "x", "--pack", str(tmp_path / "no.lbug")]) == 1
    assert "resift graph build" in capsys.readouterr().err
    assert main(["graph", "build", str(tmp_path / "none"), "-o", str(tmp_path / "p.lbug")]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["ask", "x", "--endpoint", "https://localhost.invalid"]) == 1
    assert "--model" in capsys.readouterr().err


def test_ask_searches_an_index_with_store(tmp_path, capsys):
    """`--store` answers from an index; a pack that is an index says how to ask it."""
    store, text = tmp_path / "n.db", tmp_path / "library.txt"
    text.write_text("Books go back after four weeks.")
    assert main(["index", str(text), "--store", str(store), "--text-only"]) == 0
    capsys.readouterr()
    assert main(["ask", "books", "go", "back", "--store", str(store), "--no-cross-encoder", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["found"]
    assert "four weeks" in answer["answer"]
    assert main(["ask", "x", "--pack", str(store)]) == 1
    assert f"--store {store}" in capsys.readouterr().err
    assert main(["ask", "x", "--store", str(store), "--hops", "2"]) == 1
    assert "--hops requires --pack" in capsys.readouterr().err


def test_a_wrapped_sentence_is_quoted_in_full(tmp_path, capsys):
    """Hard-wrapped Markdown: the answer and the excerpt under [1] are the whole sentence."""
    store, text = tmp_path / "h.db", tmp_path / "hard.md"
    text.write_text(
        "# Rules\nThe yard closes at eight.\nBikes must be locked at the rack next to the gate,\n"
        "or they are removed on Fridays.\n"
    )
    assert main(["index", str(text), "--store", str(store)]) == 0
    capsys.readouterr()
    assert main(["ask", "where must bikes be locked", "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    whole = "Bikes must be locked at the rack next to the gate, or they are removed on Fridays."
    assert whole in " ".join(lines)
    excerpt = next(line for line in lines if line.startswith("    "))
    assert excerpt.strip().startswith("Bikes must be locked")


def test_an_unsupported_language_adds_a_note(tmp_path, capsys, caplog):
    """A Japanese question is answered by keywords, with a note, and no exception is logged."""
    store, text = tmp_path / "j.db", tmp_path / "図書館.txt"
    text.write_text("図書館の本は四週間借りられます。延長は二回までです。図書館は日曜日に休みます。")
    assert main(["index", str(text), "--store", str(store)]) == 0
    capsys.readouterr()
    assert main(["ask", "図書館の本は何週間借りられますか", "--store", str(store)]) == 0
    message = capsys.readouterr()
    assert "四週間" in message.out
    assert "Error" not in message.out + message.err + caplog.text


def test_a_filter_on_an_unknown_key_adds_a_warning(tmp_path, capsys):
    """`--where` filters the passages; a key that no passage has is named on stderr, as in search."""
    store, texts = tmp_path / "books.db", tmp_path / "texts"
    texts.mkdir()
    for name in ("books", "films"):
        (texts / f"{name}.txt").write_text(f"The {name} go back after four weeks.")
    assert main(["index", str(texts), "--store", str(store), "--text-only"]) == 0
    capsys.readouterr()
    ask = ["ask", "when", "do", "they", "go", "back", "--store", str(store), "--no-cross-encoder"]
    assert main([*ask, "--where", "path=*films.txt", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert ["films" in source["id"] for source in answer["sources"]] == [True]
    assert answer["warnings"] == []
    assert main([*ask, "--where", "pth=films.txt"]) == 0
    message = capsys.readouterr()
    assert "Not found" in message.out
    assert "pth" in message.err
    assert "path" in message.err
    assert main(["ask", "x", "--where", "path=films.txt"]) == 1
    assert "--store" in capsys.readouterr().err
