"""docs/migrate/cohere.md: Cohere's own SDK and Resift put the same question to the same server."""

from __future__ import annotations

import asyncio

import pytest

from resift.rerankers.hosted import HostedReranker
from resift.rerankers.rescore import rescore
from resift.types import Hit
from tests.providers import ProviderServer

pytestmark = pytest.mark.filterwarnings("default")  # those of the SDK are not ours

QUERY = "when does the parking gate open?"
TEXTS = [
    "The canteen opens at noon.",
    "The car park closes at ten; the gate opens again at six.",
    "New laptops arrive in ten days.",
    "When the gate is closed, call reception; parking is free at night.",
]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_sdk_and_resift_give_the_same_order_and_scores(k):
    """Same server, same documents, same best k; Resift names hits by id instead of by index."""
    cohere = pytest.importorskip("cohere", reason="the SDK is not installed")
    with ProviderServer(api_key="k") as server:
        address = server.base_url("cohere")
        with cohere.ClientV2(api_key="k", base_url=address) as client:
            theirs = client.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS, top_n=k).results
        ours = asyncio.run(
            rescore(
                HostedReranker("cohere", base_url=address, api_key="k", allow_loopback=True),
                QUERY,
                [Hit(str(at), text) for at, text in enumerate(TEXTS)],
                k=k,
            )
        )
    assert [(str(row.index), row.relevance_score) for row in theirs] == [(hit.id, hit.score) for hit in ours]
