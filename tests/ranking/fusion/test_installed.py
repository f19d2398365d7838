"""Fusion methods of other packages: called like our own, with their own options and errors."""

from __future__ import annotations

import pytest

from resift import Hit, fuse
from resift.errors import InputError
from resift.ranking.fusion import fusion_method, rrf
from resift.ranking.fusion.rerankers import FusionReranker
from resift.types import StageKind
from tests.test_plugins import install

SOURCE = """
from resift.ranking.fusion import rrf

class Last:
    def __init__(self, *, upside_down=True):
        self.upside_down = upside_down
    async def fuse(self, per_store, *, k, query=None):
        hits = [hit for hits in per_store for hit in hits]
        return (hits[::-1] if self.upside_down else hits)[:k]

class Declared:
    def __init__(self, *, sources=()):
        self.sources = sources
    async def fuse(self, per_store, *, k, query=None):
        return rrf(per_store, k=k, sources=self.sources)
"""
LISTS = [[Hit("a", "ta", 1.0, "x")], [Hit("b", "tb", 2.0, "y")]]


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    entries = {"last-first": "their_fusion:Last", "declared": "their_fusion:Declared"}
    install(tmp_path, "their_fusion", group="resift.fusion", entries=entries, source=SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_installed_method_fuses_and_is_in_the_trace(theirs):
    """A plain list of hits gets the record that ours write themselves."""
    ranking = fuse(LISTS, method="last_first", k=1)
    assert (ranking.ids, [hit.id for hit in ranking.cut], ranking.replay()) == (["b"], ["a"], ["b"])
    [record] = ranking.trace.by_kind(StageKind.FUSE)
    assert (record.name, record.scores) == ("last-first", (2.0, 1.0))
    assert fuse(LISTS, method="last-first", upside_down=False).ids == ["a", "b"]
    assert [hit.id for hit in fusion_method("last-first")(LISTS, k=1)] == ["b"]


def test_an_installed_method_with_sources_gets_the_declared_order(theirs):
    """A method with `sources` gets them, and its own record is kept."""
    shared = {"x": [Hit("a", "one", 1.0)], "y": [Hit("a", "other", 1.0)]}
    ranking = fuse(shared, method="declared", sources=["y", "x"])
    assert (ranking[0].text, ranking.trace.by_kind(StageKind.FUSE)[0].name) == ("other", "rrf")


def test_invalid_options_and_lists_raise_input_error(theirs):
    """The method checks its own options; what is no list of hits does not reach it."""
    with pytest.raises(InputError, match=r"Options of 'last-first'.*depth"):
        fuse(LISTS, method="last-first", depth=3)
    with pytest.raises(InputError, match="rankings is a str"):
        fusion_method("last-first")("ab")


def test_an_installed_method_works_as_a_reranker(theirs):
    """By name, like ours; options of ours are not forced on it."""
    assert FusionReranker("last-first").name == "last-first"


def test_totals_that_overflow_raise_input_error():
    """Scores near the end of what a float holds get one clear error, whichever way they overflow."""
    huge = [[Hit("a", score=1e308, source="x")], [Hit("a", score=1e308, source="y")]]
    for method in ("comb-sum", "comb-mnz", "comb-anz"):
        with pytest.raises(InputError, match="too large to add up"):
            fuse(huge, method=method)
    with pytest.raises(InputError, match="too large to add up"):
        rrf(huge, dialect="txtai", weights=[1.7e308, 1.7e308])
    one = [[Hit("a", score=1.7e308, source="x")], [Hit("b", score=1.0, source="y")]]
    with pytest.raises(InputError, match="too large to add up"):
        fuse(one, method="comb-sum", weights=[1.7e308, 1.0])


def test_only_returned_hits_get_a_missing_text_from_another_list():
    """What k leaves out needs none."""
    lists = [[Hit("a", score=2.0, source="x"), Hit("b", score=1.0, source="x")], [Hit("b", "text", 1.0, "y")]]
    assert [hit.text for hit in rrf(lists, k=1)] == ["text"]
    assert [hit.text for hit in rrf([lists[0], [Hit("a", "first", 1.0, "y"), Hit("b", "text", 1.0, "y")]], k=1)] == [
        "first"
    ]
