"""The tables of a pack, and every statement that is sent to one. Values travel as parameters only.

Meta(key, value)                                       format, version, status, embedder, dimension, …
Article(id, title, source)
Section(id, article, position, heading, text, embedding FLOAT[dimension])
(Article)-[:HAS_SECTION]->(Section)
(Article)-[:LINKS {times}]->(Article)
"""

from __future__ import annotations

FORMAT = "resift-pack"
VERSION = 1

ARTICLE, SECTION, META, HAS_SECTION, LINKS = "Article", "Section", "Meta", "HAS_SECTION", "LINKS"

# Reading. No statement is ever put together from data.
TABLES = "CALL show_tables() RETURN name"
READ_META = "MATCH (m:Meta) RETURN m.key, m.value ORDER BY m.key"
COUNT_ARTICLES = "MATCH (a:Article) RETURN count(*)"
COUNT_SECTIONS = "MATCH (s:Section) RETURN count(*)"
COUNT_LINKS = "MATCH (:Article)-[l:LINKS]->(:Article) RETURN count(*)"
MOST_LINKED = (
    "MATCH (:Article)-[l:LINKS]->(a:Article) "
    "RETURN a.title, count(*) AS links, a.id ORDER BY links DESC, a.id LIMIT 10"
)
ALL_VECTORS = "MATCH (s:Section) RETURN s.id, s.article, s.embedding ORDER BY s.id"
ALL_TEXTS = "MATCH (s:Section) RETURN s.id, s.heading, s.text ORDER BY s.id"
SECTIONS = (
    "UNWIND $ids AS wanted MATCH (a:Article)-[:HAS_SECTION]->(s:Section {id: wanted}) "
    "RETURN s.id, s.article, a.title, s.heading, s.position, s.text"
)
NEIGHBOURS = (
    "UNWIND $ids AS wanted MATCH (a:Article {id: wanted})-[l:LINKS]-(b:Article) "
    "RETURN a.id AS one, b.id AS other ORDER BY one, other LIMIT 20000"
)
LINKS_AMONG = (
    "UNWIND $ids AS wanted MATCH (a:Article {id: wanted})-[l:LINKS]->(b:Article) WHERE b.id IN $ids "
    "RETURN a.id AS one, b.id AS other, l.times ORDER BY one, other LIMIT 20000"
)

READING = (
    READ_META,
    COUNT_ARTICLES,
    COUNT_SECTIONS,
    COUNT_LINKS,
    MOST_LINKED,
    ALL_VECTORS,
    ALL_TEXTS,
    SECTIONS,
    NEIGHBOURS,
    LINKS_AMONG,
)

# Building.
CREATE_TABLES = (
    "CREATE NODE TABLE IF NOT EXISTS Meta(key STRING PRIMARY KEY, value STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Article(id STRING PRIMARY KEY, title STRING, source STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Section(id STRING PRIMARY KEY, article STRING, position INT64, "
    "heading STRING, text STRING, embedding FLOAT[{dimension:d}])",
    "CREATE REL TABLE IF NOT EXISTS HAS_SECTION(FROM Article TO Section)",
    "CREATE REL TABLE IF NOT EXISTS LINKS(FROM Article TO Article, times INT64)",
)
WRITE_META = "MERGE (m:Meta {key: $key}) SET m.value = $value"
ARTICLE_IDS = "MATCH (a:Article) RETURN a.id"
ADD_ARTICLES = "UNWIND $rows AS r CREATE (:Article {id: r.id, title: r.title, source: r.source})"
ADD_SECTIONS = (
    "UNWIND $rows AS r MATCH (a:Article {{id: r.article}}) "
    "CREATE (a)-[:HAS_SECTION]->(:Section {{id: r.id, article: r.article, position: r.position, "
    "heading: r.heading, text: r.text, embedding: CAST(r.embedding, 'FLOAT[{dimension:d}]')}})"
)
ADD_LINKS = (
    "UNWIND $rows AS r MATCH (a:Article {id: r.one}), (b:Article {id: r.other}) "
    "CREATE (a)-[:LINKS {times: r.times}]->(b)"
)
