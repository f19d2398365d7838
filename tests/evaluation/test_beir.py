"""BEIR folders: what is read, and how broken ones are refused."""

from __future__ import annotations

import pytest

from resift.errors import DataFormatError
from resift.evaluation.readers import read_collection
from tests.evaluation.small import DOCUMENTS, QRELS, QUERIES, write_collection


@pytest.fixture
def folder(tmp_path):
    return write_collection(tmp_path / "small")


def test_queries_judgments_and_documents_are_read(folder):
    collection = read_collection(folder)
    assert (dict(collection.queries), collection.qrels) == (QUERIES, QRELS)
    assert {row["id"]: row["text"] for row in collection.documents()} == DOCUMENTS


def test_title_and_text_are_joined(folder):
    (folder / "corpus.jsonl").write_text('{"_id": 7, "title": "T", "text": "x", "metadata": {"a": 1}}\n')
    assert list(read_collection(folder).documents()) == [{"id": "7", "text": "T x", "metadata": {"title": "T", "a": 1}}]


def test_a_line_separator_inside_a_text_does_not_end_the_line(folder):
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "x\u2028y"}\n', encoding="utf-8")
    assert [row["text"] for row in read_collection(folder).documents()] == ["x\u2028y"]


def test_a_judged_query_without_text_is_reported_with_its_line(folder):
    file = folder / "qrels" / "test.tsv"
    with file.open("a") as out:
        out.write("q9\tapple\t1\n")
    with pytest.raises(DataFormatError, match=r"'q9' has judgments but is not in queries\.jsonl") as caught:
        read_collection(folder)
    assert (caught.value.file, caught.value.line) == (str(file), file.read_text().count("\n"))


def test_an_unknown_split_names_the_known_ones(folder):
    with pytest.raises(DataFormatError, match=r"Did you mean 'test'\? Known: test"):
        read_collection(folder, split="tset")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "a list"),
        ('{"text": "x"}', 'no "_id"'),
        ('{"_id": "", "text": "x"}', 'no "_id"'),
        ('{"_id": "q1", "text": "x"}', "already on line 1"),
        ('{"_id": "n", "text": 5}', "is an int"),
    ],
)
def test_broken_queries_are_reported_with_file_and_line(folder, row, message):
    file = folder / "queries.jsonl"
    with file.open("a") as out:
        out.write(row + "\n")
    with pytest.raises(DataFormatError, match=message) as caught:
        read_collection(folder)
    assert (caught.value.file, caught.value.line) == (str(file), 6)


def test_only_judged_queries_need_a_text(folder):
    """Queries without judgments are never run; a judged query without text is reported with its line."""
    queries = folder / "queries.jsonl"
    with queries.open("a") as out:
        out.write('{"_id": "nobody", "text": " "}\n')
    assert "nobody" not in read_collection(folder).queries
    with (folder / "qrels" / "test.tsv").open("a") as out:
        out.write("nobody\td1\t1\n")
    with pytest.raises(DataFormatError, match="'nobody' has no \"text\"") as caught:
        read_collection(folder)
    assert (caught.value.file, caught.value.line) == (str(queries), 6)


def test_other_folders_are_rejected(tmp_path):
    with pytest.raises(DataFormatError, match="no such folder"):
        read_collection(tmp_path / "absent")
    with pytest.raises(DataFormatError, match="no such split"):
        read_collection(tmp_path)
