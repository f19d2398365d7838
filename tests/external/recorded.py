"""Responses in the shapes of other systems, written by hand with three documents on travel.

None was recorded from a running service. Checked against public material in November 2026: Elasticsearch
(guide, "empty search"), Typesense (model of a hit in its generated clients), Pinecone (`query`: matches with
id, score and values, and usage), Meilisearch (types of its JavaScript client), Algolia (guide, "understand
the API response"; it shows no `score`). `test_clients.py` reads results that the clients of Qdrant, OpenAI,
Chroma, Haystack and others make. Weaviate, Milvus, Pinecone records, Vespa, Azure and Solr are written from
memory and not checked.
"""

from __future__ import annotations

from typing import Any

TITLES = ["Parking", "Travel", "Lunch"]
BODIES = [
    "Cars are parked behind the building.",
    "Travel costs are signed off by the head of the department.",
    "Lunch is served from noon.",
]
IDS = ["d1", "d2", "d3"]
SOURCES = [
    {"title": title, "body": body, "views": 10 * i} for i, (title, body) in enumerate(zip(TITLES, BODIES, strict=True))
]
SCORES = [3.0, 2.0, 1.0]
ROWS = list(zip(IDS, SOURCES, SCORES, strict=True))


def _each(make: Any) -> list[Any]:
    return [make(id, source, score) for id, source, score in ROWS]


RESPONSES: dict[str, Any] = {
    "elasticsearch": {
        "took": 5,
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1},
        "hits": {
            "total": {"value": 3, "relation": "eq"},
            "max_score": 3.0,
            "hits": _each(
                lambda id, source, score: {
                    "_index": "docs",
                    "_id": id,
                    "_score": score,
                    "_source": source,
                    "highlight": {"body": ["<em>Travel</em> costs"]},
                }
            ),
        },
    },
    "elasticsearch fields": {
        "hits": {
            "hits": _each(
                lambda id, source, score: {
                    "_index": "docs",
                    "_id": id,
                    "_score": score,
                    "fields": {name: [value] for name, value in source.items()},
                }
            )
        }
    },
    "qdrant": {
        "time": 0.002,
        "status": "ok",
        "result": {
            "points": _each(lambda id, source, score: {"id": id, "version": 3, "score": score, "payload": source})
        },
    },
    "weaviate": {
        "data": {
            "Get": {
                "Article": _each(lambda id, source, score: {**source, "_additional": {"id": id, "score": str(score)}})
            }
        }
    },
    "milvus": {"code": 0, "data": _each(lambda id, source, score: {"id": id, "distance": score, "entity": source})},
    "pinecone": {
        "namespace": "",
        "usage": {"readUnits": 6},
        "matches": _each(lambda id, source, score: {"id": id, "score": score, "values": [], "metadata": source}),
    },
    "pinecone records": {
        "result": {"hits": _each(lambda id, source, score: {"_id": id, "_score": score, "fields": source})},
        "usage": {"embed_total_tokens": 3},
    },
    "vespa": {
        "root": {
            "id": "toplevel",
            "relevance": 1.0,
            "fields": {"totalCount": 3},
            "coverage": {"coverage": 100},
            "children": _each(
                lambda id, source, score: {
                    "id": id,
                    "relevance": score,
                    "source": "content",
                    "fields": {"sddocname": "doc", **source},
                }
            ),
        }
    },
    "typesense": {
        "found": 3,
        "hits": _each(
            lambda id, source, score: {
                "document": {"id": id, **source},
                "highlights": [{"field": "body", "snippet": "<mark>Travel</mark>"}],
                "text_match": score,
            }
        ),
    },
    "meilisearch": {
        "query": "travel",
        "processingTimeMs": 1,
        "hits": _each(
            lambda id, source, score: {
                "id": id,
                **source,
                "_formatted": {"body": "<em>Travel</em>"},
                "_rankingScore": score,
            }
        ),
    },
    "algolia": {
        "hits": _each(lambda id, source, score: {**source, "objectID": id, "_highlightResult": {}, "score": score})
    },
    "azure": {"value": _each(lambda id, source, score: {"@search.score": score, "id": id, **source})},
    "solr": {
        "responseHeader": {"status": 0},
        "response": {"docs": _each(lambda id, source, score: {"id": id, "score": score, **source})},
    },
    "openai": {
        "object": "vector_store.search_results.page",
        "search_query": ["travel"],
        "data": _each(
            lambda id, source, score: {
                "file_id": id,
                "filename": f"{id}.md",
                "score": score,
                "attributes": {"title": source["title"], "views": source["views"]},
                "content": [{"type": "text", "text": f"{source['title']}\n\n{source['body']}"}],
            }
        ),
        "has_more": False,
    },
    "haystack": {
        "documents": _each(
            lambda id, source, score: {
                "id": id,
                "content": f"{source['title']}\n\n{source['body']}",
                "meta": {"title": source["title"], "views": source["views"]},
                "score": score,
            }
        )
    },
    "chroma": {
        "ids": [IDS],
        "distances": [[-score for score in SCORES]],
        "documents": [[f"{source['title']}\n\n{source['body']}" for source in SOURCES]],
        "metadatas": [[{"title": source["title"], "views": source["views"]} for source in SOURCES]],
        "embeddings": None,
        "uris": None,
        "included": ["metadatas", "documents", "distances"],
    },
}
