"""Fusion of ranked lists, and the explanation of any ranking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from resift.errors import InputError
from resift.explain.flow import read_flow
from resift.ranking.fusion.methods import METHODS, fuse
from resift.ranking.fusion.score_based import NORMALIZATIONS
from resift.server.endpoint import Request, Response, encode_json
from resift.server.openapi import Operation
from resift.server.ranking_answer import RankingAnswer, draw_rank_flow, ranking_data
from resift.server.request_errors import RequestFailed
from resift.server.schema import DocumentId, Fraction, RequestReader, parse_json
from resift.server.state import ServerState
from resift.types import JsonObject, JsonValue, Ranking

MAX_LISTS = 100
CANDIDATES_PER_PAIR = 100
"""Candidates whose fusion or explanation costs about as much as scoring one pair of texts."""

RANK_METHODS = ("borda", "isr", "rbc")
NORMALIZED_METHODS = ("comb-anz", "comb-max", "comb-min", "comb-mnz", "comb-sum", "linear")
SCORE_METHODS = tuple(sorted({*METHODS} - {"rrf", *RANK_METHODS, *NORMALIZED_METHODS}))


class FuseCandidate(Struct, kw_only=True, forbid_unknown_fields=True):
    """A hit of a list that is fused by ranks."""

    id: DocumentId
    text: str | None = None
    score: float | None = None
    metadata: JsonObject | None = None


class ScoredCandidate(FuseCandidate, kw_only=True, forbid_unknown_fields=True):
    """A hit of a list that is fused by scores."""

    score: float


RankedList: TypeAlias = list[DocumentId | FuseCandidate]
ScoredList: TypeAlias = list[ScoredCandidate]
Weight: TypeAlias = Annotated[float, Meta(ge=1e-6, le=1e6)]


class WeightedRankedList(Struct, kw_only=True, forbid_unknown_fields=True):
    """A list with a weight, fused by ranks."""

    hits: RankedList
    weight: Weight | None = None


class WeightedScoredList(Struct, kw_only=True, forbid_unknown_fields=True):
    """A list with a weight, fused by scores."""

    hits: ScoredList
    weight: Weight | None = None


RankedLists: TypeAlias = (
    Annotated[list[RankedList | WeightedRankedList], Meta(min_length=1, max_length=MAX_LISTS)]
    | dict[str, RankedList | WeightedRankedList]
)
ScoredLists: TypeAlias = (
    Annotated[list[ScoredList | WeightedScoredList], Meta(min_length=1, max_length=MAX_LISTS)]
    | dict[str, ScoredList | WeightedScoredList]
)


class FuseRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of every fusion."""

    k: Annotated[int, Meta(ge=0)] | None = None
    explain: bool | None = None


class RrfRequest(FuseRequest, kw_only=True, forbid_unknown_fields=True):
    """Reciprocal rank fusion, the default."""

    lists: RankedLists
    method: Literal["rrf"] | None = None
    k_param: Annotated[float, Meta(ge=0, le=1e6)] | None = None


class RankFusionRequest(FuseRequest, kw_only=True, forbid_unknown_fields=True):
    """Fusion by ranks."""

    lists: RankedLists
    method: Literal[RANK_METHODS]  # type: ignore[valid-type]


class NormalizedFusionRequest(FuseRequest, kw_only=True, forbid_unknown_fields=True):
    """Fusion by scores that are normalized first."""

    lists: ScoredLists
    method: Literal[NORMALIZED_METHODS]  # type: ignore[valid-type]
    normalize: Literal[tuple(NORMALIZATIONS)] | None = None  # type: ignore[valid-type]


class ScoreFusionRequest(FuseRequest, kw_only=True, forbid_unknown_fields=True):
    """Fusion by scores."""

    lists: ScoredLists
    method: Literal[SCORE_METHODS]  # type: ignore[valid-type]


AnyFuseRequest: TypeAlias = RrfRequest | RankFusionRequest | NormalizedFusionRequest | ScoreFusionRequest

_REQUEST_TYPES: dict[str, type[AnyFuseRequest]] = {
    "rrf": RrfRequest,
    **dict.fromkeys(RANK_METHODS, RankFusionRequest),
    **dict.fromkeys(NORMALIZED_METHODS, NormalizedFusionRequest),
    **dict.fromkeys(SCORE_METHODS, ScoreFusionRequest),
}


class ExplainedHit(Struct, kw_only=True, forbid_unknown_fields=True):
    """A hit of a ranking to explain."""

    id: DocumentId
    text: str | None = None
    score: float | None = None
    relevance: Fraction | None = None
    source: Annotated[str, Meta(max_length=1000)] | None = None
    metadata: JsonObject | None = None


class ExplainedRanking(Struct, kw_only=True):
    """A ranking to explain, as `/v1/search` returns it; other fields are ignored."""

    hits: list[ExplainedHit]
    cut: list[ExplainedHit] | None = None
    degraded: bool | None = None
    reason: str | None = None
    tier: str | None = None
    unscored: list[str] | None = None
    failures: dict[str, str] | None = None
    timings: dict[str, float] | None = None
    warnings: list[str] | None = None
    trace: Annotated[list[JsonObject], Meta(max_length=1000)] | None = None


class ExplainRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A ranking, and optionally the id of the only hit to explain."""

    ranking: ExplainedRanking
    query: str | None = None
    top: Annotated[int, Meta(ge=1, le=100)] | None = None
    id: DocumentId | None = None


class ExplainAnswer(Struct):
    """Reasons per hit, and the rank flow as text and as pictures."""

    why: dict[str, str]
    text: str
    svg: str
    flow: dict[str, str]
    notes: list[str]


def fuse_operations(server: ServerState) -> list[Operation]:
    """Return the operations of this module."""
    limits = server.options.limits
    readers = {struct: RequestReader(struct, limits) for struct in dict.fromkeys(_REQUEST_TYPES.values())}
    explain_reader = RequestReader(ExplainRequest, limits)

    def parse_fuse(body: bytes) -> AnyFuseRequest:
        value = parse_json(body)
        method = value.get("method") if isinstance(value, dict) else None
        struct = _REQUEST_TYPES.get(method, RrfRequest) if isinstance(method, str) else RrfRequest
        return readers[struct].convert(value)

    async def run_in_thread(request: Request, function: Callable[[], object], candidates: int) -> Response:
        if candidates > limits.max_candidates:
            raise RequestFailed(
                "too_large", f"The request has {candidates} candidates; the limit is {limits.max_candidates}"
            )
        cost = 1 + candidates // CANDIDATES_PER_PAIR
        work = request.run_in_thread(request.deadline(), lambda: encode_json(function()), cost=cost)
        return Response(await request.cancel_on_disconnect(work))

    async def run_fuse(request: Request) -> Response:
        body = await request.read(parse_fuse)
        lists = body.lists.values() if isinstance(body.lists, dict) else body.lists
        candidates = sum(len(each if isinstance(each, list) else each.hits) for each in lists)
        return await run_in_thread(request, lambda: _fuse(body), candidates)

    async def run_explain(request: Request) -> Response:
        body = await request.read(explain_reader.read)
        ranking = body.ranking
        traced = [record.get("ids") for record in ranking.trace or ()]
        candidates = len(ranking.hits) + len(ranking.cut or ())
        candidates += sum(len(ids) for ids in traced if isinstance(ids, list))
        return await run_in_thread(request, lambda: _explain(body), candidates)

    return [
        Operation(
            "POST",
            "/v1/fuse",
            "Fuse ranked lists into one; a list may have a weight",
            run_fuse,
            requests=[reader.type for reader in readers.values()],
            answers=[RankingAnswer],
        ),
        Operation(
            "POST",
            "/v1/explain",
            "Explain a ranking in words, as text and as a picture",
            run_explain,
            requests=[explain_reader.type],
            answers=[ExplainAnswer],
        ),
    ]


def _fuse(body: AnyFuseRequest) -> JsonObject:
    data = msgspec.to_builtins(body)
    lists = data["lists"]
    entries = list(lists.values()) if isinstance(lists, dict) else lists
    bare = [_without_nulls(entry["hits"] if isinstance(entry, dict) else entry) for entry in entries]
    weights = [entry.get("weight") or 1.0 if isinstance(entry, dict) else 1.0 for entry in entries]
    options = {name: data[name] for name in ("k_param", "normalize") if data.get(name) is not None}
    if any(weight != 1.0 for weight in weights):
        options["weights"] = weights
    named = dict(zip(lists, bare, strict=True)) if isinstance(lists, dict) else bare
    ranking = fuse(named, k=body.k, method=body.method or "rrf", **options)
    return ranking_data(ranking, query="", explain=bool(body.explain))


def _without_nulls(hits: list[JsonValue]) -> list[JsonValue]:
    return [
        {name: value for name, value in hit.items() if value is not None} if isinstance(hit, dict) else hit
        for hit in hits
    ]


def _explain(body: ExplainRequest) -> ExplainAnswer:
    given = msgspec.to_builtins(body.ranking)
    data = {name: value for name, value in given.items() if value is not None}
    for name in ("hits", "cut"):
        if name in data:
            data[name] = _without_nulls(data[name])
    query = body.query or ""
    notes = []
    try:
        ranking = Ranking.from_dict(data)
        explanation = ranking.explain(query=query, top=body.top or 10)
        text = explanation.text()
    except Exception as exc:
        # A trace of another version may make no sense here: the ranking is explained without it.
        reason = str(exc) if isinstance(exc, InputError) else type(exc).__name__
        notes = [f"the trace was left out, because it cannot be read: {reason}"]
        ranking = Ranking.from_dict({name: value for name, value in data.items() if name != "trace"})
        explanation = ranking.explain(query=query, top=body.top or 10)
        text = explanation.text()
    return ExplainAnswer(
        why=ranking.why_all() if body.id is None else {body.id: ranking.why(body.id)},
        text=text,
        svg=explanation.svg(),
        flow=draw_rank_flow(read_flow(ranking, query=query)),
        notes=notes,
    )
