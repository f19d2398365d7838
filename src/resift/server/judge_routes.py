"""Rate hits in the playground: sessions with two settings, ratings, and the running score."""

from __future__ import annotations

import asyncio
import hashlib
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from resift.evaluation.measures import Judge, bootstrap_interval
from resift.server import search_routes
from resift.server.endpoint import Operation, Outcome, Request, Response
from resift.server.ratings import Ratings, RatingSession, RatingsLog, Team
from resift.server.schema import DocumentId, NotBlank, OwnError, RequestFailed, RequestReader
from resift.server.search_routes import Documents, RequestDocument, SearchRequest, SearchService, SearchSettings
from resift.server.state import ServerState
from resift.types import JsonObject, Ranking

DEFAULT_SHOWN, MAX_SHOWN = 10, 50
MEASURE, BOOTSTRAP_ROUNDS = "nDCG@10", 2_000


class SettingsPair(Struct, kw_only=True, forbid_unknown_fields=True):
    """The two settings of a comparison."""

    a: SearchSettings | None = None
    b: SearchSettings | None = None


class SessionRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query to search with two settings."""

    query: NotBlank
    settings: SettingsPair
    k: Annotated[int, Meta(ge=1, le=MAX_SHOWN)] | None = None
    documents: Documents | None = None
    blind: bool | None = None


class RatingRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A grade from 0 (useless) to 3 (perfect match)."""

    session: Annotated[str, Meta(min_length=1, max_length=100)]
    id: DocumentId
    grade: Annotated[int, Meta(ge=0, le=3)]


class HitToRate(Struct):
    """A hit of a session with its existing grade, if any."""

    id: str
    text: str
    grade: int | None


class SessionAnswer(Struct):
    """Hits of both settings as one list. A blind session has no `lists`."""

    session: str
    query: str
    hits: list[HitToRate]
    lists: dict[str, list[str]] | UnsetType = UNSET


class RatingAnswer(Struct):
    """Number of ratings so far."""

    ratings: int


class MeanScore(Struct):
    """Mean over the queries with its 95 % confidence interval. None without enough queries."""

    mean: float | None
    interval: list[float] | None


class ScoreBoard(Struct):
    """Running score of two settings."""

    measure: str
    questions: int
    ratings: int
    settings: JsonObject | None
    a: MeanScore
    b: MeanScore
    difference: MeanScore
    blind: dict[str, int]


def judge_operations(server: ServerState, search: SearchService) -> list[Operation]:
    """Return the operations of this module."""
    limits, folder = server.options.limits, server.options.judgements
    ratings_log = None if folder is None else RatingsLog(folder)
    session_reader = RequestReader(SessionRequest, limits)
    rating_reader = RequestReader(RatingRequest, limits)

    def require_log() -> RatingsLog:
        if ratings_log is None:
            raise RequestFailed("not_found", "This server does not store judgments; start it with --judgments FOLDER")
        return ratings_log

    async def start_session(request: Request) -> Response:
        body = await request.read(session_reader.read)
        ratings = require_log()
        session, outcome = await _make_session(request, search, body)
        grades = await asyncio.to_thread(ratings.add_session, session)
        hits = [HitToRate(id, session.documents[id], grades.get(id)) for id, _ in session.shown]
        # In a blind session, the page does not learn which setting returned a hit.
        lists = UNSET if session.blind else {team: list(ids) for team, ids in session.lists.items()}
        return Response(SessionAnswer(session.id, session.query, hits, lists), outcome=outcome)

    async def rate(request: Request) -> Response:
        body = await request.read(rating_reader.read)
        count = await asyncio.to_thread(require_log().add_rating, body.session, body.id, body.grade)
        return Response(RatingAnswer(count))

    async def score(request: Request) -> Response:
        ratings = require_log()
        return Response(await asyncio.to_thread(lambda: running_score(ratings.read())))

    sessions = "Search with two settings and interleave both rankings into one list to rate"
    ratings = "Rate a hit of a session from 0 (useless) to 3 (perfect match)"
    board = "Running score of the two most recently rated settings"
    return [
        Operation("POST", "/v1/judge/sessions", sessions, start_session, [session_reader.type], [SessionAnswer]),
        Operation("POST", "/v1/judge/ratings", ratings, rate, [rating_reader.type], [RatingAnswer]),
        Operation("GET", "/v1/judge/score", board, score, answers=[ScoreBoard], statuses={404: OwnError}),
    ]


