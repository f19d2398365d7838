"""Cost of hosted reranking: usage in responses, prices (`prices.json`), and limits per account within one process."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from resift._internal.forking import ForkSafeLock
from resift.errors import CostLimitExceeded
from resift.events import Event
from resift.rerankers.hosted.providers import value_at
from resift.types import JsonMapping
from resift.validation import is_finite_number

SEARCH_DOCUMENTS = 100  # documents per search unit

MINUTE_S, DAY_S = 60.0, 86_400.0
_BUCKETS = 60
_BYTES_PER_TOKEN = 4


class ProviderBilled(Event, name="provider_billed"):
    """A provider scored documents. `estimated`: its response reported no usage. `cost_usd` needs a known price."""

    provider: str
    model: str
    tokens: int
    search_units: int
    cost_usd: float | None
    estimated: bool
    price_checked: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and search units of one request."""

    tokens: int = 0
    search_units: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model in US dollars; `checked` is False if it was not confirmed on the provider's website."""

    per_million_tokens: float | None = None
    per_thousand_searches: float | None = None
    checked: bool = True

    def cost(self, usage: Usage) -> float:
        """Return the cost of this usage in dollars."""
        return math.fsum(
            (
                (self.per_million_tokens or 0.0) * usage.tokens / 1e6,
                (self.per_thousand_searches or 0.0) * usage.search_units / 1e3,
            )
        )


@lru_cache(maxsize=1)
def price_table() -> JsonMapping:
    """Return the built-in price table: its date, and prices with their sources."""
    table: JsonMapping = json.loads(files(__package__).joinpath("prices.json").read_text(encoding="utf-8"))
    return table


def find_price(
    provider: str, model: str | None, per_million: float | None = None, per_thousand: float | None = None
) -> Price | None:
    """Return the given price of a model (per million tokens, thousand searches), or else that in the table, if any."""
    if per_million is not None or per_thousand is not None:
        return Price(per_million, per_thousand)
    for row in price_table()["prices"]:
        if row["provider"] == provider and row["model"] == model:
            return Price(row.get("per_million_tokens"), row.get("per_thousand_searches"), row["checked"])
    return None


def estimate_usage(query: str, texts: Sequence[str]) -> Usage:
    """Estimate the usage of a request: one token per four bytes, with the query counted once per text."""
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    size += len(texts) * len(query.encode("utf-8", "replace"))
    return Usage(-(-size // _BYTES_PER_TOKEN), -(-len(texts) // SEARCH_DOCUMENTS), estimated=True)


def read_usage(answer: object, expected: Usage) -> Usage:
    """Return the usage reported in a response, or the expected usage if it reports none."""
    values = (value_at(answer, ("usage", "total_tokens")), value_at(answer, ("meta", "billed_units", "search_units")))
    tokens, units = (math.ceil(v) if is_finite_number(v) and 0 <= v < 1e12 else None for v in values)
    return expected if tokens is None and units is None else Usage(tokens or 0, units or 0)


class CostLimits(NamedTuple):
    """Maximum cost in US dollars per call, per minute and per 24 hours; None means no limit."""

    call: float | None = None
    minute: float | None = None
    day: float | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in self)


class _Window:
    """Cost of the last `length_s` seconds, in 60 buckets; a bucket counts until all of it has expired."""

    def __init__(self, length_s: float) -> None:
        self._part_s = length_s / _BUCKETS
        self._parts: dict[int, float] = {}

    def add(self, now_s: float, usd: float) -> None:
        part = math.floor(now_s / self._part_s)
        self._parts[part] = self._parts.get(part, 0.0) + usd

    def total(self, now_s: float) -> float:
        oldest = math.floor(now_s / self._part_s) - _BUCKETS
        self._parts = {part: usd for part, usd in self._parts.items() if part >= oldest}
        return max(0.0, math.fsum(self._parts.values()))


class Spending:
    """Spending of one account in this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._windows = {"minute": _Window(MINUTE_S), "day": _Window(DAY_S)}

    def reserve(self, provider: str, usd: float, limits: CostLimits, now_s: float) -> None:
        """Add the expected cost of a call, or raise CostLimitExceeded if it would exceed a limit."""
        with self._lock:
            for name, limit in limits._asdict().items():
                spent_usd = self._windows[name].total(now_s) if name in self._windows else 0.0
                # Sums of floats need a small tolerance.
                if limit is not None and spent_usd + usd > limit + 1e-9:
                    suffix = f" on top of ${spent_usd:.6f}" if spent_usd else ""
                    problem = f"would cost about ${usd:.6f}{suffix}; the limit per {name} is ${limit:g}"
                    raise CostLimitExceeded(f"{provider} {problem}")
            self._add(now_s, usd)

    def correct(self, usd: float, now_s: float) -> None:
        """Add the difference between the actual and the expected cost, which may be negative."""
        with self._lock:
            self._add(now_s, usd)

    def _add(self, now_s: float, usd: float) -> None:
        for window in self._windows.values():
            window.add(now_s, usd)


_accounts: dict[tuple[str, ...], Spending] = {}
_accounts_lock = ForkSafeLock()


def account_spending(account: tuple[str, ...]) -> Spending:
    """Return the spending of an account; all rerankers of the account share the object."""
    with _accounts_lock:
        return _accounts.setdefault(account, Spending())
