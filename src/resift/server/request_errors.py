"""Failures of a request, and the status and body that each API gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "invalid", "empty", "unknown_field", "unknown_model", "too_large", "unauthorized", "overloaded",
    "unavailable", "not_found", "method", "upstream", "internal", "deadline", "foreign_host", "cross_site",
]  # fmt: skip

STATUS: dict[Kind, int] = {
    "invalid": 400,
    "empty": 400,
    "unknown_field": 422,
    "unknown_model": 404,
    "too_large": 413,
    "unauthorized": 401,
    "overloaded": 429,
    "unavailable": 503,
    "not_found": 404,
    "method": 405,
    "upstream": 502,
    "internal": 500,
    "deadline": 504,
    "foreign_host": 421,
    "cross_site": 403,
}


@dataclass(eq=False)
class RequestFailed(Exception):
    """A request without a result. The message is for the client and quotes no document."""

    kind: Kind
    message: str
    retry_after_s: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


class MessageError(Struct):
    """Cohere's error body."""

    message: str
    id: str


class DetailError(Struct):
    """Error body of Jina and Voyage."""

    detail: str


class MessageAndDetailError(Struct):
    """Error body that clients of Cohere and of Jina both understand."""

    message: str
    detail: str
    id: str


class TeiError(Struct):
    """TEI's error body; the types are spelled as in its openapi.json."""

    error: str
    error_type: Literal["Empty", "Overloaded", "Unhealthy", "Backend", "Validation", "Tokenizer"]


class OpenAIErrorDetail(Struct):
    """The inner part of OpenAI's error body."""

    message: str
    type: str
    param: None
    code: int


class OpenAIError(Struct):
    """Error body of OpenAI, vLLM and infinity."""

    error: OpenAIErrorDetail


class OwnError(Struct):
    """Error body of Resift's own routes."""

    error: Kind
    message: str
    id: str


_TEI_TYPES: Mapping[Kind, Literal["Empty", "Overloaded", "Unhealthy", "Backend"]] = {
    "empty": "Empty",
    "overloaded": "Overloaded",
    "unavailable": "Unhealthy",
    "internal": "Backend",
    "upstream": "Backend",
    "deadline": "Backend",
}
_OPENAI_TYPES: Mapping[Kind, str] = {
    "unauthorized": "authentication_error",
    "overloaded": "rate_limit_error",
    "unavailable": "service_unavailable_error",
    "internal": "internal_error",
    "upstream": "internal_error",
    "deadline": "timeout_error",
    "not_found": "not_found_error",
    "unknown_model": "not_found_error",
}


def _openai_error(error: RequestFailed, status: int, request_id: str) -> OpenAIError:
    kind = _OPENAI_TYPES.get(error.kind, "invalid_request_error")
    return OpenAIError(OpenAIErrorDetail(error.message, kind, None, status))


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """One API's errors: the type of the body, a function that makes it, and statuses that differ."""

    type: type[Struct]
    make: Callable[[RequestFailed, int, str], Struct]
    statuses: Mapping[Kind, int] = field(default_factory=dict)

    def body(self, error: RequestFailed, request_id: str) -> tuple[int, Struct]:
        """Return the status and the body for a failure."""
        status = self.statuses.get(error.kind, STATUS[error.kind])
        return status, self.make(error, status, request_id)


COHERE = ErrorForm(MessageError, lambda error, status, id: MessageError(error.message, id))
JINA = ErrorForm(
    DetailError, lambda error, status, id: DetailError(error.message), {"invalid": 422, "unknown_model": 422}
)
VOYAGE = ErrorForm(
    DetailError,
    lambda error, status, id: DetailError(error.message),
    {"unknown_model": 400, "unknown_field": 400},
)
COHERE_OR_JINA = ErrorForm(
    MessageAndDetailError, lambda error, status, id: MessageAndDetailError(error.message, error.message, id)
)
TEI = ErrorForm(
    TeiError,
    lambda error, status, id: TeiError(error.message, _TEI_TYPES.get(error.kind, "Validation")),
    {"invalid": 422, "unknown_model": 422},
)
OPENAI = ErrorForm(OpenAIError, _openai_error, {"unknown_field": 400})
OWN = ErrorForm(OwnError, lambda error, status, id: OwnError(error.kind, error.message, id))

_BY_PREFIX = {
    "/cohere/": COHERE,
    "/v2/rerank": COHERE,
    "/jina/": JINA,
    "/voyage/": VOYAGE,
    "/tei/": TEI,
    "/embed": TEI,
    "/vllm/": OPENAI,
    "/infinity/": OPENAI,
    "/v1/embeddings": OPENAI,
    "/embeddings": OPENAI,
    "/v1/models": OPENAI,
    "/score": OPENAI,
    "/v1/score": OPENAI,
    "/v1/rerank": COHERE_OR_JINA,
    "/rerank": COHERE_OR_JINA,
}


def error_form_for_path(path: str) -> ErrorForm:
    """Return the error form of a path, which is used until the dialect of the body is known."""
    # The longest prefix wins: /embeddings is OpenAI's although /embed is TEI's.
    prefixes = [prefix for prefix in _BY_PREFIX if path.startswith(prefix)]
    return _BY_PREFIX[max(prefixes, key=len)] if prefixes else OWN
