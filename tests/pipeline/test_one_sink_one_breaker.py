"""What holds for a whole pipeline reaches every part of it: sink, breaker, and the scale of floors."""

from __future__ import annotations

import pytest

from resift import MemoryStore, Tiered
from resift.errors import ConfigError, InputError
from resift.events import ListSink
from resift.pipeline import Pipeline, Rerank, StoreRef
from resift.pipeline.stages import Gate
from resift.ranking.gate import MEMOSA, Profile
from resift.resilience import CircuitBreaker
from resift.testing import OverlapScorer
from tests.pipeline.fake_stores import Answers, Points

STORES = [Answers("a", ["x", "y", "z", "w"])]


def test_the_sink_of_a_pipeline_sees_skipped_tiers():
    """A tier that was made without a sink tells the pipeline's why it was skipped."""
    sink = ListSink()
    tiers = Tiered(OverlapScorer("first", fails=True), OverlapScorer("second"))
    ranking = Pipeline(STORES, rerank=tiers, sink=sink).rank("text of x")
    assert ranking.tier == "second"
    assert [event.fields()["reason"] for event in sink.named("cross_encoder_skipped")] == ["api_error"]


def test_a_sink_of_ones_own_and_the_pipelines_each_see_an_event_once():
    """Two sinks are two listeners; one sink given twice is one."""
    own, whole = ListSink(), ListSink()
    tiers = Tiered(OverlapScorer("first", fails=True), OverlapScorer("second"), sink=own)
    Pipeline(STORES, rerank=tiers, sink=whole).rank("text of x")
    assert len(own.named("cross_encoder_skipped")) == len(whole.named("cross_encoder_skipped")) == 1
    both = ListSink()
    tiers = Tiered(OverlapScorer("first", fails=True), OverlapScorer("second"), sink=both)
    Pipeline(STORES, rerank=tiers, sink=both).rank("text of x")
    assert len(both.named("cross_encoder_skipped")) == 1


def test_an_open_breaker_keeps_the_gate_from_tightening():
    """The gate asks the breaker of the reranker that comes after it, also in a pipeline made by hand."""
    breaker = CircuitBreaker()
    tiers = Tiered(OverlapScorer("first"), OverlapScorer("second"), breaker=breaker)
    gate = Gate(Profile(default=0.0, signal="a"), rerank_top_n=1)
    reasons = []
    for force in (breaker.force_close, breaker.force_open):
        force()
        sink = ListSink()
        Pipeline(STORES, gate=gate, rerank=tiers, sink=sink).rank("text of x")
        (event,) = sink.named("vector_search_tool_result")
        reasons.append(event.fields()["tighten_skip_reason"])
    assert reasons[0] != "breaker_not_closed"
    assert reasons[1] == "breaker_not_closed"


def test_floors_for_cosines_are_refused_behind_fusion():
    """0.18 is no number of an RRF sum: refused when the pipeline is made, with what to do."""
    with pytest.raises(InputError, match=r"'memosa' are for the scale 'cosine'.*'fused'.*signal"):
        Pipeline(STORES, gate=Gate(MEMOSA))
    words = StoreRef(store=MemoryStore(name="words"), kind="doc")
    with pytest.raises(InputError, match="'words' has 'bm25'"):
        Pipeline([words], gate=Gate(Profile(default=0.2, signal="words", scale="cosine")))
    Pipeline(STORES, gate=Gate(Profile(default=0.01, scale="fused")))
    Pipeline(STORES, gate=Gate(Profile(name="memosa", default=0.18, signal="a", scale="cosine")))


def test_floors_for_another_scale_have_a_line_in_a_file(tmp_path):
    """`config check` and the loader name the line."""
    from resift.config import inspect_yaml

    file = tmp_path / "pipeline.yaml"
    file.write_text("stores:\n  - {kind: memory, name: docs}\ngate:\n  profile: memosa\n")
    (problem,) = inspect_yaml(file)[1].lines()
    assert "pipeline.yaml:4" in problem
    assert "'cosine'" in problem
    with pytest.raises(ConfigError, match=r"pipeline\.yaml:4"):
        Pipeline.from_yaml(file)


def test_a_gate_that_leaves_nothing_says_so():
    """An empty answer from a full pool is degraded, and the reason has the floor."""
    ranking = Pipeline(STORES, gate=Gate(Profile(default=9.0, signal="a"))).rank("q")
    assert ranking.ids == []
    assert ranking.degraded
    assert "none of 4 hits reached the floor" in ranking.reason


def test_a_reranker_behind_the_gate_may_have_its_own_floor():
    """A gate after the reranker meets the reranker's scores; fused floors are not asked of it."""
    late = Gate(Profile(default=0.5, scale="probability"))
    scorer = Rerank(Points({"x": 0.9, "y": 0.6, "z": 0.1, "w": 0.2}))
    assert Pipeline(STORES, rerank=scorer, shape=late).rank("q").ids == ["x", "y"]
