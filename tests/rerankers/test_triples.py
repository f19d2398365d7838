"""Hand-written triples: right above near above wrong, with negation, numbers and paraphrase among them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from resift.deadline import Deadline
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.late_interaction import LateInteractionReranker
from resift.types import Hit

pytestmark = pytest.mark.real_model

TRIPLES = [json.loads(line) for line in (Path(__file__).parent / "triples.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("reranker", [CrossEncoderReranker, LateInteractionReranker])
def test_every_triple_is_ordered_relevant_related_unrelated(reranker):
    scorer = reranker()

    async def misjudged():
        wrong = []
        for triple in TRIPLES:
            hits = [Hit(name, triple[name]) for name in ("wrong", "near", "right")]
            scores = (await scorer.score(triple["query"], hits, deadline=Deadline.never())).values
            if not scores[2] > scores[1] > scores[0]:
                wrong.append((triple["query"], scores))
        return wrong

    assert len(TRIPLES) >= 30
    assert asyncio.run(misjudged()) == []
