"""Embeddings in OpenAI's and TEI's forms."""

from __future__ import annotations

import asyncio
import base64

from resift._internal.arrays import Array
from resift.models.embedder import EmbedKind
from resift.protocols import CountsTokens, Embedder
from resift.server import schema
from resift.server.admission import pairs_in
from resift.server.endpoint import Call, Reply
from resift.server.error_forms import OPENAI, TEI
from resift.server.failures import RequestFailed
from resift.server.openapi import Operation
from resift.server.serving import Serving
from resift.types import JsonMapping, JsonObject

_VECTOR = schema.array(schema.number())
_OPENAI_ANSWER = schema.record(
    {
        "object": schema.text(),
        "data": schema.array(
            schema.record(
                {
                    "object": schema.text(),
                    "index": schema.whole(least=0),
                    "embedding": schema.either(_VECTOR, schema.text()),
                },
                required=("object", "index", "embedding"),
                nullable=False,
            )
        ),
        "model": schema.text(),
        "usage": schema.mapping(schema.whole(least=0)),
    },
    required=("object", "data", "model", "usage"),
    nullable=False,
)


def embedding_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    return [*_openai_operations(serving), *_tei_operations(serving)]


def _texts(serving: Serving) -> schema.Schema:
    plain = schema.text(least=1, most=serving.options.limits.max_text_chars)
    return schema.either(plain, schema.array(plain, least=1, most=serving.options.limits.max_documents))


def _openai_operations(serving: Serving) -> list[Operation]:
    form = schema.record(
        {
            "input": _texts(serving),
            "model": schema.text(most=400),
            "encoding_format": schema.one_of("float", "base64"),
            **_strictly(serving),
            "input_type": schema.one_of("query", "document"),
            "user": schema.text(most=1000),
        },
        required=("input",),
        closed=serving.options.strict,
    )

    async def run(call: Call) -> Reply:
        request, body = await _request(call, form, texts="input", dialect="openai")
        texts = request["input"]
        vectors = await _embedded(call, texts, request.get("input_type", "document"), body)
        model = request.get("model") or serving.embedder_name
        as_text = request.get("encoding_format") == "base64"
        tokens = await asyncio.to_thread(_count_tokens, serving.embedder_for(body.get("model")), texts)
        return Reply(_openai_answer(vectors, model, tokens=tokens, as_text=as_text))

    said, errors = "Embed texts (OpenAI)", (OPENAI,)
    return [
        Operation(serving, f"POST {path}", said, run, request=form, answer=_OPENAI_ANSWER, errors=errors)
        for path in ("/v1/embeddings", "/embeddings", "/tei/v1/embeddings")
    ]


def _count_tokens(embedder: Embedder, texts: list[str]) -> int:
    if isinstance(embedder, CountsTokens):
        return embedder.count_tokens(texts)
    # An estimate for embedders that do not count: four characters per token.
    return sum(map(len, texts)) // 4


def _openai_answer(vectors: Array, model: str, *, tokens: int, as_text: bool) -> JsonObject:
    rows = [_base64(vector) for vector in vectors] if as_text else vectors.tolist()
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _tei_operations(serving: Serving) -> list[Operation]:
    form = schema.record(
        {
            "inputs": _texts(serving),
            "truncate": schema.lenient_flag(),
            "truncation_direction": schema.one_of("left", "Left", "right", "Right"),
            "prompt_name": schema.one_of("query", "document", "passage"),
            "normalize": schema.lenient_flag(),
            **_strictly(serving),
        },
        required=("inputs",),
        closed=serving.options.strict,
    )

    async def run(call: Call) -> Reply:
        request, body = await _request(call, form, texts="inputs", dialect="tei")
        kind: EmbedKind = "query" if request.get("prompt_name") == "query" else "document"
        vectors = await _embedded(call, request["inputs"], kind, {**body, "model": None})
        return Reply(vectors.tolist())

    said, answer = "Embed texts (TEI); vectors always have length 1", schema.array(_VECTOR)
    return [
        Operation(serving, f"POST {path}", said, run, request=form, answer=answer, errors=(TEI,))
        for path in ("/embed", "/tei/embed")
    ]


async def _request(
    call: Call, form: schema.RequestSchema, *, texts: str, dialect: str
) -> tuple[JsonObject, JsonMapping]:
    """Return the checked request, its texts always a list, and the body as it came."""
    call.info.dialect = dialect
    body = await call.json()
    _refuse_token_ids(body, texts)
    request = form.read(body)
    if isinstance(request[texts], str):
        request[texts] = [request[texts]]
    return request, body


async def _embedded(call: Call, texts: list[str], kind: EmbedKind, body: JsonMapping) -> Array:
    embedder = call.serving.embedder_for(body.get("model"))
    call.info.documents, call.info.pairs = len(texts), pairs_in(texts)

    async def admitted() -> Array:
        async with call.admitted(call.deadline(None)):
            return await embedder.embed(texts, kind=kind)

    vectors = await call.unless_gone(admitted())
    # Cutting a vector keeps its meaning only for models that were trained for it.
    if body.get("dimensions") not in (None, vectors.shape[1]):
        raise RequestFailed("invalid", f"dimensions must be {vectors.shape[1]} for this model, or left out")
    return vectors


def _strictly(serving: Serving) -> dict[str, schema.Schema]:
    """Name the field whose only value is not known before the model is loaded, where all must be named."""
    return {"dimensions": schema.whole(least=1)} if serving.options.strict else {}


def _base64(vector: Array) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _refuse_token_ids(body: object, name: str) -> None:
    given = body.get(name) if isinstance(body, dict) else None
    first = given[0] if isinstance(given, list) and given else None
    inner = first[0] if isinstance(first, list) and first else first
    if isinstance(inner, int):
        raise RequestFailed(
            "invalid",
            f"{name} holds token ids, which only the tokenizer that made them can read. Send texts; "
            "for langchain-openai: OpenAIEmbeddings(check_embedding_ctx_length=False)",
        )
