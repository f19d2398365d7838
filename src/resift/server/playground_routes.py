"""The page at `/`: its files, under a policy that lets in nothing from elsewhere and no inline script."""

from __future__ import annotations

from importlib.resources import files

from resift import __version__
from resift.explain.style import PICTURE_STYLE
from resift.ranking.fusion.methods import METHODS
from resift.server.endpoint import Call, Reply
from resift.server.openapi import Operation
from resift.server.schema import array, flag, record, text, whole
from resift.server.search_settings import MOST_DEPTH, RERANKERS
from resift.server.search_work import Searching
from resift.server.serving import Serving

FILES = {
    "api.js": "text/javascript",
    "copying.js": "text/javascript",
    "documents.js": "text/javascript",
    "dom.js": "text/javascript",
    "judging.js": "text/javascript",
    "main.js": "text/javascript",
    "ranking.js": "text/javascript",
    "settings.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def playground_operations(serving: Serving, searching: Searching) -> list[Operation]:
    """Return the operations of the page; none where it is switched off."""
    if not serving.options.playground:
        return []
    folder = files("resift.server") / "playground"
    kept = {f"/playground/{name}": ((folder / name).read_bytes(), kind) for name, kind in FILES.items()}
    kept["/playground/flow.css"] = (PICTURE_STYLE.encode(), "text/css")
    kept["/"] = ((folder / "index.html").read_bytes(), "text/html")
    return [*(_file(serving, path, *found) for path, found in kept.items()), _facts(serving, searching)]


def _file(serving: Serving, path: str, body: bytes, kind: str) -> Operation:
    async def run(call: Call) -> Reply:
        return Reply(body, headers=HEADERS, media_type=f"{kind}; charset=utf-8")

    said = "A file of the playground"
    return Operation(serving, f"GET {path}", said, run, media_type=kind, needs_key=False)


def _facts(serving: Serving, searching: Searching) -> Operation:
    async def run(call: Call) -> Reply:
        return Reply(
            {
                "version": __version__,
                "model": serving.options.model,
                "index": searching.has_index,
                "judgements": serving.options.judgements is not None,
                "fusions": sorted(METHODS),
                "rerankers": list(RERANKERS),
                "most_depth": MOST_DEPTH,
            }
        )

    answer = record(
        {
            "version": text(),
            "model": text(),
            "index": flag(),
            "judgements": flag(),
            "fusions": array(text()),
            "rerankers": array(text()),
            "most_depth": whole(),
        },
        required=("version", "model", "index", "judgements", "fusions", "rerankers", "most_depth"),
    )
    return Operation(serving, "GET /v1/playground", "What the playground can offer", run, answer=answer)
