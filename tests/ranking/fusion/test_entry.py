"""resift.fuse, compare and the rerankers around fusion."""

from __future__ import annotations

import asyncio
import itertools
import json
import math

import pytest

import resift
from resift import Hit, Reranker, RRFReranker
from resift.errors import InputError
from resift.events import ListSink
from resift.ranking import fusion
from resift.ranking.fusion.rerankers import FusionReranker
from resift.testing import check_reranker


def test_ids_dicts_and_hits_fuse_alike():
    """Every entry point takes strings, dicts and hits."""
    by_id = resift.fuse([["a", "b"], ["b"]])
    by_dict = resift.fuse([[{"id": "a"}, {"id": "b"}], [{"id": "b"}]])
    by_hit = resift.fuse([[Hit("a"), Hit("b")], [Hit("b")]])
    assert by_id.ids == by_dict.ids == by_hit.ids == ["b", "a"]


def test_named_lists_declare_their_order():
    """The order of a mapping is the declared order of sources, whatever the hits said before."""
    ranking = resift.fuse({"z": [Hit("a", "from z", source="old")], "b": [{"id": "a", "text": "from b"}]})
    assert (ranking[0].text, ranking[0].source) == ("from z", "z")


def test_order_and_scores_are_the_same_whatever_the_order_of_lists():
    """Timings, which differ from run to run, are no part of the JSON unless asked for."""
    lists = [["a", "b", "c"], ["c", "a"], ["b"], ["b"]]
    rankings = [resift.fuse(list(order), k=2) for order in itertools.permutations(lists)]
    assert len({tuple((hit.id, hit.score) for hit in ranking) for ranking in rankings}) == 1
    assert len({resift.fuse(lists, k=2).to_json() for _ in range(3)}) == 1
    assert "timings" in json.loads(resift.fuse(lists).to_json(timings=True))


def test_hits_beyond_k_are_in_cut():
    """Nothing is lost."""
    ranking = resift.fuse([["a", "b", "c"]], k=1)
    assert (ranking.ids, [hit.id for hit in ranking.cut]) == (["a"], ["b", "c"])
    assert ranking.timings["fuse"] >= 0


def test_method_and_options():
    """Any method by its name, with its own options."""
    lists = {"x": [{"id": "a", "score": 2}, {"id": "b", "score": 1}]}
    assert resift.fuse(lists, method="comb-sum", normalize="min-max")[0].score == 1.0
    assert resift.fuse(lists, dialect="langchain").ids == ["a", "b"]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ("ab", "lists is of type str"),
        (7, "lists is of type int"),
        (["ab"], "one str"),
        ([[{"id": "a", "score": math.nan}]], "has score nan"),
        ([[{"id": "a", "score": math.inf}]], "has score inf"),
    ],
)
def test_invalid_lists_raise_input_error(lists, message):
    """Bad input: one clear error."""
    with pytest.raises(InputError, match=message):
        resift.fuse(lists)


def test_compare_shows_where_engines_disagree():
    """Same lists, every engine's order, and who moved."""
    lists = [[Hit("b", "b", 1.0)], [Hit("a", "a", 1.0)], []]
    comparison = fusion.compare(lists, k=5)
    assert comparison.ids("resift") == ["a", "b"]
    assert comparison.ids("langchain") == ["b", "a"]
    assert comparison.ranks()["a"]["langchain"] == 2
    assert comparison.disagreements() == ["a", "b"]
    assert fusion.compare([[Hit("a", "a")]]).disagreements() == []


def test_compare_counts_a_missing_hit_as_last():
    """A hit that one engine cut and another kept is a disagreement."""
    lists = [[Hit("b", "b", 1.0)], [Hit("a", "a", 1.0)]]
    comparison = fusion.compare(lists, k=1)
    assert comparison.ranks()["b"]["resift"] is None
    assert set(comparison.disagreements()) == {"a", "b"}


def test_rrf_reranker_keeps_the_protocol():
    """A Reranker by structure, checked by the public contract."""
    assert isinstance(RRFReranker(), Reranker)
    check_reranker(RRFReranker())
    assert repr(RRFReranker(k_param=10)) == "RRFReranker(k_param=10)"


def test_fuse_returns_at_most_k():
    """K = 0 gives []; k < 0 and None are errors."""
    lists = [[Hit("a"), Hit("b")]]
    assert asyncio.run(RRFReranker().fuse(lists, k=0)) == []
    assert len(asyncio.run(RRFReranker().fuse(lists, k=1, query="q"))) == 1
    for k in (-1, None):
        with pytest.raises(InputError, match=f"k is {k}"):
            asyncio.run(RRFReranker().fuse(lists, k=k))


def test_any_method_is_a_reranker():
    """Every method keeps the protocol; options are checked when it is built."""
    reranker = FusionReranker("comb_mnz", normalize="min-max", weights=[1, 2])
    assert repr(reranker) == "FusionReranker('comb-mnz', normalize='min-max', weights=[1, 2])"
    fused = asyncio.run(reranker.fuse([[Hit("a", score=2.0, source="x")], [Hit("a", score=1.0, source="y")]], k=1))
    assert fused[0].score == pytest.approx(6.0)
    with pytest.raises(InputError, match=r"comb-sum has no option 'normalze'\. Did you mean 'normalize'"):
        FusionReranker("comb-sum", normalze="min-max")
    with pytest.raises(InputError, match="Unknown normalization"):
        FusionReranker("comb-sum", normalize="best")
    with pytest.raises(InputError, match="Unknown dialect"):
        RRFReranker(dialect="mongo")


def test_an_event_reports_duplicates():
    """The number of duplicates is reported."""
    sink = ListSink()
    asyncio.run(RRFReranker(sink=sink).fuse([[Hit("a"), Hit("a"), Hit("b")], [Hit("b")]], k=1))
    assert sink.events[0].fields() == {"method": "rrf", "lists": 2, "candidates": 2, "duplicates": 1, "kept": 1}
