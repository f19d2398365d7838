"""Embeddings in the forms of OpenAI and TEI."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Literal

from msgspec import Meta, Struct

from resift._internal.arrays import Array
from resift.models.embedder import EmbedKind
from resift.protocols import CountsTokens, Embedder
from resift.server.admission import count_pairs
from resift.server.dialects import Usage
from resift.server.endpoint import Request, Response
from resift.server.openapi import Operation
from resift.server.request_errors import OPENAI, TEI, RequestFailed
from resift.server.schema import Flag, ModelName, NonEmpty, Positive, RequestReader, parse_json
from resift.server.state import ServerState
from resift.types import JsonValue

Texts = NonEmpty | Annotated[list[NonEmpty], Meta(min_length=1)]


class OpenAIEmbeddingRequest(Struct, kw_only=True):
    """OpenAI's request; `input_type` is an addition for models with a prompt for queries."""

    input: Texts
    model: ModelName | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    input_type: EmbedKind | None = None
    user: Annotated[str, Meta(max_length=1000)] | None = None


class TeiEmbeddingRequest(Struct, kw_only=True):
    """TEI's request; vectors always have length 1, so `normalize` has no effect."""

    inputs: Texts
    truncate: Flag | None = None
    truncation_direction: Literal["left", "Left", "right", "Right"] | None = None
    prompt_name: Literal["query", "document", "passage"] | None = None
    normalize: Flag | None = None
    dimensions: Positive | None = None


class EmbeddingRow(Struct):
    """One vector, as numbers or as base64 of little-endian 32-bit floats."""

    object: str
    index: int
    embedding: list[float] | str


class OpenAIEmbeddingAnswer(Struct):
    """OpenAI's answer."""

    object: str
    data: list[EmbeddingRow]
    model: str
    usage: Usage


def embedding_operations(server: ServerState) -> list[Operation]:
    """Return the operations of this module."""
    limits, strict = server.options.limits, server.options.strict
    openai = RequestReader(OpenAIEmbeddingRequest, limits, strict=strict)
    tei = RequestReader(TeiEmbeddingRequest, limits, strict=strict)

    def parse(body: bytes) -> JsonValue:
        return parse_json(body, unique_keys=strict)

    async def embed_openai(request: Request) -> Response:
        value = await request.read(parse, dialect="openai")
        _refuse_token_ids(value, "input")
        body = openai.convert(value)
        texts = [body.input] if isinstance(body.input, str) else body.input
        embedder = server.embedder_for(body.model)
        vectors = await _embed(request, embedder, texts, body.input_type or "document", body.dimensions)
        tokens = await asyncio.to_thread(_count_tokens, embedder, texts)
        rows = vectors.tolist()
        if body.encoding_format == "base64":
            rows = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
        data = [EmbeddingRow("embedding", i, row) for i, row in enumerate(rows)]
        name = body.model or server.embedder_name
        return Response(OpenAIEmbeddingAnswer("list", data, name, Usage(tokens, tokens)))

    async def embed_tei(request: Request) -> Response:
        value = await request.read(parse, dialect="tei")
        _refuse_token_ids(value, "inputs")
        body = tei.convert(value)
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        kind: EmbedKind = "query" if body.prompt_name == "query" else "document"
        vectors = await _embed(request, server.embedder_for(None), texts, kind, body.dimensions)
        return Response(vectors.tolist())

    return [
        *(
            Operation(
                "POST",
                path,
                "Embed texts (OpenAI)",
                embed_openai,
                requests=[openai.type],
                answers=[OpenAIEmbeddingAnswer],
                errors=[OPENAI],
            )
            for path in ("/v1/embeddings", "/embeddings", "/tei/v1/embeddings")
        ),
        *(
            Operation(
                "POST",
                path,
                "Embed texts (TEI)",
                embed_tei,
                requests=[tei.type],
                answers=[list[list[float]]],
                errors=[TEI],
            )
            for path in ("/embed", "/tei/embed")
        ),
    ]


async def _embed(
    request: Request, embedder: Embedder, texts: list[str], kind: EmbedKind, dimensions: int | None
) -> Array:
    async def admit_and_embed() -> Array:
        async with request.admit(count_pairs(texts), len(texts), request.deadline()):
            return await embedder.embed(texts, kind=kind)

    vectors = await request.cancel_on_disconnect(admit_and_embed())
    # A shorter vector keeps its meaning only for models that were trained for it.
    if dimensions not in (None, vectors.shape[1]):
        raise RequestFailed("invalid", f"dimensions must be {vectors.shape[1]} for this model, or left out")
    return vectors


def _count_tokens(embedder: Embedder, texts: list[str]) -> int:
    if isinstance(embedder, CountsTokens):
        return embedder.count_tokens(texts)
    # An estimate for embedders that do not count: four characters per token.
    return sum(map(len, texts)) // 4


def _refuse_token_ids(body: JsonValue, name: str) -> None:
    value = body.get(name) if isinstance(body, dict) else None
    first = value[0] if isinstance(value, list) and value else None
    inner = first[0] if isinstance(first, list) and first else first
    if isinstance(inner, int):
        raise RequestFailed(
            "invalid",
            f"{name} holds token ids, which only the tokenizer that made them can read. Send texts; "
            "for langchain-openai: OpenAIEmbeddings(check_embedding_ctx_length=False)",
        )
