"""Rankings as JSON: hits, display cards, reasons and the rank flow; plus routes to fuse and explain rankings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from resift.errors import InputError
from resift.explain import Explanation
from resift.explain.flow import Flow, find_move, hit_body, hit_location, hit_title, read_flow, snippet_parts
from resift.explain.svg import pictures
from resift.ranking.fusion.methods import METHODS, fuse
from resift.ranking.fusion.score_based import NORMALIZATIONS
from resift.server.endpoint import Operation, Request, Response, encode_json
from resift.server.schema import DocumentId, Fraction, RequestFailed, RequestReader
from resift.server.state import ServerState
from resift.types import JsonObject, Ranking

SNIPPET_CHARS = 260


class RankedHit(Struct, kw_only=True):
    """A hit of a response. With `explain`, it has every field of `Hit.to_dict`."""

    id: str
    text: str
    score: float | None
    source: str
    metadata: JsonObject
    relevance: Fraction | UnsetType = UNSET


class StagePosition(Struct):
    """Rank and score of a hit after one stage."""

    stage: str
    rank: int
    score: float | None


class HitCard(Struct):
    """A hit for display: title, location, snippet, and the reason for its move.

    The snippet is a list of parts, each with a text and whether it is a match.
    """

    title: str
    location: str
    snippet: list[tuple[str, bool]]
    move: str
    kind: str
    reason: str
    stages: list[StagePosition]


class RankingAnswer(Struct, kw_only=True, omit_defaults=True):
    """A ranking as JSON.

    `cards`, `why`, `flow`, `cut` and `trace` are included with `explain`. `report` is an HTML page.
    """

    hits: list[RankedHit]
    degraded: bool
    reason: str | None
    tier: str | None
    unscored: list[str]
    failures: dict[str, str]
    timings: dict[str, float]
    query: str = ""
    warnings: list[str] = []
    cards: list[HitCard] = []
    why: dict[str, str] = {}
    flow: dict[str, str] = {}
    report: str = ""
    cut: list[RankedHit] = []
    trace: list[JsonObject] = []
    passages: list[JsonObject] = []
    context: JsonObject = {}


_SHOWN_FIELDS = ("id", "text", "score", "source", "metadata")


def ranking_data(ranking: Ranking, *, query: str, explain: bool) -> JsonObject:
    """Return a ranking as JSON values. With `explain`, include the trace, the reasons and the rank flow."""
    data = ranking.to_dict(timings=True)
    if explain:
        flow = read_flow(ranking, query=query)
        return {**data, "cards": hit_cards(flow), "why": ranking.why_all(), "flow": pictures(flow)}
    data["hits"] = [{name: hit[name] for name in _SHOWN_FIELDS} for hit in data["hits"]]
    explain_fields = ("cut", "trace", "query")
    return {name: value for name, value in data.items() if name not in explain_fields}


def hit_cards(flow: Flow) -> list[HitCard]:
    """Return the display cards of the hits, in order."""
    cards = []
    for path in flow.kept:
        move = find_move(path, flow)
        stages = [
            StagePosition(" · ".join(filter(None, (column.label, column.by))), place.rank, place.score)
            for column in flow.columns
            if (place := path.places.get(column.key)) is not None
        ]
        title, location = hit_title(path.hit), hit_location(path.hit)
        snippet = snippet_parts(hit_body(path.hit), flow.query, length=SNIPPET_CHARS)
        cards.append(HitCard(title, location, snippet, move.sign, move.kind, move.reason, stages))
    return cards


MAX_LISTS = 100
CANDIDATES_PER_PAIR = 100  # fusing or explaining this many candidates costs about as much as scoring one pair
RANK_METHODS = ("rrf", "borda", "isr", "rbc")  # methods that do not need scores


class FuseCandidate(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A hit of a list. Score-based methods need the score of every hit."""

    id: DocumentId
    text: str | None = None
    score: float | None = None
    metadata: JsonObject | None = None


RankedList: TypeAlias = list[DocumentId | FuseCandidate]


