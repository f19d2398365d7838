"""Keep module paths of Resift 0.2 importable in 0.3, with a DeprecationWarning; 0.4 removes them."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

# Each line is a new module path and the old paths that it replaces, relative to `resift`.
_TABLE = """
ranking.fusion: fusion
ranking.fusion.methods: fusion.entry
telemetry: telemetry.metrics telemetry.tracing
resilience: resilience.events
ranking.gate: gate
ranking.shape: shape shape.composing
validation.options: options
pipeline: retrieval
ranking.blend: shape.blending shape.neighbours shape.shaped
ranking.evidence: shape.evidence shape.first_stage
ranking.guard: shape.guarding shape.precedence shape.recovery
ranking.diversity: shape.diversity shape.folding shape.quotas
ranking.calibration: shape.calibration shape.fitting shape.probabilities shape.shipped_calibrations
pipeline.stages: retrieval.gating retrieval.shaping
pipeline.fan_out: retrieval.over_fetch retrieval.store_ref retrieval.waiting
pipeline.pipeline: retrieval.neighbours
_internal.sync: sync
external.candidates: candidates
integrations.external_store: integrations.chroma integrations.elasticsearch
integrations.haystack: integrations.haystack.embedders integrations.haystack.joiner
integrations.haystack: integrations.haystack.ranker integrations.haystack.retriever
integrations.mcp: integrations.mcp.http_app
models.registry: models.allowlist models.model_files
models.embedder: models.embedding models.model_options
rerankers.late_interaction: models.token_vectors
models.engine: models.usable_cores
evaluation.readers: evaluation.beir evaluation.trec evaluation.text_files
evaluation.runner: evaluation.work_file evaluation.code_digest evaluation.collection_index
evaluation.runner: evaluation.differences evaluation.running
evaluation.recording: evaluation.record_file evaluation.replay
evaluation.evaluated_systems: evaluation.subjects
agent.writers: agent.chat_writer agent.extractive
stores.base: stores.documents stores.embedding stores.hybrid stores.read_ahead stores.workers
stores.filters: stores.filtering stores.where_text
stores.backend: stores.records stores.store_options
stores.sqlite: stores.sqlite_options
stores.sqlite.database: stores.sqlite_schema
stores.sqlite.writer: stores.sqlite_write
stores.lancedb: stores.lancedb_store
stores.postgres: stores.postgres_store
stores.qdrant: stores.qdrant_store
stores.graph.ladybug: stores.ladybug_store
stores.graph.cypher_guard: stores.cypher_guard
rerankers.semantic_bm25: rerankers.bm25 rerankers.cosine
rerankers.hosted.client: rerankers.hosted.chat
rerankers.hosted.providers: rerankers.hosted.dialects
rerankers.hosted.scorer: rerankers.hosted.factories rerankers.hosted.hosted_options
rerankers.score_cache: rerankers.score_stores
rerankers.cross_encoder: rerankers.shared_model
agent.pack: agent.graph_reranker
agent.multi_doc: agent.answers
agent.answerability: agent.evidence
agent.pack_build: agent.lighthouse_sample
evaluation.measures: evaluation.significance
config.sections: config.reference
config.settings: config.reading
ingest.indexing: ingest.opening
ingest.sources: ingest.readers
ingest.chunking: ingest.sections
rerankers.rescore: rerankers.fusing rerankers.probability
testing: testing.clock testing.contracts testing.fakes
text.analysis: text.bm25 text.stemming
batch.shards: batch.work
text.tokenization: text.sentences
server.server_options: server.options
server.api_dialects: server.dialects
evaluation.html_report: evaluation.report
"""
RENAMED = {
    f"resift.{old}": f"resift.{new}"
    for new, olds in (row.split(":") for row in _TABLE.strip().split("\n"))
    for old in olds.split()
}
"""Old module path -> new module path. The longest entry that is a prefix of the imported path applies."""

FITTED = (
    "the weights of the default order are now fitted. To set them, use WeightedReranker(dense_weight=…) and "
    "Blend(weight=…), or `fusion: {dense_weight: …}` and `guard: {weight: …}` in a pipeline file"
)
REMOVED = {"resift.trust": f"The module resift.trust was removed: {FITTED}."}
"""Module path of 0.2 without a successor -> error message that names the replacement."""


class _Alias:
    """Loader that resolves an old path by importing the new one, so that both are the same module object."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it with the spec of the alias


class _RenamedModules:
    """Finder on `sys.meta_path` for old module paths."""

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
            f"The module {fullname} is now {new}; the old path will be removed in Resift 0.4.",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, _Alias(new))  # type: ignore[arg-type]  # its two methods make it a loader


def install() -> None:
    """Install the finder for old module paths, once per process."""
    if not any(isinstance(finder, _RenamedModules) for finder in sys.meta_path):
        # In first position, because the path finder would load a second copy of a submodule under its old name.
        sys.meta_path.insert(0, _RenamedModules())
