"""Schemas of stored hits, stage records and rankings; `from_dict` validates data from files and clients with them."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from msgspec import Meta, Struct

from resift.types.hit import JsonObject
from resift.types.scores import ScoreScale
from resift.types.trace import StageKind

_MAX = sys.float_info.max

FiniteFloat = Annotated[float, Meta(ge=-_MAX, le=_MAX)]  # a finite float

Count = Annotated[int, Meta(ge=0)]


class HitData(Struct):
    """A stored hit."""

    id: Annotated[str, Meta(min_length=1)]
    text: str = ""
    score: FiniteFloat | None = None
    source: str = ""
    metadata: JsonObject = {}


class StageRecordData(Struct):
    """A stored record of the trace; missing fields get their defaults."""

    kind: StageKind
    name: str
    ids: tuple[str, ...]
    scores: tuple[FiniteFloat | None, ...] = ()
    source: str = ""
    kept: Count | None = None
    parts: dict[str, dict[str, FiniteFloat]] = {}
    note: str = ""
    notes: dict[str, str] = {}
    merged: dict[str, str] = {}
    retrieval_mode: str = ""
    weights: dict[str, FiniteFloat] = {}
    evidence: dict[str, FiniteFloat] = {}
    score_scale: ScoreScale | None = None
    languages: tuple[str, ...] | Literal["any"] | None = None


class RankingData(Struct):
    """A stored ranking. Hits and records are validated by their own classes."""

    hits: list[JsonObject] = []
    degraded: bool = False
    reason: str | None = None
    tier: str | None = None
    unscored: list[str] = []
    failures: dict[str, str] = {}
    timings: dict[str, FiniteFloat] = {}
    cut: list[JsonObject] = []
    trace: list[JsonObject] = []
    query: str = ""
    warnings: list[str] = []
    passages: list[JsonObject] = []
