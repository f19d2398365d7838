"""Routes for health checks, metrics, models, the OpenAPI document and the playground."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Literal

import msgspec
from markupsafe import Markup
from msgspec import Struct

from resift import __version__
from resift.explain.flow import hit_body, hit_title
from resift.explain.svg import PICTURE_STYLE, html, html_page, join_markup
from resift.ranking.fusion.methods import METHODS
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.server.endpoint import DEADLINE_HEADER, Operation, Request, Response
from resift.server.schema import OPENAI, TEI
from resift.server.search_routes import MAX_DEPTH, RERANKERS, SearchService
from resift.server.state import ServerState
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonMapping, JsonObject

_ASSETS = resources.files("resift.server")
_MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
_API_PAGE_HEADERS = {
    "content-security-policy": "frame-ancestors 'none'",  # the page declares its own content policy
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PLAYGROUND_HEADERS = {
    **_API_PAGE_HEADERS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
SAMPLED_DOCUMENTS, SAMPLE_QUERIES = 60, 5  # sampled documents whose titles and metadata describe an index
MAX_LISTED_IDS = 200_000  # larger indexes have no sample queries, because listing their ids takes seconds


class Health(Struct):
    """Phase of the server, or "ok" if it is ready."""

    status: Literal["ok", "starting", "draining", "closed", "failed"]


class ModelRow(Struct):
    """A model or an alias in OpenAI's model list. `root` is the model behind an alias."""

    id: str
    object: str
    created: int
    owned_by: str
    task: str
    root: str


class ModelList(Struct):
    """OpenAI's list of models."""

    object: str
    data: list[ModelRow]


class IndexSummary(Struct, kw_only=True):
    """Description of an index. Values that its store cannot provide are None or empty."""

    name: str
    passages: int | None = None
    files: int | None = None
    embedder: str = ""
    keys: list[str] = []
    queries: list[str] = []


class PlaygroundOptions(Struct):
    """The options that the playground offers."""

    version: str
    model: str
    index: bool
    judgements: bool
    fusions: list[str]
    rerankers: list[str]
    most_depth: int
    indexes: list[IndexSummary]
    ask: bool


def info_operations(server: ServerState, search: SearchService) -> list[Operation]:
    """Return the operations of this module, except those for the OpenAPI document."""
    start_time = int(time.time())

    async def live(request: Request) -> Response:
        return Response(Health("ok"))

    async def ready(request: Request) -> Response:
        if server.phase == "ready":
            return Response(Health("ok"))
        return Response(Health(server.phase), 503, {"retry-after": "1"})

    async def metrics(request: Request) -> Response:
        text = await asyncio.to_thread(server.metrics.text, server)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list_models(request: Request) -> Response:
        server.check_open()
        tasks = dict.fromkeys(server.scorers, "rerank")
        if server.embedder is not None:
            tasks[server.embedder_name] = "embed"
        roots = {name: name for name in tasks} | dict(server.options.aliases)
        tasks |= {name: tasks.get(root, "embed") for name, root in server.options.aliases.items()}
        rows = [ModelRow(name, "model", start_time, "resift", tasks[name], root) for name, root in roots.items()]
        return Response(ModelList("list", rows))

    checks, is_ready = "/readyz /health /ping /tei/health", "The models are loaded and the server is not shutting down"
    models, info = "Models and their aliases (OpenAI)", "The reranker and the limits (TEI)"
    return [
        Operation("GET", "/livez", "The process is alive", live, answers=[Health], needs_key=False),
        Operation("GET", checks, is_ready, ready, answers=[Health], statuses={503: Health}, needs_key=False),
        Operation("GET", "/metrics", "Metrics for Prometheus", metrics, answers=[str], media_type="text/plain"),
        Operation("GET", "/v1/models", models, list_models, answers=[ModelList], errors=[OPENAI]),
        Operation("GET", "/info /tei/info", info, _tei_info, answers=[JsonObject], errors=[TEI]),
        *(_playground_operations(server, search) if server.options.playground else ()),
    ]


async def _tei_info(request: Request) -> Response:
    server = request.server
    server.check_open()
    limits, name = server.options.limits, server.options.model
    scorer = server.scorers[name]
    model = scorer.loaded_model if isinstance(scorer, CrossEncoderReranker) else None
    max_length = 512 if model is None else model.spec.max_length
    return Response({
        "model_id": name, "model_sha": None if model is None else model.spec.revision, "model_dtype": "int8",
        "served_model_name": name,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": limits.max_requests, "max_input_length": max_length,
        "max_batch_tokens": limits.max_pairs * max_length, "max_batch_requests": None,
        "max_client_batch_size": limits.max_documents, "auto_truncate": True, "tokenization_workers": 1,
        "version": __version__, "sha": None, "docker_label": None,
    })  # fmt: skip


