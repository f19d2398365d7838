"""Between LangChain's documents and hits. Documents are never changed: what goes out is a copy."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.documents import Document

from resift.integrations.external_store import id_from
from resift.integrations.facts import with_facts
from resift.types import Hit, Ranking


def hits_of(documents: Sequence[Document]) -> list[Hit]:
    """Return one hit per document; its id is the document's place, which is always there and unique."""
    return [
        Hit(str(at), document.page_content, source="langchain", metadata=document.metadata)
        for at, document in enumerate(documents)
    ]


def reordered(documents: Sequence[Document], ranking: Ranking) -> list[Document]:
    """Return copies of the documents in the order of a ranking of `hits_of`, each saying how it got there."""
    rows = []
    for at, (_, facts) in zip(ranking.indices(), with_facts(ranking), strict=True):
        given = documents[at]
        metadata = {**given.metadata, **facts}
        rows.append(Document(page_content=given.page_content, metadata=metadata, id=given.id))
    return rows


def documents_of(ranking: Ranking) -> list[Document]:
    """Return the hits of a search as documents."""
    return [
        Document(page_content=hit.text, metadata={**hit.metadata, **facts}, id=hit.id)
        for hit, facts in with_facts(ranking)
    ]


def document_id(document: Document) -> str:
    """Return the id under which lists are fused: the document's own, or one made of its text."""
    return document.id or id_from(document.page_content)
