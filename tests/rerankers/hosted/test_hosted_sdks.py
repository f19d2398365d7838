"""The providers' own SDKs against the same strict server: what it accepts from them, it accepts from us.

Needs `pip install voyageai cohere mixedbread openai`; each test is skipped where its SDK is absent.
"""

import asyncio

import pytest

from resift.deadline import Deadline
from resift.rerankers.hosted import ChatClient
from resift.types import Hit

QUERY = "alpha beta"
TEXTS = ["alpha", "beta gamma", "delta"]

pytestmark = pytest.mark.filterwarnings("default")


def voyage(sdk, server):
    client = sdk.Client(api_key="k", base_url=f"{server.base_url('voyage')}/v1", max_retries=0)
    rows = client.rerank(QUERY, TEXTS, model="rerank-2.5", top_k=3, truncation=True).results
    return {row.index: row.relevance_score for row in rows}


def cohere(sdk, server):
    client = sdk.ClientV2(api_key="k", base_url=server.base_url("cohere"))
    rows = client.rerank(model="rerank-v4.0-pro", query=QUERY, documents=TEXTS, top_n=3).results
    return {row.index: row.relevance_score for row in rows}


def cohere_v1(sdk, server):
    client = sdk.Client(api_key="k", base_url=server.base_url("cohere-v1"))
    rows = client.rerank(model="rerank-multilingual-v3.0", query=QUERY, documents=TEXTS, top_n=3).results
    return {row.index: row.relevance_score for row in rows}


def mixedbread(sdk, server):
    client = sdk.Mixedbread(api_key="k", base_url=server.base_url("mixedbread"), max_retries=0)
    model = "mixedbread-ai/mxbai-rerank-large-v2"
    rows = client.rerank(model=model, query=QUERY, input=TEXTS, top_k=3, return_input=False).data
    return {row.index: row.score for row in rows}


@pytest.mark.parametrize(
    ("package", "provider", "ask"),
    [
        ("voyageai", "voyage", voyage),
        ("cohere", "cohere", cohere),
        ("cohere", "cohere-v1", cohere_v1),
        ("mixedbread", "mixedbread", mixedbread),
    ],
)
def test_requests_and_scores_match_those_of_the_official_sdk(package, provider, ask, server, reranker):
    theirs = ask(pytest.importorskip(package), server)
    hits = [Hit(str(at), text) for at, text in enumerate(TEXTS)]
    ours = asyncio.run(reranker(provider).score(QUERY, hits, deadline=Deadline.after(5)))
    assert dict(enumerate(ours.values)) == theirs
    sdk, own = server.requests
    assert own.path == sdk.path
    assert {key: own.body[key] for key in sdk.body} == sdk.body


def test_requests_match_those_of_the_openai_sdk(server):
    openai = pytest.importorskip("openai")
    messages = [{"role": "user", "content": "Query: b\n[1] a\n[2] b"}]
    theirs = openai.OpenAI(api_key="k", base_url=f"{server.base_url('chat')}/v1", max_retries=0)
    answer = theirs.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=9)
    ours = ChatClient(f"{server.base_url('chat')}/v1", "m", api_key="k", allow_loopback=True, max_tokens=9)
    completion = asyncio.run(ours.complete(messages, deadline=Deadline.after(5)))
    assert completion.text == answer.choices[0].message.content == "[2] > [1]"
    sdk, own = server.requests
    assert own.path == sdk.path
    assert {key: own.body[key] for key in sdk.body} == sdk.body