async def _summarize(store: SQLiteStore) -> IndexSummary:
    facts, files = await asyncio.to_thread(store.metadata), len(await store.sources()) or None
    summary = IndexSummary(name=store.name, passages=facts.documents, files=files, embedder=facts.embedder)
    if not facts.documents or facts.documents > MAX_LISTED_IDS:
        return summary
    ids = await store.ids()
    hits = await store.get(ids[:: max(1, len(ids) // SAMPLED_DOCUMENTS)][:SAMPLED_DOCUMENTS])
    summary.keys = sorted({key for hit in hits for key, value in hit.metadata.items() if value is not None})
    # Sample queries are last headings or first words. Names with digits are skipped as likely item numbers.
    names = []
    for hit in hits:
        name = hit_title(hit).rpartition(" › ")[2]
        if name in (hit.id, str(hit.metadata.get("path") or "").rpartition("/")[2]):
            name = " ".join(hit_body(hit).split()[:7])
        names.append(name.strip(" #:.…"))
    words = [name for name in dict.fromkeys(names) if name and not any(char.isdigit() for char in name)]
    words.sort(key=lambda name: " " not in name)  # names with several words first, otherwise in index order
    summary.queries = words[:SAMPLE_QUERIES]
    return summary


def _playground_operations(server: ServerState, search: SearchService) -> list[Operation]:
    files = [file for file in _ASSETS.joinpath("playground").iterdir() if file.name.rpartition(".")[2] in _MEDIA_TYPES]
    contents = {f"/playground/{file.name}": file.read_bytes() for file in files}
    contents["/"] = contents.pop("/playground/index.html")
    contents["/playground/flow.css"] = PICTURE_STYLE.encode()

    def file_operation(path: str, body: bytes) -> Operation:
        kind = _MEDIA_TYPES[path.rpartition(".")[2] if "." in path else "html"]

        async def send_file(request: Request) -> Response:
            return Response(body, headers=dict(_PLAYGROUND_HEADERS), media_type=f"{kind}; charset=utf-8")

        return Operation("GET", path, "A file of the playground", send_file, media_type=kind, needs_key=False)

    async def options(request: Request) -> Response:
        if server.options.stores:
            indexes = [await _summarize(store) for store in await search.indexes()]
        else:
            indexes = [IndexSummary(name=ref.name) for ref in (server.pipeline.stores if server.pipeline else ())]
        choices: JsonObject = {"fusions": sorted(METHODS), "rerankers": list(RERANKERS), "most_depth": MAX_DEPTH}
        has_pack, has_log = server.options.pack is not None, server.options.judgements is not None
        features: JsonObject = {"index": search.has_index, "ask": search.has_index or has_pack, "judgements": has_log}
        model = server.options.model
        return Response(PlaygroundOptions(version=__version__, model=model, indexes=indexes, **choices, **features))

    return [
        *(file_operation(path, body) for path, body in sorted(contents.items())),
        Operation("GET", "/v1/playground", "Options of the playground", options, answers=[PlaygroundOptions]),
    ]


def openapi_operations(others: Sequence[Operation]) -> list[Operation]:
    """Return the operations for the OpenAPI document, as JSON and as a page. It describes them as well."""

    @functools.cache
    def description() -> JsonObject:
        return describe_operations([*others, *openapi])

    async def describe(request: Request) -> Response:
        return Response(await asyncio.to_thread(description))

    async def page(request: Request) -> Response:
        text = await asyncio.to_thread(lambda: api_page(description()))
        headers = dict(_API_PAGE_HEADERS)
        return Response(text.encode(), headers=headers, media_type="text/html; charset=utf-8")

    openapi = [
        Operation("GET", "/openapi.json", "OpenAPI document", describe, answers=[JsonObject]),
        Operation("GET", "/docs", "OpenAPI document as a page", page, answers=[str], media_type="text/html"),
    ]
    return openapi


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
_REFERENCE = "#/components/schemas/"
_DEADLINE = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "description": "Milliseconds after which the results so far are returned, marked as partial.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,9}$"},
}


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
        for path in operation.path.split():
            paths.setdefault(path, {})[operation.method.lower()] = description
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


_MAX_DEPTH = 3  # of objects whose fields are listed; deeper objects are shown as a type


def api_page(description: JsonMapping) -> str:
    """Return the OpenAPI document as a self-contained HTML page."""
    info = description["info"]
    style = "\n" + _ASSETS.joinpath("api_page.css").read_text(encoding="utf-8")
    page = _ApiPage(description["components"]["schemas"])
    routes = [
        page.route(method, path, operation)
        for path, methods in description["paths"].items()
        if not path.startswith("/playground/")
        for method, operation in methods.items()
    ]
    template = (
        "<h1>{title} {version}</h1><p>{description}</p>"
        "<p>As JSON: <a href='openapi.json'><code>/openapi.json</code></a>. "
        "If the server requires keys, send <code>Authorization: Bearer KEY</code>. Every POST accepts the header "
        "<code>{header}</code>: milliseconds after which the results so far are returned, marked as partial.</p>{}"
    )
    body = html(template, join_markup(routes, "\n"), **info, header=DEADLINE_HEADER)
    return html_page(f"{info['title']} API", body, style=style, script="")


class _ApiPage:
    def __init__(self, components: Mapping[str, JsonMapping]) -> None:
        self._components = components

    def route(self, method: str, path: str, operation: JsonMapping) -> Markup:
        parts = [] if operation["security"] else [html("<p>No key required.</p>")]
        if "requestBody" in operation:
            parts.append(html("<h3>Request</h3>{}", self._content(operation["requestBody"])))
        responses = dict(operation["responses"])
        parts.append(html("<h3>Answer</h3>{}", self._content(responses.pop("200"))))
        others = [(code, response["description"]) for code, response in responses.items()]
        parts.append(html("<h3>Other statuses</h3>{}", _table(others)))
        template = "<details><summary><b>{}</b> <code>{}</code> <span>{}</span></summary><div>{}</div></details>"
        return html(template, method.upper(), path, operation["summary"], join_markup(parts))

    def _content(self, message: JsonMapping) -> Markup:
        [(media_type, content)] = message["content"].items()
        bodies = []
        for form in map(self._resolve, content["schema"].get("anyOf", [content["schema"]])):
            rows = list(self._fields(form)) if form.get("properties") else []
            bodies.append(_table(rows) if rows else html("<p>{}</p>", self._type(form)))
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
    cell, line = "<td>{}</td>", "<tr><td><code>{}</code></td>{}</tr>"
    lines = [html(line, name, join_markup(html(cell, text) for text in cells)) for name, *cells in rows]
    return html("<table>{}</table>", join_markup(lines))
