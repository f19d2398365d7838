"""Rerankers behind an HTTP API: one client, vendors as data. Needs the extra `hosted` when one is built."""

from __future__ import annotations

from resift.rerankers.hosted.chat import ChatClient, Completion
from resift.rerankers.hosted.dialects import DIALECTS, Dialect
from resift.rerankers.hosted.factories import hosted_reranker
from resift.rerankers.hosted.pools import close_connections
from resift.rerankers.hosted.scorer import HostedReranker

__all__ = [
    "DIALECTS",
    "ChatClient",
    "Completion",
    "Dialect",
    "HostedReranker",
    "close_connections",
    "hosted_reranker",
]
