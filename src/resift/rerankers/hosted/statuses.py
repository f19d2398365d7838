"""HTTP statuses as typed errors: what breaker and tiers decide by."""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from resift.errors import (
    ProviderAuthError,
    ProviderBadAnswer,
    ProviderError,
    ProviderRateLimited,
    ProviderRejected,
    ProviderServerError,
)

_SERVER_TROUBLE = frozenset({408, 424, 425})
_ADVICE = {
    400: "Check model and options.",
    402: "The account has no credit left; pay, or use another key.",
    404: "Check base_url and model.",
    413: "The request is too large: lower batch_size or shorten the texts.",
    422: "Check model and options.",
}
# What a provider writes may quote the query, a document or the key, so only these words of it are repeated.
# fmt: off
_REPEATABLE = frozenset(
    {
        "api", "batch", "billing", "chunks", "document", "documents", "empty", "field", "input", "key",
        "length", "limit", "long", "max", "model", "models", "parameter", "query", "quota", "required",
        "supported", "tier", "token", "tokens", "top_k", "top_n", "unknown",
    }
)
# fmt: on


def error_for(provider: str, status: int, headers: Mapping[str, str], *, message: str = "") -> ProviderError:
    """Return the error that a status other than 200 stands for."""
    wait_s = retry_after_s(headers)
    about = f"{provider} answered {status}"
    if status == 429 or (status == 503 and wait_s is not None):
        pause = "" if wait_s is None else f" for {wait_s:g} s"
        return ProviderRateLimited(
            f"{about}: it asks for a pause{pause}.", provider=provider, status=status, retry_after_s=wait_s
        )
    kind, reason = _kind(status)
    return kind(f"{about}: {reason}{mentions(message)}", provider=provider, status=status)


def _kind(status: int) -> tuple[type[ProviderError], str]:
    if status in (401, 403):
        return ProviderAuthError, "the key was refused. Check the key and what it may do."
    if status == 402:
        return ProviderAuthError, _ADVICE[402]
    if status >= 500 or status in _SERVER_TROUBLE:
        return ProviderServerError, "it failed inside. Try later."
    if 300 <= status < 400:
        return ProviderRejected, (
            "a redirect, and redirects are not followed. Set base_url to the final address."
        )
    if status >= 400:
        return ProviderRejected, f"the request was refused. {_ADVICE.get(status, _ADVICE[400])}"
    return ProviderBadAnswer, "a status that no scores come with."


def mentions(message: str) -> str:
    """Return the harmless words of a provider's message as a sentence, or nothing."""
    words = dict.fromkeys(re.findall(r"[a-z_]+", message[:2000].lower()))
    known = [word for word in words if word in _REPEATABLE]
    return f" Its message mentions: {', '.join(known)}." if known else ""


def message_in(answer: object, path: Sequence[str]) -> str:
    """Return the text at a path of keys in an error answer, or an empty string."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    return answer if isinstance(answer, str) else ""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, given as a number or as a date; None if unusable."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        return _until(value, headers.get("date", ""))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(value: str, sent: str) -> float | None:
    when = _date(value)
    if when is None:
        return None
    # The server's own clock, where it tells it: ours may be wrong by hours.
    now = _date(sent) or datetime.now(UTC)
    return max(0.0, (when - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
