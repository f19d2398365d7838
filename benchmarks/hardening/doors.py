"""Every door a user comes through, with arguments that are right: bad ones are put in their place one by one."""

# ruff: noqa: E501 - a row of data reads best on one line
from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import resift
from resift.agent import GraphReranker, Pack, build_pack
from resift.batch import RerankWork, run_batch
from resift.config import inspect_yaml, load_plain, load_yaml, pipeline_from_config, pipeline_from_yaml
from resift.deadline import Deadline
from resift.evaluation import (
    Judge,
    bootstrap_interval,
    holm,
    randomisation_p,
    read_collection,
    read_qrels,
    read_recording,
    read_run,
    subject_named,
)
from resift.fusion import METHODS, compare
from resift.gate import find_cliff, gate, grade, profile_named
from resift.ingest import ChunkSize, index_paths, open_index
from resift.ingest.limits import Limits as FileLimits
from resift.models import allow_local, disallow_local, resolve, write_manifest
from resift.plugins import load_store
from resift.rerankers import (
    CachedScorer,
    CascadeReranker,
    HostedReranker,
    LateInteractionReranker,
    LLMReranker,
    MemoryScores,
    SemanticBM25Reranker,
    SQLiteScores,
    ZeroShotReranker,
    hosted_reranker,
)
from resift.resilience import Budget, CircuitBreaker
from resift.retrieval import OverFetch, StoreRef
from resift.server.options import Limits, ServerOptions
from resift.shape import (
    Platt,
    above,
    balance,
    blend,
    calibrate,
    calibrator_from,
    fold,
    guard,
    load_calibrator,
    mmr,
    precede,
    recover,
    shape,
)
from resift.stores import (
    LadybugGraphStore,
    LanceDBVectorStore,
    PostgresStore,
    QdrantVectorStore,
    check_cypher,
)
from resift.testing import FakeStore, OverlapScorer
from resift.text import Analyzer, snippet, words
from resift.types import Hit

DOCUMENTS = [
    {"id": "a", "text": "Paris is the capital of France."},
    {"id": "b", "text": "Bananas are yellow."},
]
HITS = [Hit("a", "Paris is the capital", 0.9, "s"), Hit("b", "Bananas", 0.4, "s"), Hit("c", "More", 0.1, "t")]


@dataclass(frozen=True)
class Door:
    """A callable and arguments that it takes; positional ones are given by name too."""

    name: str
    call: Callable[..., Any]
    valid: Mapping[str, Any]

    def open(self, arguments: Mapping[str, Any]) -> Any:
        """Call it; what is awaited is awaited."""
        answer = self.call(**arguments)
        return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Any) -> Any:
    return await answer


def doors(folder: Path) -> list[Door]:
    """Return the doors; files that they need are made in the folder."""
    return [
        *_rank_doors(),
        *_pure_doors(),
        *_store_doors(folder),
        *_index_doors(folder),
        *_made_doors(),
        *_file_doors(folder),
        *_room_doors(folder),
        *_model_doors(folder),
        *_engine_doors(folder),
    ]


