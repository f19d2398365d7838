"""The other side of same_order.py: the calls of the migration pages, made in the peers' environment.

Each function gets the folder of the model that Resift uses and returns a ranker on those very weights: from a
question and passages to (index of the passage, the peer's score), best first.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import answer_forever, versions
from benchmarks.peers.frameworks import FRAMEWORKS

FLASHRANK_NAME = "ms-marco-MiniLM-L-12-v2"
Rank = Callable[[str, Sequence[str]], list[tuple[int, float]]]


def flashrank_cache(folder: Path) -> str:
    """Lay the model's files out as FlashRank's download does, so that nothing is fetched."""
    cache = Path(tempfile.mkdtemp())
    (cache / FLASHRANK_NAME).mkdir()
    for file in folder.iterdir():
        name = "flashrank-MiniLM-L-12-v2_Q.onnx" if file.name == "model.onnx" else file.name
        (cache / FLASHRANK_NAME / name).symlink_to(file.resolve())
    config = cache / FLASHRANK_NAME / "config.json"
    if not config.exists():
        config.write_text(json.dumps({"pad_token_id": 0}))
    return str(cache)


def flashrank(folder: Path) -> Rank:
    from flashrank import Ranker, RerankRequest

    ranker = Ranker(model_name=FLASHRANK_NAME, cache_dir=flashrank_cache(folder))

    def rank(query, passages):
        rows = [{"id": at, "text": text} for at, text in enumerate(passages)]
        return [(row["id"], row["score"]) for row in ranker.rerank(RerankRequest(query=query, passages=rows))]

    return rank


def rerankers(folder: Path) -> Rank:
    from rerankers import Reranker

    cache = flashrank_cache(folder)
    ranker = Reranker(FLASHRANK_NAME, model_type="flashrank", cache_dir=cache, verbose=0)

    def rank(query, passages):
        found = ranker.rank(query=query, docs=list(passages), doc_ids=list(range(len(passages))))
        return [(row.document.doc_id, row.score) for row in found.results]

    return rank


def txtai(folder: Path) -> Rank:
    from txtai.pipeline import Similarity

    return Similarity(txtai_path(folder), crossencode=True, gpu=False)


def txtai_two_stage(folder: Path) -> Rank:
    """The Reranker pipeline; an index of words finds the candidates, so that no second model is needed."""
    from txtai import Embeddings
    from txtai.pipeline import Reranker

    similarity = txtai(folder)

    def rank(query, passages):
        embeddings = Embeddings(keyword=True, content=True)
        embeddings.index(list(enumerate(passages)))
        if not embeddings.search(query):
            return []  # txtai 9.14 raises IndexError when a cross-encoder gets no texts
        rows = Reranker(embeddings, similarity)(query, limit=len(passages))
        return [(int(row["id"]), row["score"]) for row in rows]

    return rank


def resift_two_stage(folder: Path) -> Rank:
    """Resift's TwoStage over txtai's own embeddings: the line that a user of txtai changes."""
    from txtai import Embeddings

    from resift.pipeline import TwoStage
    from resift.rerankers.cross_encoder import CrossEncoderReranker

    reranker = CrossEncoderReranker(folder=folder)

    def rank(query, passages):
        embeddings = Embeddings(keyword=True, content=True)
        embeddings.index(list(enumerate(passages)))
        rows = TwoStage(embeddings, reranker)(query, limit=len(passages))
        return [(int(row["id"]), row["score"]) for row in rows]

    return rank


def txtai_path(folder: Path) -> tuple[str, str]:
    """Return what txtai loads: the ONNX file, and a folder with tokenizer and configuration."""
    target = Path(tempfile.mkdtemp())
    for file in folder.iterdir():
        if file.suffix != ".onnx":
            (target / file.name).write_bytes(file.read_bytes())
    (target / "config.json").write_text(
        json.dumps({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 1})
    )
    return str(folder / "model.onnx"), str(target)


PEERS = {
    "flashrank": flashrank,
    "rerankers": rerankers,
    "txtai": txtai,
    "txtai two-stage": txtai_two_stage,
    "resift over txtai": resift_two_stage,
    **FRAMEWORKS,
}
DISTRIBUTIONS = (
    "FlashRank", "rerankers", "txtai", "onnxruntime", "langchain-classic", "llama-index-core", "haystack-ai",
    "sentence-transformers",
)  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1])
    built: dict[str, Rank] = {}

    def handle(request):
        if "versions" in request:
            return {"versions": versions(DISTRIBUTIONS)}
        name = request["peer"]
        try:
            rank = built[name] = built.get(name) or PEERS[name](folder)
        except ImportError as absent:
            return {"absent": str(absent)}
        order = rank(request["query"], request["passages"])
        return {"order": [(at, float(score)) for at, score in order]}

    answer_forever(handle)


if __name__ == "__main__":
    main()
