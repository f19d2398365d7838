"""Between Haystack's documents and hits. Documents are never changed: what goes out is a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from haystack import Document

from resift.integrations.facts import with_facts
from resift.types import Hit, JsonMapping, Ranking


def hits_of(documents: Sequence[Document], *, meta_fields: Sequence[str] = ()) -> list[Hit]:
    """Return one hit per document; its id is the document's place, so that copies stay apart.

    `meta_fields` are put before the text that is judged, a line each.
    """
    return [
        Hit(str(at), _text(document, meta_fields), source="haystack", metadata=document.meta)
        for at, document in enumerate(documents)
    ]


def reordered(documents: Sequence[Document], ranking: Ranking) -> list[Document]:
    """Return copies of the documents in the order of a ranking of `hits_of`, each saying how it got there."""
    return [
        _judged(documents[at], facts)
        for at, (_, facts) in zip(ranking.indices(), with_facts(ranking), strict=True)
    ]


def documents_of(ranking: Ranking) -> list[Document]:
    """Return the hits of a search as documents."""
    return [
        _judged(Document(id=hit.id, content=hit.text, meta=dict(hit.metadata)), facts)
        for hit, facts in with_facts(ranking)
    ]


def _judged(document: Document, facts: JsonMapping) -> Document:
    score = facts["relevance_score"]
    # A document that nobody judged keeps the score it came with.
    return replace(
        document,
        meta={**document.meta, **facts},
        score=document.score if score is None else score,
    )


def _text(document: Document, meta_fields: Sequence[str]) -> str:
    parts = [str(document.meta[name]) for name in meta_fields if document.meta.get(name)]
    return "\n".join([*parts, document.content or ""])
