"""The other side of cross_encoder.py: one library, one process, one JSON line per request.

Runs in the peers' environment (or in Resift's own for `resift` and `onnxruntime`), so it imports no more than
the library under test. Time is taken around the library's call alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import answer_forever

Score = Callable[[str, Sequence[str]], Sequence[float]]


def resift_shared(folder: Path) -> Score:
    import resift

    def score(query, texts):
        ranking = resift.rerank(query, texts)
        if ranking.degraded:
            raise RuntimeError(ranking.reason)
        return [hit.score for hit in sorted(ranking, key=lambda hit: int(hit.id))]

    return score


def resift_avx2(folder: Path) -> Score:
    """The kernel of processors without AVX-512."""
    os.environ["RESIFT_NATIVE"] = "avx2"
    return resift_shared(folder)


def resift_without_native(folder: Path) -> Score:
    """The file's own graph in ONNX Runtime, one row at a time: what runs without compiled code."""
    os.environ["RESIFT_NATIVE"] = "0"
    return resift_shared(folder)


def plain_onnxruntime(folder: Path) -> Score:
    """Sorted batches of eight, two threads: what careful users of the runtime do."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(512)

    def score(query, texts):
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        scores = np.zeros(len(texts))
        for start in range(0, len(order), 8):
            batch = order[start : start + 8]
            rows = tokenizer.encode_batch([(query, texts[at]) for at in batch])
            feeds = {
                "input_ids": np.array([row.ids for row in rows]),
                "attention_mask": np.array([row.attention_mask for row in rows]),
                "token_type_ids": np.array([row.type_ids for row in rows]),
            }
            scores[batch] = session.run(None, feeds)[0][:, 0]
        return scores.tolist()

    return score


def flashrank(folder: Path) -> Score:
    """The same ONNX file under the name that FlashRank looks for."""
    from flashrank import Ranker, RerankRequest

    name = "ms-marco-MiniLM-L-12-v2"
    cache = Path(tempfile.mkdtemp())
    (cache / name).mkdir()
    for file in folder.iterdir():
        target = "flashrank-MiniLM-L-12-v2_Q.onnx" if file.name == "model.onnx" else file.name
        (cache / name / target).symlink_to(file)
    (cache / name / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    ranker = Ranker(model_name=name, cache_dir=str(cache), log_level="ERROR")

    def score(query, texts):
        passages = [{"id": at, "text": text} for at, text in enumerate(texts)]
        found = ranker.rerank(RerankRequest(query=query, passages=passages))
        return [row["score"] for row in sorted(found, key=lambda row: row["id"])]

    return score


def same_shape(folder: Path) -> str:
    """Write the same architecture with random weights, since fp32 weights are not in the carrier."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(0)
    target = tempfile.mkdtemp()
    shape = BertConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536, num_labels=1
    )
    BertForSequenceClassification(shape).save_pretrained(target)
    tokens = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "cls_token", "sep_token", "unk_token")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), model_max_length=512, **tokens)
    tokenizer._tokenizer.no_padding()
    tokenizer.save_pretrained(target)
    return target


def sentence_transformers(folder: Path) -> Score:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(same_shape(folder), device="cpu")
    return lambda query, texts: model.predict([(query, text) for text in texts]).tolist()


def rerankers(folder: Path) -> Score:
    from rerankers import Reranker

    ranker = Reranker(same_shape(folder), model_type="cross-encoder", device="cpu", verbose=0)

    def score(query, texts):
        found = ranker.rank(query=query, docs=list(texts), doc_ids=list(range(len(texts))))
        return [row.score for row in sorted(found.results, key=lambda row: row.document.doc_id)]

    return score


PEERS = {
    "resift": resift_shared,
    "resift, avx2": resift_avx2,
    "resift, not compiled": resift_without_native,
    "onnxruntime": plain_onnxruntime,
    "flashrank": flashrank,
    "sentence-transformers": sentence_transformers,
    "rerankers": rerankers,
}


def concurrently(score: Score, query: str, texts: Sequence[str], callers: int) -> float:
    threads = [threading.Thread(target=score, args=(query, texts)) for _ in range(callers)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    score = PEERS[name](folder)

    def handle(request):
        if request.get("callers"):
            return {"ms": concurrently(score, request["query"], request["texts"], request["callers"])}
        wall, cpu = time.perf_counter(), time.process_time()
        scores = score(request["query"], request["texts"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"ms": wall * 1000, "cpu_ms": cpu * 1000, "scores": [float(value) for value in scores]}

    answer_forever(handle)


if __name__ == "__main__":
    main()
