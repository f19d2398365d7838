"""Between LlamaIndex's nodes and hits. Nodes are never changed: what goes out is a copy."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, TextNode

from resift.integrations.facts import with_facts
from resift.types import Hit, JsonObject, Ranking


def hits_of(nodes: Sequence[NodeWithScore]) -> list[Hit]:
    """Return one hit per node; its id is the node's place, which is always there and unique."""
    return [
        Hit(str(at), text_of(node.node), source="llama-index", metadata=node.node.metadata)
        for at, node in enumerate(nodes)
    ]


def reordered(nodes: Sequence[NodeWithScore], ranking: Ranking) -> list[NodeWithScore]:
    """Return copies of the nodes in the order of a ranking of `hits_of`, each saying how it got there."""
    rows = []
    for at, (_, facts) in zip(ranking.indices(), with_facts(ranking), strict=True):
        score = facts["relevance_score"]
        given = nodes[at]
        # A node that nobody judged keeps the score it came with.
        rows.append(
            NodeWithScore(node=_with_facts(given.node, facts), score=given.score if score is None else score)
        )
    return rows


def nodes_of(ranking: Ranking) -> list[NodeWithScore]:
    """Return the hits of a search as nodes."""
    rows = []
    for hit, facts in with_facts(ranking):
        node = TextNode(id_=hit.id, text=hit.text, metadata=dict(hit.metadata))
        rows.append(NodeWithScore(node=_with_facts(node, facts), score=hit.score))
    return rows


def text_of(node: BaseNode) -> str:
    """Return the text without metadata, as the reranker should read it."""
    return node.get_content(metadata_mode=MetadataMode.NONE)


def _with_facts(node: BaseNode, facts: JsonObject) -> BaseNode:
    """Return a copy with the facts in its metadata, hidden from language models and embedders."""
    hidden = list(facts)
    return node.model_copy(
        update={
            "metadata": {**node.metadata, **facts},
            "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, *hidden],
            "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, *hidden],
        }
    )
