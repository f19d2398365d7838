"""`/v1/ask`: a question answered with sources, from a knowledge pack or from the passages of a search."""

from __future__ import annotations

import asyncio

from resift.agent.answers import answer_from_ranking, clean_question
from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
from resift.agent.multi_doc import MultiDocSynthesizer
from resift.agent.writers import ExtractiveWriter
from resift.server.endpoint import Call, Reply
from resift.server.failures import RequestFailed
from resift.server.openapi import Operation
from resift.server.schema import array, deadline_ms, flag, mapping, number, question, record, text, whole
from resift.server.search_routes import document_schema, searched
from resift.server.search_work import Searching
from resift.server.serving import Serving
from resift.types import JsonMapping, JsonObject

PASSAGES = 5
AGENT_PAIRS = 40
"""Pairs that a question to a pack is counted for: passages twice over, and sentences."""

_ANSWER = record(
    {
        "answer": text(),
        "found": flag(),
        "confidence": number(least=0, most=1),
        "sources": array(mapping()),
        "sentences": array(mapping()),
        "extractive": flag(),
        "degraded": flag(),
        "reason": text(),
        "notes": array(text()),
        "warnings": array(text()),
    },
    required=("answer", "found", "sources", "degraded"),
    closed=False,
)


class Asking:
    """The agent over the server's pack, opened at the first question."""

    def __init__(self, serving: Serving, searching: Searching) -> None:
        self.serving = serving
        self.searching = searching
        self._agent: KnowledgeGraphAgent | None = None
        self._lock = asyncio.Lock()

    async def answer(self, call: Call, request: JsonMapping) -> JsonObject:
        """Return the answer to a request."""
        if self.serving.options.pack is not None and "documents" not in request:
            return await self._from_pack(call, request)
        if not self.searching.has_index and "documents" not in request:
            raise RequestFailed(
                "not_found",
                "Nothing to answer from: start with --pack PACK or --store FILE, or send documents",
            )
        return await self._from_search(call, request)

    async def close(self) -> None:
        """Close the pack."""
        if self._agent is not None:
            self._agent.close()

    async def _from_pack(self, call: Call, request: JsonMapping) -> JsonObject:
        deadline = call.deadline(request.get("deadline_ms"))
        call.info.pairs = AGENT_PAIRS
        async with call.admitted(deadline):
            async with self._lock:
                if self._agent is None:
                    self._agent = await asyncio.to_thread(self._opened)
            return await self._agent.aquery(
                request["question"], deadline_s=deadline.timeout_s, explain=request.get("explain", False)
            )

    def _opened(self) -> KnowledgeGraphAgent:
        pack = self.serving.options.pack
        assert pack is not None  # noqa: S101 - only called with one
        return KnowledgeGraphAgent(pack, enable_cross_encoder=True, sink=self.serving.metrics.sink)

    async def _from_search(self, call: Call, request: JsonMapping) -> JsonObject:
        question, notes = clean_question(request["question"])
        deadline = call.deadline(request.get("deadline_ms"))
        asked = {**request, "query": question or request["question"], "k": request.get("k", PASSAGES)}
        ranking = await searched(call, self.searching, asked)
        _, scorer = self.serving.model(None)
        quoting = ExtractiveWriter(scorer=scorer, embedder=self.serving.embedder)
        return await answer_from_ranking(
            question,
            ranking,
            MultiDocSynthesizer(quoting, max_documents=asked["k"]),
            embedder=self.serving.embedder_name,
            deadline=deadline,
            notes=notes,
            explain=request.get("explain", False),
        )


def ask_operations(serving: Serving, asking: Asking) -> list[Operation]:
    """Return the operations of this file."""
    limits = serving.options.limits
    schema = record(
        {
            "question": question(most=limits.max_text_chars),
            "k": whole(least=1, most=20),
            "documents": array(document_schema(serving), least=1, most=limits.max_documents),
            "deadline_ms": deadline_ms(),
            "explain": flag(),
        },
        required=("question",),
    )

    async def run(call: Call) -> Reply:
        request = await call.request(schema)
        return Reply(await call.unless_gone(asking.answer(call, request)))

    return [
        Operation(
            serving,
            "POST /v1/ask",
            "Answer a question with sources, word for word, or say that nothing here answers it",
            run,
            request=schema,
            answer=_ANSWER,
        )
    ]
