"""`python -m research.adapters`: what LangChain's, LlamaIndex's and Haystack's adapters cost on top.

100 documents, a scorer without a model, processor time of the adapter's call less that of `resift.rerank` on
the same texts, in turns; the median of the differences.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.harness import versions, write_results

COUNT, ROUNDS = 100, 60
QUESTION = "late returns of books"
TEXTS = [f"late returns number {n} cost money at the desk of the library " * 3 for n in range(COUNT)]


def library() -> Callable[[], object]:
    from resift import rerank
    from resift.testing import OverlapScorer

    scorer = OverlapScorer("overlap")
    return lambda: rerank(QUESTION, TEXTS, scorer=scorer)


def langchain() -> Callable[[], object]:
    from langchain_core.documents import Document

    from resift.integrations.langchain import ResiftReranker
    from resift.testing import OverlapScorer

    reranker = ResiftReranker(scorer=OverlapScorer("overlap"), top_n=None)
    documents = [Document(text, id=str(at), metadata={"page": at}) for at, text in enumerate(TEXTS)]
    return lambda: reranker.compress_documents(documents, QUESTION)


def llama_index() -> Callable[[], object]:
    from llama_index.core.schema import NodeWithScore, TextNode

    from resift.integrations.llama_index import ResiftRerank
    from resift.testing import OverlapScorer

    reranker = ResiftRerank(scorer=OverlapScorer("overlap"), top_n=0)
    nodes = [NodeWithScore(node=TextNode(id_=str(at), text=text)) for at, text in enumerate(TEXTS)]
    return lambda: reranker.postprocess_nodes(nodes, query_str=QUESTION)


def haystack() -> Callable[[], object]:
    from haystack import Document

    from resift.integrations.haystack import ResiftRanker
    from resift.testing import OverlapScorer

    ranker = ResiftRanker(scorer=OverlapScorer("overlap"), top_k=COUNT)
    documents = [Document(id=str(at), content=text, meta={"page": at}) for at, text in enumerate(TEXTS)]
    return lambda: ranker.run(QUESTION, documents)


def spent_ms(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1000


def main() -> None:
    plain = library()
    adapters = {"langchain": langchain(), "llama-index": llama_index(), "haystack": haystack()}
    rows = {}
    for name, call in adapters.items():
        for _ in range(5):
            plain(), call()
        pairs = [(spent_ms(plain), spent_ms(call)) for _ in range(ROUNDS)]
        rows[name] = {
            "library_ms": round(statistics.median(one for one, _ in pairs), 2),
            "adapter_ms": round(statistics.median(other for _, other in pairs), 2),
            "on_top_ms": round(statistics.median(other - one for one, other in pairs), 2),
        }
        print(f"{name:<12} {rows[name]}")
    packages = ["langchain-core", "llama-index-core", "haystack-ai"]
    write_results("adapters", {"documents": COUNT, "adapters": rows, "versions": versions(packages)})


if __name__ == "__main__":
    main()
