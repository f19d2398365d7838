"""Every public entry point with valid arguments. Attacks replace them by bad ones, one at a time."""

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
from resift.evaluation import Judge, find_system, read_collection, read_qrels, read_recording, read_run
from resift.ingest import ChunkSize, index_paths, open_index
from resift.ingest.sources import FileLimits
from resift.models import allow_local, disallow_local, resolve, write_manifest
from resift.pipeline import OverFetch, StoreRef
from resift.plugins import load_store
from resift.ranking.fusion import METHODS, compare
from resift.ranking.gate import load_profile
from resift.ranking.shape import calibrator_from, load_calibrator
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
from resift.server.server_options import Limits, ServerOptions
from resift.stores import LadybugGraphStore, LanceDBVectorStore, PostgresStore, QdrantVectorStore, check_cypher
from resift.testing import FakeStore, OverlapScorer
from resift.text import Analyzer, words
from resift.types import Hit

DOCUMENTS = [{"id": "a", "text": "Paris is the capital of France."}, {"id": "b", "text": "Bananas are yellow."}]
HITS = [Hit("a", "Paris is the capital", 0.9, "s"), Hit("b", "Bananas", 0.4, "s"), Hit("c", "More", 0.1, "t")]


@dataclass(frozen=True)
class EntryPoint:
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


def entry_points(folder: Path) -> list[EntryPoint]:
    """Return the entry points, and create the files they need in the folder."""
    return [
        *_rank_entry_points(),
        *_pure_entry_points(),
        *_store_entry_points(folder),
        *_index_entry_points(folder),
        *_made_entry_points(),
        *_file_entry_points(folder),
        *_package_entry_points(folder),
        *_model_entry_points(folder),
        *_engine_entry_points(folder),
    ]


def _rank_entry_points() -> list[EntryPoint]:
    pipeline = resift.Pipeline([FakeStore(HITS, name="s")], rerank=OverlapScorer())
    node = resift.RetrievalNode([FakeStore(HITS, name="s")])
    ranking = resift.Ranking(tuple(HITS))

    def search(**given: Any) -> Any:
        return pipeline.search(**given)

    return [
        EntryPoint(
            "rerank",
            resift.rerank,
            {"query": "capital", "documents": DOCUMENTS, "k": 1, "deadline_s": 5.0, "missing_text": "last", "text_keys": ("text",)},
        ),
        EntryPoint("arerank", resift.arerank, {"query": "capital", "documents": DOCUMENTS, "k": 1, "deadline_s": 5.0}),
        EntryPoint("fuse", resift.fuse, {"lists": {"x": DOCUMENTS, "y": DOCUMENTS}, "k": 2, "method": "rrf", "weights": [1, 2]}),
        EntryPoint("fuse linear", resift.fuse, {"lists": [HITS, HITS], "k": 2, "method": "linear", "normalize": "min-max"}),
        EntryPoint("fuse dialect", resift.fuse, {"lists": [HITS, HITS], "dialect": "langchain", "k_param": 60}),
        EntryPoint("Pipeline", resift.Pipeline, {"stores": [FakeStore(HITS, name="s")], "rerank": OverlapScorer(), "k": 3, "deadline_s": 1.0, "timeout_s": 2.0}),
        EntryPoint("Pipeline.search", search, {"query": "capital", "k": 2, "deadline_s": 5.0, "where": {"a": 1}, "section": "x"}),
        EntryPoint("Pipeline.rank", pipeline.rank, {"query": "capital", "k": 2, "deadline_s": 5.0, "where": None}),
        EntryPoint("Pipeline.default", resift.Pipeline.default, {"store": FakeStore(HITS, name="s"), "rerank": False}),
        EntryPoint("RetrievalNode", resift.RetrievalNode, {"stores": [FakeStore(HITS, name="s")], "k": 3, "rerank": None, "timeout_s": 1.0}),
        EntryPoint("RetrievalNode.execute", node.execute, {"state": {"query": "capital"}}),
        EntryPoint("StoreRef", lambda **given: resift.RetrievalNode([StoreRef(**given)]), {"name": "n", "store": FakeStore(HITS, name="s"), "k": 3, "timeout_s": 1.0}),
        EntryPoint("Ranking.from_json", resift.Ranking.from_json, {"text": ranking.to_json()}),
        EntryPoint("Ranking.why", ranking.why, {"id": "a"}),
        EntryPoint("Ranking.explain", lambda **given: ranking.explain(**given).text(), {"query": "q", "top": 3}),
        EntryPoint("Hit", lambda **given: _used(Hit(**given)), {"id": "a", "text": "t", "score": 0.5, "source": "s", "metadata": {"k": 1}}),
    ]  # fmt: skip


