"""Rerank requests in every dialect, and vLLM's `/score`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from resift.server.admission import pairs_in
from resift.server.dialects import ROUTES, ServedDialect
from resift.server.endpoint import Call, Endpoint, Reply
from resift.server.error_forms import OPENAI, error_form_at
from resift.server.failures import RequestFailed
from resift.server.openapi import Operation
from resift.server.rerank_work import note_ranking, rerank, unit_of
from resift.server.schema import Schema, array, checked, either, mapping, number, record, text, whole
from resift.server.serving import Serving


def rerank_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    scores = [_score_operation(serving, path) for path in ("/score", "/v1/score", "/vllm/score")]
    return [*(_rerank_operation(serving, path) for path in ROUTES), *scores]


def request_schema(serving: Serving, dialect: ServedDialect) -> Schema:
    """Return the schema of a dialect's requests under this server's limits."""
    limits = serving.options.limits
    return dialect.request(
        most_documents=limits.max_documents,
        most_chars=limits.max_text_chars,
        strict=serving.options.strict,
        least_cutoff=0 if serving.options.zero_means_all else 1,
    )


def _rerank_operation(serving: Serving, path: str) -> Operation:
    choose, dialects = ROUTES[path]
    schemas = {dialect.name: request_schema(serving, dialect) for dialect in dialects}

    async def run(call: Call) -> Reply:
        body = await call.json()
        dialect = choose(body)
        call.errors = dialect.errors
        call.info.dialect = dialect.name
        request = checked(body, schemas[dialect.name])
        answer = await call.unless_gone(rerank(call, dialect, request))
        return Reply(dialect.form(answer, dialect.rows(answer)))

    return Operation(
        path=path,
        method="POST",
        summary=f"Rerank documents ({' or '.join(schemas)})",
        endpoint=Endpoint(serving, path, run, errors=error_form_at(path)),
        request=either(*schemas.values()) if len(schemas) > 1 else next(iter(schemas.values())),
        answer=either(*(dialect.answer for dialect in dialects)) if len(dialects) > 1 else dialects[0].answer,
        errors=tuple(
            {id(form): form for form in (error_form_at(path), *(one.errors for one in dialects))}.values()
        ),
    )


_SCORE_ANSWER = record(
    {
        "id": text(),
        "object": text(),
        "created": whole(),
        "model": text(),
        "data": array(record({"index": whole(least=0), "object": text(), "score": number()}, nullable=False)),
        "usage": mapping(whole(least=0)),
        "warnings": array(text()),
    },
    required=("id", "object", "created", "model", "data", "usage"),
    nullable=False,
)
_SIDES = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))


def _score_operation(serving: Serving, path: str) -> Operation:
    limits = serving.options.limits
    plain = text(most=limits.max_text_chars)
    some = either(plain, array(plain, least=1, most=limits.max_documents))
    fields = {name: some for pair in _SIDES for name in pair}
    more = {"model": text(most=400), "deadline_ms": whole(least=0)}
    schema = {
        **record({**fields, **more}, closed=serving.options.strict),
        "anyOf": [{"required": list(pair)} for pair in _SIDES],
    }

    async def run(call: Call) -> Reply:
        call.info.dialect = "vllm-score"
        request = checked(await call.json(), record({**fields, **more}, closed=serving.options.strict))
        return Reply(await call.unless_gone(_scored(call, request)))

    return Operation(
        path=path,
        method="POST",
        summary="Score pairs of texts (vLLM)",
        endpoint=Endpoint(serving, path, run, errors=OPENAI),
        request=schema,
        answer=_SCORE_ANSWER,
        errors=(OPENAI,),
    )


async def _scored(call: Call, request: Mapping[str, Any]) -> dict[str, Any]:
    first, second = _two_sides(request)
    name, scorer = call.serving.model(request.get("model"))
    deadline = call.deadline(request.get("deadline_ms"))
    call.info.documents, call.info.pairs = len(second), pairs_in(second)
    scores: list[float] = [0.0] * len(second)
    async with call.serving.admission.admitted(call.info.pairs, wait_s=deadline.timeout_s):
        for query in dict.fromkeys(first):
            places = [at for at, asked in enumerate(first) if asked == query]
            ranking = await _rescored(scorer, query, [second[at] for at in places], deadline)
            note_ranking(call, ranking)
            unit, unscored = unit_of(ranking), frozenset(ranking.unscored)
            for hit in ranking.hits:
                scores[places[int(hit.id)]] = unit(None if hit.id in unscored else hit.score)
    tokens = (sum(map(len, first)) + sum(map(len, second))) // 4
    return {
        "id": call.info.id,
        "object": "list",
        "created": int(time.time()),
        "model": name,
        "data": [{"index": at, "object": "score", "score": score} for at, score in enumerate(scores)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


async def _rescored(scorer: Any, query: str, texts: list[str], deadline: Any) -> Any:
    from resift.candidates import hits_from
    from resift.rerankers.rescore import rescore

    return await rescore(scorer, query, hits_from(texts), k=len(texts), deadline=deadline)


def _two_sides(request: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return as many first texts as second ones; one first text stands for all."""
    for left, right in _SIDES:
        if left in request and right in request:
            first, second = (
                [side] if isinstance(side, str) else side for side in (request[left], request[right])
            )
            if len(first) == 1:
                first = first * len(second)
            if len(first) != len(second):
                raise RequestFailed("invalid", f"{left} has {len(first)} texts and {right} {len(second)}")
            return first, second
    raise RequestFailed("invalid", "queries and documents are missing")