def _rank_doors() -> list[Door]:
    pipeline = resift.Pipeline([FakeStore(HITS, name="s")], rerank=OverlapScorer())
    node = resift.RetrievalNode([FakeStore(HITS, name="s")])
    ranking = resift.Ranking(tuple(HITS))

    def search(**given: Any) -> Any:
        return pipeline.search(**given)

    return [
        Door(
            "rerank",
            resift.rerank,
            {"query": "capital", "documents": DOCUMENTS, "k": 1, "deadline_s": 5.0, "missing_text": "last", "text_keys": ("text",)},
        ),
        Door("arerank", resift.arerank, {"query": "capital", "documents": DOCUMENTS, "k": 1, "deadline_s": 5.0}),
        Door("fuse", resift.fuse, {"lists": {"x": DOCUMENTS, "y": DOCUMENTS}, "k": 2, "method": "rrf", "weights": [1, 2]}),
        Door("fuse linear", resift.fuse, {"lists": [HITS, HITS], "k": 2, "method": "linear", "normalize": "min-max"}),
        Door("fuse dialect", resift.fuse, {"lists": [HITS, HITS], "dialect": "langchain", "k_param": 60}),
        Door("Pipeline", resift.Pipeline, {"stores": [FakeStore(HITS, name="s")], "rerank": OverlapScorer(), "k": 3, "deadline_s": 1.0, "timeout_s": 2.0}),
        Door("Pipeline.search", search, {"query": "capital", "k": 2, "deadline_s": 5.0, "where": {"a": 1}, "section": "x"}),
        Door("Pipeline.rank", pipeline.rank, {"query": "capital", "k": 2, "deadline_s": 5.0, "where": None}),
        Door("Pipeline.default", resift.Pipeline.default, {"store": FakeStore(HITS, name="s"), "rerank": False}),
        Door("RetrievalNode", resift.RetrievalNode, {"stores": [FakeStore(HITS, name="s")], "k": 3, "rerank": None, "timeout_s": 1.0}),
        Door("RetrievalNode.execute", node.execute, {"state": {"query": "capital"}}),
        Door("StoreRef", lambda **given: resift.RetrievalNode([StoreRef(**given)]), {"name": "n", "store": FakeStore(HITS, name="s"), "k": 3, "timeout_s": 1.0}),
        Door("Ranking.from_json", resift.Ranking.from_json, {"text": ranking.to_json()}),
        Door("Ranking.why", ranking.why, {"id": "a"}),
        Door("Ranking.explain", lambda **given: ranking.explain(**given).text(), {"query": "q", "top": 3}),
        Door("Hit", lambda **given: _used(Hit(**given)), {"id": "a", "text": "t", "score": 0.5, "source": "s", "metadata": {"k": 1}}),
    ]  # fmt: skip


def _used(hit: Hit) -> Any:
    """Use a hit as a caller would: a value that was taken must not break later."""
    ranking = resift.fuse([[hit]])
    return [ranking.to_json(), ranking.public(), repr(ranking), ranking.explain().text()]


def _pure_doors() -> list[Door]:
    lists = [HITS, list(reversed(HITS))]
    methods = [
        Door(f"fusion {name}", method, {"rankings": lists, "k": 2})
        for name, method in sorted(METHODS.items())
    ]
    return [
        *methods,
        Door("compare", compare, {"rankings": lists, "k": 3}),
        Door("gate", gate, {"hits": HITS}),
        Door("grade", grade, {"scores": [0.9, 0.4], "floor": 0.1, "wanted": 3}),
        Door("find_cliff", find_cliff, {"scores": [0.9, 0.4, 0.1], "floor": 0.1, "rerank_top_n": 1}),
        Door("profile_named", profile_named, {"name": "memosa"}),
        Door("blend", blend, {"hits": HITS}),
        Door("guard", guard, {"hits": HITS, "n": 2}),
        Door("mmr", mmr, {"hits": HITS, "k": 2, "trade_off": 0.7}),
        Door("balance", balance, {"hits": HITS, "k": 2}),
        Door("fold", fold, {"hits": HITS, "threshold": 0.9}),
        Door("precede", precede, {"hits": HITS}),
        Door("recover", recover, {"hits": HITS, "k": 2}),
        Door("shape", shape, {"hits": HITS, "k": 2}),
        Door("snippet", snippet, {"text": "a long text about Paris", "query": "Paris", "length": 20}),
        Door("words", words, {"text": "some words"}),
        Door("check_cypher", check_cypher, {"statement": "MATCH (n) RETURN n", "procedures": ["a"], "functions": ["b"]}),
        Door("Deadline.after", Deadline.after, {"seconds": 1.0}),
        Door("OverFetch", OverFetch, {"factor": 2, "minimum": 3, "cap": 10}),
    ]  # fmt: skip


