"""Who may ask: keys under every prefix and protocol, foreign hosts and pages, secrets in pipeline files."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.hardening.report import Outcome

KEY = "sesame-of-the-attack"
OPEN = ("/livez", "/readyz", "/health", "/ping", "/tei/health", "/", "/playground/api.js")
CLOSED = (
    "/metrics", "/v1/models", "/openapi.json", "/docs", "/inner/x", "/v1/playground",
    "/v1/judge/score", "/playground", "/livez/", "/livez/../metrics", "/%6detrics",
    "/playground/../metrics", "/nothing", "/inner/livez", "/inner/playground/x",
)  # fmt: skip
PREFIXES = ("", "/playground", "/livez", "/a/b", "/inner")
WRONG_KEYS = ("", "Bearer", "Bearer x", f"Basic {KEY}", KEY, f"Bearer {KEY} x", f"Bearer {KEY[:-1]}", "Bearer *")


def attack(seed: int, count: int) -> Outcome:
    """Ask `count` times without a valid key, or as a page of another site, over HTTP and websockets."""
    from resift.server import ServerOptions
    from resift.testing import OverlapScorer

    outcome = Outcome("requests without a key, under every prefix, and from foreign hosts and pages")
    draw = random.Random(seed)
    options: dict[str, Any] = {"embedder": None, "key_env": None, "access_log": False}
    guarded = ServerOptions(keys=(KEY,), **options)
    for prefix in PREFIXES:
        with _client(prefix, guarded, OverlapScorer()) as client:
            _try_keys(outcome, client, prefix, draw, count // (2 * len(PREFIXES)))
    with _client("", ServerOptions(**options), OverlapScorer()) as client:
        while client.get("/readyz").status_code != 200:
            pass
        _try_sites(outcome, client, draw, count // 2)
    return outcome


def _client(prefix: str, options: Any, scorer: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route, WebSocketRoute
    from starlette.testclient import TestClient

    from resift.server import serve_app

    async def echo(websocket: Any) -> None:
        await websocket.accept()
        await websocket.send_text("inside")
        await websocket.close()

    async def answer(request: Any) -> Any:
        return PlainTextResponse("inside")

    inner = Starlette(routes=[WebSocketRoute("/{path:path}", echo), Route("/{path:path}", answer)])
    app = serve_app(options, scorer=scorer, mounts={"/inner": inner})
    if prefix:
        app = Starlette(routes=[Mount(prefix, app)], lifespan=app.router.lifespan_context)
    return TestClient(app, base_url="http://localhost")


def _try_keys(outcome: Outcome, client: Any, prefix: str, draw: random.Random, count: int) -> None:
    from starlette.testclient import WebSocketDenialResponse
    from starlette.websockets import WebSocketDisconnect

    right = {"authorization": f"Bearer {KEY}"}
    for path in OPEN:
        outcome.tried += 1
        status = client.get(prefix + path).status_code
        outcome.check(status in (200, 503), f"{prefix}{path} needs a key: {status}")
    for _ in range(count):
        outcome.tried += 1
        path, key = prefix + draw.choice(CLOSED), draw.choice(WRONG_KEYS)
        headers = {"authorization": key} if key else {}
        if draw.random() < 0.2:
            address = f"{prefix}/inner/{draw.choice(('ws', 'livez', 'playground/x'))}"
            try:
                with client.websocket_connect(address, headers=headers) as websocket:
                    outcome.fail(f"a websocket to {address} with {key!r}: {websocket.receive_text()}")
            except (WebSocketDisconnect, WebSocketDenialResponse):
                continue
        method = draw.choice(("GET", "HEAD", "POST", "PUT", "DELETE"))
        status = client.request(method, path, headers=headers, follow_redirects=False).status_code
        outcome.check(status in (401, 404), f"{method} {path} with {key!r}: {status}")
    outcome.tried += 2
    outcome.check(client.get(f"{prefix}/inner/x", headers=right).text == "inside", "a valid key is refused")
    with client.websocket_connect(f"{prefix}/inner/ws", headers=right) as websocket:
        outcome.check(websocket.receive_text() == "inside", "a valid key is refused by a websocket")


OWN_HOSTS = ("localhost", "localhost:8787", "127.0.0.1:9", "[::1]:8787", "resift:8787", "a.localhost")
FOREIGN_HOSTS = (
    "evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost.evil.example",
    "xn--evl-sma.example", "evil.example.", "1.2.3.4.nip.example:80", "EVIL.EXAMPLE",
)  # fmt: skip
FOREIGN_ORIGINS = (
    "https://evil.example", "null", "http://localhost.evil.example", "http://evil.example:8787", "file://",
    "chrome-extension://abc", "http://localhost@evil.example", "",
)  # fmt: skip


def _try_sites(outcome: Outcome, client: Any, draw: random.Random, count: int) -> None:
    body = {"query": "red fox", "documents": ["a red fox", "a whale"]}
    for _ in range(count):
        outcome.tried += 1
        host, origin = draw.choice(OWN_HOSTS), None
        foreign = draw.random() < 0.5
        if foreign and draw.random() < 0.5:
            host = draw.choice(FOREIGN_HOSTS)
        elif foreign:
            origin = draw.choice(FOREIGN_ORIGINS)
        elif draw.random() < 0.5:
            origin = f"http://{host}"
        headers = {"host": host, "content-type": draw.choice(("text/plain", "application/json"))}
        if origin is not None:
            headers["origin"] = origin
        status = client.post(draw.choice(("/v2/rerank", "/cohere/v1/rerank")), json=body, headers=headers)
        expected = (403, 421) if foreign else (200,)
        outcome.check(status.status_code in expected, f"host {host}, origin {origin}: {status.status_code}")


STORES = (
    "{name: s, kind: qdrant, url: 'URL', api_key_env: QDRANT_API_KEY, embedder: BAAI/bge-small-en-v1.5}",
    "{name: s, kind: qdrant-collection, url: 'URL', collection: c, api_key_env: QDRANT_API_KEY}",
    "{name: s, kind: elasticsearch-query, url: 'URL', index: d, api_key_env: ELASTIC_API_KEY}",
    "{name: s, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@HOST/db'}",
    "{name: s, kind: postgres-table, dsn: 'postgresql://me:${PGPASSWORD}@HOST/db', table: t}",
)
RERANKERS = (
    "{kind: tei, base_url: 'URL'}", "{kind: vllm, base_url: 'URL'}", "{kind: infinity, base_url: 'URL'}",
    "{kind: cohere, base_url: 'URL'}", "{kind: jina, base_url: 'URL'}", "{kind: voyage, base_url: 'URL'}",
    "{kind: llm, model: m, base_url: 'URL', api_key_env: OPENAI_API_KEY}",
    "{kind: voyage, api_key_env: AWS_SECRET_ACCESS_KEY}", "{kind: cohere, api_key_env: PGPASSWORD}",
    "{tiers: [{kind: tei, base_url: 'URL'}, {kind: semantic-bm25}]}",
)  # fmt: skip
PUBLIC_HOSTS = ("evil.example", "9.9.9.9", "169.254.169.254", "168.63.129.16", "db.evil.example:5433")
NAMES = (
    "QDRANT_API_KEY", "ELASTIC_API_KEY", "PGPASSWORD", "TEI_API_KEY", "VLLM_API_KEY", "INFINITY_API_KEY",
    "COHERE_API_KEY", "JINA_API_KEY", "VOYAGE_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY",
)  # fmt: skip


def attack_secrets(seed: int, count: int) -> Outcome:
    """Read `count` pipeline files that would send a secret of this machine to a host of their choice."""
    from resift.config import inspect_yaml

    outcome = Outcome("pipeline files that would send a secret to a foreign host")
    draw = random.Random(seed)
    before = dict(os.environ)
    secret = "hunter2-of-the-attack"
    os.environ.update(dict.fromkeys(NAMES, secret))
    for name in ("RESIFT_ALLOW_VARIABLES", "PGHOST", "QDRANT_URL", "ELASTICSEARCH_URL"):
        os.environ.pop(name, None)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pipeline.yaml"
            for _ in range(count):
                outcome.tried += 1
                host = draw.choice(PUBLIC_HOSTS)
                store, rerank = "{name: docs, kind: sqlite, path: docs.db}", "{kind: semantic-bm25}"
                if draw.random() < 0.5:
                    store = draw.choice(STORES)
                else:
                    rerank = draw.choice(RERANKERS)
                text = f"stores:\n  - {store}\nrerank: {rerank}\n"
                text = text.replace("URL", f"{draw.choice(('https', 'http'))}://{host}").replace("HOST", host)
                file.write_text(text, encoding="utf-8")
                problems = inspect_yaml(file)[1].lines()
                # Not for another mistake: then the attack would prove nothing.
                refused = any("would send" in line or "is not meant for" in line for line in problems)
                outcome.check(refused, f"{problems} for {text!r}")
                outcome.check(not any(secret in line for line in problems), f"the secret is shown: {text!r}")
    finally:
        os.environ.clear()
        os.environ.update(before)
    return outcome
