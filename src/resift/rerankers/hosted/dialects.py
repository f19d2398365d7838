"""What each rerank API calls things. Data only: the code that reads it has no branch per vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from resift.errors import ConfigError, did_you_mean
from resift.types import JsonMapping, JsonObject, ScoreScale


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One provider's words for the same request and answer.

    `rows_at` is None where the answer is a bare array. `listwise_models` score a document by its
    neighbours in the request, so their scores from two requests cannot be compared.
    """

    name: str
    path: str
    base_url: str | None = None
    default_model: str | None = None
    needs_key: bool = False
    key_env: tuple[str, ...] = ()
    documents_field: str = "documents"
    model_field: str | None = "model"
    cutoff_field: str | None = "top_n"
    fixed: JsonMapping = field(default_factory=dict)
    rows_at: str | None = "results"
    score_field: str = "relevance_score"
    message_at: tuple[str, ...] = ("message",)
    max_documents: int = 1000
    max_bytes: int = 1_000_000
    listwise_models: frozenset[str] = frozenset()
    score_scale: ScoreScale = "probability"

    def request(self, query: str, documents: list[str], *, model: str | None) -> JsonObject:
        """Return the request body that asks for a score of every document."""
        body: JsonObject = {"query": query, self.documents_field: documents, **self.fixed}
        if self.model_field and model:
            body[self.model_field] = model
        if self.cutoff_field:
            # Some APIs leave rows out by default, and a missing row looks like a failure.
            body[self.cutoff_field] = len(documents)
        return body


DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="voyage",
            path="/v1/rerank",
            base_url="https://api.voyageai.com",
            default_model="rerank-2.5",
            needs_key=True,
            key_env=("VOYAGE_API_KEY",),
            cutoff_field="top_k",
            fixed={"truncation": True, "return_documents": False},
            rows_at="data",
            message_at=("detail",),
            # 600,000 tokens a request; two bytes a token is safe for every script.
            max_bytes=1_200_000,
        ),
        Dialect(
            name="cohere",
            path="/v2/rerank",
            base_url="https://api.cohere.com",
            default_model="rerank-v3.5",
            needs_key=True,
            key_env=("COHERE_API_KEY", "CO_API_KEY"),
        ),
        Dialect(
            name="cohere-v1",
            path="/v1/rerank",
            base_url="https://api.cohere.com",
            default_model="rerank-multilingual-v3.0",
            needs_key=True,
            key_env=("COHERE_API_KEY", "CO_API_KEY"),
            fixed={"return_documents": False},
        ),
        Dialect(
            name="jina",
            path="/v1/rerank",
            base_url="https://api.jina.ai",
            default_model="jina-reranker-v2-base-multilingual",
            needs_key=True,
            key_env=("JINA_API_KEY",),
            fixed={"return_documents": False},
            message_at=("detail",),
            listwise_models=frozenset({"jina-reranker-v3"}),
        ),
        Dialect(
            name="mixedbread",
            path="/v1/reranking",
            base_url="https://api.mixedbread.com",
            default_model="mixedbread-ai/mxbai-rerank-large-v2",
            needs_key=True,
            key_env=("MXBAI_API_KEY",),
            documents_field="input",
            cutoff_field="top_k",
            fixed={"return_input": False},
            rows_at="data",
            score_field="score",
            message_at=("detail",),
        ),
        Dialect(
            name="tei",
            path="/rerank",
            key_env=("TEI_API_KEY",),
            documents_field="texts",
            model_field=None,
            cutoff_field=None,
            fixed={"truncate": True, "raw_scores": False, "return_text": False},
            rows_at=None,
            score_field="score",
            message_at=("error",),
            max_documents=32,
        ),
        Dialect(
            name="vllm",
            path="/v1/rerank",
            key_env=("VLLM_API_KEY",),
            message_at=("error", "message"),
        ),
        Dialect(
            name="infinity",
            path="/rerank",
            key_env=("INFINITY_API_KEY",),
            fixed={"return_documents": False, "raw_scores": False},
            message_at=("error", "message"),
        ),
    )
}


def dialect_of(provider: str) -> Dialect:
    """Return the dialect of that name, or raise ConfigError with the known ones."""
    if provider not in DIALECTS:
        raise ConfigError(f"Unknown provider {provider!r}. {did_you_mean(provider, DIALECTS)}")
    return DIALECTS[provider]
