"""Recency and popularity: small, bounded changes to scores, based on a date or a number in the metadata. No I/O.

Each rule adds a term between -weight/2 and +weight/2 of the spread of the scores (best minus worst), so no
hit gains more than `weight` × spread on another one. A hit without the field gets no term. With `values`, a
rule adds the number declared for the value of the field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

from resift.errors import InputError
from resift.events import Sink
from resift.ranking.blend import ShapeResult, shape_result
from resift.types import Hit, StageKind, StageRecord, sort_key, with_scores
from resift.validation import check_options, option

_UNITS_S = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0, "m": 2_629_800.0, "y": 31_557_600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([hdwmy])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """Prefer newer documents: the boost halves with every `half_life` of age."""

    field: str = option("Metadata field with the date: ISO 8601, or seconds since 1970.", default="date")
    half_life: str = option("Age at which the term is 0: 12h, 30d, 8w, 6m, 2y.", default="30d")
    weight: float = option("Largest gain, as a fraction of the spread of the scores.", default=0.2, min=0, max=1)

    def __post_init__(self) -> None:
        _check_rule(self)
        parse_duration(self.half_life)

    def term(self, hit: Hit, now: datetime) -> float:
        """Return the term of a hit; 0 if the date is missing or cannot be parsed."""
        written = read_date(hit.metadata.get(self.field))
        if written is None:
            return 0.0
        age_s = max(0.0, (now - written).total_seconds())  # a date in the future has age 0
        return self.weight * (math.exp2(-age_s / parse_duration(self.half_life)) - 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boost:
    """Prefer documents by a number, such as views, or by the value of a field, such as the document type."""

    field: str = option("Metadata field with a number or a value.")
    by: Literal["log", "linear"] = option("How the term grows with the number.", default="log")
    weight: float = option("Largest gain, as a fraction of the spread of the scores.", default=0.1, min=0, max=1)
    values: Mapping[str, float] | None = option(
        "Term for each value, from -1 to 1, instead of a number: {official: 0.3}.", default=None
    )

    def __post_init__(self) -> None:
        _check_rule(self)
        for value, term in (self.values or {}).items():
            if not -1 <= term <= 1:
                raise InputError(f"The term of {value!r} is {term}; pass a number from -1 to 1.")

    def terms(self, hits: Sequence[Hit]) -> list[float]:
        """Return the term of each hit; the hit with the largest number gets half of the weight."""
        cells = [hit.metadata.get(self.field) for hit in hits]
        if self.values is not None:
            return [float(self.values.get(str(cell), 0.0)) for cell in cells]
        numbers = [_read_number(cell) for cell in cells]
        sizes = [None if n is None else math.log1p(n) if self.by == "log" else n for n in numbers]
        largest = max((n for n in sizes if n is not None), default=0.0)
        if largest <= 0:
            return [0.0] * len(hits)
        return [0.0 if n is None else self.weight * (n / largest - 0.5) for n in sizes]


def _check_rule(rule: Recency | Boost) -> None:
    check_options(rule)
    if not rule.field.strip():
        raise InputError("field is empty; pass the name of a metadata field, such as 'date'.")


def boost(
    hits: Sequence[Hit],
    *,
    recency: Recency | None = None,
    boosts: Sequence[Boost] = (),
    now: datetime | None = None,
    sink: Sink | None = None,
) -> ShapeResult:
    """Add the terms of these rules to the scores and order by the sum; unscored hits come last.

    `now` is the reference time for ages, by default the current time.
    """
    scored = [hit for hit in hits if hit.score is not None]
    values = [hit.score or 0.0 for hit in scored]
    spread = (max(values) - min(values) if values else 0.0) or 1.0
    moment = (now or datetime.now(UTC)) if now is None or now.tzinfo else now.replace(tzinfo=UTC)
    columns: dict[str, list[float]] = {}
    if recency is not None:
        columns[f"recency ({recency.field})"] = [recency.term(hit, moment) * spread for hit in scored]
    for rule in boosts:
        columns[rule.field] = [term * spread for term in rule.terms(scored)]
    totals = [math.fsum(terms) for terms in zip(values, *columns.values(), strict=True)]
    ordered = sorted(with_scores(scored, totals), key=sort_key)
    kept = [*ordered, *[hit for hit in hits if hit.score is None]]
    ids = [hit.id for hit in scored]
    parts = {"relevance": dict(zip(ids, values, strict=True))}
    parts |= {name: dict(zip(ids, column, strict=True)) for name, column in columns.items()}
    record = StageRecord(
        kind=StageKind.SHAPE,
        name="boost",
        ids=tuple([hit.id for hit in kept]),
        scores=tuple([hit.score for hit in kept]),
        parts=parts,
        notes={
            id: ", ".join(f"{term:+.3g} for {name}" for name, term in zip(columns, terms, strict=True) if term)
            for id, *terms in zip(ids, *columns.values(), strict=True)
            if any(terms)
        },
    )
    return shape_result("boost", hits, kept, record=record, sink=sink)


def drop_filtered(
    where: object, recency: Recency | None, boosts: Sequence[Boost]
) -> tuple[Recency | None, tuple[Boost, ...]]:
    """Return the rules, except those on a field that the filter of the search uses."""
    names: set[str] = set()

    def collect(conditions: object) -> None:
        if isinstance(conditions, Mapping):
            for key, value in conditions.items():
                names.add(str(key))
                collect(value)
        elif isinstance(conditions, (list, tuple)):
            for condition in conditions:
                collect(condition)

    collect(where)
    kept = tuple(rule for rule in boosts if rule.field not in names)
    return (None if recency is None or recency.field in names else recency), kept


def parse_duration(text: str) -> float:
    """Return a duration such as 12h, 30d, 8w, 6m (months) or 2y in seconds."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    seconds = float(match[1]) * _UNITS_S[match[2]] if match else 0.0
    if not seconds:
        raise InputError(f"half_life is {text!r}; pass a number with h, d, w, m or y, such as '30d'.")
    return seconds


def read_date(value: object) -> datetime | None:
    """Return the time in a metadata value, in UTC if it has no time zone; None if it is not a date."""
    try:
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, (int, float)):
            # Larger numbers are milliseconds.
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _read_number(value: object) -> float | None:
    """Return the value as a number, at least 0, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
