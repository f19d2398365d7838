"""A search passes through few functions in few files, so that a reader can follow it."""

from __future__ import annotations

from resift import Index
from tests.call_counts import watch_threads

MAX_FUNCTIONS = 110
MAX_FILES = 30


def test_a_search_passes_through_few_functions(tmp_path):
    with watch_threads() as counter, Index(tmp_path / "docs.db") as index:
        index.add([f"Passage {i} is about wings and the flow of air at speed {i}." for i in range(40)])
        counts = counter.count(lambda: index.search("flow over a wing"))
    assert len(counts.functions) <= MAX_FUNCTIONS, counts.report()
    assert len(counts.files) <= MAX_FILES, counts.report()
