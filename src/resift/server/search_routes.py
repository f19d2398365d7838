"""Our own search: over the server's index, or documents of the request."""

from __future__ import annotations

from collections.abc import Mapping

from resift.errors import RetrievalError
from resift.pipeline.fan_out import LATE
from resift.pipeline.scored_search import relevance_of
from resift.ranking.adaptive_weights import Trust
from resift.server.admission import pairs_in
from resift.server.endpoint import Call, Reply
from resift.server.openapi import Operation
from resift.server.rank_flow import rank_flow
from resift.server.rerank_work import note_ranking
from resift.server.schema import (
    RequestSchema,
    Schema,
    array,
    deadline_ms,
    either,
    flag,
    mapping,
    number,
    question,
    record,
    text,
    whole,
)
from resift.server.search_settings import SETTINGS, SearchSettings
from resift.server.search_work import Searching
from resift.server.serving import Serving
from resift.types import JsonMapping, JsonObject, Ranking

MOST_HITS = 1000


def search_operations(serving: Serving, searching: Searching) -> list[Operation]:
    """Return the operations of this file."""
    return [_search(serving, searching)]


def document_schema(serving: Serving) -> Schema:
    """Return the schema of a document in a request of our own API."""
    plain = text(least=1, most=serving.options.limits.max_text_chars)
    fields = {"id": text(least=1, most=1000), "text": plain, "title": text(), "metadata": mapping()}
    return either(plain, record(fields, required=("text",)))


_HIT = record(
    {
        "id": text(),
        "text": text(),
        "score": number(),
        "relevance": number(least=0, most=1),
        "source": text(),
        "metadata": mapping(),
    },
    required=("id", "text"),
    closed=False,
)
RANKING_FACTS: Mapping[str, Schema] = {
    "degraded": flag(),
    "reason": text(),
    "tier": text(),
    "unscored": array(text()),
    "failures": mapping(text()),
    "timings": mapping(number()),
    "warnings": array(text()),
}
RANKING: Schema = record(
    {
        "hits": array(_HIT),
        **RANKING_FACTS,
        "why": mapping(text()),
        "flow": mapping(),
        "cut": array(_HIT),
    },
    required=("hits", "degraded"),
    closed=False,
)


def search_schema(serving: Serving) -> RequestSchema:
    """Return the schema of a search request."""
    limits = serving.options.limits
    return record(
        {
            "query": question(most=limits.max_text_chars),
            "k": whole(least=1, most=MOST_HITS),
            # Operators, patterns and `or` are checked where filters are read: an InputError is a 400.
            "where": mapping(),
            "deadline_ms": deadline_ms(),
            "explain": flag(),
            "documents": array(document_schema(serving), least=1, most=limits.max_documents),
            "settings": SETTINGS,
        },
        required=("query",),
    )


def _search(serving: Serving, searching: Searching) -> Operation:
    schema = search_schema(serving)

    async def run(call: Call) -> Reply:
        request = await call.request(schema)
        ranking, relevance = await call.unless_gone(searched_with_relevance(call, searching, request))
        body = ranking_body(ranking, request)
        hits = [{**hit, "relevance": value} for hit, value in zip(body["hits"], relevance, strict=True)]
        return Reply({"query": request["query"], **body, "hits": hits})

    said = "Search the server's index, or documents of the request"
    return Operation(serving, "POST /v1/search", said, run, request=schema, answer=RANKING)


async def searched(call: Call, searching: Searching, request: JsonMapping) -> Ranking:
    """Return the ranking that a search request asks for."""
    ranking, _ = await searched_with_relevance(call, searching, request)
    return ranking


async def searched_with_relevance(
    call: Call, searching: Searching, request: JsonMapping
) -> tuple[Ranking, tuple[float, ...]]:
    """Return the ranking that a search request asks for, and the relevance of each hit, from 0 to 1."""
    given = request.get("settings")
    # None set is none given: what the server was started with.
    settings = SearchSettings.of(given) if given else None
    documents = request.get("documents")
    deadline = call.deadline(request.get("deadline_ms"))
    depth = (settings or SearchSettings()).depth or Trust().most
    written = [one if isinstance(one, str) else one["text"] for one in documents or ()]
    call.info.documents = len(written)
    call.info.pairs = pairs_in([*written, *[""] * depth], request["query"])
    async with call.admitted(deadline):
        pipeline = await searching.pipeline(settings, documents)
        try:
            ranking = await pipeline.search(
                request["query"],
                k=request.get("k"),
                where=request.get("where"),
                deadline_s=deadline.timeout_s,
            )
        except RetrievalError as exc:
            if any(why != LATE for why in exc.failures.values()):
                raise
            # No store failed: the client's own time was too short for any of them.
            ranking = Ranking((), degraded=True, reason=str(exc), query=request["query"])
    note_ranking(call, ranking)
    return ranking, relevance_of(ranking, pipeline)


def ranking_body(ranking: Ranking, request: JsonMapping) -> JsonObject:
    """Return a ranking as plain data; with `explain` the trace, why each hit stands there, and the flow."""
    data = ranking.to_dict(timings=True)
    if request.get("explain"):
        why = ranking.why_all()
        return {**data, "why": why, "flow": rank_flow(ranking, request.get("query", ""))}
    hits = [{name: hit[name] for name in _SHOWN} for hit in data["hits"]]
    return {name: data[name] for name in RANKING_FACTS if name in data} | {"hits": hits}


_SHOWN = ("id", "text", "score", "source", "metadata")
