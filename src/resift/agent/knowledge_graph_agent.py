"""KnowledgeGraphAgent: vector search, graph expansion, reranking, and an answer with citations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from resift import types
from resift._internal.arrays import Array, np
from resift._internal.sync import run_sync, sync_method
from resift.agent import pack
from resift.agent.answerability import VECTORS, WORDS, find_absent_names
from resift.agent.multi_doc import MultiDocSynthesizer, Writer, answer_from_ranking, clean_question, not_found
from resift.agent.pack import GraphReranker, Neighborhood, Pack
from resift.agent.writers import ExtractiveWriter
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, StoreError, redact
from resift.events import Sink
from resift.pipeline.fan_out import DeadlinePassed, run_until
from resift.protocols import Embedder
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import PoolBM25
from resift.stores.base import embed_texts, embedder_name
from resift.types import FusedHits, Hit, JsonObject, Ranking, StageKind
from resift.validation import check_arguments

if TYPE_CHECKING:
    from ladybug import Connection

EXPANSION = "graph expansion"


class KnowledgeGraphAgent:
    """Answers questions from a pack, with sources, or reports that the pack has no answer.

    Without a cross-encoder, the order of vector search is kept; `use_enhancements=False` disables all else. Threads
    can share an agent. An unreadable pack raises StoreError. After other failures, the answer is `degraded`.
    """

    cross_encoder: CrossEncoderReranker | None

    @check_arguments
    def __init__(  # noqa: PLR0917 - the documented order
        self,
        db_path: Path | str | Pack,
        use_enhancements: bool = True,
        enable_cross_encoder: bool = False,
        enable_reranker: bool = True,
        enable_multidoc: bool = True,
        max_results: int = 5,
        *,
        embedder: Embedder | None = None,
        writer: Writer | None = None,
        graph_reranker: GraphReranker | None = None,
        hops: int = 1,
        max_nodes: int = pack.MAX_NODES,
        sink: Sink | None = None,
    ) -> None:
        if not 1 <= max_results <= 100:
            raise InputError(f"max_results is {max_results!r}; pass 1 to 100.")
        pack.check_bounds(hops, max_nodes)
        self.pack = db_path if isinstance(db_path, Pack) else Pack.open(db_path)
        self.max_results = max_results
        self.cross_encoder = CrossEncoderReranker() if use_enhancements and enable_cross_encoder else None
        self.graph_reranker = (graph_reranker or GraphReranker()) if use_enhancements and enable_reranker else None
        self.enable_multidoc = use_enhancements and enable_multidoc
        self.writer = writer
        self._hops, self._max_nodes = hops, max_nodes
        self._sink = sink
        self._embedder, self._no_embedder_reason = self._find_embedder(embedder)

    def _find_embedder(self, embedder: Embedder | None) -> tuple[Embedder | None, str]:
        """Return the embedder for the pack's vectors, or the reason why it is missing."""
        if embedder is not None:
            # A WikiGR database does not record its embedder, so the caller decides.
            if embedder_name(embedder) != self.pack.embedder and self.pack.meta["format"] != pack.WIKIGR:
                raise StoreError(
                    f"{self.pack.name} was built with {self.pack.embedder}, not with {embedder_name(embedder)}. "
                    "Pass the embedder it was built with, or rebuild the pack."
                )
            return embedder, ""
        from resift.models.embedder import Embedder as LocalEmbedder

        try:
            return LocalEmbedder(self.pack.embedder), ""
        except (ValueError, ResiftError) as exc:
            return None, f"keyword search only, because the embedder is not available: {exc}"

    @classmethod
    def from_connection(cls, conn: Connection, **options: Any) -> Self:
        """Return an agent over a Ladybug connection, which the caller closes, always without a cross-encoder."""
        return cls(Pack(conn), **{**options, "enable_cross_encoder": False})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the pack."""
        self.pack.close()

    @property
    def unmapped(self) -> tuple[str, ...]:
        """Parts of a WikiGR database that the agent does not use, each with the reason."""
        return self.pack.unmapped

    async def aquery(self, question: str, *, deadline_s: float | None = None, explain: bool = False) -> JsonObject:
        """Answer a question. Returns answer, sources, confidence, degraded, reason, extractive and more.

        Each [n] in the answer is the number of a source. If the pack has no answer, `found` is False and
        there are no sources. `explain` adds the reason for the rank of each passage.
        """
        deadline = Deadline.after(deadline_s)
        text, notes = clean_question(question)
        if not text:
            return not_found(Ranking(), ["the question is empty"], explain=explain)
        ranking = await self._retrieve_ranking(text, deadline)
        usable = self.cross_encoder if self.cross_encoder and self.cross_encoder._model is not None else None
        synthesizer = MultiDocSynthesizer(
            ExtractiveWriter(scorer=usable, embedder=self._embedder),
            writer=self.writer,
            max_documents=self.max_results if self.enable_multidoc else 1,
        )
        return await answer_from_ranking(
            text,
            ranking,
            synthesizer,
            embedder=self.pack.embedder,
            deadline=deadline,
            notes=[*notes, *(f"not mapped: {part}" for part in self.unmapped)],
            find_absent_names=partial(asyncio.to_thread, find_absent_names, text, ranking, self.pack),
            explain=explain,
        )

    query = sync_method(aquery)

    async def aretrieve(self, question: str, *, deadline_s: float | None = None) -> Ranking:
        """Return the passages that `query` would use for its answer, best first."""
        text, _ = clean_question(question)
        return await self._retrieve_ranking(text, Deadline.after(deadline_s)) if text else Ranking()

    retrieve = sync_method(aretrieve)

    def semantic_search(self, query: str, k: int) -> list[Hit]:
        """Return the k sections with the highest cosine similarity, by exact search."""
        vectors = self.pack.vectors()
        scores = vectors.matrix @ self._embed_question(query)
        # The rows are ordered by id, so a stable sort breaks ties by id.
        order = np.argsort(-scores, kind="stable")[:k].tolist()
        rows = self.pack.sections([vectors.ids[i] for i in order])
        return [_section_hit(row, float(scores[i]), VECTORS) for i, row in zip(order, rows, strict=True)]

    def _keyword_search(self, question: str, k: int) -> list[Hit]:
        """Return the k sections with the highest BM25 score above 0."""
        texts = self.pack.texts()
        scores = PoolBM25().scores(question, [text for _, text in texts])
        best = sorted((-score, id) for (id, _), score in zip(texts, scores, strict=True) if score > 0)[:k]
        by_id = {id: -score for score, id in best}
        return [_section_hit(row, by_id[row.id], WORDS) for row in self.pack.sections(list(by_id))]

    async def _retrieve_ranking(self, question: str, deadline: Deadline) -> Ranking:
        started = time.perf_counter()
        try:
            keep = None if self.graph_reranker is None else self.max_results * 2
            ranking = await self._vector_primary_retrieve(question, deadline, keep=keep)
        except DeadlinePassed:
            return Ranking(degraded=True, reason="deadline: no time to search")
        if self.graph_reranker is not None and ranking.hits:
            ranking = await self._rerank_over_graph(question, ranking, self.graph_reranker, deadline)
        return replace(ranking, timings={**ranking.timings, "retrieve": (time.perf_counter() - started) * 1000})

    async def _vector_primary_retrieve(
        self, question: str, deadline: Deadline | None = None, *, keep: int | None = None
    ) -> Ranking:
        """Return max_results hits (or `keep`). The cross-encoder selects them from twice as many candidates."""
        deadline, keep = deadline or Deadline.never(), keep or self.max_results
        k = self.max_results * 2 if self.cross_encoder is not None else self.max_results
        hits, failures = await self._search_first_stage(question, k, deadline)
        reason = "; ".join(failures.values()) or None
        trace = types.Trace((_retrieve_record(hits, hits[0].source),) if hits else ())
        if self.cross_encoder is None:
            return Ranking(tuple(hits), bool(failures), reason, failures=failures, trace=trace)
        ranking = await rescore(
            self.cross_encoder, question, hits, k=keep, trace=trace, deadline=deadline, sink=self._sink
        )
        return _add_reason(replace(ranking, failures=failures), reason)

    async def _search_first_stage(self, question: str, k: int, deadline: Deadline) -> tuple[list[Hit], dict[str, str]]:
        """Run vector search or, if the embedder is missing or fails, keyword search."""
        reason = self._no_embedder_reason
        if not reason:
            try:
                return await run_until(deadline, asyncio.to_thread(self.semantic_search, question, k)), {}
            except (DeadlinePassed, StoreError):
                raise
            except Exception as exc:
                reason = f"keyword search only, because the embedder failed: {redact(exc)}"
        hits = await run_until(deadline, asyncio.to_thread(self._keyword_search, question, k))
        return hits, {VECTORS: reason}

    async def _rerank_over_graph(
        self, question: str, ranking: Ranking, reranker: GraphReranker, deadline: Deadline
    ) -> Ranking:
        """Add hits from linked articles and rerank by centrality. If anything fails, keep the old order."""
        if not self.pack.has_links:
            return _add_reason(self._cut(ranking), "vectors only: the pack has no links")
        try:
            articles = [pack.article_id(hit) for hit in ranking.hits]
            bounds = {"hops": self._hops, "max_nodes": self._max_nodes}
            neighborhood = await run_until(deadline, asyncio.to_thread(pack.expand, self.pack, articles, **bounds))
            wider = await self._add_linked_sections(question, ranking, neighborhood, deadline)
            if wider.partial:
                note = "not all hits were scored; order kept"
                record = types.make_record(StageKind.RERANK, pack.STAGE, wider.hits, note=note)
                return self._cut(_apply_order(wider, FusedHits(wider.hits, record)))
            return self._cut(_apply_order(wider, reranker.rerank(wider, neighborhood)))
        except Exception as exc:
            return _add_reason(self._cut(ranking), f"vectors only: the graph could not be used ({redact(exc)})")

    async def _add_linked_sections(
        self, question: str, ranking: Ranking, neighborhood: Neighborhood, deadline: Deadline
    ) -> Ranking:
        """Add the best section of each linked article to the hits, scored in the same way."""
        if not self.enable_multidoc or ranking.hits[0].source != VECTORS or ranking.unscored:
            return ranking
        hit_ids = {hit.id for hit in (*ranking.hits, *ranking.cut)}
        search = asyncio.to_thread(self._search_linked_articles, question, neighborhood, hit_ids)
        extra = await run_until(deadline, search)
        if not extra:
            return ranking
        if self.cross_encoder is None:
            return _apply_order(ranking, _merge_by_score(ranking.hits, extra), *extra.records)
        rescored = await rescore(self.cross_encoder, question, extra, k=len(extra), deadline=deadline, sink=self._sink)
        scores = list(zip(rescored.hits, rescored.scores(), strict=True))
        scored = [hit for hit, score in scores if score is not None]
        unscored = [hit for hit, score in scores if score is None]
        wider = _apply_order(ranking, _merge_by_score(ranking.hits, scored, unscored), *rescored.trace)
        return replace(wider, cut=(*wider.cut, *unscored))

    def _search_linked_articles(self, question: str, neighborhood: Neighborhood, hit_ids: Collection[str]) -> FusedHits:
        """Return the best section of each linked article by cosine, at most max_results of them."""
        hops = {article: distance for article, distance in neighborhood.distance.items() if distance > 0}
        query = self._embed_question(question)
        vectors = self.pack.vectors()
        rows = [i for i, article in enumerate(vectors.articles) if article in hops and vectors.ids[i] not in hit_ids]
        best: dict[str, tuple[float, str]] = {}
        for i, score in zip(rows, (vectors.matrix[rows] @ query).tolist() if rows else [], strict=True):
            article = vectors.articles[i]
            if article not in best or score > best[article][0]:
                best[article] = (float(score), vectors.ids[i])
        scores = {id: score for score, id in best.values()}
        sections = self.pack.sections(sorted(scores, key=lambda id: (-scores[id], id))[: self.max_results])
        hits = [_section_hit(section, scores[section.id], VECTORS) for section in sections]
        counts = {section.id: hops[section.article] for section in sections}
        notes = {id: f"through a link, {count} hop{'s' if count > 1 else ''} away" for id, count in counts.items()}
        return FusedHits(hits, _retrieve_record(hits, VECTORS, notes))

    def _cut(self, ranking: Ranking) -> Ranking:
        k = self.max_results
        return replace(
            ranking,
            hits=ranking.hits[:k],
            cut=(*ranking.cut, *ranking.hits[k:]),
            trace=ranking.trace.append(*types.cut_record(ranking.ids, k)),
        )

    def _embed_question(self, question: str) -> Array:
        """Return the unit vector of a question. This blocks, so call it in a worker thread."""
        if self._embedder is None:
            raise StoreError(self._no_embedder_reason)
        if hasattr(self._embedder, "embed_sync"):
            rows: Array = self._embedder.embed_sync([question], kind="query")
        else:
            rows = run_sync(embed_texts(self._embedder, [question], kind="query", store="pack"))
        vector: Array = rows[0]
        return vector


def _section_hit(row: pack.SectionRow, score: float, source: str) -> Hit:
    metadata = {name: getattr(row, name) for name in ("article", "title", "heading", "position")}
    return Hit(row.id, f"{row.heading}\n{row.text}", score, source, metadata)


def _retrieve_record(hits: Sequence[Hit], source: str, notes: Mapping[str, str] | None = None) -> types.StageRecord:
    record = types.make_record(StageKind.RETRIEVE, "retrieve", hits, scored=True, source=source, notes=notes)
    return replace(record, retrieval_mode={VECTORS: "dense", WORDS: "lexical"}.get(source, ""))


def _merge_by_score(hits: Sequence[Hit], extra: Sequence[Hit], unscored: Sequence[Hit] = ()) -> FusedHits:
    order = sorted([*hits, *extra], key=types.sort_key)
    notes = {hit.id: "not scored in time" for hit in unscored}
    return FusedHits(order, types.make_record(StageKind.FUSE, EXPANSION, order, unscored, notes=notes))


def _apply_order(ranking: Ranking, order: FusedHits, *records: types.StageRecord) -> Ranking:
    """Return the ranking in a new order, with the records that led to it."""
    return replace(ranking, hits=tuple(order), trace=ranking.trace.append(*records, *order.records))


def _add_reason(ranking: Ranking, reason: str | None) -> Ranking:
    if not reason:
        return ranking
    return replace(ranking, degraded=True, reason="; ".join(filter(None, (ranking.reason, reason))))
