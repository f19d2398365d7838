"""Knowledge packs: their tables, the statements that read and write them, and `Pack`, the reader.

    Meta(key, value)                                       format, version, status, embedder, dimension, …
    Article(id, title, source)
    Section(id, article, position, heading, text, embedding FLOAT[dimension])
    (Article)-[:HAS_SECTION]->(Section)
    (Article)-[:LINKS {times}]->(Article)

Databases of WikiGR (github.com/rysweet/agent-kgpacks) are read too. Resift uses these of their tables:

    Article(title, …)
    Section(section_id, title, content, embedding DOUBLE[n] or FLOAT[n], …)
    (Article)-[:HAS_SECTION {section_index}]->(Section)
    (Article)-[:LINKS_TO]->(Article)

Every statement is a constant. Values are passed as parameters only, and a question is never part of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from resift._internal.arrays import Array, np
from resift._internal.forking import ForkSafeLock
from resift.errors import ResiftError, StoreError, require, shell_path
from resift.text import words
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments, check_path

if TYPE_CHECKING:
    from ladybug import Connection

BUFFER_BYTES = 256 << 20

FORMAT = "resift-pack"
VERSION = 1

ARTICLE, SECTION, META, HAS_SECTION, LINKS = "Article", "Section", "Meta", "HAS_SECTION", "LINKS"

# Statements that read a pack.
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
NEIGHBORS = (
    "UNWIND $ids AS wanted MATCH (a:Article {id: wanted})-[l:LINKS]-(b:Article) "
    "RETURN a.id AS one, b.id AS other ORDER BY one, other LIMIT 20000"
)
LINKS_AMONG = (
    "UNWIND $ids AS wanted MATCH (a:Article {id: wanted})-[l:LINKS]->(b:Article) WHERE b.id IN $ids "
    "RETURN a.id AS one, b.id AS other, l.times ORDER BY one, other LIMIT 20000"
)
READ_STATEMENTS = (
    READ_META, COUNT_ARTICLES, COUNT_SECTIONS, COUNT_LINKS, MOST_LINKED, ALL_VECTORS, ALL_TEXTS, SECTIONS,
    NEIGHBORS, LINKS_AMONG,
)  # fmt: skip

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
WIKIGR_STATEMENTS = {
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
    NEIGHBORS: (
        "UNWIND $ids AS wanted MATCH (a:Article {title: wanted})-[l:LINKS_TO]-(b:Article) "
        "RETURN a.title AS one, b.title AS other ORDER BY one, other LIMIT 20000"
    ),
    LINKS_AMONG: (
        "UNWIND $ids AS wanted MATCH (a:Article {title: wanted})-[l:LINKS_TO]->(b:Article) "
        "WHERE b.title IN $ids RETURN a.title AS one, b.title AS other, 1 ORDER BY one, other LIMIT 20000"
    ),
}
"""Statement for a pack of Resift -> the statement that a WikiGR database gets instead."""

# Statements that build a pack.
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
DELETE_LINKS = "MATCH (:Article)-[l:LINKS]->(:Article) DELETE l"
ADD_LINKS = (
    "UNWIND $rows AS r MATCH (a:Article {id: r.one}), (b:Article {id: r.other}) "
    "CREATE (a)-[:LINKS {times: r.times}]->(b)"
)


def fetch_rows(
    connection: Connection, statement: str, parameters: JsonMapping | None = None
) -> list[list[JsonValue]]:
    """Run a statement and return all rows."""
    result = connection.execute(statement, dict(parameters or {}))
    assert not isinstance(result, list)  # noqa: S101 - only for several statements at once
    rows = result.get_all()
    result.close()  # a result keeps memory of the engine
    return cast("list[list[JsonValue]]", rows)


@dataclass(frozen=True, slots=True)
class PackInfo:
    """Counts and metadata of a pack."""

    articles: int
    sections: int
    links: int
    embedder: str
    dimension: int
    version: int
    most_linked: tuple[tuple[str, int], ...]
    meta: Mapping[str, str]


class SectionRow(NamedTuple):
    """A section and the title of its article."""

    id: str
    article: str
    title: str
    heading: str
    position: int
    text: str


class Vectors(NamedTuple):
    """The unit vectors of all sections, as rows of a matrix in the order of the ids."""

    ids: list[str]
    articles: list[str]
    matrix: Array


class Pack:
    """Reads a pack. Threads may share it; it runs one statement at a time."""

    def __init__(
        self, connection: Connection, *, name: str = "pack", close: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self._connection = connection
        self._close = close
        self._lock = ForkSafeLock()
        self._closed = False
        self._vectors: Vectors | None = None
        self._texts: list[tuple[str, str]] | None = None
        self._vocabulary: frozenset[str] | None = None
        self._loading = ForkSafeLock()
        self._statements: Mapping[str, str] = {}
        self.unmapped: tuple[str, ...] = ()
        """Parts of a WikiGR database that are not used, each with the reason."""
        self.tables = frozenset(str(row[0]) for row in self._fetch(TABLES))
        is_wikigr = {ARTICLE, SECTION, HAS_SECTION} <= self.tables and META not in self.tables
        self.meta = self._map_wikigr() if is_wikigr else self._read_meta()

    @classmethod
    @check_arguments
    def open(cls, path: Path | str) -> Pack:
        """Open a pack file read-only; raises StoreError unless it is a complete pack."""
        file = Path(check_path(path, "The pack"))
        if (file / "pack.db").is_file():  # the folder of a WikiGR pack, with its manifest
            file /= "pack.db"
        if not file.is_file():
            raise StoreError(f"No pack at {file}. Build one: resift graph build SOURCE -o {shell_path(file)}")
        ladybug = require("ladybug", extra="graph")
        try:
            database = ladybug.Database(
                str(file), read_only=True, buffer_pool_size=BUFFER_BYTES, max_num_threads=1
            )
            connection = ladybug.Connection(database)
        except Exception as exc:
            raise StoreError(
                f"{file} is not a knowledge pack, or it is damaged. Nothing was changed."
            ) from exc

        def close() -> None:
            connection.close()
            database.close()

        try:
            return cls(connection, name=file.name, close=close)
        except ResiftError:
            close()
            raise

    @property
    def embedder(self) -> str:
        """Name of the embedder that made the vectors."""
        return self.meta.get("embedder", "")

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.meta.get("dimension") or 0)

    @property
    def has_links(self) -> bool:
        """Whether the pack has a table of links."""
        return (WIKIGR_LINKS if self._statements else LINKS) in self.tables

    def close(self) -> None:
        """Close the file, unless the caller opened the connection."""
        with self._lock:
            already, self._closed = self._closed, True
        if not already and self._close is not None:
            self._close()

    def info(self) -> PackInfo:
        """Return counts and metadata."""
        most_linked = self._fetch(MOST_LINKED) if self.has_links else []
        return PackInfo(
            articles=int(self._fetch(COUNT_ARTICLES)[0][0]),
            sections=int(self._fetch(COUNT_SECTIONS)[0][0]),
            links=int(self._fetch(COUNT_LINKS)[0][0]) if self.has_links else 0,
            embedder=self.embedder,
            dimension=self.dimension,
            version=int(self.meta["version"]),
            most_linked=tuple((str(title), int(count)) for title, count, _ in most_linked),
            meta=dict(self.meta),
        )

    def vectors(self) -> Vectors:
        """Return the vectors of all sections; they are read once and cached."""
        with self._loading:
            if self._vectors is None:
                self._vectors = self._read_vectors()
            return self._vectors

    def texts(self) -> list[tuple[str, str]]:
        """Return (id, heading and text) of all sections for keyword search; cached."""
        with self._loading:
            if self._texts is None:
                rows = self._fetch(ALL_TEXTS)
                self._texts = [(str(id), f"{heading}\n{text}") for id, heading, text in rows]
            return self._texts

    def vocabulary(self) -> frozenset[str]:
        """Return the folded words of all sections; cached."""
        if self._vocabulary is None:
            self._vocabulary = frozenset(word for _, text in self.texts() for word in words(text))
        return self._vocabulary

    def sections(self, ids: Sequence[str]) -> list[SectionRow]:
        """Return the sections in the order of the ids, without unknown ones."""
        rows = self._fetch(SECTIONS, {"ids": list(ids)}) if ids else []
        sections = {row[0]: SectionRow(*row) for row in rows}
        return [sections[id] for id in ids if id in sections]

    def neighbors(self, articles: Iterable[str]) -> list[tuple[str, str]]:
        """Return (article, linked article) for links in either direction, sorted."""
        ids = sorted(articles)
        rows = self._fetch(NEIGHBORS, {"ids": ids}) if ids and self.has_links else []
        return [(str(article), str(other)) for article, other in rows]

    def links_among(self, articles: Iterable[str]) -> list[tuple[str, str, int]]:
        """Return (from, to, times) for the links between these articles, sorted."""
        ids = sorted(articles)
        rows = self._fetch(LINKS_AMONG, {"ids": ids}) if ids and self.has_links else []
        return [(str(source), str(target), int(times or 1)) for source, target, times in rows]

    def _fetch(self, statement: str, parameters: JsonMapping | None = None) -> list[list[JsonValue]]:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.name} is closed.", store=self.name)
            try:
                return fetch_rows(self._connection, self._statements.get(statement, statement), parameters)
            except Exception as exc:
                # The message of the engine may quote stored texts.
                raise StoreError(
                    f"{self.name} could not be read ({type(exc).__name__}).", store=self.name
                ) from exc

    def _map_wikigr(self) -> dict[str, str]:
        """Switch to the statements for WikiGR's tables, and note which tables are not used."""
        columns = {str(name): str(type) for name, type in self._fetch(SECTION_COLUMNS)}
        missing = sorted(WIKIGR_COLUMNS - set(columns))
        if missing:
            raise StoreError(
                f"{self.name} looks like a WikiGR database, but its table Section lacks {', '.join(missing)}."
            )
        size = columns["embedding"].partition("[")[2].rstrip("]")
        dimension = int(size) if size.isdigit() else 0
        self._statements = WIKIGR_STATEMENTS
        unused = sorted(self.tables - {ARTICLE, SECTION, HAS_SECTION, WIKIGR_LINKS})
        self.unmapped = tuple(f"table {name}: not used for answers" for name in unused)
        if WIKIGR_LINKS not in self.tables:
            self.unmapped += (f"table {WIKIGR_LINKS}: missing, so there are no links",)
        embedder = WIKIGR_EMBEDDERS.get(dimension, f"unknown, {dimension} dimensions")
        return {"format": WIKIGR, "version": "0", "embedder": embedder, "dimension": str(dimension)}

    def _read_meta(self) -> dict[str, str]:
        meta: dict[str, str] = {}
        if {META, ARTICLE, SECTION} <= self.tables:
            meta = {str(key): str(value) for key, value in self._fetch(READ_META)}
        version = meta.get("version", "")
        if meta.get("format") != FORMAT or not version.isdigit():
            raise StoreError(
                f"{self.name} is a graph database, but not a pack. Build one: resift graph build"
            )
        if int(version) > VERSION:
            raise StoreError(
                f"{self.name} has pack version {version}; this Resift reads up to {VERSION}. Update Resift."
            )
        if meta.get("status") != "complete":
            raise StoreError(
                f"{self.name} is incomplete. Run the same resift graph build again to finish it."
            )
        return meta

    def _read_vectors(self) -> Vectors:
        rows = self._fetch(ALL_VECTORS)
        usable = [row for row in rows if row[2] is not None and len(row[2]) == self.dimension]
        if len(usable) < len(rows) and self._statements:
            count = len(rows) - len(usable)
            self.unmapped += (f"{count} sections: no embedding, so vector search does not find them",)
        matrix = np.asarray([row[2] for row in usable], dtype=np.float32).reshape(len(usable), self.dimension)
        if self._statements and usable:
            norms = np.linalg.norm(matrix, axis=1, keepdims=True)
            matrix /= np.where(norms > 0, norms, np.float32(1))
        return Vectors([str(row[0]) for row in usable], [str(row[1]) for row in usable], matrix)