def _used(hit: Hit) -> Any:
    """Use a hit as a caller would: a value that was taken must not break later."""
    ranking = resift.fuse([[hit]])
    return [ranking.to_json(), ranking.public(), repr(ranking), ranking.explain().text()]


def _pure_entry_points() -> list[EntryPoint]:
    lists = [HITS, list(reversed(HITS))]
    methods = [
        EntryPoint(f"fusion {name}", method, {"rankings": lists, "k": 2}) for name, method in sorted(METHODS.items())
    ]
    return [
        *methods,
        EntryPoint("compare", compare, {"rankings": lists, "k": 3}),
        EntryPoint("load_profile", load_profile, {"name": "memosa"}),
        EntryPoint("words", words, {"text": "some words"}),
        EntryPoint("check_cypher", check_cypher, {"statement": "MATCH (n) RETURN n", "procedures": ["a"], "functions": ["b"]}),
        EntryPoint("Deadline.after", Deadline.after, {"seconds": 1.0}),
        EntryPoint("OverFetch", OverFetch, {"factor": 2, "minimum": 3, "cap": 10}),
    ]  # fmt: skip


def _store_entry_points(folder: Path) -> list[EntryPoint]:
    memory = resift.MemoryStore()
    asyncio.run(memory.add(DOCUMENTS))
    sqlite = resift.SQLiteStore(folder / "documents.db", create=True)
    asyncio.run(sqlite.add(DOCUMENTS))
    found = []
    for name, store in (("MemoryStore", memory), ("SQLiteStore", sqlite)):
        found += [
            EntryPoint(f"{name}.search", store.search, {"query": "Paris", "k": 2, "where": {"a": 1}}),
            EntryPoint(f"{name}.add", store.add, {"documents": DOCUMENTS}),
            EntryPoint(f"{name}.delete", store.delete, {"ids": ["zz"]}),
            EntryPoint(f"{name}.get", store.get, {"ids": ["a"]}),
        ]
    return [
        *found,
        EntryPoint("MemoryStore", resift.MemoryStore, {"name": "m", "mode": "text", "language": "auto"}),
        EntryPoint("SQLiteStore", resift.SQLiteStore, {"path": folder / "documents.db", "mode": "text", "name": "s", "read_only": False}),
        EntryPoint("open_index", open_index, {"path": folder / "documents.db", "text_only": True, "read_only": True}),
        EntryPoint("Index", resift.Index, {"path": folder / "index.db", "text_only": True, "rerank": False}),
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


def _index_entry_points(folder: Path) -> list[EntryPoint]:
    index = resift.Index(folder / "methods.db", text_only=True, rerank=False)
    index.add(DOCUMENTS)
    (folder / "note.txt").write_text("Paris is the capital of France.")
    return [
        EntryPoint("Index.add", index.add, {"documents": DOCUMENTS}),
        EntryPoint("Index.add_files", _no_folder(index.add_files, "paths"), {"paths": folder / "note.txt"}),
        EntryPoint("Index.search", index.search, {"query": "Paris", "k": 2, "where": {"a": 1}}),
        EntryPoint("Index.get", index.get, {"ids": ["a"]}),
        EntryPoint("Index.ask", index.ask, {"question": "What is the capital?"}),
        EntryPoint("Index.delete", index.delete, {"ids": ["zz"]}),
        EntryPoint("Index.stats", index.stats, {}),
    ]


def _made_entry_points() -> list[EntryPoint]:
    return [
        EntryPoint("load_reranker", lambda **given: resift.load_reranker(given.pop("name"), **given), {"name": "rrf", "k_param": 60}),
        EntryPoint("load_store", lambda **given: load_store(given.pop("name"), **given), {"name": "memory"}),
        EntryPoint("Tiered", resift.Tiered, {"primary": OverlapScorer(), "fallback": OverlapScorer(), "name": "t"}),
        EntryPoint("TwoStage", resift.TwoStage(_Rows(), OverlapScorer()), {"query": "q", "limit": 2, "factor": 3}),
        EntryPoint("RRFReranker", resift.RRFReranker, {"k_param": 60}),
        EntryPoint("SemanticBM25Reranker", SemanticBM25Reranker, {"semantic_weight": 0.7, "bm25_weight": 0.3}),
        EntryPoint("MemoryScores", MemoryScores, {"max_items": 10, "ttl_s": 1.0}),
        EntryPoint("CircuitBreaker", CircuitBreaker, {"failure_threshold": 3, "cooldown_s": 1.0, "success_threshold": 2, "timeout_s": 1.0, "jitter": 0.1}),
        EntryPoint("Budget", Budget, {"absolute_floor_s": 0.2, "per_item_floor_s": 0.02, "reserve_s": 0.05}),
        EntryPoint("HostedReranker", HostedReranker, {"provider": "jina", "base_url": "https://example.org", "api_key": "k", "timeout_s": 1.0, "max_concurrency": 2, "batch_size": 5}),
        EntryPoint("LLMReranker", LLMReranker, {"base_url": "https://example.org", "model": "m", "window": 4, "step": 2, "depth": 10}),
        EntryPoint("CrossEncoderReranker", resift.CrossEncoderReranker, {"model_name": "cross-encoder/ms-marco-MiniLM-L-12-v2", "aggregate": "max", "max_windows": 2}),
        EntryPoint("resolve", resolve, {"model_id": "cross-encoder/ms-marco-MiniLM-L-12-v2", "download": False}),
        EntryPoint("find_system", find_system, {"text": "bm25"}),
        EntryPoint("pipeline_from_config", lambda **given: pipeline_from_config(given), {"stores": [{"kind": "memory", "name": "m"}], "k": 3}),
    ]  # fmt: skip


class _Rows:
    """An index in txtai's shape."""

    def search(self, query: str, *, k: int) -> list[dict[str, Any]]:
        return [{"id": str(at), "text": f"row {at}", "score": 1.0} for at in range(min(k, 5))]


def _file_entry_points(folder: Path) -> list[EntryPoint]:
    run = folder / "a.run"
    run.write_text("1 Q0 a 1 2.0 r\n")
    judged = folder / "qrels.tsv"
    judged.write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    fitted = folder / "fit.json"
    fitted.write_text(json.dumps({"kind": "platt", "slope": 1.0, "intercept": 0.0}))
    return [
        EntryPoint("read_run", read_run, {"path": run}),
        EntryPoint("read_qrels", read_qrels, {"path": judged}),
        EntryPoint("read_recording", read_recording, {"path": folder / "none.jsonl"}),
        EntryPoint("read_collection", read_collection, {"folder": folder, "split": "test"}),
        EntryPoint("load_calibrator", load_calibrator, {"path": fitted}),
        EntryPoint("allow_local", allow_local, {"path": folder / "no-model"}),
        EntryPoint(
            "SQLiteScores", SQLiteScores, {"path": folder / "scores.db", "max_items": 5, "ttl_s": 1.0, "wait_s": 0.1}
        ),
    ]


def _package_entry_points(folder: Path) -> list[EntryPoint]:
    """What the rooms export beside the first names."""
    file = folder / "pipeline.yaml"
    file.write_text("stores:\n  - {kind: memory, name: m}\n")
    return [
        EntryPoint("ChunkSize", lambda **given: index_paths(resift.SQLiteStore(folder / "chunks.db", create=True), [folder / "note.txt"], size=ChunkSize(**given)), {"words": 50, "overlap": 5}),
        EntryPoint("index_paths", _no_folder(index_paths, "paths"), {"store": resift.SQLiteStore(folder / "paths.db", create=True), "paths": [folder / "note.txt"]}),
        EntryPoint("load_yaml", load_yaml, {"path": file}),
        EntryPoint("inspect_yaml", inspect_yaml, {"path": file}),
        EntryPoint("load_plain", load_plain, {"config": {"stores": [{"kind": "memory", "name": "m"}]}}),
        EntryPoint("pipeline_from_yaml", pipeline_from_yaml, {"path": file}),
        EntryPoint("calibrator_from", calibrator_from, {"data": {"kind": "platt", "slope": 1.0, "intercept": 0.0}}),
        EntryPoint("CascadeReranker", CascadeReranker, {"scorer": OverlapScorer(), "cheap": OverlapScorer(), "k": 3, "patience": 2}),
        EntryPoint("CachedScorer", CachedScorer, {"scorer": OverlapScorer(), "cache": MemoryScores(), "model": "m", "revision": "1"}),
        EntryPoint("hosted_reranker", hosted_reranker, {"provider": "jina", "api_key": "k"}),
        EntryPoint("write_manifest", write_manifest, {"folder": folder / "no-model"}),
        EntryPoint("disallow_local", disallow_local, {"id": "local/none"}),
        EntryPoint("GraphReranker", GraphReranker, {"relevance_weight": 0.5, "vector_weight": 0.4, "centrality_weight": 0.1, "damping": 0.8}),
        EntryPoint("Pack.open", Pack.open, {"path": folder / "none.pack"}),
        EntryPoint("build_pack", _no_folder(build_pack, "source"), {"source": folder / "no-source", "target": folder / "x.pack"}),
        EntryPoint("KnowledgeGraphAgent", resift.KnowledgeGraphAgent, {"db_path": folder / "none.pack", "max_results": 3, "hops": 1}),
        EntryPoint("run_batch", run_batch, {"work": RerankWork(), "inputs": folder / "no.jsonl", "out": folder / "out", "workers": 1, "shard_rows": 5}),
        EntryPoint("Analyzer", lambda **given: Analyzer(**given).terms("some words"), {"language": "auto"}),
        EntryPoint("available_rerankers", resift.available_rerankers, {}),
        EntryPoint("serve_app", resift.serve_app, {"options": ServerOptions(embedder=None), "lifespans": []}),
    ]  # fmt: skip


def _model_entry_points(folder: Path) -> list[EntryPoint]:
    embedder, late = resift.Embedder(), LateInteractionReranker()
    return [
        EntryPoint("Embedder", resift.Embedder, {"model_name": "BAAI/bge-small-en-v1.5", "folder": None}),
        EntryPoint("Embedder.embed", embedder.embed, {"texts": ["a text"], "kind": "query"}),
        EntryPoint("Embedder.embed_sync", embedder.embed_sync, {"texts": ["a text"], "kind": "document"}),
        EntryPoint("CrossEncoderReranker windows", resift.CrossEncoderReranker, {"folder": folder / "no-model", "aggregate": "max", "max_windows": 2, "first_pass_windows": 1}),
        EntryPoint("ZeroShotReranker", ZeroShotReranker, {"model_name": "cross-encoder/nli-deberta-v3-xsmall", "hypothesis": "It is about {}.", "folder": None}),
        EntryPoint("LateInteractionReranker", LateInteractionReranker, {"model_name": "answerdotai/answerai-colbert-small-v1", "folder": None, "max_windows": 2, "cache_mb": 1.0}),
        EntryPoint("LateInteractionReranker.encode_documents", late.encode_documents, {"texts": ["a text"]}),
    ]  # fmt: skip


def _engine_entry_points(folder: Path) -> list[EntryPoint]:
    """Stores on other engines, which are not there, and what an operator sets."""
    graph = LadybugGraphStore(folder / "none.lbug")
    postgres = PostgresStore("postgresql://127.0.0.1:1/none", timeout_s=0.5)
    return [
        EntryPoint("LadybugGraphStore", LadybugGraphStore, {"path": folder / "none.lbug", "name": "g", "id_column": "id", "text_column": "text", "timeout_s": 1.0, "max_rows": 5, "memory_mb": 64, "processes": 1, "procedures": (), "functions": ()}),
        EntryPoint("LadybugGraphStore.query", graph.query, {"cypher": "MATCH (n) RETURN n.id AS id", "parameters": {"a": 1}, "k": 3}),
        EntryPoint("PostgresStore", PostgresStore, {"dsn": "postgresql://127.0.0.1:1/none", "table": "t", "mode": "text", "name": "p", "connections": 1, "timeout_s": 0.5, "language": "auto", "index": "hnsw", "exact": False}),
        EntryPoint("PostgresStore.search", postgres.search, {"query": "Paris", "k": 2, "where": {"a": 1}}),
        EntryPoint("PostgresStore.add", postgres.add, {"documents": DOCUMENTS}),
        EntryPoint("PostgresStore.get", postgres.get, {"ids": ["a"]}),
        EntryPoint("PostgresStore.delete", postgres.delete, {"ids": ["a"]}),
        EntryPoint("LanceDBVectorStore", LanceDBVectorStore, {"uri": folder / "lance", "table": "t", "mode": "text", "name": "l", "language": "auto", "index": "ivf", "exact": True}),
        EntryPoint("QdrantVectorStore", QdrantVectorStore, {"collection": "c", "embedder": resift.Embedder(), "url": "http://127.0.0.1:1", "name": "q", "timeout_s": 1.0, "exact": True}),
        EntryPoint("ServerOptions", ServerOptions, _defaults(ServerOptions())),
        EntryPoint("Limits", Limits, _defaults(Limits())),
        EntryPoint("FileLimits", FileLimits, _defaults(FileLimits())),
        EntryPoint("Judge", Judge, {"qrels": {"q": {"d": 1}}, "measures": ["nDCG@10"]}),
        EntryPoint("Judge.quality", Judge({"q": {"d": 1}}).quality, {"run": {"q": ["d"]}}),
    ]  # fmt: skip


def _defaults(made: Any) -> dict[str, Any]:
    return {field.name: getattr(made, field.name) for field in fields(made)}
