"""The supported rerank APIs: request, response and errors of each, and the paths with their dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from resift.server import schema
from resift.server.schema import ErrorForm, Flag, Fraction, Milliseconds, ModelName, NonEmpty, Positive, is_true
from resift.types import JsonObject, JsonValue

Texts: TypeAlias = Annotated[list[str], Meta(min_length=1)]
TextsOrObjects: TypeAlias = Annotated[list[str | JsonObject], Meta(min_length=1)]
Names: TypeAlias = Annotated[list[str], Meta(max_length=100)]
Priority: TypeAlias = Annotated[int, Meta(ge=0, le=999)]
Side: TypeAlias = Literal["left", "Left", "right", "Right"]


class RerankRequest(Struct, kw_only=True):
    """Fields that all dialects share."""

    query: NonEmpty
    model: ModelName | None = None
    deadline_ms: Milliseconds | None = None


class SpanOptions(Struct, kw_only=True):
    """Cohere's `relevant_spans`: minimum score of a span and maximum number of spans per document."""

    mode: Literal["enabled", "disabled"] | None = None
    threshold: Fraction | None = None
    max_spans: Positive | None = None


class Span(Struct):
    """A relevant sentence, as character offsets in the document."""

    start: int
    end: int
    score: float


class RankedDocument(Struct, omit_defaults=True):
    """One document of a response. Optional fields without a value are omitted, because some clients fail on null."""

    index: int
    relevance_score: float
    document: str | JsonObject | UnsetType = UNSET
    relevant_spans: list[Span] | UnsetType = UNSET


class TeiRankedDocument(Struct, omit_defaults=True):
    """One document of a TEI response, which is a bare list of these."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class TotalUsage(Struct):
    """Token usage in Voyage's format."""

    total_tokens: int


class Usage(Struct):
    """Token usage in the format of the other APIs."""

    prompt_tokens: int
    total_tokens: int


class CohereMeta(Struct, omit_defaults=True):
    """Version, billed units and warnings of a Cohere response."""

    api_version: dict[str, str]
    billed_units: dict[str, int]
    warnings: list[str] = []


