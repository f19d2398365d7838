"""The rerank APIs that are served: request, answer and errors of each.

The structs are what clients send and read. `SERVED` says which struct, fields and errors belong to a dialect,
and `ROUTES` which dialects are spoken at a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from resift.server import request_errors as errors
from resift.server.request_errors import ErrorForm
from resift.server.schema import Flag, Fraction, Milliseconds, ModelName, NonEmpty, Positive, is_true
from resift.types import JsonObject, JsonValue

Texts: TypeAlias = Annotated[list[str], Meta(min_length=1)]
TextsOrObjects: TypeAlias = Annotated[list[str | JsonObject], Meta(min_length=1)]
Names: TypeAlias = Annotated[list[str], Meta(max_length=100)]


class RerankRequest(Struct, kw_only=True):
    """Fields that every dialect has."""

    query: NonEmpty
    model: ModelName | None = None
    deadline_ms: Milliseconds | None = None


class SpanOptions(Struct, kw_only=True):
    """Cohere's `relevant_spans`: lowest score of a span, and how many per document at most."""

    mode: Literal["enabled", "disabled"] | None = None
    threshold: Fraction | None = None
    max_spans: Positive | None = None


class TextRequest(RerankRequest, kw_only=True):
    """Request with documents that are strings."""

    documents: Texts
    top_n: Positive | None = None


class ObjectRequest(RerankRequest, kw_only=True):
    """Request with documents that are strings or objects; Jina's has no more fields."""

    documents: TextsOrObjects
    top_n: Positive | None = None
    return_documents: Flag | None = None


class CohereV2Request(TextRequest, kw_only=True):
    """Request of Cohere's API, version 2."""

    max_tokens_per_doc: Positive | None = None
    priority: Annotated[int, Meta(ge=0, le=999)] | None = None
    relevant_spans: SpanOptions | None = None


class CohereV1Request(ObjectRequest, kw_only=True):
    """Request of Cohere's API, version 1."""

    rank_fields: Names | None = None
    max_chunks_per_doc: Positive | None = None
    max_tokens_per_doc: Positive | None = None


class VoyageRequest(RerankRequest, kw_only=True):
    """Voyage's request."""

    documents: Texts
    top_k: Positive | None = None
    return_documents: Flag | None = None
    truncation: Flag | None = None


class TeiRequest(RerankRequest, kw_only=True):
    """TEI's request; `top_n` is sent by LiteLLM and has no effect, as in TEI."""

    texts: Texts
    top_n: int | None = None
    return_text: Flag | None = None
    raw_scores: Flag | None = None
    truncate: Flag | None = None
    truncation_direction: Literal["left", "Left", "right", "Right"] | None = None


class InfinityRequest(TextRequest, kw_only=True):
    """infinity's request."""

    return_documents: Flag | None = None
    raw_scores: Flag | None = None


class TokenLimits(ObjectRequest, kw_only=True):
    """Fields of vLLM that limit what is read; the server reads everything."""

    max_tokens_per_doc: int | None = None
    max_tokens_per_query: int | None = None
    truncate_prompt_tokens: int | None = None


class VllmRequest(TokenLimits, kw_only=True):
    """vLLM's request; the answer always holds the documents."""

    truncation_side: str | None = None
    use_activation: Flag | None = None


class JinaOrVllmRequest(TokenLimits, kw_only=True):
    """Request at `/rerank`, where clients of Jina and vLLM call."""

    raw_scores: Flag | None = None


class CohereOrJinaRequest(JinaOrVllmRequest, kw_only=True):
    """Request at `/v1/rerank`, where clients of Cohere's version 1, Jina and vLLM call."""

    rank_fields: Names | None = None
    max_chunks_per_doc: Positive | None = None


class Span(Struct):
    """A sentence that answers the query, in characters of the document."""

    start: int
    end: int
    score: float


