"""docs/benchmarks.md says what benchmarks/results say."""

from __future__ import annotations

from tools import build_comparison as build


def test_numbers_are_those_of_the_committed_results():
    """Who commits new results also runs tools/build_comparison.py."""
    text = build.PAGE.read_text(encoding="utf-8")
    assert build.filled(text) == text


def test_every_table_has_its_place():
    """No table is made that the page does not show."""
    shown = build.TABLE.findall(build.PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(build.TABLES)


def test_a_missing_result_leaves_its_table_empty(tmp_path, monkeypatch):
    """Numbers that nobody measured are not on the page."""
    monkeypatch.setattr(build, "RESULTS", tmp_path)
    text = "<!-- table: fusion -->\n| old |\n<!-- end -->"
    assert build.filled(text) == "<!-- table: fusion -->\n<!-- end -->"