_ANSWER_TYPES: Mapping[str, object] = {
    "id": str, "object": str, "created": int, "model": str, "usage": Usage, "meta": CohereMeta,
    "results": list[RankedDocument], "data": list[RankedDocument], "warnings": list[str],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServedDialect:
    """One rerank API: its types, its errors, and its names for the common fields.

    `documents_by_default` applies if a request does not specify whether to return the documents, which are strings
    with `plain_documents`. On a path with two dialects, a body with one of the fields in `marks` has this dialect.
    """

    name: str
    request: type[RerankRequest]
    answer: object
    errors: ErrorForm
    _: KW_ONLY
    documents_field: str = "documents"
    cutoff_field: str | None = "top_n"
    return_field: str | None = "return_documents"
    documents_by_default: bool = False
    plain_documents: bool = False
    version: str = "1"
    marks: Set[str] = frozenset()

    def returns_documents(self, request: RerankRequest) -> bool:
        """Whether the response to a request contains the documents."""
        flag = getattr(request, self.return_field, None) if self.return_field else None
        if flag is not None:
            return is_true(flag)
        if self.name == "cohere-v1-or-jina":
            # Jina and vLLM clients expect the documents; Cohere clients do not.
            cohere_fields = [getattr(request, name) for name in ("rank_fields", "max_chunks_per_doc")]
            return cohere_fields == [None, None] and not (request.model or "").startswith(("rerank-", "cohere"))
        return self.documents_by_default

    def make_answer(
        self, documents: list[RankedDocument], values: JsonObject, *, count_tokens: Callable[[], int], candidates: int
    ) -> Struct | list[TeiRankedDocument]:
        """Return a response with these documents and with those other values that this API supports."""
        if not (isinstance(self.answer, type) and issubclass(self.answer, Struct)):
            rows = ((row.index, row.relevance_score, row.document) for row in documents)
            return [TeiRankedDocument(*row) for row in rows]  # type: ignore[arg-type]  # plain text
        names = self.answer.__struct_fields__
        values |= {"object": "list" if "data" in names else "rerank", "results": documents, "data": documents}
        if "meta" in names:
            # One search unit per hundred documents.
            units = {"search_units": -(-candidates // 100)}
            values["meta"] = CohereMeta({"version": self.version}, units, values["warnings"])
        if "usage" in names:
            tokens = count_tokens()
            values["usage"] = TotalUsage(tokens) if "data" in names else Usage(tokens, tokens)
        return self.answer(**{name: values[name] for name in names})


def _dialect(
    name: str, errors: ErrorForm, request: Mapping[str, object], answer: str, **options: JsonValue
) -> ServedDialect:
    """Return a dialect whose requests and responses have these fields. All but the documents are optional."""
    title = name.title().replace("-", "")
    (required, documents), *optional = request.items()
    fields: list[Any] = [(required, documents), *((field, kind | None, None) for field, kind in optional)]  # type: ignore[operator]
    request_type: type[RerankRequest] = msgspec.defstruct(  # type: ignore[assignment]  # a subclass of its base
        f"{title}Request", fields, bases=(RerankRequest,), kw_only=True
    )
    answer_type: object = list[TeiRankedDocument]
    if answer:
        types = {**_ANSWER_TYPES, "usage": TotalUsage} if name == "voyage" else _ANSWER_TYPES
        answer_fields: list[Any] = [(field, types[field]) for field in answer.split()]
        if "warnings" in answer:
            answer_fields[-1] += ([],)  # empty by default
        answer_type = msgspec.defstruct(f"{title}Answer", answer_fields, omit_defaults=True)
    return ServedDialect(name, request_type, answer_type, errors, documents_field=required, **options)


_COHERE_V1 = {"rank_fields": Names, "max_chunks_per_doc": Positive}
_DOCUMENTS = {"documents": TextsOrObjects, "top_n": Positive, "return_documents": Flag}
# vLLM clients send these limits on the text to score. The server ignores them and scores the full text.
_TOKEN_LIMITS = {"max_tokens_per_doc": int, "max_tokens_per_query": int, "truncate_prompt_tokens": int}
_OPENAI_ANSWER = "id object created model usage results warnings"

_DIALECTS = (
    _dialect(
        "cohere-v2", schema.COHERE,
        {"documents": Texts, "top_n": Positive, "max_tokens_per_doc": Positive, "priority": Priority,
         "relevant_spans": SpanOptions},
        "id results meta", return_field=None, version="2",
    ),
    _dialect(
        "cohere-v1", schema.COHERE, {**_DOCUMENTS, **_COHERE_V1, "max_tokens_per_doc": Positive}, "id results meta",
    ),
    _dialect("jina", schema.JINA, _DOCUMENTS, "model usage results warnings", documents_by_default=True),
    _dialect(
        "voyage", schema.VOYAGE,
        {"documents": Texts, "top_k": Positive, "return_documents": Flag, "truncation": Flag},
        "object data model usage warnings", cutoff_field="top_k", plain_documents=True, marks={"top_k", "truncation"},
    ),
    # LiteLLM sends `top_n`, which TEI ignores as well.
    _dialect(
        "tei", schema.TEI,
        {"texts": Texts, "top_n": int, "return_text": Flag, "raw_scores": Flag, "truncate": Flag,
         "truncation_direction": Side},
        "", cutoff_field=None, return_field="return_text", plain_documents=True, marks={"texts"},
    ),
    # vLLM responses always contain the documents.
    _dialect(
        "vllm", schema.OPENAI, {**_DOCUMENTS, **_TOKEN_LIMITS, "truncation_side": str, "use_activation": Flag},
        _OPENAI_ANSWER, return_field=None, documents_by_default=True,
    ),
    _dialect(
        "infinity", schema.OPENAI,
        {"documents": Texts, "top_n": Positive, "return_documents": Flag, "raw_scores": Flag},
        _OPENAI_ANSWER, plain_documents=True,
    ),
    # The last two handle the root paths, which clients of several APIs use.
    _dialect(
        "cohere-v1-or-jina", schema.COHERE_OR_JINA,
        {**_DOCUMENTS, **_TOKEN_LIMITS, **_COHERE_V1, "raw_scores": Flag}, "id model usage results meta warnings",
    ),
    _dialect(
        "jina-or-vllm", schema.COHERE_OR_JINA, {**_DOCUMENTS, **_TOKEN_LIMITS, "raw_scores": Flag},
        _OPENAI_ANSWER, documents_by_default=True,
    ),
)  # fmt: skip
_DIALECTS_BY_PATH = {
    "/v2/rerank": "cohere-v2",
    "/v1/rerank": "cohere-v1-or-jina voyage",
    "/rerank": "jina-or-vllm tei",
    "/": "tei",
    "/cohere/v2/rerank": "cohere-v2",
    "/cohere/v1/rerank": "cohere-v1",
    "/jina/v1/rerank": "jina",
    "/voyage/v1/rerank": "voyage",
    "/tei/rerank": "tei",
    "/tei/": "tei",
    "/vllm/rerank": "vllm",
    "/vllm/v1/rerank": "vllm",
    "/vllm/v2/rerank": "vllm",
    "/infinity/rerank": "infinity",
}
_BY_NAME = {dialect.name: dialect for dialect in _DIALECTS}
ROUTES = {path: [_BY_NAME[name] for name in names.split()] for path, names in _DIALECTS_BY_PATH.items()}
"""The dialects of each path. If there are two, the body identifies the dialect."""
