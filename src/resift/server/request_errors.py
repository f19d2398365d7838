"""Request failures, and their status and body in each API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct, defstruct

TeiType = Literal["Empty", "Overloaded", "Unhealthy", "Backend", "Validation", "Tokenizer"]
Kind = Literal[
    "invalid", "empty", "unknown_field", "unknown_model", "too_large", "unauthorized", "overloaded",
    "unavailable", "not_found", "method", "upstream", "internal", "deadline", "foreign_host", "cross_site",
]  # fmt: skip

_KINDS: Mapping[Kind, tuple[int, TeiType, str]] = {
    "invalid": (400, "Validation", "invalid_request_error"),
    "empty": (400, "Empty", "invalid_request_error"),
    "unknown_field": (422, "Validation", "invalid_request_error"),
    "unknown_model": (404, "Validation", "not_found_error"),
    "too_large": (413, "Validation", "invalid_request_error"),
    "unauthorized": (401, "Validation", "authentication_error"),
    "overloaded": (429, "Overloaded", "rate_limit_error"),
    "unavailable": (503, "Unhealthy", "service_unavailable_error"),
    "not_found": (404, "Validation", "not_found_error"),
    "method": (405, "Validation", "invalid_request_error"),
    "upstream": (502, "Backend", "internal_error"),
    "internal": (500, "Backend", "internal_error"),
    "deadline": (504, "Backend", "timeout_error"),
    "foreign_host": (421, "Validation", "invalid_request_error"),
    "cross_site": (403, "Validation", "invalid_request_error"),
}
"""Status of each kind of failure, and its error type in TEI and OpenAI responses."""


@dataclass(eq=False)
class RequestFailed(Exception):
    """A request that failed. The message is sent to the client and never quotes a document."""

    kind: Kind
    message: str
    retry_after_s: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


MessageError = defstruct("MessageError", [("message", str), ("id", str)])
DetailError = defstruct("DetailError", [("detail", str)])
MessageAndDetailError = defstruct("MessageAndDetailError", [("message", str), ("detail", str), ("id", str)])
TeiError = defstruct("TeiError", [("error", str), ("error_type", TeiType)])
OpenAIErrorDetail = defstruct("OpenAIErrorDetail", [("message", str), ("type", str), ("param", None), ("code", int)])
OpenAIError = defstruct("OpenAIError", [("error", OpenAIErrorDetail)])
OwnError = defstruct("OwnError", [("error", Kind), ("message", str), ("id", str)])


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """Error format of an API: the type of the body, a function that creates it, and its own status codes."""

    type: type[Struct]
    make: Callable[[RequestFailed, int, str], Struct]
    statuses: Mapping[Kind, int] = field(default_factory=dict)

    def body(self, error: RequestFailed, request_id: str) -> tuple[int, Struct]:
        """Return the status and the body for a failure."""
        status = self.statuses.get(error.kind, _KINDS[error.kind][0])
        return status, self.make(error, status, request_id)


COHERE = ErrorForm(MessageError, lambda error, status, id: MessageError(error.message, id))
JINA = ErrorForm(
    DetailError, lambda error, status, id: DetailError(error.message), {"invalid": 422, "unknown_model": 422}
)
VOYAGE = ErrorForm(
    DetailError, lambda error, status, id: DetailError(error.message), {"unknown_model": 400, "unknown_field": 400}
)
COHERE_OR_JINA = ErrorForm(
    MessageAndDetailError, lambda error, status, id: MessageAndDetailError(error.message, error.message, id)
)
TEI = ErrorForm(
    TeiError,
    lambda error, status, id: TeiError(error.message, _KINDS[error.kind][1]),
    {"invalid": 422, "unknown_model": 422},
)
OPENAI = ErrorForm(
    OpenAIError,
    lambda error, status, id: OpenAIError(OpenAIErrorDetail(error.message, _KINDS[error.kind][2], None, status)),
    {"unknown_field": 400},
)
OWN = ErrorForm(OwnError, lambda error, status, id: OwnError(error.kind, error.message, id))

_PREFIXES = (
    (COHERE, "/cohere/", "/v2/rerank"),
    (JINA, "/jina/"),
    (VOYAGE, "/voyage/"),
    (TEI, "/tei/", "/embed"),
    (OPENAI, "/vllm/", "/infinity/", "/v1/embeddings", "/embeddings", "/v1/models", "/score", "/v1/score"),
    (COHERE_OR_JINA, "/v1/rerank", "/rerank"),
)
_BY_PREFIX = {prefix: form for form, *prefixes in _PREFIXES for prefix in prefixes}


def error_form_for_path(path: str) -> ErrorForm:
    """Return the error format of a path. It is used until the dialect of the body is known."""
    # The longest prefix wins: /embeddings belongs to OpenAI, although /embed belongs to TEI.
    prefixes = [prefix for prefix in _BY_PREFIX if path.startswith(prefix)]
    return _BY_PREFIX[max(prefixes, key=len)] if prefixes else OWN
