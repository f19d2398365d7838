"""Rerankers behind an HTTP API: one client, with providers as data. Requires the extra `hosted` at run time."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.rerankers.hosted.client import ChatClient as ChatClient
    from resift.rerankers.hosted.client import Completion as Completion
    from resift.rerankers.hosted.providers import PROVIDERS as PROVIDERS
    from resift.rerankers.hosted.providers import Provider as Provider
    from resift.rerankers.hosted.scorer import HostedReranker as HostedReranker
    from resift.rerankers.hosted.scorer import (
        get_production_cross_encoder_reranker as get_production_cross_encoder_reranker,
    )
    from resift.rerankers.hosted.scorer import hosted_reranker as hosted_reranker
    from resift.rerankers.hosted.transport import close_connections as close_connections
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        client: ChatClient Completion
        providers: PROVIDERS Provider
        scorer: HostedReranker get_production_cross_encoder_reranker hosted_reranker
        transport: close_connections
        """,
    )
