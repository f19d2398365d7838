"""Resift's own routes to search and to ask questions, over the server's indexes or documents in the request."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
from resift.agent.multi_doc import MultiDocSynthesizer, answer_from_ranking, clean_question
from resift.agent.writers import ExtractiveWriter
from resift.deadline import Deadline
from resift.errors import InputError
from resift.external.candidates import read_hits
from resift.ingest.indexing import open_index
from resift.pipeline import AdaptiveDepth, Pipeline, Rerank, Shape
from resift.pipeline.defaults import FETCH, views
from resift.pipeline.fan_out import Store, StoreRef
from resift.ranking import order_model, prune, shape
from resift.ranking.context import MAX_TOKENS
from resift.ranking.fusion import methods, rerankers, weighted
from resift.rerankers.rescore import relevance, shipped_calibrator_for
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.server.admission import count_pairs, count_windows
from resift.server.endpoint import Operation, Outcome, Request, Response, encode_json, run_in_own_loop
from resift.server.rankings import RankingAnswer, ranking_data
from resift.server.schema import DocumentId, Fraction, Milliseconds, NonEmpty, NotBlank, RequestFailed, RequestReader
from resift.server.state import ServerState
from resift.stores import MemoryStore, SQLiteStore
from resift.types import Hit, JsonObject, JsonValue, Ranking
from resift.validation import NOT_BLANK

MAX_HITS, MAX_DEPTH, MAX_CONTEXT_TOKENS = 1000, 200, 100_000
RERANKERS = ("cross-encoder", "semantic-bm25", "none")
CACHED_DOCUMENT_SETS = 8  # recent document sets from requests that stay indexed for the next query
CACHED_PIPELINES = 64
DEFAULT_PASSAGES = 5
PAIRS_PER_PACK_QUESTION = 40  # what admission control counts for a question to a pack: passages twice, and sentences
INDEX_BATCH = 100
EMBEDDING_SHARE = 0.6  # of the time before a deadline, for embedding the documents of a request

MAX_FILTER_VALUES = 10_000  # maximum number of keys and values in a filter

MAX_FILTER_TESTS = 2_000_000
"""Maximum number of keys and values, times documents in the request, because every document is tested."""

K = TypeVar("K")
V = TypeVar("V")
FieldName = Annotated[str, Meta(min_length=1, max_length=200, pattern=NOT_BLANK)]


class RequestDocument(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A document in a request."""

    text: NonEmpty
    id: DocumentId | None = None
    title: str | None = None
    metadata: JsonObject | None = None


Documents: TypeAlias = Annotated[list[NonEmpty | RequestDocument], Meta(min_length=1)]


