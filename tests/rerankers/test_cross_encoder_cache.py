"""The cross-encoder behind the score cache: pointwise, and apart from its own other settings."""

from __future__ import annotations

import asyncio

import pytest

from resift.deadline import Deadline
from resift.events import ListSink
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.score_cache import CachedScorer, MemoryScores
from resift.types import Hit

pytestmark = pytest.mark.real_model


def test_scores_are_cached_per_text_and_per_setting():
    """The same setting finds its scores again; another window aggregate, whose scores differ, finds none."""
    hits = [Hit("a", "Bread needs yeast."), Hit("b", "Rain falls in autumn.")]
    scores, sink = MemoryScores(), ListSink()
    said = []
    for aggregate in ("max", "max", "mean"):
        cached = CachedScorer(CrossEncoderReranker(aggregate=aggregate), scores, sink=sink)
        said.append(asyncio.run(cached.score("what does dough need?", hits, deadline=Deadline.never())))
    assert [(event.hits, event.misses) for event in sink.named("score_cache")] == [(0, 2), (2, 0), (0, 2)]
    assert list(said[0].values) == list(said[1].values)
