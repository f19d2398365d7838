"""From a provider's answer to one score per document, or to the reason why it cannot be believed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from resift.errors import ProviderBadAnswer
from resift.rerankers.hosted.dialects import Dialect


def scores_in(answer: object, dialect: Dialect, *, count: int) -> list[float]:
    """Return the scores by document number; raises ProviderBadAnswer unless each has exactly one."""
    rows = answer
    if dialect.rows_at is not None:
        rows = answer.get(dialect.rows_at) if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        where = f"no list under {dialect.rows_at!r}" if dialect.rows_at else "no list"
        raise _bad(dialect, f"it has {where}")
    if len(rows) != count:
        raise _bad(dialect, f"it has {len(rows)} rows for {count} documents")
    scores: list[float | None] = [None] * count
    for row in rows:
        index = _index(row, dialect, count)
        if scores[index] is not None:
            raise _bad(dialect, f"it has document {index} twice")
        scores[index] = _score(row.get(dialect.score_field), dialect, index)
    # As many rows as documents, none twice, none out of range: none is missing.
    return [score for score in scores if score is not None]


def _index(row: object, dialect: Dialect, count: int) -> int:
    index = row.get("index") if isinstance(row, Mapping) else None
    # bool is an int to Python, and True would quietly mean document 1.
    if not isinstance(index, int) or isinstance(index, bool):
        raise _bad(dialect, "a row has no whole number as its index")
    if not 0 <= index < count:
        raise _bad(dialect, f"a row's index is not in 0…{count - 1}")
    return index


def _score(value: object, dialect: Dialect, index: int) -> float:
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise _bad(dialect, f"document {index} has a score that is no finite number")
    return number


def _bad(dialect: Dialect, what: str) -> ProviderBadAnswer:
    return ProviderBadAnswer(f"{dialect.name} answered 200, but {what}.", provider=dialect.name, status=200)
