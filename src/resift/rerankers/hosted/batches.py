"""Splitting a pool into requests that a provider accepts, and judging requests that failed together."""

from __future__ import annotations

from collections.abc import Sequence

from resift.errors import (
    DeadlineExceeded,
    ProviderAuthError,
    ProviderRateLimited,
    ProviderRejected,
    ResiftError,
)


def split(
    sizes: Sequence[int], *, batch_over: int, batch_size: int, max_documents: int, max_bytes: int
) -> list[range]:
    """Return disjoint ranges over documents of these sizes in bytes, in order, each within the caps.

    A pool of at most `batch_over` documents stays together where the provider's caps allow.
    """
    most = min(len(sizes) if len(sizes) <= batch_over else batch_size, max_documents)
    batches: list[range] = []
    start = held = 0
    for at, size in enumerate(sizes):
        if at > start and (at - start >= most or held + size > max_bytes):
            batches.append(range(start, at))
            start, held = at, 0
        held += size
    return [*batches, range(start, len(sizes))] if sizes else []


def worst(failures: Sequence[ResiftError]) -> ResiftError:
    """Return the one failure to report for all: what holds the breaker longest, then the first."""
    return max(failures, key=_severity)


def _severity(failure: ResiftError) -> tuple[int, float]:
    if isinstance(failure, ProviderAuthError):
        return 4, 0.0
    if isinstance(failure, ProviderRateLimited):
        return 3, failure.retry_after_s or 0.0
    # Requests that we worded wrongly, or never sent, say nothing about the provider's health.
    if isinstance(failure, ProviderRejected):
        return 1, 0.0
    if isinstance(failure, DeadlineExceeded):
        return 0, 0.0
    return 2, 0.0
