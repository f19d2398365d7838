"""The other side of two_stage.py: one library's two-stage search, one process, one JSON line per request.

Both libraries get the same texts, the same vectors from an embedder that costs nothing, and the same
cross-encoder: the same ONNX file (`txtai-onnx`), or the same shape in torch with random weights
(`txtai-torch`, since fp32 weights are not in the carrier). Time is taken around the library's call alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import answer_forever

DIMENSION = 64


def vectors(texts):
    """Return unit vectors of hashed words: free, and the same in every process."""
    rows = np.zeros((len(texts), DIMENSION), dtype=np.float32)
    for at, text in enumerate(texts):
        for word in text.lower().split():
            rows[at, hashlib.blake2b(word.strip(".?,").encode(), digest_size=2).digest()[0] % DIMENSION] += 1
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


class FreeEmbedder:
    name = "hashed-words"

    async def embed(self, texts, *, kind):
        return vectors(texts)


def resift(folder: Path, texts: list[str]):
    import asyncio

    from resift.pipeline import TwoStage
    from resift.rerankers.cross_encoder import CrossEncoderReranker
    from resift.stores import SQLiteStore

    path = Path(tempfile.mkdtemp()) / "index.db"
    store = SQLiteStore(path, embedder=FreeEmbedder(), create=True)
    asyncio.run(store.add([{"id": str(at), "text": text} for at, text in enumerate(texts)]))
    search = TwoStage(store.vectors, CrossEncoderReranker())
    return lambda query, limit: [row["id"] for row in search(query, limit)]


def txtai(similar, texts: list[str]):
    from txtai import Embeddings
    from txtai.pipeline import Reranker

    embeddings = Embeddings({"method": "external", "transform": vectors, "content": True})
    embeddings.index([(str(at), text, None) for at, text in enumerate(texts)])
    search = Reranker(embeddings, similar)
    return lambda query, limit: [row["id"] for row in search(query, limit)]


def tokenizer_folder(folder: Path, target: str) -> None:
    from transformers import PreTrainedTokenizerFast

    tokens = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "cls_token", "sep_token", "unk_token")}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **tokens,
    )
    tokenizer._tokenizer.no_padding()
    tokenizer.save_pretrained(target)


def shape():
    from transformers import BertConfig

    return BertConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536, num_labels=1
    )


def txtai_onnx(folder: Path, texts: list[str]):
    from txtai.pipeline import Similarity

    target = tempfile.mkdtemp()
    tokenizer_folder(folder, target)
    config = {**shape().to_dict(), "architectures": ["BertForSequenceClassification"]}
    (Path(target) / "config.json").write_text(json.dumps(config))
    return txtai(Similarity((str(folder / "model.onnx"), target), crossencode=True, gpu=False), texts)


def txtai_torch(folder: Path, texts: list[str]):
    import torch
    from transformers import BertForSequenceClassification
    from txtai.pipeline import Similarity

    torch.manual_seed(0)
    target = tempfile.mkdtemp()
    BertForSequenceClassification(shape()).save_pretrained(target)
    tokenizer_folder(folder, target)
    return txtai(Similarity(target, crossencode=True, gpu=False), texts)


PEERS = {"resift": resift, "txtai-onnx": txtai_onnx, "txtai-torch": txtai_torch}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    search = None

    def handle(request):
        nonlocal search
        if "texts" in request:
            search = PEERS[name](folder, request["texts"])
            return {"ready": True}
        wall, cpu = time.perf_counter(), time.process_time()
        ids = search(request["query"], request["limit"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"ms": wall * 1000, "cpu_ms": cpu * 1000, "ids": ids}

    answer_forever(handle)


if __name__ == "__main__":
    main()
