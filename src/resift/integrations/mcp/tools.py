"""What each tool does. Pure of the protocol: plain async functions over an index and a pack, with limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
from resift.errors import InputError
from resift.index import Index
from resift.integrations.mcp import answers
from resift.reranking import arerank
from resift.text import snippet
from resift.types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call may ask for and how long it may take."""

    k: int = 50
    query_chars: int = 2_000
    documents: int = 200
    document_chars: int = 100_000
    deadline_s: float = 20.0


class Tools:
    """The tools over one index, one pack, or both; each within the limits."""

    def __init__(
        self, index: Index | None, agent: KnowledgeGraphAgent | None, limits: Limits | None = None
    ) -> None:
        self._index = index
        self._agent = agent
        self._limits = limits or Limits()

    def readers(self) -> dict[str, Callable[..., Awaitable[object]]]:
        """Return the tools that only read, by name, for what there is."""
        found: dict[str, Callable[..., Awaitable[object]]] = {"rerank": self.rerank}
        if self._index is not None:
            found |= {"search": self.search, "why": self.why, "fetch": self.fetch}
        if self._index is not None or self._agent is not None:
            found["ask"] = self.ask
        return found

    def writers(self) -> dict[str, Callable[..., Awaitable[object]]]:
        """Return the tools that change the index."""
        return {} if self._index is None else {"add": self.add, "delete": self.delete}

    async def search(self, query: str, k: int = 10, where: JsonObject | None = None) -> answers.SearchAnswer:
        """Find the documents that answer a question, by words and by meaning, reranked.

        where keeps only documents with this metadata, for example {"path": "*.md"}.
        """
        index, limits = self._opened(), self._limits
        ranking = await index.asearch(
            self._query(query), k=self._bounded("k", k, limits.k), where=where, deadline_s=limits.deadline_s
        )
        hits = [
            answers.FoundDocument(
                rank=rank,
                id=hit.id,
                title=str(hit.metadata.get("title") or hit.metadata.get("heading") or hit.id),
                snippet=snippet(hit.text, query, length=300).text,
                score=hit.score,
                metadata=dict(hit.metadata),
            )
            for rank, hit in enumerate(ranking, start=1)
        ]
        return answers.SearchAnswer(hits=hits, degraded=ranking.degraded, reason=ranking.reason)

    async def ask(self, question: str) -> answers.AskAnswer:
        """Answer a question from the documents, with the sources it rests on."""
        asked = self._query(question)
        if self._agent is not None:
            answer = await self._agent.aquery(asked, deadline_s=self._limits.deadline_s)
        else:
            answer = await self._opened().aask(asked, deadline_s=self._limits.deadline_s)
        sources = [
            answers.Source(number=one["number"], id=one["id"], title=one["title"], text=one["text"])
            for one in answer["sources"]
        ]
        given = {name: answer[name] for name in ("answer", "found", "extractive", "degraded", "reason")}
        return answers.AskAnswer(sources=sources, **given)

    async def rerank(self, query: str, documents: list[str], k: int | None = None) -> answers.RerankAnswer:
        """Put texts into the order in which they answer a question, by a cross-encoder on this machine."""
        limits = self._limits
        self._bounded("documents", len(documents), limits.documents)
        for at, text in enumerate(documents):
            if len(text) > limits.document_chars:
                raise InputError(
                    f"Document {at} has {len(text)} characters; send at most {limits.document_chars}."
                )
        wanted = None if k is None else self._bounded("k", k, limits.documents)
        ranking = await arerank(self._query(query), documents, k=wanted, deadline_s=limits.deadline_s)
        results = [
            answers.RerankedDocument(index=at, score=score)
            for at, score in zip(ranking.indices(), ranking.scores(), strict=True)
        ]
        return answers.RerankAnswer(results=results, degraded=ranking.degraded, reason=ranking.reason)

    async def why(self, query: str, id: str, k: int = 10) -> answers.WhyAnswer:
        """Say why a document stands where it stands in the answer to a question, or why it is absent."""
        ranking = await self._opened().asearch(
            self._query(query), k=self._bounded("k", k, self._limits.k), deadline_s=self._limits.deadline_s
        )
        return answers.WhyAnswer(why=ranking.why(id))

    async def fetch(self, id: str) -> answers.Document:
        """Return a whole document by the id that search gave."""
        found = await self._opened().aget([id])
        if not found:
            raise InputError(f"There is no document {id!r}. Use an id that search returned.")
        [hit] = found
        most = self._limits.document_chars
        return answers.Document(
            id=hit.id, text=hit.text[:most], metadata=dict(hit.metadata), truncated=len(hit.text) > most
        )

    async def add(
        self, text: str, id: str | None = None, metadata: JsonObject | None = None
    ) -> answers.WriteAnswer:
        """Store a document; one of the same id is replaced, and without an id the text names it."""
        self._bounded("text", len(text), self._limits.document_chars)
        ids = await self._opened().aadd([text], ids=None if id is None else [id], metadata=[metadata or {}])
        return answers.WriteAnswer(ids=ids, count=len(ids))

    async def delete(self, id: str) -> answers.WriteAnswer:
        """Remove a document by its id."""
        return answers.WriteAnswer(ids=[id], count=await self._opened().adelete([id]))

    def _opened(self) -> Index:
        if self._index is None:
            raise InputError("This server has no index; start it with --store FILE.")
        return self._index

    def _query(self, query: str) -> str:
        self._bounded("query", len(query), self._limits.query_chars)
        return query

    @staticmethod
    def _bounded(name: str, value: int, most: int) -> int:
        if value < 0 or value > most:
            raise InputError(f"{name} is {value}; this server takes up to {most}.")
        return value
