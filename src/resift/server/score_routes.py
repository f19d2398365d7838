"""vLLM's `/score`: pairs of texts, in any of its four pairs of names."""

from __future__ import annotations

import time

from resift.external.candidates import hits_from
from resift.protocols import name_of
from resift.rerankers.rescore import rescore
from resift.server.admission import pairs_in
from resift.server.endpoint import Call, Reply
from resift.server.error_forms import OPENAI
from resift.server.failures import RequestFailed
from resift.server.openapi import Operation
from resift.server.rerank_work import TokenCounter, note_ranking, score_normalizer
from resift.server.schema import (
    RequestSchema,
    array,
    deadline_ms,
    either,
    mapping,
    number,
    record,
    text,
    whole,
)
from resift.server.serving import Serving
from resift.types import JsonMapping, JsonObject, JsonValue

PATHS = ("/score", "/v1/score", "/vllm/score")
SIDES = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))

_ANSWER = record(
    {
        "id": text(),
        "object": text(),
        "created": whole(),
        "model": text(),
        "data": array(record({"index": whole(least=0), "object": text(), "score": number()}, nullable=False)),
        "usage": mapping(whole(least=0)),
    },
    required=("id", "object", "created", "model", "data", "usage"),
    nullable=False,
)


def score_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    # Lists of equal length are taken on both sides too, which JSON Schema cannot say.
    one_to_many = {names: _schema(serving, *names, most=1) for names in SIDES}
    many_to_many = {
        names: _schema(serving, *names, most=serving.options.limits.max_documents) for names in SIDES
    }
    described = either(*one_to_many.values())

    def schema_of(body: object) -> RequestSchema:
        names = _names_in(body)
        both_lists = isinstance(body, dict) and all(isinstance(body.get(name), list) for name in names)
        return (many_to_many if both_lists else one_to_many)[names]

    async def run(call: Call) -> Reply:
        request = await call.request(schema_of, dialect="vllm-score")
        left, right = _names_in(request)
        first, second = _listed(request[left]), _listed(request[right])
        if len(first) == 1:
            first *= len(second)
        if len(first) != len(second):
            raise RequestFailed("invalid", f"{left} has {len(first)} texts and {right} {len(second)}")
        return Reply(await call.unless_gone(_scored(call, first, second, request)))

    return [
        Operation(
            serving,
            f"POST {path}",
            "Score pairs of texts (vLLM)",
            run,
            request=described,
            answer=_ANSWER,
            errors=(OPENAI,),
        )
        for path in PATHS
    ]


def _schema(serving: Serving, left: str, right: str, *, most: int) -> RequestSchema:
    limits = serving.options.limits
    plain = text(most=limits.max_text_chars)
    fields = {
        left: either(plain, array(plain, least=1, most=most)),
        right: either(plain, array(plain, least=1, most=limits.max_documents)),
        "model": text(most=400),
        "deadline_ms": deadline_ms(),
    }
    return record(fields, required=(left, right), closed=serving.options.strict)


def _names_in(body: object) -> tuple[str, str]:
    """Return the pair of names that a body uses; where it has none, the first, to be told as missing."""
    given = body if isinstance(body, dict) else {}
    return next((pair for pair in SIDES if all(given.get(name) is not None for name in pair)), SIDES[0])


def _listed(side: JsonValue) -> list[str]:
    return [side] if isinstance(side, str) else list(side)


async def _scored(call: Call, first: list[str], second: list[str], request: JsonMapping) -> JsonObject:
    name, scorer = call.serving.model(request.get("model"))
    deadline = call.deadline(request.get("deadline_ms"))
    call.info.documents = len(second)
    call.info.pairs = sum(pairs_in([text], query) for query, text in zip(first, second, strict=True))
    scores: list[float] = [0.0] * len(second)
    counter = TokenCounter(scorer, name_of(scorer))
    async with call.admitted(deadline):
        for query in dict.fromkeys(first):
            places = [at for at, asked in enumerate(first) if asked == query]
            hits = hits_from([second[at] for at in places])
            ranking = await rescore(counter, query, hits, k=len(hits), deadline=deadline)
            note_ranking(call, ranking)
            unit = score_normalizer(ranking)
            # A list of scores has no order to fall back to: without a single score there is no answer.
            if len(ranking.unscored) == len(hits) and any(hit.text.strip() for hit in hits):
                raise RequestFailed("upstream", f"No pair was scored: {ranking.reason}")
            for at, score in zip(ranking.indices(), ranking.scores(), strict=True):
                scores[places[at]] = unit(score)
    return {
        "id": call.info.id,
        "object": "list",
        "created": int(time.time()),
        "model": name,
        "data": [{"index": at, "object": "score", "score": score} for at, score in enumerate(scores)],
        "usage": {"prompt_tokens": counter.tokens, "total_tokens": counter.tokens},
    }
