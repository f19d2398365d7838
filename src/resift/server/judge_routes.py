"""Rating hits: a question asked with two settings, ratings one by one, and the running score."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Mapping, Sequence

from resift.server.endpoint import Call, Reply
from resift.server.error_forms import OWN
from resift.server.failures import RequestFailed
from resift.server.interleaving import team_draft
from resift.server.judge_scores import running_score
from resift.server.judgements import Judgements, Session
from resift.server.openapi import Operation
from resift.server.schema import array, flag, mapping, question, record, text, whole
from resift.server.search_routes import document_schema, searched
from resift.server.search_settings import SETTINGS
from resift.server.search_work import Searching, documents_of
from resift.server.serving import Serving
from resift.types import JsonMapping, JsonObject, JsonValue, Ranking

SHOWN = 10
MOST_SHOWN = 50


def judge_operations(serving: Serving, searching: Searching) -> list[Operation]:
    """Return the operations of this file."""
    folder = serving.options.judgements
    judging = _Judging(serving, searching, None if folder is None else Judgements(folder))
    return [_sessions(serving, judging), _ratings(serving, judging), _score(serving, judging)]


class _Judging:
    def __init__(self, serving: Serving, searching: Searching, kept: Judgements | None) -> None:
        self.serving = serving
        self.searching = searching
        self._kept = kept
        self.lock = asyncio.Lock()

    @property
    def kept(self) -> Judgements:
        if self._kept is None:
            raise RequestFailed(
                "not_found", "This server keeps no judgements: start it with --judgements FOLDER"
            )
        return self._kept

    async def begin(self, call: Call, request: JsonMapping) -> Session:
        documents = _named(request.get("documents"))
        rankings = {}
        for team in ("a", "b"):
            asked = {**request, "settings": request["settings"].get(team, {}), "k": request.get("k", SHOWN)}
            if documents is not None:
                asked["documents"] = documents
            rankings[team] = await searched(call, self.searching, asked)
        session = _session(request, rankings, documents)
        async with self.lock:
            await asyncio.to_thread(self.kept.begin, session)
        return session


def _named(documents: Sequence[JsonValue] | None) -> list[JsonObject] | None:
    """Name pasted documents by their text: the same text is the same document in every session."""
    if documents is None:
        return None
    named = {}
    for given, hit in zip(documents, documents_of(documents), strict=True):
        own = isinstance(given, dict) and given.get("id")
        id = hit.id if own else hashlib.sha256(hit.text.encode("utf-8", "replace")).hexdigest()[:16]
        named[id] = {"id": id, "text": hit.text}
    return list(named.values())


def _session(
    request: JsonMapping, rankings: Mapping[str, Ranking], documents: Sequence[JsonMapping] | None
) -> Session:
    lists = {team: [hit.id for hit in ranking.hits] for team, ranking in rankings.items()}
    id = uuid.uuid4().hex
    shown = team_draft(lists["a"], lists["b"], k=request.get("k", SHOWN), seed=id)
    texts = {hit.id: hit.text for ranking in rankings.values() for hit in ranking.hits}
    texts.update({row["id"]: row["text"] for row in documents or ()})
    return Session(
        id=id,
        query=" ".join(request["query"].split()),
        settings={team: dict(request["settings"].get(team, {})) for team in ("a", "b")},
        lists=lists,
        shown=shown,
        documents=texts,
        blind=request.get("blind", False),
    )


def _sessions(serving: Serving, judging: _Judging) -> Operation:
    limits = serving.options.limits
    schema = record(
        {
            "query": question(most=limits.max_text_chars),
            "k": whole(least=1, most=MOST_SHOWN),
            "documents": array(document_schema(serving), least=1, most=limits.max_documents),
            "settings": record({"a": SETTINGS, "b": SETTINGS}),
            "blind": flag(),
        },
        required=("query", "settings"),
    )

    async def run(call: Call) -> Reply:
        request = await call.request(schema)
        _ = judging.kept
        session = await call.unless_gone(judging.begin(call, request))
        grades = judging.kept.judged().grades.get(session.query, {})
        hits = [{"id": id, "text": session.documents[id], "grade": grades.get(id)} for id, _ in session.shown]
        # Blind means that not even the page knows whose hit is whose.
        lists = {} if session.blind else {"lists": dict(session.lists)}
        return Reply({"session": session.id, "query": session.query, "hits": hits, **lists})

    said = "Ask with two settings and show both rankings as one, to be rated"
    return Operation(serving, "POST /v1/judge/sessions", said, run, request=schema, answer=mapping())


def _ratings(serving: Serving, judging: _Judging) -> Operation:
    schema = record(
        {
            "session": text(least=1, most=100),
            "id": text(least=1, most=1000),
            "grade": whole(least=0, most=3),
        },
        required=("session", "id", "grade"),
    )

    async def run(call: Call) -> Reply:
        request = await call.request(schema)
        async with judging.lock:
            judged = await asyncio.to_thread(
                judging.kept.rate, request["session"], request["id"], request["grade"]
            )
            return Reply({"ratings": judged.ratings})

    said = "Rate a hit of a session from 0 (useless) to 3 (just what was asked)"
    answer = record({"ratings": whole(least=0)}, required=("ratings",))
    return Operation(serving, "POST /v1/judge/ratings", said, run, request=schema, answer=answer)


def _score(serving: Serving, judging: _Judging) -> Operation:
    async def run(call: Call) -> Reply:
        async with judging.lock:
            return Reply(await asyncio.to_thread(lambda: running_score(judging.kept.judged())))

    said = "The running score of the two settings that were rated last"
    missing = {404: OWN.schema}
    return Operation(serving, "GET /v1/judge/score", said, run, answer=mapping(), statuses=missing)
