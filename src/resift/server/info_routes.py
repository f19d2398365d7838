"""Routes for health checks, metrics, models, the OpenAPI document and the playground."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Literal

from msgspec import Struct

from resift import __version__
from resift.explain.svg import PICTURE_STYLE
from resift.ranking.fusion.methods import METHODS
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.server.endpoint import Request, Response
from resift.server.openapi import Operation, api_page, describe_operations
from resift.server.request_errors import OPENAI, TEI
from resift.server.search_routes import MAX_DEPTH, RERANKERS, IndexSummary, SearchService
from resift.server.state import ServerState
from resift.types import JsonObject

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
        names = {name: name for name in tasks} | dict(server.options.aliases)
        rows = [
            ModelRow(name, "model", start_time, "resift", tasks.get(model, "embed"), model)
            for name, model in names.items()
        ]
        return Response(ModelList("list", rows))

    async def tei_info(request: Request) -> Response:
        server.check_open()
        return Response(_tei_info(server))

    is_ready = "The models are loaded and the server is not shutting down"
    models = "Models and their aliases (OpenAI)"
    return [
        Operation("GET", "/livez", "The process is alive", live, answers=[Health], needs_key=False),
        *(
            Operation("GET", path, is_ready, ready, answers=[Health], statuses={503: Health}, needs_key=False)
            for path in ("/readyz", "/health", "/ping", "/tei/health")
        ),
        Operation("GET", "/metrics", "Metrics for Prometheus", metrics, answers=[str], media_type="text/plain"),
        Operation("GET", "/v1/models", models, list_models, answers=[ModelList], errors=[OPENAI]),
        *(
            Operation("GET", path, "The reranker and the limits (TEI)", tei_info, answers=[JsonObject], errors=[TEI])
            for path in ("/info", "/tei/info")
        ),
        *(_playground_operations(server, search) if server.options.playground else ()),
    ]


def _tei_info(server: ServerState) -> JsonObject:
    limits, name = server.options.limits, server.options.model
    scorer = server.scorers[name]
    model = scorer.loaded_model if isinstance(scorer, CrossEncoderReranker) else None
    max_length = 512 if model is None else model.spec.max_length
    return {
        "model_id": name,
        "model_sha": None if model is None else model.spec.revision,
        "model_dtype": "int8",
        "served_model_name": name,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": limits.max_requests,
        "max_input_length": max_length,
        "max_batch_tokens": limits.max_pairs * max_length,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_documents,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }


def _playground_operations(server: ServerState, search: SearchService) -> list[Operation]:
    folder = files("resift.server") / "playground"
    playground_files = [file for file in folder.iterdir() if file.name.rpartition(".")[2] in _MEDIA_TYPES]
    contents = {f"/playground/{file.name}": file.read_bytes() for file in playground_files}
    contents["/"] = contents.pop("/playground/index.html")
    contents["/playground/flow.css"] = PICTURE_STYLE.encode()

    def file_operation(path: str, body: bytes) -> Operation:
        kind = _MEDIA_TYPES[path.rpartition(".")[2] if "." in path else "html"]

        async def send_file(request: Request) -> Response:
            return Response(body, headers=dict(_PLAYGROUND_HEADERS), media_type=f"{kind}; charset=utf-8")

        return Operation("GET", path, "A file of the playground", send_file, media_type=kind, needs_key=False)

    async def options(request: Request) -> Response:
        return Response(
            PlaygroundOptions(
                version=__version__,
                model=server.options.model,
                index=search.has_index,
                judgements=server.options.judgements is not None,
                fusions=sorted(METHODS),
                rerankers=list(RERANKERS),
                most_depth=MAX_DEPTH,
                indexes=await search.describe(),
                ask=search.has_index or server.options.pack is not None,
            )
        )

    return [
        *(file_operation(path, body) for path, body in sorted(contents.items())),
        Operation("GET", "/v1/playground", "Options of the playground", options, answers=[PlaygroundOptions]),
    ]


def openapi_operations(others: Sequence[Operation]) -> list[Operation]:
    """Return the operations for the OpenAPI document, as JSON and as a page. It describes them as well."""
    cache: JsonObject = {}

    def description() -> JsonObject:
        if not cache:
            cache.update(describe_operations([*others, *openapi]))
        return cache

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
