"""`resift serve`: an ASGI app that is compatible with the rerank and embedding APIs of other providers."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.server.app import serve_app as serve_app
    from resift.server.server_options import Limits as Limits
    from resift.server.server_options import ServerOptions as ServerOptions
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        app: serve_app
        server_options: Limits ServerOptions
        """,
    )
