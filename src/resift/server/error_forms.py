"""How each API puts a failure into a status and a body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from resift.server.failures import STATUS, Kind, RequestFailed
from resift.server.schema import Schema, one_of, record, text, whole
from resift.types import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorForm:
    """One API's errors; `statuses` has only what differs from the usual ones."""

    body: Callable[[RequestFailed, int, str], JsonValue]
    schema: Schema
    statuses: Mapping[Kind, int] = field(default_factory=dict)

    def status(self, kind: Kind) -> int:
        """Return the HTTP status that this API has for a failure."""
        return self.statuses.get(kind, STATUS[kind])


def _cohere(failed: RequestFailed, status: int, request_id: str) -> JsonValue:
    return {"message": failed.message, "id": request_id}


def _detail(failed: RequestFailed, status: int, request_id: str) -> JsonValue:
    return {"detail": failed.message}


def _joined(failed: RequestFailed, status: int, request_id: str) -> JsonValue:
    return {"message": failed.message, "detail": failed.message, "id": request_id}


# Spelled as in the schema `ErrorType` of TEI's openapi.json; its examples are in lower case.
_TEI_TYPES: Mapping[Kind, str] = {
    "empty": "Empty",
    "overloaded": "Overloaded",
    "unavailable": "Unhealthy",
    "internal": "Backend",
    "upstream": "Backend",
}


def _tei(failed: RequestFailed, status: int, request_id: str) -> JsonValue:
    return {"error": failed.message, "error_type": _TEI_TYPES.get(failed.kind, "Validation")}


_OPENAI_TYPES: Mapping[Kind, str] = {
    "unauthorized": "authentication_error",
    "overloaded": "rate_limit_error",
    "unavailable": "service_unavailable_error",
    "internal": "internal_error",
    "upstream": "internal_error",
    "not_found": "not_found_error",
    "unknown_model": "not_found_error",
}


def _openai(failed: RequestFailed, status: int, request_id: str) -> JsonValue:
    kind = _OPENAI_TYPES.get(failed.kind, "invalid_request_error")
    return {"error": {"message": failed.message, "type": kind, "param": None, "code": status}}


def _own(failed: RequestFailed, status: int, request_id: str) -> JsonValue:
    return {"error": failed.kind, "message": failed.message, "id": request_id}


def _fields(**schemas: Schema) -> Schema:
    return record(schemas, required=tuple(schemas), nullable=False)


COHERE = ErrorForm(body=_cohere, schema=_fields(message=text(), id=text()))
JINA = ErrorForm(body=_detail, schema=_fields(detail=text()), statuses={"invalid": 422, "unknown_model": 422})
VOYAGE = ErrorForm(
    body=_detail, schema=_fields(detail=text()), statuses={"unknown_model": 400, "unknown_field": 400}
)
JOINED = ErrorForm(body=_joined, schema=_fields(message=text(), detail=text(), id=text()))
TEI = ErrorForm(
    body=_tei,
    schema=_fields(
        error=text(), error_type=one_of(*dict.fromkeys([*_TEI_TYPES.values(), "Validation", "Tokenizer"]))
    ),
    statuses={"invalid": 422, "unknown_model": 422},
)
OPENAI = ErrorForm(
    body=_openai,
    schema=_fields(error=_fields(message=text(), type=text(), param={"type": "null"}, code=whole())),
    statuses={"unknown_field": 400},
)
OWN = ErrorForm(body=_own, schema=_fields(error=one_of(*STATUS), message=text(), id=text()))

_BY_PREFIX = (
    ("/cohere/", COHERE),
    ("/v2/rerank", COHERE),
    ("/jina/", JINA),
    ("/voyage/", VOYAGE),
    ("/tei/", TEI),
    ("/embed", TEI),
    ("/vllm/", OPENAI),
    ("/infinity/", OPENAI),
    ("/v1/embeddings", OPENAI),
    ("/embeddings", OPENAI),
    ("/v1/models", OPENAI),
    ("/score", OPENAI),
    ("/v1/score", OPENAI),
    ("/v1/rerank", JOINED),
    ("/rerank", JOINED),
)


def error_form_at(path: str) -> ErrorForm:
    """Return how failures are told at a path before its body is known."""
    # The longest prefix wins: /embeddings is OpenAI's although /embed is TEI's.
    found = [(len(prefix), at) for at, (prefix, _) in enumerate(_BY_PREFIX) if path.startswith(prefix)]
    return _BY_PREFIX[max(found)[1]][1] if found else OWN
