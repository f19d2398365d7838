"""Pack: a knowledge pack opened for reading. Every statement is fixed; questions never come near it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from resift._internal.arrays import Array, np
from resift._internal.forking import ForkSafeLock
from resift.agent import pack_schema as schema
from resift.agent.graph_connection import GraphConnection, rows_of
from resift.errors import ResiftError, StoreError, require, shell_path
from resift.text import words
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments, check_path

BUFFER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class PackInfo:
    """What a pack says of itself."""

    articles: int
    sections: int
    links: int
    embedder: str
    dimension: int
    version: int
    most_linked: tuple[tuple[str, int], ...]
    meta: Mapping[str, str]


class SectionRow(NamedTuple):
    """One section with the article it belongs to."""

    id: str
    article: str
    title: str
    heading: str
    position: int
    text: str


class Vectors(NamedTuple):
    """All sections in the order of their ids: rows of the matrix are unit vectors."""

    ids: list[str]
    articles: list[str]
    matrix: Array


class Pack:
    """Reads one pack. Safe to use from several threads; one statement runs at a time."""

    def __init__(
        self, connection: GraphConnection, *, name: str = "pack", close: Callable[[], None] | None = None
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
        self.tables = self._tables()
        self.meta = self._wikigr_meta() if self._is_wikigr() else self._checked_meta()

    @classmethod
    @check_arguments
    def open(cls, path: Path | str) -> Pack:
        """Open a pack file read-only; raises StoreError for anything that is no finished pack."""
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
        """The embedder whose vectors the pack holds."""
        return self.meta.get("embedder", "")

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.meta.get("dimension") or 0)

    @property
    def has_links(self) -> bool:
        """Whether there is a graph at all."""
        return (schema.WIKIGR_LINKS if self._statements else schema.LINKS) in self.tables

    def close(self) -> None:
        """Close the file, unless somebody else opened it."""
        with self._lock:
            already, self._closed = self._closed, True
        if not already and self._close is not None:
            self._close()

    def info(self) -> PackInfo:
        """Return counts and facts."""
        linked = self._rows(schema.MOST_LINKED) if self.has_links else []
        return PackInfo(
            articles=int(self._rows(schema.COUNT_ARTICLES)[0][0]),
            sections=int(self._rows(schema.COUNT_SECTIONS)[0][0]),
            links=int(self._rows(schema.COUNT_LINKS)[0][0]) if self.has_links else 0,
            embedder=self.embedder,
            dimension=self.dimension,
            version=int(self.meta["version"]),
            most_linked=tuple((str(title), int(count)) for title, count, _ in linked),
            meta=dict(self.meta),
        )

    def vectors(self) -> Vectors:
        """Return every section's vector, read once and kept."""
        with self._loading:
            if self._vectors is None:
                self._vectors = self._read_vectors()
            return self._vectors

    def texts(self) -> list[tuple[str, str]]:
        """Return (id, heading and text) of every section, read once and kept: for search by words."""
        with self._loading:
            if self._texts is None:
                rows = self._rows(schema.ALL_TEXTS)
                self._texts = [(str(id), f"{heading}\n{text}") for id, heading, text in rows]
            return self._texts

    def vocabulary(self) -> frozenset[str]:
        """Return every folded word of every section, read once and kept."""
        if self._vocabulary is None:
            rows = self._rows(schema.ALL_TEXTS)
            self._vocabulary = frozenset(
                word for _, heading, text in rows for word in words(f"{heading} {text}")
            )
        return self._vocabulary

    def sections(self, ids: Sequence[str]) -> list[SectionRow]:
        """Return these sections in the order asked for; unknown ids are left out."""
        rows = self._rows(schema.SECTIONS, {"ids": list(ids)}) if ids else []
        found = {row[0]: SectionRow(*row) for row in rows}
        return [found[id] for id in ids if id in found]

    def neighbours(self, articles: Iterable[str]) -> list[tuple[str, str]]:
        """Return (article, article linked with it, either way), sorted."""
        wanted = sorted(articles)
        rows = self._rows(schema.NEIGHBOURS, {"ids": wanted}) if wanted and self.has_links else []
        return [(str(one), str(other)) for one, other in rows]

    def links_among(self, articles: Iterable[str]) -> list[tuple[str, str, int]]:
        """Return (from, to, times) for links between these articles, sorted."""
        wanted = sorted(articles)
        rows = self._rows(schema.LINKS_AMONG, {"ids": wanted}) if wanted and self.has_links else []
        return [(str(one), str(other), int(times or 1)) for one, other, times in rows]

    def _rows(self, statement: str, parameters: JsonMapping | None = None) -> list[list[JsonValue]]:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.name} is closed.", store=self.name)
            try:
                return rows_of(self._connection, self._statements.get(statement, statement), parameters)
            except Exception as exc:
                # The engine's words may quote what is stored.
                raise StoreError(
                    f"{self.name} could not be read ({type(exc).__name__}).", store=self.name
                ) from exc

    def _tables(self) -> frozenset[str]:
        return frozenset(str(row[0]) for row in self._rows(schema.TABLES))

    def _is_wikigr(self) -> bool:
        needed = {schema.ARTICLE, schema.SECTION, schema.HAS_SECTION}
        return needed <= self.tables and schema.META not in self.tables

    def _wikigr_meta(self) -> dict[str, str]:
        """Read WikiGR's tables in place of Resift's, and note which of them are left out."""
        columns = {str(name): str(type) for name, type in self._rows(schema.SECTION_COLUMNS)}
        missing = sorted(schema.WIKIGR_COLUMNS - set(columns))
        if missing:
            raise StoreError(
                f"{self.name} looks like a WikiGR database, but its table Section lacks {', '.join(missing)}."
            )
        size = columns["embedding"].partition("[")[2].rstrip("]")
        dimension = int(size) if size.isdigit() else 0
        self._statements = schema.WIKIGR_READING
        used = {schema.ARTICLE, schema.SECTION, schema.HAS_SECTION, schema.WIKIGR_LINKS}
        self.unmapped = tuple(f"table {name}: not used for answers" for name in sorted(self.tables - used))
        if schema.WIKIGR_LINKS not in self.tables:
            self.unmapped += (f"table {schema.WIKIGR_LINKS}: missing, so there are no links",)
        embedder = schema.WIKIGR_EMBEDDERS.get(dimension, f"unknown, {dimension} dimensions")
        return {
            "format": schema.WIKIGR,
            "version": "0",
            "embedder": embedder,
            "dimension": str(dimension),
        }

    def _checked_meta(self) -> dict[str, str]:
        if not {schema.META, schema.ARTICLE, schema.SECTION} <= self.tables:
            raise StoreError(f"{self.name} is a graph database, but no pack. Build one: resift graph build")
        meta = {str(key): str(value) for key, value in self._rows(schema.READ_META)}
        version = meta.get("version", "")
        if meta.get("format") != schema.FORMAT or not version.isdigit():
            raise StoreError(f"{self.name} is a graph database, but no pack. Build one: resift graph build")
        if int(version) > schema.VERSION:
            raise StoreError(
                f"{self.name} has pack version {version}; this Resift reads up to {schema.VERSION}. "
                "Update Resift."
            )
        if meta.get("status") != "complete":
            raise StoreError(
                f"{self.name} is half built. Run the same resift graph build again to finish it."
            )
        return meta

    def _read_vectors(self) -> Vectors:
        rows = self._rows(schema.ALL_VECTORS)
        usable = [row for row in rows if row[2] is not None and len(row[2]) == self.dimension]
        if len(usable) < len(rows) and self._statements:
            self.unmapped += (
                f"{len(rows) - len(usable)} sections: no embedding, so vectors do not find them",
            )
        matrix = np.asarray([row[2] for row in usable], dtype=np.float32).reshape(len(usable), self.dimension)
        if self._statements and usable:
            norms = np.linalg.norm(matrix, axis=1, keepdims=True)
            matrix /= np.where(norms > 0, norms, np.float32(1))
        return Vectors([str(row[0]) for row in usable], [str(row[1]) for row in usable], matrix)