async def _make_session(request: Request, search: SearchService, body: SessionRequest) -> tuple[RatingSession, Outcome]:
    documents = None if body.documents is None else _identify_by_text(body.documents)
    settings = {"a": body.settings.a, "b": body.settings.b}
    k = body.k or DEFAULT_SHOWN
    rankings: dict[str, Ranking] = {}
    outcome = Outcome()
    for team, chosen in settings.items():
        query = SearchRequest(query=body.query, k=k, documents=documents, settings=chosen)
        rankings[team], _ = await search.search(request, query)
        outcome = outcome.merge(Outcome.from_ranking(rankings[team]))
    lists = {team: [hit.id for hit in ranking.hits] for team, ranking in rankings.items()}
    texts = {hit.id: hit.text for ranking in rankings.values() for hit in ranking.hits}
    texts.update({hit.id: hit.text for hit in search_routes.document_hits(documents or ())})
    id = uuid.uuid4().hex
    session = RatingSession(
        id=id,
        query=" ".join(body.query.split()),
        settings={team: msgspec.to_builtins(setting or {}) for team, setting in settings.items()},
        lists=lists,
        shown=team_draft(lists["a"], lists["b"], k=k, seed=id),
        documents=texts,
        blind=bool(body.blind),
    )
    return session, outcome


def _identify_by_text(documents: Sequence[str | RequestDocument]) -> list[str | RequestDocument]:
    """Derive missing ids from the text, so that a text is the same document in every session."""
    documents_by_id: dict[str, RequestDocument] = {}
    for document, hit in zip(documents, search_routes.document_hits(documents), strict=True):
        has_id = isinstance(document, RequestDocument) and document.id
        id = hit.id if has_id else hashlib.sha256(hit.text.encode("utf-8", "replace")).hexdigest()[:16]
        documents_by_id[id] = RequestDocument(id=id, text=hit.text)
    return list(documents_by_id.values())


def team_draft(first: Sequence[str], second: Sequence[str], *, k: int, seed: str) -> list[tuple[str, Team]]:
    """Interleave two rankings (Radlinski, Kurup and Joachims, CIKM 2008): at most k ids with the team that picked each.

    In each round, a coin toss that depends on the seed decides which ranking picks its best remaining id first.
    """
    lists: Mapping[Team, Sequence[str]] = {"a": first, "b": second}
    interleaved: list[tuple[str, Team]] = []
    picked: set[str] = set()
    for round_number in range(k):
        # A digest instead of random() makes the list reproducible on any machine.
        coin = hashlib.sha256(f"{seed}\0{round_number}".encode()).digest()[0] % 2
        order: tuple[Team, Team] = ("a", "b") if coin == 0 else ("b", "a")
        before = len(interleaved)
        for team in order:
            pick = next((id for id in lists[team] if id not in picked), None)
            if pick is not None and len(interleaved) < k:
                picked.add(pick)
                interleaved.append((pick, team))
        if len(interleaved) == before or len(interleaved) >= k:
            break
    return interleaved


def running_score(ratings: Ratings) -> ScoreBoard:
    """Score the last rated pair of settings over all rated queries, by the last session of each with these settings."""
    rated = [session for session in ratings.sessions.values() if ratings.grades.get(session.query)]
    settings = rated[-1].settings if rated else None
    sessions = {session.query: session for session in rated if session.settings == settings}
    grades = {query: ratings.grades[query] for query in sessions}
    scores: dict[str, list[float]] = {"a": [], "b": []}
    for team in scores if sessions else ():
        runs = {query: session.lists[team] for query, session in sessions.items()}
        per_query = Judge(grades, [MEASURE]).quality(runs).per_query[MEASURE]
        scores[team] = [per_query.get(query, 0.0) for query in sessions]
    scores["difference"] = [a - b for a, b in zip(scores["a"], scores["b"], strict=True)]
    wins = {"a": 0, "b": 0, "tie": 0}
    for query, session in sessions.items():
        if session.blind:
            sums = {"a": 0, "b": 0}
            for id, team in session.shown:
                sums[team] += grades[query].get(id, 0)
            wins["tie" if sums["a"] == sums["b"] else "a" if sums["a"] > sums["b"] else "b"] += 1
    a, b, difference = map(_mean, scores.values())
    return ScoreBoard(MEASURE, len(sessions), ratings.count, settings and dict(settings), a, b, difference, wins)


def _mean(values: list[float]) -> MeanScore:
    # A single query has no confidence interval.
    interval = list(bootstrap_interval(values, rounds=BOOTSTRAP_ROUNDS)) if len(values) > 1 else None
    return MeanScore(math.fsum(values) / len(values) if values else None, interval)
