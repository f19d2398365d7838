"""Each client's own way to rerank, run in that client's environment by server_clients.py.

    python peers/server_clients.py NAME '["http://…", "key", "query", ["document", …]]'

Prints the order that the client got, or null where it embeds.
"""

from __future__ import annotations

import json
import sys


def cohere_v2(url, key, query, documents):
    import cohere

    client = cohere.ClientV2(api_key=key, base_url=url)
    return [row.index for row in client.rerank(model="rerank-v3.5", query=query, documents=documents).results]


def cohere_v1(url, key, query, documents):
    import cohere

    client = cohere.Client(api_key=key, base_url=url)
    return [row.index for row in client.rerank(model="rerank-v3.5", query=query, documents=documents).results]


def voyageai(url, key, query, documents):
    import voyageai

    client = voyageai.Client(api_key=key, base_url=f"{url}/v1")
    return [row.index for row in client.rerank(query, documents, model="rerank-2.5").results]


def openai(url, key, query, documents):
    import numpy as np
    import openai

    client = openai.OpenAI(api_key=key, base_url=f"{url}/v1")
    rows = client.embeddings.create(model="text-embedding-3-small", input=[query, *documents]).data
    vectors = np.array([row.embedding for row in rows])
    assert vectors.shape == (len(documents) + 1, 384), vectors.shape
    assert abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-4


def litellm(url, key, query, documents):
    import litellm

    orders = {}
    for model, base in (
        ("cohere/rerank-v3.5", url),
        ("jina_ai/jina-reranker-v2", f"{url}/v1/rerank"),
        ("infinity/m", f"{url}/infinity"),
        ("hosted_vllm/m", f"{url}/vllm"),
        ("huggingface/m", url),
    ):
        found = litellm.rerank(
            model=model, query=query, documents=documents, top_n=len(documents), api_base=base, api_key=key
        )
        orders[model] = [row["index"] for row in found.results]
    first = orders["cohere/rerank-v3.5"]
    assert all(order == first for order in orders.values()), orders
    return first


def langchain_cohere(url, key, query, documents):
    from langchain_cohere import CohereRerank

    reranker = CohereRerank(model="rerank-v3.5", top_n=len(documents), base_url=url, cohere_api_key=key)
    return [row["index"] for row in reranker.rerank(documents, query)]


def langchain_openai(url, key, query, documents):
    from langchain_openai import OpenAIEmbeddings

    made = OpenAIEmbeddings(model="m", base_url=f"{url}/v1", api_key=key, check_embedding_ctx_length=False)
    assert len(made.embed_query(query)) == 384


def _nodes(documents):
    from llama_index.core.schema import NodeWithScore, TextNode

    return [NodeWithScore(node=TextNode(text=text, id_=str(at)), score=0) for at, text in enumerate(documents)]


def llama_index_cohere(url, key, query, documents):
    from llama_index.core.schema import QueryBundle
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    made = CohereRerank(api_key=key, model="rerank-v3.5", top_n=len(documents), base_url=url)
    return [int(one.node.node_id) for one in made.postprocess_nodes(_nodes(documents), QueryBundle(query))]


def llama_index_tei(url, key, query, documents):
    from llama_index.core.schema import QueryBundle
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    made = TextEmbeddingInference(base_url=url, top_n=len(documents), auth_token=key)
    return [int(one.node.node_id) for one in made.postprocess_nodes(_nodes(documents), QueryBundle(query))]


def _documents(documents):
    from haystack import Document

    return [Document(content=text, id=str(at)) for at, text in enumerate(documents)]


def haystack_tei(url, key, query, documents):
    from haystack.utils import Secret

    try:
        from haystack.components.rankers import HuggingFaceTEIRanker
    except ImportError:
        from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    ranker = HuggingFaceTEIRanker(url=url, token=Secret.from_token(key), top_k=len(documents))
    return [int(one.id) for one in ranker.run(query=query, documents=_documents(documents))["documents"]]


def haystack_cohere(url, key, query, documents):
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker

    ranker = CohereRanker(model="rerank-v3.5", api_key=Secret.from_token(key), api_base_url=url, top_k=len(documents))
    return [int(one.id) for one in ranker.run(query=query, documents=_documents(documents))["documents"]]


if __name__ == "__main__":
    print(json.dumps({"order": globals()[sys.argv[1]](*json.loads(sys.argv[2]))}))
