"""The description at `/openapi.json`, made from the same values that route and check requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from resift import __version__
from resift.server.endpoint import DEADLINE_HEADER, Call, Endpoint, Reply
from resift.server.error_forms import OWN, ErrorForm
from resift.server.schema import Schema, either
from resift.types import JsonMapping, JsonObject

if TYPE_CHECKING:
    from resift.server.serving import Serving

_USUAL = (400, 401, 413, 422, 429, 500, 502, 503)
_READING = (401, 500, 502, 503)


@dataclass(frozen=True, slots=True)
class Operation:
    """One route such as "POST /v1/search": who answers it, and what goes in and out.

    Failures take the first of the `errors`, until the route knows better.
    """

    serving: Serving
    route: str
    summary: str
    run: Callable[[Call], Awaitable[Reply]]
    _: KW_ONLY
    request: Schema | None = None
    answer: Schema = field(default_factory=dict)
    media_type: str = "application/json"
    errors: Sequence[ErrorForm] = (OWN,)
    statuses: Mapping[int, Schema] = field(default_factory=dict)
    parameters: Sequence[JsonMapping] = ()
    needs_key: bool = True

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.route.split(" ")[0]

    @property
    def path(self) -> str:
        """The path alone."""
        return self.route.split(" ")[1]

    def endpoint(self) -> Endpoint:
        """Return the ASGI app that answers this route."""
        return Endpoint(self.serving, self.path, self.run, errors=self.errors[0])

    def described(self) -> JsonObject:
        """Return the OpenAPI object of this operation."""
        wrong = either(*(form.schema for form in self.errors))
        codes = [*(_USUAL if self.request is not None else _READING), *({404} if self.request else ())]
        responses = {"200": _content("The result.", self.answer, self.media_type)}
        for code in sorted(codes):
            responses[str(code)] = _content(_REASONS[code], wrong)
        for code, schema in self.statuses.items():
            responses[str(code)] = _content(_REASONS[code], schema)
        found: JsonObject = {"summary": self.summary, "responses": responses}
        if self.request is not None:
            found["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": self.request}},
            }
        parameters = [*self.parameters, *([_DEADLINE] if self.request is not None else [])]
        if parameters:
            found["parameters"] = parameters
        found["security"] = [{"key": []}, {}] if self.needs_key else []
        return found


_DEADLINE = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "description": "Milliseconds after which what is there is returned, flagged as partial.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,9}$"},
}

_REASONS = {
    400: "The request is wrong.",
    401: "The key is missing or unknown.",
    404: "There is no such thing here.",
    413: "The request is larger than the server takes.",
    422: "A field is wrong.",
    429: "Too busy: try again after the seconds in Retry-After.",
    500: "The server made a mistake.",
    502: "What the server asked behind it failed.",
    503: "Starting or shutting down.",
}


def document(operations: Sequence[Operation]) -> JsonObject:
    """Return the OpenAPI document of a server."""
    paths: dict[str, JsonObject] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Resift",
            "version": __version__,
            "description": "Reranking, search and fusion. Routes of other APIs take what their clients send.",
        },
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def _content(description: str, schema: Schema, media_type: str = "application/json") -> JsonObject:
    return {"description": description, "content": {media_type: {"schema": schema}}}
