"""Operations of the server and their OpenAPI document, as `/openapi.json` and as a page at `/docs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib.resources import files

import msgspec
from markupsafe import Markup

from resift import __version__
from resift.explain.svg import html, html_page, join_markup
from resift.server.endpoint import DEADLINE_HEADER, Handler
from resift.server.request_errors import OWN, ErrorForm
from resift.types import JsonMapping, JsonObject

_REASONS = {
    400: "The request is invalid.",
    401: "The key is missing or invalid.",
    404: "The named resource does not exist.",
    413: "The request is larger than the server accepts.",
    422: "A field is invalid.",
    429: "The server is too busy. Retry after the number of seconds in Retry-After.",
    500: "Internal server error.",
    502: "A service behind the server failed.",
    503: "The server is starting or shutting down.",
}
_WITH_BODY = (400, 401, 404, 413, 422, 429, 500, 502, 503)
_WITHOUT_BODY = (401, 500, 502, 503)
_REFERENCE = "#/components/schemas/"
_DEADLINE = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "description": "Milliseconds after which the results so far are returned, marked as partial.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,9}$"},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of a path such as /v1/search: its handler and the types of its requests and responses.

    Failures use the first format in `errors` until the handler sets another one.
    """

    method: str
    path: str
    summary: str
    run: Handler
    requests: Sequence[type[msgspec.Struct]] = ()
    answers: Sequence[object] = ()
    _: KW_ONLY
    media_type: str = "application/json"
    errors: Sequence[ErrorForm] = (OWN,)
    statuses: Mapping[int, object] = field(default_factory=dict)
    needs_key: bool = True

    def responses(self) -> Iterator[tuple[int, Sequence[object], str]]:
        """Yield the status, the types of the body and the media type of every possible response."""
        yield 200, self.answers, self.media_type
        failures = {form.type: None for form in self.errors}
        for status in _WITH_BODY if self.requests else _WITHOUT_BODY:
            if status not in self.statuses:
                yield status, tuple(failures), "application/json"
        for status, answer in self.statuses.items():
            yield status, (answer,), "application/json"


def describe_operations(operations: Sequence[Operation]) -> JsonObject:
    """Return the OpenAPI document of a server."""
    types: dict[object, None] = {}
    for operation in operations:
        types.update(dict.fromkeys(operation.requests))
        for _, answers, _ in operation.responses():
            types.update(dict.fromkeys(answers))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE + "{name}")
    by_type = dict(zip(types, schemas, strict=True))

    def content(media_type: str, body_types: Sequence[object]) -> JsonObject:
        forms = [by_type[body_type] for body_type in body_types]
        schema = forms[0] if len(forms) == 1 else {"anyOf": forms} if forms else {}
        return {media_type: {"schema": schema}}

    paths: dict[str, JsonObject] = {}
    for operation in operations:
        responses = {
            str(status): {"description": _REASONS.get(status, "The result."), "content": content(media_type, answers)}
            for status, answers, media_type in operation.responses()
        }
        description: JsonObject = {"summary": operation.summary, "responses": responses}
        if operation.requests:
            description["requestBody"] = {"required": True, "content": content("application/json", operation.requests)}
            description["parameters"] = [_DEADLINE]
        description["security"] = [{"key": []}, {}] if operation.needs_key else []
        paths.setdefault(operation.path, {})[operation.method.lower()] = description
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Resift",
            "version": __version__,
            "description": "Reranking, search and fusion. Includes routes for clients of other APIs.",
        },
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}, "schemas": components},
        "paths": paths,
    }


_MAX_DEPTH = 3
"""Maximum nesting depth of objects whose fields are listed. Deeper objects are shown as a type."""