class RankedDocument(Struct, omit_defaults=True):
    """One document of an answer. Optional fields are left out, because some clients fail on null."""

    index: int
    relevance_score: float
    document: str | JsonObject | UnsetType = UNSET
    relevant_spans: list[Span] | UnsetType = UNSET


class TeiRankedDocument(Struct, omit_defaults=True):
    """One document of TEI's answer, which is a bare list of these."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class TotalUsage(Struct):
    """Voyage's count of tokens."""

    total_tokens: int


class Usage(Struct):
    """Count of tokens of the other APIs."""

    prompt_tokens: int
    total_tokens: int


class CohereMeta(Struct, omit_defaults=True):
    """Version, billed units and warnings of Cohere's answer."""

    api_version: dict[str, str]
    billed_units: dict[str, int]
    warnings: list[str] = []


class CohereAnswer(Struct):
    """Cohere's answer."""

    id: str
    results: list[RankedDocument]
    meta: CohereMeta


class JinaAnswer(Struct, omit_defaults=True):
    """Jina's answer."""

    model: str
    usage: Usage
    results: list[RankedDocument]
    warnings: list[str] = []


class CohereOrJinaAnswer(Struct, omit_defaults=True):
    """An answer that clients of Cohere's version 1 and of Jina both understand."""

    id: str
    model: str
    usage: Usage
    results: list[RankedDocument]
    meta: CohereMeta
    warnings: list[str] = []


class VoyageAnswer(Struct, omit_defaults=True):
    """Voyage's answer."""

    object: str
    data: list[RankedDocument]
    model: str
    usage: TotalUsage
    warnings: list[str] = []


class OpenAIRerankAnswer(Struct, omit_defaults=True):
    """Answer of vLLM and infinity."""

    id: str
    object: str
    created: int
    model: str
    usage: Usage
    results: list[RankedDocument]
    warnings: list[str] = []

    @classmethod
    def make(cls, answer: RerankAnswer) -> OpenAIRerankAnswer:
        """Return the answer in this form."""
        head = (answer.id, "rerank", answer.created, answer.model)
        return cls(*head, answer.usage(), answer.documents, answer.warnings)


