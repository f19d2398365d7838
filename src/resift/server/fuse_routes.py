"""Our own fusion of ranked lists, and the explanation of any ranking."""

from __future__ import annotations

from collections.abc import Mapping

from resift.errors import InputError
from resift.ranking.fusion.entry import fuse
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.normalize import NORMALIZATIONS
from resift.server.endpoint import Call, Reply
from resift.server.openapi import Operation
from resift.server.rank_flow import rank_flow
from resift.server.schema import (
    RequestSchema,
    Schema,
    array,
    either,
    flag,
    mapping,
    number,
    one_of,
    record,
    text,
    whole,
)
from resift.server.search_routes import RANKING, RANKING_FACTS, ranking_body
from resift.server.serving import Serving
from resift.types import JsonMapping, JsonObject, JsonValue, Ranking

BY_RANK = ("rrf", "borda", "isr", "rbc")
"""Methods that need no scores."""

NORMALIZING = ("comb-anz", "comb-max", "comb-min", "comb-mnz", "comb-sum", "linear")
MOST_LISTS = 100


def fuse_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    return [_fuse(serving), _explain(serving)]


def _request(
    serving: Serving, *, scores: bool, methods: list[str], more: Mapping[str, Schema]
) -> RequestSchema:
    fields = {
        "id": text(least=1, most=1000),
        "text": text(most=serving.options.limits.max_text_chars),
        "score": number(),
        "metadata": mapping(),
    }
    candidate = record(fields, required=("id", "score") if scores else ("id",))
    listed = array(
        candidate if scores else either(text(least=1, most=1000), candidate),
        most=serving.options.limits.max_documents,
    )
    weighted = record({"hits": listed, "weight": number(least=1e-6, most=1e6)}, required=("hits",))
    one = either(listed, weighted)
    required = ("lists",) if "rrf" in methods else ("lists", "method")
    return record(
        {
            "lists": either(array(one, least=1, most=MOST_LISTS), mapping(one)),
            "method": one_of(*methods),
            "k": whole(least=0, most=serving.options.limits.max_documents),
            "explain": flag(),
            **more,
        },
        required=required,
    )


def _fuse(serving: Serving) -> Operation:
    rest = [name for name in sorted(METHODS) if name not in (*BY_RANK, *NORMALIZING)]
    schemas = {
        "rrf": _request(serving, scores=False, methods=["rrf"], more={"k_param": number(least=0, most=1e6)}),
        "rank": _request(serving, scores=False, methods=list(BY_RANK[1:]), more={}),
        "normalizing": _request(
            serving, scores=True, methods=list(NORMALIZING), more={"normalize": one_of(*NORMALIZATIONS)}
        ),
        "score": _request(serving, scores=True, methods=rest, more={}),
    }

    groups = {
        **dict.fromkeys(BY_RANK[1:], "rank"),
        **dict.fromkeys(NORMALIZING, "normalizing"),
        **dict.fromkeys(rest, "score"),
    }

    def schema_of(body: object) -> RequestSchema:
        asked = body.get("method") if isinstance(body, dict) else None
        return schemas[groups.get(asked, "rrf") if isinstance(asked, str) else "rrf"]

    async def run(call: Call) -> Reply:
        request = await call.request(schema_of)
        lists, weights = _weighted(request["lists"])
        options: JsonObject = {name: request[name] for name in ("k_param", "normalize") if name in request}
        if weights:
            options["weights"] = weights
        ranking = fuse(lists, k=request.get("k"), method=request.get("method", "rrf"), **options)
        return Reply(ranking_body(ranking, request))

    said = "Fuse ranked lists into one; a list may carry a weight"
    described = either(*schemas.values())
    return Operation(serving, "POST /v1/fuse", said, run, request=described, answer=RANKING)


def _weighted(lists: JsonValue) -> tuple[JsonValue, list[float]]:
    """Return the bare lists and, where one has a weight, a weight for each."""
    each = list(lists.values()) if isinstance(lists, dict) else lists
    bare = [one["hits"] if isinstance(one, dict) else one for one in each]
    weights = [one.get("weight", 1.0) if isinstance(one, dict) else 1.0 for one in each]
    named = dict(zip(lists, bare, strict=True)) if isinstance(lists, dict) else bare
    return named, weights if any(weight != 1.0 for weight in weights) else []


def _ranking_schema(serving: Serving) -> Schema:
    hit = record(
        {
            "id": text(least=1, most=1000),
            "text": text(most=serving.options.limits.max_text_chars),
            "score": number(),
            "relevance": number(least=0, most=1),
            "source": text(most=1000),
            "metadata": mapping(),
        },
        required=("id",),
    )
    hits = array(hit, most=serving.options.limits.max_documents)
    fields = {
        "hits": hits,
        "cut": hits,
        **RANKING_FACTS,
        "trace": array(mapping(), most=1000),
    }
    return record(fields, required=("hits",), closed=False)


def _explain(serving: Serving) -> Operation:
    schema = record(
        {
            "ranking": _ranking_schema(serving),
            "query": text(most=serving.options.limits.max_text_chars),
            "top": whole(least=1, most=100),
            "id": text(least=1, most=1000),
        },
        required=("ranking",),
    )

    async def run(call: Call) -> Reply:
        request = await call.request(schema)
        return Reply(_explained(request))

    said = "Say why a ranking is as it is: in words, as text and as a picture"
    answer = record(
        {"why": mapping(text()), "text": text(), "svg": text(), "flow": mapping(), "notes": array(text())},
        required=("why", "text", "svg", "notes"),
    )
    return Operation(serving, "POST /v1/explain", said, run, request=schema, answer=answer)


def _explained(request: JsonMapping) -> JsonObject:
    ranking, notes = _ranking_in(request["ranking"])
    ids = [request["id"]] if "id" in request else [hit.id for hit in ranking.hits]
    explanation = ranking.explain(query=request.get("query", ""), top=request.get("top", 10))
    return {
        "why": {id: ranking.why(id) for id in ids},
        "text": explanation.text(),
        "svg": explanation.svg(),
        "flow": rank_flow(ranking, request.get("query", "")),
        "notes": notes,
    }


def _ranking_in(given: JsonMapping) -> tuple[Ranking, list[str]]:
    """Return the ranking; one whose trace makes no sense is read without it, and that is said."""
    known = {name: given[name] for name in _RANKING_FIELDS if name in given}
    try:
        ranking = Ranking.from_dict(known)
        ranking.explain().text()
    except Exception as exc:
        reason = str(exc) if isinstance(exc, InputError) else type(exc).__name__
        bare = {name: value for name, value in known.items() if name != "trace"}
        return Ranking.from_dict(bare), [f"the trace was left out, because it cannot be read: {reason}"]
    return ranking, []


_RANKING_FIELDS = ("hits", "cut", *RANKING_FACTS, "trace")
