"""Imports of module paths of 0.2: they keep working in 0.3, with a DeprecationWarning, and go in 0.4."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

RENAMED = {
    "resift.fusion": "resift.ranking.fusion",
    "resift.fusion.entry": "resift.ranking.fusion.methods",
    "resift.telemetry.metrics": "resift.telemetry",
    "resift.telemetry.tracing": "resift.telemetry",
    "resift.resilience.events": "resift.resilience",
    "resift.gate": "resift.ranking.gate",
    "resift.shape": "resift.ranking.shape",
    "resift.options": "resift.validation.options",
    "resift.retrieval": "resift.pipeline",
    "resift.shape.blending": "resift.ranking.blend",
    "resift.shape.neighbours": "resift.ranking.blend",
    "resift.shape.shaped": "resift.ranking.blend",
    "resift.shape.evidence": "resift.ranking.evidence",
    "resift.shape.first_stage": "resift.ranking.evidence",
    "resift.shape.guarding": "resift.ranking.guard",
    "resift.shape.precedence": "resift.ranking.guard",
    "resift.shape.recovery": "resift.ranking.guard",
    "resift.shape.diversity": "resift.ranking.diversity",
    "resift.shape.folding": "resift.ranking.diversity",
    "resift.shape.quotas": "resift.ranking.diversity",
    "resift.shape.calibration": "resift.ranking.calibration",
    "resift.shape.fitting": "resift.ranking.calibration",
    "resift.shape.probabilities": "resift.ranking.calibration",
    "resift.shape.shipped_calibrations": "resift.ranking.calibration",
    "resift.shape.composing": "resift.ranking.shape",
    "resift.retrieval.gating": "resift.pipeline.stages",
    "resift.retrieval.shaping": "resift.pipeline.stages",
    "resift.retrieval.over_fetch": "resift.pipeline.fan_out",
    "resift.retrieval.store_ref": "resift.pipeline.fan_out",
    "resift.retrieval.waiting": "resift.pipeline.fan_out",
    "resift.retrieval.neighbours": "resift.pipeline.pipeline",
    "resift.sync": "resift._internal.sync",
    "resift.candidates": "resift.external.candidates",
    "resift.integrations.chroma": "resift.integrations.external_store",
    "resift.integrations.elasticsearch": "resift.integrations.external_store",
    "resift.integrations.haystack.embedders": "resift.integrations.haystack",
    "resift.integrations.haystack.joiner": "resift.integrations.haystack",
    "resift.integrations.haystack.ranker": "resift.integrations.haystack",
    "resift.integrations.haystack.retriever": "resift.integrations.haystack",
    "resift.integrations.mcp.http_app": "resift.integrations.mcp",
    "resift.models.allowlist": "resift.models.registry",
    "resift.models.embedding": "resift.models.embedder",
    "resift.models.model_files": "resift.models.registry",
    "resift.models.model_options": "resift.models.embedder",
    "resift.models.token_vectors": "resift.rerankers.late_interaction",
    "resift.models.usable_cores": "resift.models.engine",
    "resift.evaluation.beir": "resift.evaluation.readers",
    "resift.evaluation.trec": "resift.evaluation.readers",
    "resift.evaluation.text_files": "resift.evaluation.readers",
    "resift.evaluation.work_file": "resift.evaluation.runner",
    "resift.evaluation.code_digest": "resift.evaluation.runner",
    "resift.evaluation.collection_index": "resift.evaluation.runner",
    "resift.evaluation.record_file": "resift.evaluation.recording",
    "resift.evaluation.subjects": "resift.evaluation.evaluated_systems",
    "resift.agent.chat_writer": "resift.agent.writers",
    "resift.agent.extractive": "resift.agent.writers",
    "resift.stores.documents": "resift.stores.base",
    "resift.stores.embedding": "resift.stores.base",
    "resift.stores.hybrid": "resift.stores.base",
    "resift.stores.read_ahead": "resift.stores.base",
    "resift.stores.workers": "resift.stores.base",
    "resift.stores.filtering": "resift.stores.filters",
    "resift.stores.where_text": "resift.stores.filters",
    "resift.stores.records": "resift.stores.engine_store",
    "resift.stores.store_options": "resift.stores.backend",
    "resift.stores.sqlite_options": "resift.stores.sqlite",
    "resift.stores.sqlite_schema": "resift.stores.sqlite.tables",
    "resift.stores.sqlite_write": "resift.stores.sqlite.writer",
    "resift.stores.lancedb_store": "resift.stores.lancedb",
    "resift.stores.postgres_store": "resift.stores.postgres",
    "resift.stores.qdrant_store": "resift.stores.qdrant",
    "resift.stores.ladybug_store": "resift.stores.graph.ladybug",
    "resift.stores.cypher_guard": "resift.stores.graph.cypher_guard",
    "resift.rerankers.bm25": "resift.rerankers.semantic_bm25",
    "resift.rerankers.cosine": "resift.rerankers.semantic_bm25",
    "resift.rerankers.hosted.chat": "resift.rerankers.hosted.client",
    "resift.rerankers.hosted.dialects": "resift.rerankers.hosted.providers",
    "resift.rerankers.hosted.factories": "resift.rerankers.hosted.scorer",
    "resift.rerankers.hosted.hosted_options": "resift.rerankers.hosted.scorer",
    "resift.rerankers.score_stores": "resift.rerankers.score_cache",
    "resift.rerankers.shared_model": "resift.rerankers.cross_encoder",
    "resift.agent.answers": "resift.agent.multi_doc",
    "resift.agent.evidence": "resift.agent.answerability",
    "resift.agent.lighthouse_sample": "resift.agent.pack_build",
    "resift.evaluation.significance": "resift.evaluation.measures",
    "resift.evaluation.running": "resift.evaluation.runner",
    "resift.config.reference": "resift.config.sections",
    "resift.config.reading": "resift.config.settings",
    "resift.ingest.opening": "resift.ingest.indexing",
    "resift.ingest.readers": "resift.ingest.sources",
    "resift.ingest.sections": "resift.ingest.chunking",
    "resift.rerankers.fusing": "resift.rerankers.rescore",
    "resift.testing.clock": "resift.testing",
    "resift.testing.contracts": "resift.testing",
    "resift.testing.fakes": "resift.testing",
    "resift.text.bm25": "resift.text.analysis",
    "resift.text.stemming": "resift.text.analysis",
    "resift.batch.work": "resift.batch.shards",
    "resift.text.sentences": "resift.text.tokenization",
    "resift.rerankers.probability": "resift.rerankers.rescore",
    "resift.evaluation.replay": "resift.evaluation.recording",
    "resift.server.options": "resift.server.server_options",
    "resift.server.dialects": "resift.server.api_dialects",
    "resift.evaluation.report": "resift.evaluation.html_report",
}
"""Old module path -> new module path. The longest entry that is a prefix of an import decides."""

FITTED = (
    "the weights of the default order are fitted now. To set them, use WeightedReranker(dense_weight=…) and "
    "Blend(weight=…), or `fusion: {dense_weight: …}` and `guard: {weight: …}` in a pipeline file"
)
REMOVED = {"resift.trust": f"The module resift.trust is gone: {FITTED}."}
"""Module path of 0.2 without a successor -> what to use instead."""


class _Alias:
    """Loads an old path by importing the new one, so that both are the same module object."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it by the alias's own


class _RenamedModules:
    """Finds old module paths on `sys.meta_path`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("resift."):
            return None
        if fullname in REMOVED:
            raise ImportError(REMOVED[fullname], name=fullname)
        prefix, rest = fullname, ""
        while prefix not in RENAMED:
            prefix, _, last = prefix.rpartition(".")
            rest = f".{last}{rest}"
            if prefix in ("resift", ""):
                return None
        new = RENAMED[prefix] + rest
        warnings.warn(
            f"The module {fullname} is now {new}; the old path goes with Resift 0.4.",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, _Alias(new))  # type: ignore[arg-type]  # a loader by its two methods


def install() -> None:
    """Accept old module paths, once per process."""
    if not any(isinstance(finder, _RenamedModules) for finder in sys.meta_path):
        # First: the path finder would load a second copy of a submodule under its old name.
        sys.meta_path.insert(0, _RenamedModules())