@dataclass(frozen=True, slots=True)
class RerankAnswer:
    """The result of a rerank request, before a dialect gives it a form."""

    id: str
    model: str
    documents: list[RankedDocument]
    warnings: list[str]
    candidates: int
    tokens: Callable[[], int]
    created: int

    def usage(self) -> Usage:
        """Return the count of tokens; it is estimated only for dialects that show it."""
        tokens = self.tokens()
        return Usage(tokens, tokens)

    def meta(self, version: str) -> CohereMeta:
        """Return Cohere's meta data, which bill one search unit per hundred documents."""
        units = {"search_units": -(-self.candidates // 100)}
        return CohereMeta({"version": version}, units, self.warnings)


def _tei_answer(answer: RerankAnswer) -> list[TeiRankedDocument]:
    return [
        TeiRankedDocument(row.index, row.relevance_score, row.document)  # type: ignore[arg-type]  # plain text
        for row in answer.documents
    ]


@dataclass(frozen=True, slots=True)
class ServedDialect:
    """One rerank API: types, errors, and the fields that mean the same in all of them.

    `documents_by_default` decides where a request does not ask for the documents in the answer.
    `plain_documents` returns documents as strings.
    """

    name: str
    request: type[RerankRequest]
    answer: object
    errors: ErrorForm
    make_answer: Callable[[RerankAnswer], Struct | Sequence[Struct | JsonObject]]
    _: KW_ONLY
    documents_field: str = "documents"
    cutoff_field: str | None = "top_n"
    return_field: str | None = "return_documents"
    documents_by_default: bool = False
    plain_documents: bool = False

    def returns_documents(self, request: RerankRequest) -> bool:
        """Return whether the answer to a request holds the documents."""
        wanted = getattr(request, self.return_field, None) if self.return_field else None
        if wanted is not None:
            return is_true(wanted)
        if isinstance(request, CohereOrJinaRequest):
            # Clients of Jina and vLLM expect the documents, those of Cohere do not.
            named_as_cohere = (request.model or "").startswith(("rerank-", "cohere"))
            return not named_as_cohere and (request.rank_fields, request.max_chunks_per_doc) == (None, None)
        return self.documents_by_default


_DIALECTS = (
    ServedDialect(
        "cohere-v2", CohereV2Request, CohereAnswer, errors.COHERE,
        lambda answer: CohereAnswer(answer.id, answer.documents, answer.meta("2")),
        return_field=None,
    ),
    ServedDialect(
        "cohere-v1", CohereV1Request, CohereAnswer, errors.COHERE,
        lambda answer: CohereAnswer(answer.id, answer.documents, answer.meta("1")),
    ),
    ServedDialect(
        "jina", ObjectRequest, JinaAnswer, errors.JINA,
        lambda answer: JinaAnswer(answer.model, answer.usage(), answer.documents, answer.warnings),
        documents_by_default=True,
    ),
    ServedDialect(
        "voyage", VoyageRequest, VoyageAnswer, errors.VOYAGE,
        lambda answer: VoyageAnswer(
            "list", answer.documents, answer.model, TotalUsage(answer.tokens()), answer.warnings
        ),
        cutoff_field="top_k", plain_documents=True,
    ),
    ServedDialect(
        "tei", TeiRequest, list[TeiRankedDocument], errors.TEI, _tei_answer,
        documents_field="texts", cutoff_field=None, return_field="return_text", plain_documents=True,
    ),
    ServedDialect(
        "vllm", VllmRequest, OpenAIRerankAnswer, errors.OPENAI, OpenAIRerankAnswer.make,
        return_field=None, documents_by_default=True,
    ),
    ServedDialect(
        "infinity", InfinityRequest, OpenAIRerankAnswer, errors.OPENAI, OpenAIRerankAnswer.make,
        plain_documents=True,
    ),
    ServedDialect(
        "cohere-v1-or-jina", CohereOrJinaRequest, CohereOrJinaAnswer, errors.COHERE_OR_JINA,
        lambda answer: CohereOrJinaAnswer(
            answer.id, answer.model, answer.usage(), answer.documents, answer.meta("1"), answer.warnings
        ),
    ),
    ServedDialect(
        "jina-or-vllm", JinaOrVllmRequest, OpenAIRerankAnswer, errors.COHERE_OR_JINA, OpenAIRerankAnswer.make,
        documents_by_default=True,
    ),
)  # fmt: skip
SERVED: Mapping[str, ServedDialect] = {dialect.name: dialect for dialect in _DIALECTS}
"""Served dialects by name; the last two answer at the root, where clients of several APIs call."""

ROUTES: Mapping[str, Sequence[str]] = {
    "/v2/rerank": ["cohere-v2"],
    "/v1/rerank": ["cohere-v1-or-jina", "voyage"],
    "/rerank": ["jina-or-vllm", "tei"],
    "/": ["tei"],
    "/cohere/v2/rerank": ["cohere-v2"],
    "/cohere/v1/rerank": ["cohere-v1"],
    "/jina/v1/rerank": ["jina"],
    "/voyage/v1/rerank": ["voyage"],
    "/tei/rerank": ["tei"],
    "/tei/": ["tei"],
    "/vllm/rerank": ["vllm"],
    "/vllm/v1/rerank": ["vllm"],
    "/vllm/v2/rerank": ["vllm"],
    "/infinity/rerank": ["infinity"],
}
"""The dialects that are spoken at each path; the body tells them apart where there are two."""


def choose_dialect(names: Sequence[str], body: JsonValue) -> ServedDialect:
    """Return the dialect of a body: voyage and tei have fields of their own."""
    fields = body if isinstance(body, dict) else {}
    if "voyage" in names and ("top_k" in fields or "truncation" in fields):
        return SERVED["voyage"]
    if "tei" in names and "texts" in fields:
        return SERVED["tei"]
    return SERVED[names[0]]