class RecencyRequest(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Boost newer documents by up to `weight`."""

    field: FieldName = "date"
    half_life: Annotated[str, Meta(max_length=20)] = "30d"
    weight: Fraction = 0.2


class BoostRequest(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Boost documents by a numeric field or by the value of a field, by up to `weight`."""

    field: FieldName
    by: Literal["log", "linear"] = "log"
    weight: Fraction = 0.1
    values: dict[str, Annotated[float, Meta(ge=-1, le=1)]] | None = None


class SearchSettings(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Fusion method, reranker, rerank depth, weight of the reranker, and boosts.

    With None, Resift chooses a value.
    """

    fusion: Literal[tuple(sorted(methods.METHODS))] | None = None  # type: ignore[valid-type]
    reranker: Literal["cross-encoder", "semantic-bm25", "none"] | None = None
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] | None = None
    blend: Fraction | None = None
    recency: RecencyRequest | None = None
    boosts: Annotated[list[BoostRequest], Meta(max_length=10)] | None = None


class ContextRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Options for the context of a prompt: at most `max_tokens`, with neighboring chunks of each hit."""

    max_tokens: Annotated[int, Meta(ge=1, le=MAX_CONTEXT_TOKENS)] | None = None
    neighbors: Annotated[int, Meta(ge=0, le=20)] | None = None
    prune: bool | None = None


class SearchRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query to search the server's index or documents in the request."""

    query: NotBlank
    k: Annotated[int, Meta(ge=1, le=MAX_HITS)] | None = None
    where: JsonObject | None = None
    deadline_ms: Milliseconds | None = None
    explain: bool | None = None
    documents: Documents | None = None
    settings: SearchSettings | None = None
    report: bool | None = None
    context: ContextRequest | None = None


class AskRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A question to answer from a knowledge pack, the server's index, or documents in the request."""

    question: NotBlank
    k: Annotated[int, Meta(ge=1, le=20)] | None = None
    where: JsonObject | None = None
    documents: Documents | None = None
    deadline_ms: Milliseconds | None = None
    explain: bool | None = None


class AskAnswer(Struct, kw_only=True):
    """An answer with verbatim quotes from its sources."""

    answer: str
    found: bool
    sources: list[JsonObject]
    degraded: bool
    confidence: Fraction | UnsetType = UNSET
    sentences: list[JsonObject] | UnsetType = UNSET
    extractive: bool | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    notes: list[str] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


def search_operations(server: ServerState, search: SearchService) -> list[Operation]:
    """Return the operations of this module."""
    limits = server.options.limits
    search_reader = RequestReader(SearchRequest, limits)
    ask_reader = RequestReader(AskRequest, limits)

    async def run_search(request: Request) -> Response:
        body = await request.read(search_reader.read)
        ranking, pipeline = await search.search(request, body)
        data = await asyncio.to_thread(_search_data, body, ranking, pipeline)
        if (options := body.context) is not None:
            deadline = request.deadline(body.deadline_ms)
            neighbors = 1 if options.neighbors is None else options.neighbors
            async with request.admit(prune.MAX_SENTENCES if options.prune else 1, 0, deadline):
                left_s = None if deadline.timeout_s is None else max(deadline.timeout_s, 0.001)
                context = await ranking.acontext(
                    options.max_tokens or MAX_TOKENS, neighbors=neighbors, prune=bool(options.prune), deadline_s=left_s
                )
            data["context"] = context.to_dict()
        return Response(data, outcome=Outcome.from_ranking(ranking))

    async def run_ask(request: Request) -> Response:
        return await search.ask(request, await request.read(ask_reader.read))

    search_summary = "Search the server's index or documents in the request"
    ask_summary = "Answer a question with verbatim quotes and sources, or report that no document answers it"
    return [
        Operation("POST", "/v1/search", search_summary, run_search, [search_reader.type], [RankingAnswer]),
        Operation("POST", "/v1/ask", ask_summary, run_ask, [ask_reader.type], [AskAnswer]),
    ]


def check_filter_size(where: JsonValue, documents: int) -> None:
    """Raise RequestFailed for a filter that takes too long to test."""
    size, parts = 0, [where]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            size += len(part)
            parts += part.values()
        elif isinstance(part, list):
            size += len(part)
            parts += part
    limit = min(MAX_FILTER_VALUES, MAX_FILTER_TESTS // max(1, documents))
    if size > limit:
        suffix = f" for {documents} documents" if documents > 1 else ""
        raise RequestFailed("too_large", f"The filter has {size} keys and values; the limit{suffix} is {limit}")


class SearchService:
    """Searches with one pipeline per combination of settings and answers questions from the results."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._agent: KnowledgeGraphAgent | None = None
        self._stores: list[SQLiteStore] | None = None
        self._files: list[tuple[int, int]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._pipelines: OrderedDict[bytes, Pipeline] = OrderedDict()
        self._document_sets: OrderedDict[str, list[MemoryStore]] = OrderedDict()
        self._lock = asyncio.Lock()

    @property
    def has_index(self) -> bool:
        """Whether a search works without documents in the request."""
        return bool(self._server.options.stores) or self._server.pipeline is not None

    async def search(self, request: Request, body: SearchRequest) -> tuple[Ranking, Pipeline | None]:
        """Return the ranking for a request and its pipeline, or an empty ranking and None after the deadline."""
        # Empty settings are the same as no settings: the pipeline of the server is used.
        settings = body.settings if body.settings != SearchSettings() else None
        depth = (settings.depth if settings else None) or order_model.MAX_DEPTH
        texts = [item if isinstance(item, str) else item.text for item in body.documents or ()]
        check_filter_size(body.where, len(texts))
        windows = count_windows([*texts, body.query], self._server.options.limits)
        deadline = request.deadline(body.deadline_ms)
        pairs = windows + count_pairs([""] * depth, body.query)
        async with request.admit(pairs, len(texts), deadline):
            if body.documents is None:
                pipeline = await self._pipeline(settings)
                left_s = deadline.timeout_s
                return await pipeline.search(body.query, k=body.k, where=body.where, deadline_s=left_s), pipeline
            # Many documents take seconds to analyze in Python. After the deadline, the response is empty.
            try:
                async with asyncio.timeout(deadline.timeout_s):
                    return await run_in_own_loop(lambda: self._search_documents(body, deadline))
            except TimeoutError:
                reason = "deadline: the documents were not searched in time"
                return Ranking((), degraded=True, reason=reason, query=body.query), None

    async def _search_documents(self, body: SearchRequest, deadline: Deadline) -> tuple[Ranking, Pipeline]:
        stores, warning = await self._index_documents(document_hits(body.documents or ()), deadline)
        pipeline = self._make_pipeline(body.settings or SearchSettings(), stores)
        ranking = await pipeline.search(body.query, k=body.k, where=body.where, deadline_s=deadline.timeout_s)
        if warning:
            reason = "; ".join(filter(None, (warning, ranking.reason)))
            ranking = replace(ranking, degraded=True, reason=reason)
        return ranking, pipeline

    async def ask(self, request: Request, body: AskRequest) -> Response:
        """Answer a question from the server's knowledge pack or from the passages of a search."""
        server, deadline = self._server, request.deadline(body.deadline_ms)
        if server.options.pack is not None and body.documents is None:
            if body.where is not None:
                raise RequestFailed("invalid", "where applies to an index or documents; a pack has no metadata")
            async with request.admit(PAIRS_PER_PACK_QUESTION, 0, deadline):
                agent = await self._open_agent(server.options.pack)
                answer = await agent.aquery(body.question, deadline_s=deadline.timeout_s, explain=bool(body.explain))
            return Response(answer)
        if not self.has_index and body.documents is None:
            problem = "Nothing to answer from; start with --pack PACK or --store FILE, or send documents"
            raise RequestFailed("not_found", problem)
        question, notes = clean_question(body.question)
        k = body.k or DEFAULT_PASSAGES
        shared = {name: getattr(body, name) for name in ("where", "documents", "deadline_ms")}
        ranking, _ = await self.search(request, SearchRequest(query=question or body.question, k=k, **shared))
        _, scorer = server.model(None)

        def write() -> Coroutine[object, object, JsonObject]:
            writer = ExtractiveWriter(scorer=scorer, embedder=server.embedder)
            return answer_from_ranking(
                question,
                ranking,
                MultiDocSynthesizer(writer, max_documents=k),
                embedder=server.embedder_name,
                deadline=deadline,
                notes=notes,
                explain=bool(body.explain),
            )

        # Documents in a request may be long, and splitting them into sentences runs in Python.
        work = request.before_deadline(deadline, run_in_own_loop(write)) if body.documents else write()
        return Response(await work, outcome=Outcome.from_ranking(ranking))

    async def _open_agent(self, pack: Path) -> KnowledgeGraphAgent:
        """Return the agent of the pack. The pack is opened at the first question."""
        options: JsonObject = {"enable_cross_encoder": True, "sink": self._server.metrics.sink}
        async with self._lock:
            if self._agent is None:
                self._agent = await asyncio.to_thread(KnowledgeGraphAgent, pack, **options)
            return self._agent

    async def indexes(self) -> list[SQLiteStore]:
        """Return the open index files of the server."""
        await self._open_stores()
        return self._stores or []

    async def close(self) -> None:
        """Close the indexes and the pack."""
        for store in self._stores or ():
            await store.close()
        if self._agent is not None:
            self._agent.close()

    async def _pipeline(self, settings: SearchSettings | None) -> Pipeline:
        if self._stores is not None and self._file_ids() != self._files:
            # An index file was replaced by another one with the same name.
            for store in self._stores:
                task = asyncio.ensure_future(store.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            self._stores = None
            self._pipelines.clear()
        if not self.has_index:
            problem = "This server has no index; start it with --store FILE or --pipeline FILE, or send documents"
            raise RequestFailed("not_found", problem)
        if self._server.pipeline is not None and settings is None:
            return self._server.pipeline
        settings = settings or SearchSettings()
        key = encode_json(settings)
        pipeline = self._pipelines.get(key) or self._make_pipeline(settings, await self._open_stores())
        return _keep(self._pipelines, key, pipeline, CACHED_PIPELINES)

    def _make_pipeline(self, settings: SearchSettings, stores: Sequence[Store | StoreRef]) -> Pipeline:
        method: str = settings.fusion or "weighted"
        fusers = {"weighted": weighted.WeightedReranker, "rrf": rerankers.RRFReranker}
        options: JsonObject = {"fuse": fusers.get(method, lambda: rerankers.FusionReranker(method))(), "fetch": FETCH}
        policy = shape.ShapePolicy() if settings.reranker != "none" else shape.ShapePolicy(blend=None, guard=None)
        try:
            if settings.recency is not None:
                policy = replace(policy, recency=shape.Recency(**structs.asdict(settings.recency)))
            if settings.boosts:
                policy = replace(policy, boosts=tuple(shape.Boost(**structs.asdict(rule)) for rule in settings.boosts))
        except InputError as exc:
            raise RequestFailed("invalid", f"settings: {exc}") from None
        if settings.reranker != "none":
            _, scorer = self._server.model(None)
            if settings.reranker == "semantic-bm25":
                scorer = SemanticBM25Reranker(embedder=self._server.embedder)
            options["rerank"] = Rerank(scorer, depth=settings.depth or AdaptiveDepth())
            if settings.blend is not None:
                policy = replace(policy, blend=shape.Blend(weight=settings.blend))
        if settings.reranker != "none" or policy.recency or policy.boosts:
            options["guard"] = Shape(policy, name="guard")
        return Pipeline(stores, sink=self._server.metrics.sink, **options)

    async def _open_stores(self) -> list[Store | StoreRef]:
        if self._server.pipeline is not None and not self._server.options.stores:
            return list(self._server.pipeline.stores)
        async with self._lock:
            if self._stores is None:
                self._stores = await asyncio.to_thread(self._open_indexes)
        return [view for store in self._stores for view in views(store)]

    def _file_ids(self) -> list[tuple[int, int]]:
        """Return the device and inode of each index file, or those of the open files if a file is missing."""
        try:
            return [(status.st_dev, status.st_ino) for status in map(os.stat, self._server.options.stores)]
        except OSError:
            return self._files

    def _open_indexes(self) -> list[SQLiteStore]:
        files = self._server.options.stores
        self._files = self._file_ids()
        stores = []
        for i, file in enumerate(files):
            store = open_index(file, read_only=True)
            # Each store needs a unique name, because hits show it.
            repeated = any(other.stem == file.stem for other in files[:i])
            store.name = f"{file.stem}-{i + 1}" if repeated else file.stem
            stores.append(store)
        return stores

    async def _index_documents(self, hits: Sequence[Hit], deadline: Deadline) -> tuple[list[MemoryStore], str]:
        """Return a keyword store and, unless the deadline is too short, a vector store; otherwise with a warning."""
        content = encode_json([[hit.id, hit.text, hit.metadata] for hit in hits])
        digest = hashlib.sha256(content).hexdigest()
        if digest in self._document_sets:
            return _keep(self._document_sets, digest, self._document_sets[digest], CACHED_DOCUMENT_SETS), ""
        words = MemoryStore(name="words")
        for i in range(0, len(hits), INDEX_BATCH):
            await words.add(hits[i : i + INDEX_BATCH])
            await asyncio.sleep(0)  # allows a deadline or a disconnect to cancel the work
        stores = [words]
        if self._server.embedder is not None:
            vectors = MemoryStore(self._server.embedder, name="vectors", mode="vector")
            left_s = deadline.timeout_s
            try:
                async with asyncio.timeout(None if left_s is None else left_s * EMBEDDING_SHARE):
                    await vectors.add(hits)
            except TimeoutError:
                return stores, "deadline: the documents were searched by keywords only"
            stores.append(vectors)
        return _keep(self._document_sets, digest, stores, CACHED_DOCUMENT_SETS), ""


def _keep(cache: OrderedDict[K, V], key: K, value: V, size: int) -> V:
    """Cache the value as the most recent one, evict the oldest beyond `size`, and return the value."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > size:
        cache.popitem(last=False)
    return value


def document_hits(documents: Sequence[str | RequestDocument]) -> list[Hit]:
    """Return the documents of a request as hits with unique ids."""
    counts: dict[str, int] = {}
    hits = []
    for hit in read_hits(msgspec.to_builtins(documents), unique=False):
        # Append a number to a duplicate id, so that no document is lost.
        counts[hit.id] = counts.get(hit.id, 0) + 1
        hits.append(hit if counts[hit.id] == 1 else replace(hit, id=f"{hit.id} #{counts[hit.id]}"))
    return hits


def _search_data(body: SearchRequest, ranking: Ranking, pipeline: Pipeline | None) -> JsonObject:
    data = ranking_data(ranking, query=body.query, explain=bool(body.explain))
    values = () if pipeline is None else relevance(ranking, shipped_calibrator_for(pipeline.scorer))
    for hit, value in zip(data["hits"], values, strict=True):
        hit["relevance"] = value
    if body.report:
        data["report"] = ranking.explain(query=body.query).html()
    return {"query": body.query, **data}
