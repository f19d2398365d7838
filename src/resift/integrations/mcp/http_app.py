"""The server of `resift serve` with MCP at /mcp, behind the same keys."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
from resift.errors import ConfigError, require
from resift.index import Index
from resift.integrations.mcp.mcp_server import create_mcp_server
from resift.server.app import serve_app
from resift.server.options import ServerOptions


def app_with_mcp(options: ServerOptions) -> Any:
    """Return the ASGI app with the tools over the first store, the pack, or both; they only read."""
    if not options.stores and options.pack is None:
        raise ConfigError("--mcp needs something to search: --store FILE, --pack PACK, or both.")
    require("mcp", extra="mcp")
    from mcp.server.transport_security import TransportSecuritySettings

    index = Index(options.stores[0], read_only=True) if options.stores else None
    agent = KnowledgeGraphAgent(options.pack, enable_cross_encoder=True) if options.pack else None
    server = create_mcp_server(index, agent=agent)
    # Keys, limits and allowed origins are the outer app's business; it cannot be reached without them.
    open_inside = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    mounted = server.streamable_http_app(
        streamable_http_path="/", stateless_http=True, json_response=True, transport_security=open_inside
    )

    def sessions(_app: Any) -> AbstractAsyncContextManager[Any]:
        manager: AbstractAsyncContextManager[Any] = server.session_manager.run()
        return manager

    return serve_app(options, mounts={"/mcp": mounted}, lifespans=[sessions])
