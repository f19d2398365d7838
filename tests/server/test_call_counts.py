"""A rerank request passes through few functions, so that a reader can follow it."""

from __future__ import annotations

import json

from starlette.testclient import TestClient

from resift.server import ServerOptions, serve_app
from resift.types import ScorerInfo, Scores
from tests.call_counts import watch_threads

BODY = json.dumps({"query": "red fox", "documents": ["a red fox", "a whale", "the fox"]})


class LengthScorer:
    """A scorer without a model."""

    info = ScorerInfo(name="length")

    async def score(self, query, hits, *, deadline):
        return Scores([len(hit.text) for hit in hits], "length")


def test_a_rerank_request_passes_through_few_functions():
    """At most 60 functions in 15 files outside Starlette and the model."""
    app = serve_app(ServerOptions(embedder=None, key_env=None, any_model=True), scorer=LengthScorer())
    with watch_threads() as counter, TestClient(app) as client:
        while client.get("/readyz").status_code != 200:
            pass
        counts = counter.count(lambda: client.post("/v2/rerank", content=BODY).raise_for_status())
    assert len(counts.functions) <= 60, counts.report()
    assert len(counts.files) <= 15, counts.report()
