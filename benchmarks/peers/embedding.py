"""The other side of embedding.py: one library, one process, one JSON line per request.

Each peer computes on one thread, where the system can do that on one core: what is compared is processor time
per text, and threads that wait for one another, or share a cache, spend it too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import answer_forever
from benchmarks.peers.cross_encoder import same_shape

Embed = Callable[[Sequence[str]], object]


def resift_embedder(folder: Path) -> Embed:
    from resift.models.embedder import Embedder

    embedder = Embedder()
    return lambda texts: embedder.embed_sync(texts, kind="document")


def plain_onnxruntime(folder: Path) -> Embed:
    """Sorted batches of eight, as careful users of the runtime do."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(512)

    def embed(texts):
        found = []
        for start in range(0, len(texts), 8):
            rows = tokenizer.encode_batch(list(texts[start : start + 8]))
            feeds = {
                "input_ids": np.array([row.ids for row in rows]),
                "attention_mask": np.array([row.attention_mask for row in rows]),
                "token_type_ids": np.array([row.type_ids for row in rows]),
            }
            found.append(session.run(None, feeds)[0][:, 0])
        return np.concatenate(found)

    return embed


def fastembed(folder: Path) -> Embed:
    """The same ONNX file under the name that fastembed looks for."""
    from fastembed import TextEmbedding

    target = Path(tempfile.mkdtemp())
    (target / "model_optimized.onnx").symlink_to(folder / "model.onnx")
    (target / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    marks = {
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    (target / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (target / "tokenizer_config.json").write_text(json.dumps({"max_length": 512, "model_max_length": 512, **marks}))
    (target / "special_tokens_map.json").write_text(json.dumps(marks))
    model = TextEmbedding("BAAI/bge-small-en-v1.5", specific_model_path=str(target), threads=1)
    return lambda texts: list(model.embed(list(texts), batch_size=8))


def sentence_transformers(folder: Path) -> Embed:
    """The same architecture with random weights in fp32, since such weights are not in the carrier."""
    import torch
    from sentence_transformers import SentenceTransformer, models

    torch.set_num_threads(1)
    words = models.Transformer(same_shape(folder), max_seq_length=512)
    model = SentenceTransformer(modules=[words, models.Pooling(384, "cls")], device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=32)


PEERS = {
    "resift": resift_embedder,
    "onnxruntime": plain_onnxruntime,
    "fastembed": fastembed,
    "sentence-transformers": sentence_transformers,
}


def main() -> None:
    if sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the first core serves most interrupts
    embed = PEERS[sys.argv[1]](Path(sys.argv[2]))

    def handle(request):
        wall, cpu = time.perf_counter(), time.process_time()
        embed(request["texts"])
        return {"ms": (time.perf_counter() - wall) * 1000, "cpu_ms": (time.process_time() - cpu) * 1000}

    answer_forever(handle)


if __name__ == "__main__":
    main()
