"""One peer's fusion of ranked lists, timed in its own process and environment."""

from __future__ import annotations

import json
import statistics
import sys
import time


def langchain(lists):
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_core.documents import Document

    share = 1 / len(lists)
    engine = EnsembleRetriever.model_construct(retrievers=[], weights=[share] * len(lists), c=60, id_key=None)
    given = [[Document(page_content=text, id=id) for id, text, _ in hits] for hits in lists]
    return lambda: engine.weighted_reciprocal_rank(given)


def llama_index(lists):
    from llama_index.core.retrievers.fusion_retriever import QueryFusionRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    engine = object.__new__(QueryFusionRetriever)
    given = {
        ("q", at): [NodeWithScore(node=TextNode(id_=id, text=text), score=score) for id, text, score in hits]
        for at, hits in enumerate(lists)
    }
    return lambda: engine._reciprocal_rerank_fusion(given)


def haystack(lists):
    from haystack import Document
    from haystack.components.joiners import DocumentJoiner

    engine = DocumentJoiner(join_mode="reciprocal_rank_fusion")
    given = [[Document(id=id, content=text, score=score) for id, text, score in hits] for hits in lists]
    return lambda: engine.run(documents=given)


def haystack_sum(lists):
    from haystack import Document
    from haystack.components.joiners import DocumentJoiner

    engine = DocumentJoiner(join_mode="merge")
    given = [[Document(id=id, content=text, score=score) for id, text, score in hits] for hits in lists]
    return lambda: engine.run(documents=given)


def ranx(lists):
    from ranx import Run, fuse

    given = [Run({"q": {id: score for id, _, score in hits}}) for hits in lists]
    return lambda: fuse(given, method="rrf", params={"k": 60}, norm=None)


def ranx_sum(lists):
    from ranx import Run, fuse

    given = [Run({"q": {id: score for id, _, score in hits}}) for hits in lists]
    return lambda: fuse(given, method="sum", norm=None)


ENGINES = {
    "langchain": langchain,
    "llama-index": llama_index,
    "haystack": haystack,
    "haystack-sum": haystack_sum,
    "ranx": ranx,
    "ranx-sum": ranx_sum,
}


def once_ms(call) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1000


def main() -> None:
    engine = ENGINES[sys.argv[1]]
    call = None
    for line in sys.stdin:
        request = json.loads(line)
        if "lists" in request:
            call = engine(request["lists"])
            call()
            answer = {"ready": True}
        else:
            answer = {"ms": statistics.median(once_ms(call) for _ in range(request["repeat"]))}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
