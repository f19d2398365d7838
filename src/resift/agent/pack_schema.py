"""The tables of a pack, and every statement that is sent to one. Values travel as parameters only.

Meta(key, value)                                       format, version, status, embedder, dimension, …
Article(id, title, source)
Section(id, article, position, heading, text, embedding FLOAT[dimension])
(Article)-[:HAS_SECTION]->(Section)
(Article)-[:LINKS {times}]->(Article)

Databases of WikiGR (github.com/rysweet/agent-kgpacks) are read too. Their tables, as far as they are used:

Article(title, …)
Section(section_id, title, content, embedding DOUBLE[n] or FLOAT[n], …)
(Article)-[:HAS_SECTION {section_index}]->(Section)
(Article)-[:LINKS_TO]->(Article)
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

# WikiGR: the statement that is sent in place of one above.
WIKIGR = "wikigr"
WIKIGR_LINKS = "LINKS_TO"
WIKIGR_COLUMNS = frozenset({"section_id", "title", "content", "embedding"})
WIKIGR_EMBEDDERS = {768: "BAAI/bge-base-en-v1.5", 384: "sentence-transformers/paraphrase-MiniLM-L3-v2"}
"""Dimension -> the embedder that WikiGR used for it; the database does not record it."""
SECTION_COLUMNS = "CALL table_info('Section') RETURN name, type"
_HEADING = (
    "CASE WHEN s.title IS NULL OR s.title = '' OR s.title = a.title THEN a.title "
    "ELSE concat(a.title, ' › ', s.title) END"
)
WIKIGR_READING = {
    COUNT_LINKS: "MATCH (:Article)-[l:LINKS_TO]->(:Article) RETURN count(*)",
    MOST_LINKED: (
        "MATCH (:Article)-[l:LINKS_TO]->(a:Article) "
        "RETURN a.title AS title, count(*) AS links, a.title AS id ORDER BY links DESC, id LIMIT 10"
    ),
    ALL_VECTORS: (
        "MATCH (a:Article)-[:HAS_SECTION]->(s:Section) "
        "RETURN s.section_id AS id, a.title, s.embedding ORDER BY id"
    ),
    ALL_TEXTS: (
        "MATCH (a:Article)-[:HAS_SECTION]->(s:Section) "
        f"RETURN s.section_id AS id, {_HEADING}, coalesce(s.content, '') ORDER BY id"
    ),
    SECTIONS: (
        "UNWIND $ids AS wanted MATCH (a:Article)-[:HAS_SECTION]->(s:Section {section_id: wanted}) "
        f"RETURN s.section_id, a.title, a.title, {_HEADING}, 0, coalesce(s.content, '')"
    ),
    NEIGHBOURS: (
        "UNWIND $ids AS wanted MATCH (a:Article {title: wanted})-[l:LINKS_TO]-(b:Article) "
        "RETURN a.title AS one, b.title AS other ORDER BY one, other LIMIT 20000"
    ),
    LINKS_AMONG: (
        "UNWIND $ids AS wanted MATCH (a:Article {title: wanted})-[l:LINKS_TO]->(b:Article) "
        "WHERE b.title IN $ids RETURN a.title AS one, b.title AS other, 1 ORDER BY one, other LIMIT 20000"
    ),
}

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