class WeightedList(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A list with a weight."""

    hits: RankedList
    weight: Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None


AnyList: TypeAlias = RankedList | WeightedList


class FuseRequest(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Lists to fuse. `k_param` applies to rrf, `normalize` to linear and the comb methods."""

    lists: Annotated[list[AnyList], Meta(min_length=1, max_length=MAX_LISTS)] | dict[str, AnyList]
    method: Literal[tuple(sorted(METHODS))] | None = None  # type: ignore[valid-type]
    k: Annotated[int, Meta(ge=0)] | None = None
    k_param: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    normalize: Literal[tuple(NORMALIZATIONS)] | None = None  # type: ignore[valid-type]
    explain: bool | None = None


class ExplainedHit(FuseCandidate, kw_only=True, forbid_unknown_fields=True):
    """A hit of a ranking to explain."""

    relevance: Fraction | None = None
    source: Annotated[str, Meta(max_length=1000)] | None = None


class ExplainedRanking(Struct, kw_only=True, omit_defaults=True):
    """A ranking to explain, in the format of `/v1/search`. Other fields are ignored."""

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
    """A ranking, and optionally the id of a single hit to explain."""

    ranking: ExplainedRanking
    query: str | None = None
    top: Annotated[int, Meta(ge=1, le=100)] | None = None
    id: DocumentId | None = None


class ExplainAnswer(Struct):
    """The reason for each rank, and the rank flow as text and as pictures."""

    why: dict[str, str]
    text: str
    svg: str
    flow: dict[str, str]
    notes: list[str]


def fuse_operations(server: ServerState) -> list[Operation]:
    """Return the operations of this module."""
    limits = server.options.limits
    fuse_reader = RequestReader(FuseRequest, limits)
    explain_reader = RequestReader(ExplainRequest, limits)

    async def run_in_thread(request: Request, function: Callable[[], object], candidates: int) -> Response:
        limit, deadline = limits.max_candidates, request.deadline()
        if candidates > limit:
            raise RequestFailed("too_large", f"The request has {candidates} candidates; the limit is {limit}")
        async with request.admit(1 + candidates // CANDIDATES_PER_PAIR, 0, deadline), server.parsing:
            work = asyncio.to_thread(lambda: encode_json(function()))
            return Response(await request.before_deadline(deadline, work))

    async def run_fuse(request: Request) -> Response:
        body = await request.read(fuse_reader.read)
        entries = body.lists.values() if isinstance(body.lists, dict) else body.lists
        lists = [entry if isinstance(entry, WeightedList) else WeightedList(hits=entry) for entry in entries]
        hits = [hit for entry in lists for hit in entry.hits]
        all_scored = all(isinstance(hit, FuseCandidate) and hit.score is not None for hit in hits)
        if not all_scored and (body.method or "rrf") not in RANK_METHODS:
            raise RequestFailed("invalid", f"{body.method} fuses by scores; send an id and a score for each hit")
        return await run_in_thread(request, lambda: _fuse(body, lists), len(hits))

    async def run_explain(request: Request) -> Response:
        body = await request.read(explain_reader.read)
        ranking = body.ranking
        lists = [ranking.hits, ranking.cut, *(record.get("ids") for record in ranking.trace or ())]
        candidates = sum(len(hits) for hits in lists if isinstance(hits, list))
        return await run_in_thread(request, lambda: _explain(body), candidates)

    fuse_summary = "Fuse ranked lists into one, optionally with weights"
    explain_summary = "Explain a ranking in words, as text and as a picture"
    return [
        Operation("POST", "/v1/fuse", fuse_summary, run_fuse, [fuse_reader.type], [RankingAnswer]),
        Operation("POST", "/v1/explain", explain_summary, run_explain, [explain_reader.type], [ExplainAnswer]),
    ]


def _fuse(body: FuseRequest, lists: list[WeightedList]) -> JsonObject:
    options = {name: value for name in ("k_param", "normalize") if (value := getattr(body, name)) is not None}
    weights = [1.0 if entry.weight is None else entry.weight for entry in lists]
    if any(weight != 1.0 for weight in weights):
        options["weights"] = weights
    hits = [msgspec.to_builtins(entry.hits) for entry in lists]
    rankings = dict(zip(body.lists, hits, strict=True)) if isinstance(body.lists, dict) else hits
    ranking = fuse(rankings, k=body.k, method=body.method or "rrf", **options)
    return ranking_data(ranking, query="", explain=bool(body.explain))


def _explain(body: ExplainRequest) -> ExplainAnswer:
    data = msgspec.to_builtins(body.ranking)
    notes: list[str] = []

    def explain(data: JsonObject) -> tuple[Ranking, Explanation, str]:
        ranking = Ranking.from_dict(data)
        explanation = ranking.explain(query=body.query or "", top=body.top or 10)
        return ranking, explanation, explanation.text()

    try:
        ranking, explanation, text = explain(data)
    except Exception as exc:
        # A trace from another version may be unreadable. Explain the ranking without it.
        reason = str(exc) if isinstance(exc, InputError) else type(exc).__name__
        notes = [f"the trace was ignored because it cannot be read: {reason}"]
        ranking, explanation, text = explain({**data, "trace": []})
    why = ranking.why_all() if body.id is None else {body.id: ranking.why(body.id)}
    return ExplainAnswer(why, text, explanation.svg(), dict(pictures(explanation.flow)), notes)
