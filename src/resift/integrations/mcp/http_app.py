"""The server of `resift serve` with MCP at /mcp, behind the same keys."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
from resift.errors import ConfigError, require
from resift.index import Index
from resift.integrations.mcp.mcp_server import create_mcp_server
from resift.server.app import serve_app
from resift.server.keys import Keys
from resift.server.options import ServerOptions

log = logging.getLogger("resift.server")

_LOCAL = ("127.0.0.1", "localhost", "[::1]")


def app_with_mcp(options: ServerOptions) -> Any:
    """Return the ASGI app with the tools over the first store, the pack, or both; they only read."""
    if not options.stores and options.pack is None:
        raise ConfigError("--mcp needs something to search: --store FILE, --pack PACK, or both.")
    require("mcp", extra="mcp")
    from mcp.server.transport_security import TransportSecuritySettings

    if len(options.stores) > 1:
        log.warning("/mcp searches %s alone; its tools know one index", options.stores[0])
    index = Index(options.stores[0], read_only=True) if options.stores else None
    agent = KnowledgeGraphAgent(options.pack, enable_cross_encoder=True) if options.pack else None
    server = create_mcp_server(index, agent=agent)
    guarded = Keys(file=options.key_file, env=options.key_env, given=options.keys).needed
    # A page of another site whose name resolves to this machine has no key. Where none is needed, only the
    # names of this machine, and the origins that were named, get an answer.
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=not guarded,
        allowed_hosts=[*_LOCAL, *(f"{name}:*" for name in _LOCAL), *map(_host, options.cors_origins)],
        allowed_origins=[*(f"http://{name}:*" for name in _LOCAL), *options.cors_origins],
    )
    mounted = server.streamable_http_app(
        streamable_http_path="/", stateless_http=True, json_response=True, transport_security=security
    )

    def sessions(_app: object) -> AbstractAsyncContextManager[Any]:
        manager: AbstractAsyncContextManager[Any] = server.session_manager.run()
        return manager

    return serve_app(options, mounts={"/mcp": mounted}, lifespans=[sessions])


def _host(origin: str) -> str:
    return origin.partition("://")[2]
