"""Rerank APIs described as data (`providers.json`), and the parsing of their responses."""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from resift import errors
from resift.types import JsonMapping, JsonObject, JsonValue, ScoreScale
from resift.validation import is_finite_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Field names and limits of a provider's rerank API.

    `rows_at` is unset if the response is a bare array. Scores of `listwise_models` are comparable only within a
    request. `max_bytes` allows two bytes per token of the provider's limit, which is safe for every script.
    """

    name: str
    path: str
    base_url: str | None = None
    default_model: str | None = None
    needs_key: bool = False
    key_env: tuple[str, ...] = ()
    documents_field: str = "documents"
    model_field: str | None = "model"
    cutoff_field: str | None = "top_n"
    fixed: JsonMapping = field(default_factory=dict)
    rows_at: str | None = "results"
    score_field: str = "relevance_score"
    message_at: tuple[str, ...] = ("message",)
    max_documents: int = 1000
    max_bytes: int = 1_000_000
    listwise_models: frozenset[str] = frozenset()
    instruction_models: frozenset[str] = frozenset()
    score_scale: ScoreScale = "probability"

    def request(self, query: str, documents: list[str], *, model: str | None) -> JsonObject:
        """Return the body of a request that scores every document."""
        body: JsonObject = {"query": query, self.documents_field: documents, **self.fixed}
        if self.model_field and model:
            body[self.model_field] = model
        if self.cutoff_field:
            # Some APIs omit rows by default, and a missing row would count as a failure.
            body[self.cutoff_field] = len(documents)
        return body


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in msgspec.json.decode(Path(__file__).with_name("providers.json").read_bytes(), type=list[Provider])
}
"""All providers by name."""


def find_provider(name: str) -> Provider:
    """Return the provider with this name; raise ConfigError with suggestions if it is unknown."""
    if name not in PROVIDERS:
        raise errors.ConfigError(f"Unknown provider {name!r}. {errors.did_you_mean(name, PROVIDERS)}")
    return PROVIDERS[name]


def read_scores(answer: object, provider: Provider, *, count: int) -> list[float]:
    """Return one score per document; raise ProviderBadAnswer unless each document has exactly one."""
    rows = answer
    if provider.rows_at is not None:
        rows = answer.get(provider.rows_at) if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        problem = f"no list under {provider.rows_at!r}" if provider.rows_at else "no list"
        raise _bad_answer(provider, f"it has {problem}")
    if len(rows) != count:
        raise _bad_answer(provider, f"it has {len(rows)} rows for {count} documents")
    scores: dict[int, float] = {}
    for row in rows:
        index = row.get("index") if isinstance(row, Mapping) else None
        # bool is a subclass of int, and True would silently mean document 1.
        if not isinstance(index, int) or isinstance(index, bool):
            raise _bad_answer(provider, "the index of a row is not an integer")
        if not 0 <= index < count:
            raise _bad_answer(provider, f"a row's index is not in 0…{count - 1}")
        if index in scores:
            raise _bad_answer(provider, f"it contains document {index} twice")
        score = row.get(provider.score_field)
        if not is_finite_number(score):
            raise _bad_answer(provider, f"document {index} has a score that is not a finite number")
        scores[index] = float(score)
    return [scores[index] for index in range(count)]


def _bad_answer(provider: Provider, problem: str) -> errors.ProviderBadAnswer:
    return errors.ProviderBadAnswer(
        f"{provider.name} returned an unusable response: {problem}.", provider=provider.name, status=200
    )


# --- HTTP statuses as typed errors, by which breakers and tiers decide --------------------------------------

_TEMPORARY = frozenset({408, 424, 425})
_ADVICE = {
    400: "Check model and options.",
    402: "The account has no credit left; add credit, or use another key.",
    404: "Check base_url and model.",
    410: "Check base_url and model.",
    413: "The request is too large: lower batch_size or shorten the texts.",
    422: "Check model and options.",
}
# A provider's message may quote the query, a document or the key, so only these words are repeated from it.
# fmt: off
_REPEATABLE = frozenset(
    {
        "api", "batch", "billing", "chunks", "document", "documents", "empty", "field", "input", "key",
        "length", "limit", "long", "max", "model", "models", "parameter", "query", "quota", "required",
        "supported", "tier", "token", "tokens", "top_k", "top_n", "unknown",
    }
)
# fmt: on


def status_error(
    provider: str, status: int, headers: Mapping[str, str], *, message: str = "", model: str | None = None
) -> errors.ProviderError:
    """Return the error for a status other than 200."""
    wait_s = retry_after_s(headers)
    prefix = f"{provider} returned {status}"
    if status == 429 or (status == 503 and wait_s is not None):
        pause = "" if wait_s is None else f" of {wait_s:g} s"
        return errors.ProviderRateLimited(
            f"{prefix}: it requests a pause{pause}.", provider=provider, status=status, retry_after_s=wait_s
        )
    words = dict.fromkeys(re.findall(r"[a-z_]+", message[:2000].lower()))
    mentioned = [word for word in words if word in _REPEATABLE]
    error: type[errors.ProviderError]
    if status in (401, 403):
        error, reason = errors.ProviderAuthError, "the key was rejected. Check the key and its permissions."
    elif status == 402:
        error, reason = errors.ProviderAuthError, _ADVICE[402]
    elif status >= 500 or status in _TEMPORARY:
        error, reason = errors.ProviderServerError, "it failed internally. Try again later."
    elif status >= 400:
        error, reason = errors.ProviderRejected, f"the request was rejected. {_ADVICE.get(status, _ADVICE[400])}"
        if model and status in (400, 404, 410, 422) and {"model", "models"} & set(mentioned):
            reason += f" If {provider} has retired {model!r}, pass a current model=."
    elif status >= 300:
        error, reason = errors.ProviderRejected, "redirects are not followed. Set base_url to the final address."
    else:
        error, reason = errors.ProviderBadAnswer, "a response with this status has no scores."
    if mentioned:
        reason += f" Its message mentions: {', '.join(mentioned)}."
    return error(f"{prefix}: {reason}", provider=provider, status=status)


def value_at(answer: JsonValue, path: Sequence[str]) -> JsonValue:
    """Return the value at a path of keys in a JSON value, or None."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    return answer


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the delay in a Retry-After header (seconds or a date), or None if it is unusable."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        date = _parse_date(value)
        if date is None:
            return None
        # Use the server's clock if it sends one, because ours may be hours off.
        now = _parse_date(headers.get("date", "")) or datetime.now(UTC)
        return max(0.0, (date - now).total_seconds())
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _parse_date(value: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
