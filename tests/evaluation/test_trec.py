"""Run files and judgments: trec_eval's order, and one clear message for each kind of broken line."""

from __future__ import annotations

import gzip

import pytest

from resift.errors import DataFormatError
from resift.evaluation.readers import read_qrels, read_run


def write_file(tmp_path, text, name="file.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_scores_order_a_run_and_the_rank_column_does_not(tmp_path):
    path = write_file(tmp_path, "1 Q0 a 1 0.5 t\n1 Q0 b 2 0.9 t\n2 Q0 a 1 1 t\n")
    assert read_run(path) == {"1": ["b", "a"], "2": ["a"]}


def test_equal_scores_are_sorted_by_descending_id(tmp_path):
    path = write_file(tmp_path, "1 Q0 a 1 3 t\n1 Q0 c 2 3 t\n1 Q0 b 3 3 t\n")
    assert read_run(path) == {"1": ["c", "b", "a"]}


def test_scores_that_differ_only_in_double_precision_are_equal(tmp_path):
    """trec_eval keeps scores in single precision, so these two are a tie for it."""
    path = write_file(tmp_path, "1 Q0 a 1 0.50000000001 t\n1 Q0 b 2 0.5 t\n")
    assert read_run(path) == {"1": ["b", "a"]}


def test_gzipped_runs_are_read(tmp_path):
    path = write_file(tmp_path, gzip.compress(b"1 Q0 a 1 0.5 t\n"), "r.run.gz")
    assert read_run(path) == {"1": ["a"]}


def test_qrels_of_trec_and_beir_are_read(tmp_path):
    assert read_qrels(write_file(tmp_path, "1 0 a 2\n1 0 b -1\n"))[0] == {"1": {"a": 2, "b": -1}}
    beir = write_file(tmp_path, "query-id\tcorpus-id\tscore\nq 1\td 1\t1\n")
    assert read_qrels(beir) == ({"q 1": {"d 1": 1}}, {"q 1": 2})


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", None, "empty"),
        ("\n \n", None, "empty"),
        ("1 Q0 a 1 0.5 t\n1 Q0 b 2 0.5\n", 2, "5 columns"),
        ("1 Q0 a 1 NaN t\n", 1, "finite number"),
        ("1 Q0 a 1 inf t\n", 1, "finite number"),
        ("1 Q0 a 1 high t\n", 1, "'high'"),
        ("1 Q0 a 1 0.5 t\n1 Q0 b 2 0.4 t\n1 Q0 a 3 0.3 t\n", 3, "already on line 1"),
        (b"1 Q0 a 1 0.5 t\n1 Q0 \xff 2 0.4 t\n", 2, "not UTF-8"),
        (b"1 Q0 a\0 1 0.5 t\n", None, "binary"),
    ],
)
def test_a_broken_run_is_reported_with_file_and_line(tmp_path, text, line, expected):
    path = write_file(tmp_path, text)
    with pytest.raises(DataFormatError, match=expected) as caught:
        read_run(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", None, "empty"),
        ("query-id\tcorpus-id\tscore\n", 1, "only a header"),
        ("1 0 a 1\n1 0 b\n", 2, "3 columns"),
        ("1 a\n", 1, "2 columns"),
        ("1 0 a 1\n1 0 b 0.5\n", 2, "integer"),
        ("1 0 a NaN\n", 1, "integer"),
        ("1 0 a 1\n1 0 b 1\n1 0 a 0\n", 3, "judged twice"),
        ("1 0 a 99999999999\n", 1, "out of range"),
    ],
)
def test_broken_judgments_are_reported_with_file_and_line(tmp_path, text, line, expected):
    path = write_file(tmp_path, text)
    with pytest.raises(DataFormatError, match=expected) as caught:
        read_qrels(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)


def test_a_missing_file_and_a_folder_have_different_messages(tmp_path):
    with pytest.raises(DataFormatError, match="no such file"):
        read_run(tmp_path / "absent.run")
    with pytest.raises(DataFormatError, match="a folder"):
        read_run(tmp_path)
