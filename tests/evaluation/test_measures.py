"""Measures: hand-worked values, trec_eval's own, and its rules for ties and missing queries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.evaluation.measures import Judge, Quality, measure_name
from resift.evaluation.readers import read_run
from resift.evaluation.runner import Answer, Outcome

QRELS = {"1": {"a": 3, "b": 2, "c": 0, "d": 1}, "2": {"x": 1}, "3": {"y": 1, "z": 0}, "4": {"w": 0}}
MEASURES = ("nDCG@10", "nDCG@2", "AP", "RR", "R@2", "P@2", "P@10")


def test_values_match_a_manual_calculation():
    """Query 1 ranks u (not judged), a (3), c (0), d (1) and misses b (2)."""
    quality = Judge(QRELS, MEASURES).quality({"1": ["u", "a", "c", "d"]})
    gained = 3 / math.log2(3) + 1 / math.log2(5)
    ideal = 3 + 2 / math.log2(3) + 1 / math.log2(4)
    assert {name: values["1"] for name, values in quality.per_query.items()} == pytest.approx(
        {
            "nDCG@10": gained / ideal,
            "nDCG@2": (3 / math.log2(3)) / (3 + 2 / math.log2(3)),
            "AP": (1 / 2 + 2 / 4) / 3,
            "RR": 1 / 2,
            "R@2": 1 / 3,
            "P@2": 1 / 2,
            "P@10": 2 / 10,
        },
        abs=1e-6,
    )


def test_missing_queries_are_skipped_or_count_as_zero():
    """trec_eval leaves them out; `complete` is its -c."""
    quality = Judge(QRELS, ["RR"]).quality({"1": ["a"], "2": ["n", "x"], "9": ["q"]})
    assert quality.missing == ("3", "4")
    assert quality.unjudged == ("9",)
    assert quality.mean("RR") == pytest.approx(1.5 / 2)
    assert quality.mean("RR", complete=True) == pytest.approx(1.5 / 4)


def test_an_empty_answer_counts_as_zero():
    quality = Judge(QRELS, ["RR"]).quality({"1": ["a"], "2": []})
    assert quality.per_query["RR"] == {"1": 1.0, "2": 0.0}


def test_grades_below_zero_are_not_relevant():
    quality = Judge({"1": {"spam": -2, "a": 1}}, ["nDCG@10", "AP"]).quality({"1": ["spam", "a"]})
    assert quality.per_query["nDCG@10"]["1"] == pytest.approx(1 / math.log2(3), abs=1e-6)
    assert quality.per_query["AP"]["1"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given_name", "name"),
    [("ndcg@10", "nDCG@10"), ("MAP", "AP"), ("mrr", "RR"), ("recall@5", "R@5"), ("Precision@1", "P@1")],
)
def test_measures_accept_their_common_names(given_name, name):
    assert measure_name(given_name) == name


@pytest.mark.parametrize("wrong", ["", "foo@3", "nDCG@0", "P", "recall", "nDCG@-1", "AP@@3"])
def test_unknown_measures_are_rejected(wrong):
    with pytest.raises(InputError, match="Unknown measure"):
        measure_name(wrong)


documents = st.sampled_from([f"d{number}" for number in range(12)])
scores = st.sampled_from(["0", "1", "0.5", "0.50000000001", "2e30", "-1", "1e-40", "3.25"])
runs = st.dictionaries(
    st.sampled_from(["1", "2", "3", "7"]), st.dictionaries(documents, scores, min_size=1), min_size=1
)
judgments = st.dictionaries(
    st.sampled_from(["1", "2", "3", "4"]), st.dictionaries(documents, st.integers(0, 3), min_size=1), min_size=1
)


@given(run=runs, qrels=judgments)
def test_values_match_trec_eval_on_any_run_file(tmp_path_factory, run, qrels):
    """Graded qrels, queries and documents without judgments, missing queries, ties in single precision."""
    library = pytest.importorskip("pytrec_eval")
    path = tmp_path_factory.mktemp("run") / "r.run"
    path.write_text("".join(f"{q} Q0 {id} 0 {score} t\n" for q, ids in run.items() for id, score in ids.items()))
    quality = Judge(qrels, MEASURES).quality(read_run(path))
    names = {"nDCG@10": "ndcg_cut_10", "AP": "map", "RR": "recip_rank", "R@2": "recall_2", "P@2": "P_2"}
    asked = {"ndcg_cut.10", "map", "recip_rank", "recall.2", "P.2"}
    message = library.RelevanceEvaluator(qrels, asked).evaluate(
        {query: {id: float(score) for id, score in ids.items()} for query, ids in run.items()}
    )
    for ours, theirs in names.items():
        expected = {query: values[theirs] for query, values in message.items()}
        assert quality.per_query[ours] == pytest.approx(expected, abs=1e-9)


def test_percentiles_are_measured_times():
    def latency(*times_ms):
        answers = {str(i): Answer(str(i), "", (), ms) for i, ms in enumerate(times_ms)}
        return Outcome("any", Quality({}, (), ()), {}, answers).latency

    assert latency(5.0, 1.0, 3.0)["p50"] == 3.0
    assert latency(*map(float, range(1, 101))) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert latency(7.0) == {"p50": 7.0, "p95": 7.0, "p99": 7.0}
    assert latency() == {}


def test_a_duplicate_id_counts_at_its_best_rank():
    judge = Judge({"1": {"a": 1}}, ["RR", "P@1"])
    assert judge.quality({"1": ["a", "b", "a"]}).means() == {"RR": 1.0, "P@1": 1.0}


@pytest.mark.parametrize(
    ("qrels", "measures", "said"),
    [
        (None, ["AP"], "are a NoneType; pass query"),
        ([("q", "d", 1)], ["AP"], "are a list; pass query"),
        ({}, ["AP"], "are empty"),
        ({"q": ["d"]}, ["AP"], "query 'q'"),
        ({"q": {"d": "1"}}, ["AP"], "integer grade"),
        ({"q": {"d": 0.5}}, ["AP"], "integer grade"),
        ({"q": {"d": 1}}, "AP", "pass a list"),
        ({"q": {"d": 1}}, [], "at least one"),
        ({"q": {"d": 1}}, [None], "pass str"),
    ],
)
def test_invalid_judgments_are_rejected(qrels, measures, said):
    with pytest.raises(InputError, match=said):
        Judge(qrels, measures)


@pytest.mark.parametrize("run", [None, ["d"], {"q": "d"}, {"q": 3}])
def test_an_invalid_run_is_rejected(run):
    with pytest.raises(InputError, match="pass"):
        Judge({"q": {"d": 1}}).quality(run)


@pytest.mark.parametrize("bad", ["\ud800", "a\0b", 7])
def test_an_id_that_is_not_utf_8_is_rejected(bad):
    """Half a character ended the whole process inside trec_eval."""
    with pytest.raises(InputError, match="UTF-8"):
        Judge({"q": {bad: 1}})
    with pytest.raises(InputError, match="UTF-8"):
        Judge({bad: {"d": 1}})
    with pytest.raises(InputError, match="UTF-8"):
        Judge({"q": {"d": 1}}).quality({"q": ["d", bad]})
