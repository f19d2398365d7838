"""The default order follows a good scorer and ignores a bad one, on any score scale."""

from __future__ import annotations

import math
import random
from functools import cache

import pytest

from resift.ranking.fusion.weighted import weighted
from resift.ranking.shape import blend
from resift.types import Hit, StageKind, StageRecord, Trace

POOLS, CANDIDATES = 40, 16


@cache
def pools():
    """Return lists, relevance and a score that knows the relevance, for each of many queries."""
    generator = random.Random(3)
    ids = [f"d{i:02}" for i in range(CANDIDATES)]

    def draw(relevant, gain):
        return {id: gain * (id in relevant) + generator.gauss(0, 1) for id in ids}

    made = []
    for _ in range(POOLS):
        relevant = set(generator.sample(ids, 2))
        made.append((relevant, *(draw(relevant, gain) for gain in (1.0, 1.0, 2.5, 0.0))))
    return made


def reciprocal_rank(scores=None, scale="logit", languages="any"):
    """Return the mean reciprocal rank of the first relevant hit; `scores` maps a pool to scores by id."""
    total = 0.0
    for pool in pools():
        relevant, lexical, dense, *_ = pool
        lists = []
        for values, shift in ((lexical, 5), (dense, 3)):
            ranked = sorted(values, key=lambda id, values=values: -values[id])
            lists.append([Hit(id, "", values[id] + shift, "s") for id in ranked])
        fused = weighted(lists, retrieval_modes=["lexical", "dense"])
        order = [hit.id for hit in fused]
        if scores is not None:
            values = scores(pool)
            record = StageRecord(
                kind=StageKind.RERANK, name="rerank", source="scorer", ids=tuple(order),
                scores=tuple(values[id] for id in order), score_scale=scale, languages=languages,
            )  # fmt: skip
            order = blend(list(fused), trace=Trace((*fused.records, record))).ids
        total += 1 / (1 + min(order.index(id) for id in relevant))
    return total / POOLS


def good(pool):
    return {id: 2.8 * value for id, value in pool[3].items()}


def noise(pool):
    return {id: 2.8 * value for id, value in pool[4].items()}


def oracle(pool):
    return {id: 6.0 * (id in pool[0]) + value for id, value in noise(pool).items()}


def test_the_order_follows_a_good_scorer_and_a_better_one_further():
    first = reciprocal_rank()
    assert reciprocal_rank(good) > first + 0.05
    assert reciprocal_rank(oracle) > first + 0.08


def test_a_scorer_that_knows_nothing_does_little_harm():
    harm = reciprocal_rank() - reciprocal_rank(noise)
    gain = reciprocal_rank(good) - reciprocal_rank()
    assert harm < gain


@pytest.mark.parametrize(
    ("change", "scale"),
    [
        (lambda value: 10 * value + 3, "logit"),
        (lambda value: 1 / (1 + math.exp(-value)), "probability"),
        (lambda value: 0.01 * value, "unknown"),
    ],
)
def test_another_score_scale_changes_little(change, scale):
    changed = reciprocal_rank(lambda pool: {id: change(value) for id, value in good(pool).items()}, scale)
    assert changed == pytest.approx(reciprocal_rank(good), abs=0.06)


def test_a_reranker_may_lift_the_answer_from_the_end_of_the_list():
    """One high score far down is what rerankers are for; it is not a contradiction of the first stage."""
    ids = [f"d{i:02}" for i in range(10)]
    fused = weighted(
        [[Hit(id, "", 10.0 - i, name) for i, id in enumerate(ids)] for name in ("words", "vectors")],
        retrieval_modes=["lexical", "dense"],
    )
    scores = [-4.0 - 0.5 * i for i in range(8)] + [8.0, -9.0]
    record = StageRecord(
        kind=StageKind.RERANK, name="rerank", source="scorer", ids=tuple(ids), scores=tuple(scores),
        score_scale="logit", languages="any",
    )  # fmt: skip
    assert blend(list(fused), trace=Trace((*fused.records, record))).ids[0] == "d08"