def api_page(description: JsonMapping) -> str:
    """Return the OpenAPI document as a self-contained HTML page."""
    info = description["info"]
    style = "\n" + (files("resift.server") / "api_page.css").read_text(encoding="utf-8")
    page = _ApiPage(description["components"]["schemas"])
    routes = [
        page.route(method, path, operation)
        for path, methods in description["paths"].items()
        if not path.startswith("/playground/")
        for method, operation in methods.items()
    ]
    body = html(
        "<h1>{} {}</h1><p>{}</p><p>As JSON: <a href='openapi.json'><code>/openapi.json</code></a>. "
        "If the server requires keys, send <code>Authorization: Bearer KEY</code>. Every POST accepts the header "
        "<code>{}</code>: milliseconds after which the results so far are returned, marked as partial.</p>{}",
        info["title"],
        info["version"],
        info["description"],
        DEADLINE_HEADER,
        join_markup(routes, "\n"),
    )
    return html_page(f"{info['title']} API", body, style=style, script="")


class _ApiPage:
    def __init__(self, components: Mapping[str, JsonMapping]) -> None:
        self._components = components

    def route(self, method: str, path: str, operation: JsonMapping) -> Markup:
        parts: list[Markup] = []
        if not operation["security"]:
            parts.append(html("<p>No key required.</p>"))
        if "requestBody" in operation:
            parts.append(html("<h3>Request</h3>{}", self._content(operation["requestBody"])))
        responses = dict(operation["responses"])
        parts.append(html("<h3>Answer</h3>{}", self._content(responses.pop("200"))))
        others = [(code, response["description"]) for code, response in responses.items()]
        parts.append(html("<h3>Other statuses</h3>{}", _table(others)))
        return html(
            "<details><summary><b>{}</b> <code>{}</code> <span>{}</span></summary><div>{}</div></details>",
            method.upper(),
            path,
            operation["summary"],
            join_markup(parts),
        )

    def _content(self, message: JsonMapping) -> Markup:
        [(media_type, content)] = message["content"].items()
        forms = map(self._resolve, content["schema"].get("anyOf", [content["schema"]]))
        bodies = [
            _table(list(self._fields(form))) if form.get("properties") else html("<p>{}</p>", self._type(form))
            for form in forms
        ]
        return html("<p><code>{}</code></p>{}", media_type, html("<p>or</p>").join(bodies))

    def _resolve(self, schema: JsonMapping) -> JsonMapping:
        """Return a schema with its references resolved and without null."""
        if "$ref" in schema:
            return self._components[schema["$ref"].removeprefix(_REFERENCE)]
        forms = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
        return self._resolve(forms[0]) if len(forms) == 1 else schema

    def _fields(self, schema: JsonMapping, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, str, str]]:
        required = schema.get("required", ())
        for name, declared in schema["properties"].items():
            resolved = self._resolve(declared)
            yield f"{prefix}{name}", self._type(declared), "required" if name in required else ""
            is_list = resolved.get("type") == "array"
            inner = self._resolve(resolved.get("items") or {}) if is_list else resolved
            if inner.get("properties") and depth < _MAX_DEPTH:
                mark = "[]." if is_list else "."
                yield from self._fields(inner, f"{prefix}{name}{mark}", depth + 1)

    def _type(self, schema: JsonMapping) -> str:
        """Return a schema in words, such as "array of string"."""
        schema = self._resolve(schema)
        if "anyOf" in schema:
            forms = [self._type(form) for form in schema["anyOf"] if form.get("type") != "null"]
            return " or ".join(dict.fromkeys(forms))
        if "enum" in schema:
            return " | ".join(map(str, schema["enum"]))
        kind: str = schema.get("type", "any value")
        return f"array of {self._type(schema.get('items') or {})}" if kind == "array" else kind


def _table(rows: Sequence[tuple[str, ...]]) -> Markup:
    lines = []
    for name, *cells in rows:
        columns = join_markup(html("<td>{}</td>", cell) for cell in cells)
        lines.append(html("<tr><td><code>{}</code></td>{}</tr>", name, columns))
    return html("<table>{}</table>", join_markup(lines))
