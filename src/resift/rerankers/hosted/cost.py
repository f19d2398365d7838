"""The cost of hosted reranking: usage in responses, a price table, and limits per call, minute and day.

`prices.json` has the prices with their date and source. An option of the reranker overrides them. Limits are
counted per provider, address and key within one process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from resift._internal.forking import ForkSafeLock
from resift.errors import CostLimitExceeded
from resift.events import Event
from resift.rerankers.hosted.providers import value_at
from resift.types import JsonMapping
from resift.validation import is_finite_number

SEARCH_DOCUMENTS = 100
"""Documents of one search unit."""

MINUTE_S, DAY_S = 60.0, 86_400.0
_BUCKETS = 60
_BYTES_PER_TOKEN = 4


class ProviderBilled(Event, name="provider_billed"):
    """A provider scored documents; `cost_usd` has a value only if the price is known.

    `estimated` means that the answer had no usage, so that tokens or search units were estimated.
    """

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
    """The price of a model in US dollars; `checked` is False if no page of the provider confirmed it."""

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
    """Return the shipped price table: its date, and the prices with their sources."""
    table: JsonMapping = json.loads(
        files("resift.rerankers.hosted").joinpath("prices.json").read_text(encoding="utf-8")
    )
    return table


def find_price(
    provider: str,
    model: str | None,
    *,
    per_million_tokens: float | None = None,
    per_thousand_searches: float | None = None,
) -> Price | None:
    """Return the price of a model: the one given, else that of the table, else None."""
    if per_million_tokens is not None or per_thousand_searches is not None:
        return Price(per_million_tokens, per_thousand_searches)
    for row in price_table()["prices"]:
        if row["provider"] == provider and row["model"] == model:
            return Price(row.get("per_million_tokens"), row.get("per_thousand_searches"), row["checked"])
    return None


def estimate_usage(query: str, texts: Sequence[str]) -> Usage:
    """Return the usage of a request before it is sent: a token per four bytes, the query once per text."""
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    size += len(texts) * len(query.encode("utf-8", "replace"))
    return Usage(-(-size // _BYTES_PER_TOKEN), -(-len(texts) // SEARCH_DOCUMENTS), estimated=True)


def read_usage(answer: object, expected: Usage) -> Usage:
    """Return the usage that an answer reports, or the expected one."""
    values = (value_at(answer, ("usage", "total_tokens")), value_at(answer, ("meta", "billed_units", "search_units")))
    tokens, units = (math.ceil(v) if is_finite_number(v) and 0 <= v < 1e12 else None for v in values)
    return expected if tokens is None and units is None else Usage(tokens or 0, units or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLimits:
    """The largest cost in US dollars of one call, of any minute and of any 24 hours; None is no limit."""

    call: float | None = None
    minute: float | None = None
    day: float | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.call, self.minute, self.day))


class _Window:
    """The cost of the last `length_s` seconds, in 60 parts; a part counts until all of it is older."""

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
    """What one account has spent in this process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._minute, self._day = _Window(MINUTE_S), _Window(DAY_S)

    def reserve(self, provider: str, usd: float, limits: CostLimits, now_s: float) -> None:
        """Count the expected cost of a call, or raise CostLimitExceeded if it exceeds a limit."""
        with self._lock:
            spent = (0.0, self._minute.total(now_s), self._day.total(now_s))
            names = ("call", "minute", "day")
            for name, limit, before in zip(names, (limits.call, limits.minute, limits.day), spent, strict=True):
                # A billionth of tolerance: these are sums of floats.
                if limit is not None and before + usd > limit + 1e-9:
                    already = f" on top of ${before:.6f}" if before else ""
                    raise CostLimitExceeded(
                        f"{provider} would cost about ${usd:.6f}{already}; the limit per {name} is ${limit:g}"
                    )
            self._add(now_s, usd)

    def correct(self, usd: float, now_s: float) -> None:
        """Add the difference between the actual and the expected cost; it may be negative."""
        with self._lock:
            self._add(now_s, usd)

    def _add(self, now_s: float, usd: float) -> None:
        self._minute.add(now_s, usd)
        self._day.add(now_s, usd)


_accounts: dict[tuple[str, ...], Spending] = {}
_accounts_lock = ForkSafeLock()


def account_spending(account: tuple[str, ...]) -> Spending:
    """Return the spending of an account, the same object for every reranker that uses it."""
    with _accounts_lock:
        return _accounts.setdefault(account, Spending())
