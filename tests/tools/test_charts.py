"""The charts in the documentation show the stored results."""

from __future__ import annotations

from tools.build_charts import outdated


def test_charts_fit_the_results():
    assert outdated() == [], "run: python -m tools.build_charts"
