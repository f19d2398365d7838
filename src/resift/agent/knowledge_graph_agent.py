"""KnowledgeGraphAgent: vector-first, widened over the graph, reranked, answered with citations."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from resift._internal.arrays import Array
from resift._internal.sync import synced
from resift.agent.answering import answer_from
from resift.agent.answers import not_found, question_of
from resift.agent.evidence import VECTORS, AbsentNames, absent_names
from resift.agent.expansion import MAX_NODES, Neighbourhood, check_bounds, expand
from resift.agent.extractive import ExtractiveWriter
from resift.agent.first_stage import by_vectors, by_words, embedder_for, query_vector
from resift.agent.graph_connection import GraphConnection
from resift.agent.graph_reranker import STAGE as CENTRALITY
from resift.agent.graph_reranker import GraphReranker, article_of
from resift.agent.multi_doc import MultiDocSynthesizer, Writer
from resift.agent.pack import Pack
from resift.agent.widening import merged, retrieved, widened
from resift.deadline import Deadline
from resift.errors import InputError, StoreError, redacted
from resift.events import Sink
from resift.pipeline.waiting import DeadlinePassed, run_until
from resift.protocols import Embedder
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.types import Fused, Hit, JsonObject, Ranking, StageKind, StageRecord, Trace, cut_record, record_of
from resift.validation import check_arguments


class KnowledgeGraphAgent:
    """Answers questions from a pack, with sources, and says when it cannot.

    `cross_encoder` is the reranker or None (switched off); one whose model did not load has `_model` None
    and leaves the order of the vectors. use_enhancements=False switches everything off but the vectors.
    Safe to share between threads. Raises StoreError for a pack that cannot be read; nothing else that
    fails is fatal: the answer says `degraded` and why.
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
        max_nodes: int = MAX_NODES,
        sink: Sink | None = None,
    ) -> None:
        if isinstance(max_results, bool) or not isinstance(max_results, int) or not 1 <= max_results <= 100:
            raise InputError(f"max_results is {max_results!r}; pass 1 to 100.")
        check_bounds(hops, max_nodes)
        self.pack = db_path if isinstance(db_path, Pack) else Pack.open(db_path)
        self.max_results = max_results
        self.cross_encoder = CrossEncoderReranker() if use_enhancements and enable_cross_encoder else None
        self.graph_reranker = (
            (graph_reranker or GraphReranker()) if use_enhancements and enable_reranker else None
        )
        self.enable_multidoc = use_enhancements and enable_multidoc
        self.writer = writer
        self._bounds = {"hops": hops, "max_nodes": max_nodes}
        self._sink = sink
        self._embedder, self._no_embedder = embedder_for(self.pack, embedder)

    @classmethod
    def from_connection(cls, conn: GraphConnection, **options: Any) -> Self:
        """Return an agent over an open Ladybug connection, the caller's to close; never a cross-encoder."""
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

    async def aquery(
        self, question: str, *, deadline_s: float | None = None, explain: bool = False
    ) -> JsonObject:
        """Answer a question: answer, sources, confidence, degraded, reason, extractive and more.

        Every [n] in the answer is the source with that number. Where nothing in the pack answers,
        `found` is False and there are no sources. `explain` adds how each passage got its place.
        """
        deadline = Deadline.after(deadline_s)
        asked, notes = question_of(question)
        if not asked:
            return not_found(Ranking(), ["the question is empty"], explain=explain)
        ranking = await self._retrieved(asked, deadline)

        async def names() -> AbsentNames:
            return await asyncio.to_thread(absent_names, asked, ranking, self.pack)

        return await answer_from(
            asked,
            ranking,
            self._synthesizer(),
            embedder=self.pack.embedder,
            deadline=deadline,
            notes=[*notes, *(f"not mapped: {part}" for part in self.unmapped)],
            names=names,
            explain=explain,
        )

    query = synced(aquery)

    async def aretrieve(self, question: str, *, deadline_s: float | None = None) -> Ranking:
        """Return the passages that a question would be answered from, best first."""
        asked, _ = question_of(question)
        return await self._retrieved(asked, Deadline.after(deadline_s)) if asked else Ranking()

    retrieve = synced(aretrieve)

    def semantic_search(self, query: str, k: int) -> list[Hit]:
        """Return the k sections whose vectors are nearest to the query's, exactly."""
        return by_vectors(self.pack, self._vector(query), k)

    async def _retrieved(self, question: str, deadline: Deadline) -> Ranking:
        started = time.perf_counter()
        try:
            everything = None if self.graph_reranker is None else self.max_results * 2
            ranking = await self._vector_primary_retrieve(question, deadline, keep=everything)
        except DeadlinePassed:
            return Ranking(degraded=True, reason="deadline: no time to search")
        if self.graph_reranker is not None and ranking.hits:
            ranking = await self._over_graph(question, ranking, deadline)
        total_ms = (time.perf_counter() - started) * 1000
        return replace(ranking, timings={**ranking.timings, "retrieve": total_ms})

    async def _vector_primary_retrieve(
        self, question: str, deadline: Deadline | None = None, *, keep: int | None = None
    ) -> Ranking:
        """Return max_results hits (or `keep`): the cross-encoder's choice of twice as many where it is on."""
        until = deadline or Deadline.never()
        pool = self.max_results * 2 if self.cross_encoder is not None else self.max_results
        hits, failures = await self._first_stage(question, pool, until)
        reason = "; ".join(failures.values()) or None
        trace = Trace((retrieved(hits, hits[0].source),) if hits else ())
        if self.cross_encoder is None:
            return Ranking(tuple(hits), bool(failures), reason, failures=failures, trace=trace)
        ranking = await rescore(
            self.cross_encoder,
            question,
            hits,
            k=keep or self.max_results,
            trace=trace,
            deadline=until,
            sink=self._sink,
        )
        return _with_reason(replace(ranking, failures=failures), reason)

    async def _first_stage(
        self, question: str, k: int, deadline: Deadline
    ) -> tuple[list[Hit], dict[str, str]]:
        """Search by vectors; where there is no embedder, by words, and say so."""
        why = self._no_embedder
        if not why:
            try:
                return await run_until(deadline, asyncio.to_thread(self.semantic_search, question, k)), {}
            except (DeadlinePassed, StoreError):
                raise
            except Exception as exc:
                why = f"searched by words, because the embedder failed: {redacted(exc)}"
        return await run_until(deadline, asyncio.to_thread(by_words, self.pack, question, k)), {VECTORS: why}

    async def _over_graph(self, question: str, ranking: Ranking, deadline: Deadline) -> Ranking:
        """Widen the hits over links and mix in centrality; whatever fails here costs only itself."""
        if not self.pack.has_links:
            return _with_reason(self._cut(ranking), "vectors only: the pack has no links")
        try:
            articles = [article_of(hit) for hit in ranking.hits]
            around = await run_until(deadline, asyncio.to_thread(expand, self.pack, articles, **self._bounds))
            wider = await self._widened(question, ranking, around, deadline)
            return self._centred(wider, around)
        except Exception as exc:
            reason = f"vectors only: the graph could not be used ({redacted(exc)})"
            return _with_reason(self._cut(ranking), reason)

    async def _widened(
        self, question: str, ranking: Ranking, around: Neighbourhood, deadline: Deadline
    ) -> Ranking:
        if not self.enable_multidoc or ranking.hits[0].source != VECTORS or ranking.unscored:
            return ranking
        known = {hit.id for hit in (*ranking.hits, *ranking.cut)}
        extra = await run_until(
            deadline, asyncio.to_thread(self._neighbours, question, around, known, self.max_results)
        )
        if not extra:
            return ranking
        if self.cross_encoder is None:
            return _then(ranking, merged(ranking.hits, extra), *extra.records)
        judged = await rescore(
            self.cross_encoder, question, extra, k=len(extra), deadline=deadline, sink=self._sink
        )
        scored = [hit for hit, score in zip(judged.hits, judged.scores(), strict=True) if score is not None]
        late = [hit for hit, score in zip(judged.hits, judged.scores(), strict=True) if score is None]
        wider = _then(ranking, merged(ranking.hits, scored, late), *judged.trace)
        return replace(wider, cut=(*wider.cut, *late))

    def _neighbours(self, question: str, around: Neighbourhood, known: set[str], most: int) -> Fused:
        return widened(self.pack, self._vector(question), around, known=known, most=most)

    def _centred(self, ranking: Ranking, around: Neighbourhood) -> Ranking:
        assert self.graph_reranker is not None  # noqa: S101 - only called when it is there
        if ranking.partial:
            note = "not all were scored; order kept"
            return self._cut(
                _then(
                    ranking,
                    Fused(ranking.hits, record_of(StageKind.RERANK, CENTRALITY, ranking.hits, note=note)),
                )
            )
        return self._cut(_then(ranking, self.graph_reranker.rerank(ranking, around)))

    def _cut(self, ranking: Ranking) -> Ranking:
        k = self.max_results
        return replace(
            ranking,
            hits=ranking.hits[:k],
            cut=(*ranking.cut, *ranking.hits[k:]),
            trace=ranking.trace.then(*cut_record(ranking.ids, k)),
        )

    def _vector(self, question: str) -> Array:
        if self._embedder is None:
            raise StoreError(self._no_embedder)
        return query_vector(self._embedder, question)

    def _synthesizer(self) -> MultiDocSynthesizer:
        usable = self.cross_encoder if self.cross_encoder and self.cross_encoder._model is not None else None
        quoting = ExtractiveWriter(scorer=usable, embedder=self._embedder)
        documents = self.max_results if self.enable_multidoc else 1
        return MultiDocSynthesizer(quoting, writer=self.writer, max_documents=documents)


def _then(ranking: Ranking, order: Fused, *before: StageRecord) -> Ranking:
    """Return the ranking in a new order, with the records of what led to it."""
    return replace(ranking, hits=tuple(order), trace=ranking.trace.then(*before, *order.records))


def _with_reason(ranking: Ranking, why: str | None) -> Ranking:
    if not why:
        return ranking
    return replace(ranking, degraded=True, reason="; ".join(filter(None, (ranking.reason, why))))
