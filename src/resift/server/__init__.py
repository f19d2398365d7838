"""`resift serve`: an ASGI app that speaks the rerank and embedding APIs that clients already know."""

from resift.server.app import create_app
from resift.server.options import Limits, ServerOptions

__all__ = ["Limits", "ServerOptions", "create_app"]