def _store_doors(folder: Path) -> list[Door]:
    memory = resift.MemoryStore()
    asyncio.run(memory.add(DOCUMENTS))
    sqlite = resift.SQLiteStore(folder / "doors.db", create=True)
    asyncio.run(sqlite.add(DOCUMENTS))
    found = []
    for name, store in (("MemoryStore", memory), ("SQLiteStore", sqlite)):
        found += [
            Door(f"{name}.search", store.search, {"query": "Paris", "k": 2, "where": {"a": 1}}),
            Door(f"{name}.add", store.add, {"documents": DOCUMENTS}),
            Door(f"{name}.delete", store.delete, {"ids": ["zz"]}),
            Door(f"{name}.get", store.get, {"ids": ["a"]}),
        ]
    return [
        *found,
        Door("MemoryStore", resift.MemoryStore, {"name": "m", "mode": "text", "language": "auto"}),
        Door("SQLiteStore", resift.SQLiteStore, {"path": folder / "doors.db", "mode": "text", "name": "s", "read_only": False}),
        Door("open_index", open_index, {"path": folder / "doors.db", "text_only": True, "read_only": True}),
        Door("Index", resift.Index, {"path": folder / "index.db", "text_only": True, "rerank": False}),
    ]  # fmt: skip


def _no_folder(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Leave real folders out: `../..` is no bad path, and may hold anything."""

    def guarded(**given: Any) -> Any:
        path = given[name]
        return None if isinstance(path, (str, Path)) and os.path.isdir(path) else call(**given)

    return guarded


def _inside(call: Callable[..., Any], name: str, folder: Path) -> Callable[..., Any]:
    """Leave paths outside the folder out, where something would be written there."""

    def guarded(**given: Any) -> Any:
        path = given[name]
        if isinstance(path, (str, Path)) and not Path(os.path.normpath(folder / path)).is_relative_to(folder):
            return None
        return _no_folder(call, name)(**given)

    return guarded


def _index_doors(folder: Path) -> list[Door]:
    index = resift.Index(folder / "methods.db", text_only=True, rerank=False)
    index.add(DOCUMENTS)
    (folder / "note.txt").write_text("Paris is the capital of France.")
    return [
        Door("Index.add", index.add, {"documents": DOCUMENTS}),
        Door("Index.add_files", _no_folder(index.add_files, "paths"), {"paths": folder / "note.txt"}),
        Door("Index.search", index.search, {"query": "Paris", "k": 2, "where": {"a": 1}}),
        Door("Index.get", index.get, {"ids": ["a"]}),
        Door("Index.ask", index.ask, {"question": "What is the capital?"}),
        Door("Index.delete", index.delete, {"ids": ["zz"]}),
        Door("Index.stats", index.stats, {}),
    ]


def _made_doors() -> list[Door]:
    return [
        Door("load_reranker", lambda **given: resift.load_reranker(given.pop("name"), **given), {"name": "rrf", "k_param": 60}),
        Door("load_store", lambda **given: load_store(given.pop("name"), **given), {"name": "memory"}),
        Door("Tiered", resift.Tiered, {"primary": OverlapScorer(), "fallback": OverlapScorer(), "name": "t"}),
        Door("TwoStage", resift.TwoStage(_Rows(), OverlapScorer()), {"query": "q", "limit": 2, "factor": 3}),
        Door("RRFReranker", resift.RRFReranker, {"k_param": 60}),
        Door("SemanticBM25Reranker", SemanticBM25Reranker, {"semantic_weight": 0.7, "bm25_weight": 0.3}),
        Door("MemoryScores", MemoryScores, {"max_items": 10, "ttl_s": 1.0}),
        Door("CircuitBreaker", CircuitBreaker, {"failure_threshold": 3, "cooldown_s": 1.0, "success_threshold": 2, "timeout_s": 1.0, "jitter": 0.1}),
        Door("Budget", Budget, {"absolute_floor_s": 0.2, "per_item_floor_s": 0.02, "reserve_s": 0.05}),
        Door("HostedReranker", HostedReranker, {"provider": "jina", "base_url": "https://example.org", "api_key": "k", "timeout_s": 1.0, "max_concurrency": 2, "batch_size": 5}),
        Door("LLMReranker", LLMReranker, {"base_url": "https://example.org", "model": "m", "window": 4, "step": 2, "depth": 10}),
        Door("CrossEncoderReranker", resift.CrossEncoderReranker, {"model_name": "cross-encoder/ms-marco-MiniLM-L-12-v2", "aggregate": "max", "max_windows": 2}),
        Door("resolve", resolve, {"model_id": "cross-encoder/ms-marco-MiniLM-L-12-v2", "download": False}),
        Door("subject_named", subject_named, {"text": "bm25"}),
        Door("pipeline_from_config", lambda **given: pipeline_from_config(given), {"stores": [{"kind": "memory", "name": "m"}], "k": 3}),
    ]  # fmt: skip


class _Rows:
    """An index in txtai's shape."""

    def search(self, query: str, *, k: int) -> list[dict[str, Any]]:
        return [{"id": str(at), "text": f"row {at}", "score": 1.0} for at in range(min(k, 5))]


def _file_doors(folder: Path) -> list[Door]:
    run = folder / "a.run"
    run.write_text("1 Q0 a 1 2.0 r\n")
    judged = folder / "qrels.tsv"
    judged.write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    fitted = folder / "fit.json"
    fitted.write_text(json.dumps({"kind": "platt", "slope": 1.0, "intercept": 0.0}))
    return [
        Door("read_run", read_run, {"path": run}),
        Door("read_qrels", read_qrels, {"path": judged}),
        Door("read_recording", read_recording, {"path": folder / "none.jsonl"}),
        Door("read_collection", read_collection, {"folder": folder, "split": "test"}),
        Door("load_calibrator", load_calibrator, {"path": fitted}),
        Door("allow_local", allow_local, {"path": folder / "no-model"}),
        Door(
            "SQLiteScores",
            SQLiteScores,
            {"path": folder / "scores.db", "max_items": 5, "ttl_s": 1.0, "wait_s": 0.1},
        ),
    ]


def _room_doors(folder: Path) -> list[Door]:
    """What the rooms export beside the first names."""
    file = folder / "pipeline.yaml"
    file.write_text("stores:\n  - {kind: memory, name: m}\n")
    return [
        Door("ChunkSize", lambda **given: index_paths(resift.SQLiteStore(folder / "chunks.db", create=True), [folder / "note.txt"], size=ChunkSize(**given)), {"words": 50, "overlap": 5}),
        Door("index_paths", _no_folder(index_paths, "paths"), {"store": resift.SQLiteStore(folder / "paths.db", create=True), "paths": [folder / "note.txt"]}),
        Door("load_yaml", load_yaml, {"path": file}),
        Door("inspect_yaml", inspect_yaml, {"path": file}),
        Door("load_plain", load_plain, {"config": {"stores": [{"kind": "memory", "name": "m"}]}}),
        Door("pipeline_from_yaml", pipeline_from_yaml, {"path": file}),
        Door("bootstrap_interval", bootstrap_interval, {"differences": [0.1, -0.2, 0.3], "level": 0.9, "rounds": 100, "seed": 1}),
        Door("randomisation_p", randomisation_p, {"differences": [0.1, -0.2, 0.3], "rounds": 100, "seed": 1}),
        Door("holm", holm, {"p_values": [0.01, 0.2]}),
        Door("calibrate", calibrate, {"hits": HITS, "calibrators": Platt(1.0, 0.0)}),
        Door("above", above, {"hits": HITS, "threshold": 0.5}),
        Door("calibrator_from", calibrator_from, {"data": {"kind": "platt", "slope": 1.0, "intercept": 0.0}}),
        Door("CascadeReranker", CascadeReranker, {"scorer": OverlapScorer(), "cheap": OverlapScorer(), "k": 3, "patience": 2}),
        Door("CachedScorer", CachedScorer, {"scorer": OverlapScorer(), "cache": MemoryScores(), "model": "m", "revision": "1"}),
        Door("hosted_reranker", hosted_reranker, {"provider": "jina", "api_key": "k"}),
        Door("write_manifest", write_manifest, {"folder": folder / "no-model"}),
        Door("disallow_local", disallow_local, {"id": "local/none"}),
        Door("GraphReranker", GraphReranker, {"relevance_weight": 0.5, "vector_weight": 0.4, "centrality_weight": 0.1, "damping": 0.8}),
        Door("Pack.open", Pack.open, {"path": folder / "none.pack"}),
        Door("build_pack", _no_folder(build_pack, "source"), {"source": folder / "no-source", "target": folder / "x.pack"}),
        Door("KnowledgeGraphAgent", resift.KnowledgeGraphAgent, {"db_path": folder / "none.pack", "max_results": 3, "hops": 1}),
        Door("run_batch", run_batch, {"work": RerankWork(), "inputs": folder / "no.jsonl", "out": folder / "out", "workers": 1, "shard_rows": 5}),
        Door("Analyzer", lambda **given: Analyzer(**given).terms("some words"), {"language": "auto"}),
        Door("available_rerankers", resift.available_rerankers, {}),
        Door("serve_app", resift.serve_app, {"options": ServerOptions(embedder=None), "lifespans": []}),
    ]  # fmt: skip


def _model_doors(folder: Path) -> list[Door]:
    embedder, late = resift.Embedder(), LateInteractionReranker()
    return [
        Door("Embedder", resift.Embedder, {"model_name": "BAAI/bge-small-en-v1.5", "folder": None}),
        Door("Embedder.embed", embedder.embed, {"texts": ["a text"], "kind": "query"}),
        Door("Embedder.embed_sync", embedder.embed_sync, {"texts": ["a text"], "kind": "document"}),
        Door("CrossEncoderReranker windows", resift.CrossEncoderReranker, {"folder": folder / "no-model", "aggregate": "max", "max_windows": 2, "skim": 1}),
        Door("ZeroShotReranker", ZeroShotReranker, {"model_name": "cross-encoder/nli-deberta-v3-xsmall", "hypothesis": "It is about {}.", "folder": None}),
        Door("LateInteractionReranker", LateInteractionReranker, {"model_name": "answerdotai/answerai-colbert-small-v1", "folder": None, "max_windows": 2, "cache_mb": 1.0}),
        Door("LateInteractionReranker.encode_documents", late.encode_documents, {"texts": ["a text"]}),
        Door("LateInteractionReranker.save", _inside(late.save, "path", folder), {"path": folder / "vectors.npz"}),
        Door("LateInteractionReranker.restore", late.restore, {"path": folder / "none.npz"}),
    ]  # fmt: skip


def _engine_doors(folder: Path) -> list[Door]:
    """Stores on other engines, which are not there, and what an operator sets."""
    graph = LadybugGraphStore(folder / "none.lbug")
    postgres = PostgresStore("postgresql://127.0.0.1:1/none", timeout_s=0.5)
    return [
        Door("LadybugGraphStore", LadybugGraphStore, {"path": folder / "none.lbug", "name": "g", "id_column": "id", "text_column": "text", "timeout_s": 1.0, "max_rows": 5, "memory_mb": 64, "processes": 1, "procedures": (), "functions": ()}),
        Door("LadybugGraphStore.query", graph.query, {"cypher": "MATCH (n) RETURN n.id AS id", "parameters": {"a": 1}, "k": 3}),
        Door("PostgresStore", PostgresStore, {"dsn": "postgresql://127.0.0.1:1/none", "table": "t", "mode": "text", "name": "p", "connections": 1, "timeout_s": 0.5, "language": "auto", "index": "hnsw", "exact": False}),
        Door("PostgresStore.search", postgres.search, {"query": "Paris", "k": 2, "where": {"a": 1}}),
        Door("PostgresStore.add", postgres.add, {"documents": DOCUMENTS}),
        Door("PostgresStore.get", postgres.get, {"ids": ["a"]}),
        Door("PostgresStore.delete", postgres.delete, {"ids": ["a"]}),
        Door("LanceDBVectorStore", LanceDBVectorStore, {"uri": folder / "lance", "table": "t", "mode": "text", "name": "l", "language": "auto", "index": "ivf", "exact": True}),
        Door("QdrantVectorStore", QdrantVectorStore, {"collection": "c", "embedder": resift.Embedder(), "url": "http://127.0.0.1:1", "name": "q", "timeout_s": 1.0, "exact": True}),
        Door("ServerOptions", ServerOptions, _defaults(ServerOptions())),
        Door("Limits", Limits, _defaults(Limits())),
        Door("FileLimits", FileLimits, _defaults(FileLimits())),
        Door("Judge", Judge, {"qrels": {"q": {"d": 1}}, "measures": ["nDCG@10"]}),
        Door("Judge.quality", Judge({"q": {"d": 1}}).quality, {"run": {"q": ["d"]}}),
    ]  # fmt: skip


def _defaults(made: Any) -> dict[str, Any]:
    return {field.name: getattr(made, field.name) for field in fields(made)}
