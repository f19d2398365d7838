"""The stored form of hits, stage records and rankings: what `from_dict` accepts from a file or a client."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from resift.types.scores import ScoreScale
from resift.types.trace import StageKind

_MAX = sys.float_info.max

FiniteFloat = Annotated[float, Meta(ge=-_MAX, le=_MAX)]
"""A float that is neither infinite nor NaN."""

Count = Annotated[int, Meta(ge=0)]


class HitData(Struct):
    """One hit."""

    id: Annotated[str, Meta(min_length=1)]
    text: str = ""
    score: FiniteFloat | None = None
    source: str = ""
    metadata: dict[str, Any] = {}


class StageRecordData(Struct):
    """One record of the trace; absent fields have their defaults."""

    kind: StageKind
    name: str
    ids: list[str]
    scores: list[FiniteFloat | None] = []
    source: str = ""
    kept: Count | None = None
    parts: dict[str, dict[str, FiniteFloat]] = {}
    note: str = ""
    notes: dict[str, str] = {}
    merged: dict[str, str] = {}
    searched: str = ""
    weights: dict[str, FiniteFloat] = {}
    evidence: dict[str, FiniteFloat] = {}
    score_scale: ScoreScale | None = None
    languages: list[str] | Literal["any"] | None = None


class RankingData(Struct):
    """One ranking. Hits and records are read by their own classes."""

    hits: list[dict[str, Any]] = []
    degraded: bool = False
    reason: str | None = None
    tier: str | None = None
    unscored: list[str] = []
    failures: dict[str, str] = {}
    timings: dict[str, FiniteFloat] = {}
    cut: list[dict[str, Any]] = []
    trace: list[dict[str, Any]] = []
    query: str = ""
    warnings: list[str] = []
