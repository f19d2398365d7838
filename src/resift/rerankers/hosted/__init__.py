"""Rerankers behind an HTTP API: one client, vendors as data. Needs the extra `hosted` when one is built."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.rerankers.hosted.chat import ChatClient as ChatClient
    from resift.rerankers.hosted.chat import Completion as Completion
    from resift.rerankers.hosted.dialects import DIALECTS as DIALECTS
    from resift.rerankers.hosted.dialects import Dialect as Dialect
    from resift.rerankers.hosted.factories import (
        get_production_cross_encoder_reranker as get_production_cross_encoder_reranker,
    )
    from resift.rerankers.hosted.factories import hosted_reranker as hosted_reranker
    from resift.rerankers.hosted.http_clients import close_connections as close_connections
    from resift.rerankers.hosted.scorer import HostedReranker as HostedReranker
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        chat: ChatClient Completion
        dialects: DIALECTS Dialect
        factories: get_production_cross_encoder_reranker hosted_reranker
        http_clients: close_connections
        scorer: HostedReranker
        """,
    )
