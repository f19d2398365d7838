"""Embeddings in the formats of OpenAI and TEI."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from resift._internal.arrays import Array
from resift.models.embedder import EmbedKind
from resift.protocols import CountsTokens, Embedder
from resift.server import schema
from resift.server.admission import count_windows
from resift.server.api_dialects import Usage
from resift.server.endpoint import Operation, Request, Response, encode_json
from resift.server.schema import Flag, ModelName, NonEmpty, Positive, RequestFailed, RequestReader, parse_json
from resift.server.state import ServerState

T = TypeVar("T", bound=Struct)
Texts = NonEmpty | Annotated[list[NonEmpty], Meta(min_length=1)]


class OpenAIEmbeddingRequest(Struct, kw_only=True):
    """OpenAI's request. `input_type` is an extension for models with a query prompt."""

    input: Texts
    model: ModelName | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    input_type: EmbedKind | None = None
    user: Annotated[str, Meta(max_length=1000)] | None = None


class TeiEmbeddingRequest(Struct, kw_only=True):
    """TEI's request. Vectors are always normalized to length 1, so `normalize` has no effect."""

    inputs: Texts
    truncate: Flag | None = None
    truncation_direction: Literal["left", "Left", "right", "Right"] | None = None
    prompt_name: Literal["query", "document", "passage"] | None = None
    normalize: Flag | None = None
    dimensions: Positive | None = None


class EmbeddingRow(Struct):
    """One vector, as numbers or as base64-encoded little-endian 32-bit floats."""

    object: str
    index: int
    embedding: list[float] | str


class OpenAIEmbeddingAnswer(Struct):
    """OpenAI's response."""

    object: str
    data: list[EmbeddingRow]
    model: str
    usage: Usage


def embedding_operations(server: ServerState) -> list[Operation]:
    """Return the operations of this module."""
    limits, strict = server.options.limits, server.options.strict
    openai = RequestReader(OpenAIEmbeddingRequest, limits, strict=strict)
    tei = RequestReader(TeiEmbeddingRequest, limits, strict=strict)

    def parse(body: bytes, reader: RequestReader[T], name: str) -> T:
        value = parse_json(body, unique_keys=strict)
        items = value.get(name) if isinstance(value, dict) else None
        first = items[0] if isinstance(items, list) and items else None
        if isinstance(first[0] if isinstance(first, list) and first else first, int):
            problem = f"{name} contains token ids, which depend on the tokenizer of another model"
            advice = "Send texts; for langchain-openai: OpenAIEmbeddings(check_embedding_ctx_length=False)"
            raise RequestFailed("invalid", f"{problem}. {advice}")
        return reader.convert(value)

    async def embed_openai(request: Request) -> Response:
        body = await request.read(lambda data: parse(data, openai, "input"), dialect="openai")
        texts = [body.input] if isinstance(body.input, str) else body.input
        embedder = server.embedder_for(body.model)
        kind = body.input_type or "document"
        vectors, tokens = await _embed(request, embedder, texts, kind, body.dimensions)
        name = body.model or server.embedder_name
        return Response(await asyncio.to_thread(_openai_answer, vectors, name, tokens, body.encoding_format))

    async def embed_tei(request: Request) -> Response:
        body = await request.read(lambda data: parse(data, tei, "inputs"), dialect="tei")
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        kind: EmbedKind = "query" if body.prompt_name == "query" else "document"
        vectors, _ = await _embed(request, server.embedder_for(None), texts, kind, body.dimensions)
        # Encode row by row, because encoding millions of numbers at once would block the event loop.
        rows = await asyncio.to_thread(lambda: [encode_json(row) for row in vectors])
        return Response(b"[" + b",".join(rows) + b"]")

    paths, tei_paths = "/v1/embeddings /embeddings /tei/v1/embeddings", "/embed /tei/embed"
    summary, answers, vectors = "Embed texts (OpenAI)", [OpenAIEmbeddingAnswer], [list[list[float]]]
    return [
        Operation("POST", paths, summary, embed_openai, [openai.type], answers, errors=[schema.OPENAI]),
        Operation("POST", tei_paths, "Embed texts (TEI)", embed_tei, [tei.type], vectors, errors=[schema.TEI]),
    ]


async def _embed(
    request: Request, embedder: Embedder, texts: list[str], kind: EmbedKind, dimensions: int | None
) -> tuple[Array, int]:
    """Return the vectors and, in OpenAI's dialect, the number of tokens."""
    windows, deadline = count_windows(texts, request.server.options.limits), request.deadline()

    async def embed() -> tuple[Array, int]:
        vectors, tokens = await embedder.embed(texts, kind=kind), 0
        # Count in batches, so that the count can be cancelled when the client disconnects.
        for i in range(0, len(texts) if request.dialect == "openai" else 0, 64):
            batch = texts[i : i + 64]
            if isinstance(embedder, CountsTokens):
                tokens += await asyncio.to_thread(embedder.count_tokens, batch)
            else:
                tokens += sum(map(len, batch)) // 4  # an estimate of four characters per token
        return vectors, tokens

    async with request.admit(windows, len(texts), deadline):
        vectors, tokens = await request.before_deadline(deadline, embed())
    # Vectors can be shortened only for models that were trained for it.
    if dimensions not in (None, vectors.shape[1]):
        raise RequestFailed("invalid", f"dimensions must be {vectors.shape[1]} for this model, or omitted")
    return vectors, tokens


def _openai_answer(vectors: Array, name: str, tokens: int, encoding: str | None) -> bytes:
    rows = []
    for i, vector in enumerate(vectors):
        base64_text = base64.b64encode(vector.astype("<f4").tobytes()).decode() if encoding == "base64" else ""
        rows.append(msgspec.Raw(encode_json(EmbeddingRow("embedding", i, base64_text or vector.tolist()))))
    return encode_json({"object": "list", "data": rows, "model": name, "usage": Usage(tokens, tokens)})
