"""The Model Context Protocol: search, ask, rerank, why and fetch as tools, documents as resources."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.integrations.mcp.mcp_server import create_mcp_server as create_mcp_server
    from resift.integrations.mcp.tools import Limits as Limits
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        mcp_server: create_mcp_server
        tools: Limits
        """,
    )
