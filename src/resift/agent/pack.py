"""Knowledge packs: the reader `Pack`, and centrality in the link graph.

WikiGR databases (github.com/rysweet/agent-kgpacks) can also be read. Tables and statements are in statements.toml.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from resift._internal.arrays import Array, np
from resift._internal.forking import ForkSafeLock
from resift.errors import InputError, ResiftError, StoreError, require, shell_path
from resift.models.loading import Lazy
from resift.text import words
from resift.types import FusedHits, Hit, JsonMapping, JsonValue, StageKind, StageRecord, Trace, get_trace, with_scores
from resift.validation import check_arguments, check_fields, check_path

if TYPE_CHECKING:
    from ladybug import Connection

BUFFER_BYTES = 256 << 20

FORMAT = "resift-pack"
VERSION = 1

ARTICLE, SECTION, META, HAS_SECTION, LINKS = "Article", "Section", "Meta", "HAS_SECTION", "LINKS"

WIKIGR = "wikigr"
WIKIGR_LINKS = "LINKS_TO"
WIKIGR_COLUMNS = frozenset({"section_id", "title", "content", "embedding"})
WIKIGR_EMBEDDERS = {768: "BAAI/bge-base-en-v1.5", 384: "sentence-transformers/paraphrase-MiniLM-L3-v2"}
"""Dimension -> embedder used by WikiGR, which the database does not record."""

STATEMENTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    resources.files("resift.agent").joinpath("statements.toml").read_text(encoding="utf-8")
)


def fetch_rows(connection: Connection, statement: str, parameters: JsonMapping | None = None) -> list[list[JsonValue]]:
    """Run a statement and return all rows."""
    result = connection.execute(statement, dict(parameters or {}))
    assert not isinstance(result, list)  # noqa: S101 - a list is returned only for several statements
    rows = result.get_all()
    result.close()  # an open result holds memory in the engine
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
    """Reads a pack. Threads can share it, and it runs one statement at a time."""

    def __init__(self, connection: Connection, *, name: str = "pack", close: Callable[[], None] | None = None) -> None:
        self.name = name
        self._connection = connection
        self._close = close
        self._lock = ForkSafeLock()
        self._closed = False
        self.vectors = Lazy(self._read_vectors)
        """Returns the vectors of all sections."""
        self.texts = Lazy(self._read_texts)
        """Returns (id, heading and text) for all sections, for keyword search."""
        self.vocabulary = Lazy(lambda: frozenset(word for _, text in self.texts() for word in words(text)))
        """Returns the case-folded words of all sections."""
        self._statements = {**STATEMENTS["inspect"], **STATEMENTS["read"]}
        self.unmapped: tuple[str, ...] = ()
        """Parts of a WikiGR database that are not used, each with the reason."""
        self.tables = frozenset(str(row[0]) for row in self._fetch("tables"))
        self._is_wikigr = {ARTICLE, SECTION, HAS_SECTION} <= self.tables and META not in self.tables
        self.meta = self._map_wikigr() if self._is_wikigr else self._read_meta()

    @classmethod
    @check_arguments
    def open(cls, path: Path | str) -> Pack:
        """Open a pack file read-only. Raises StoreError unless it is a complete pack."""
        file = Path(check_path(path, "The pack"))
        if (file / "pack.db").is_file():  # the folder of a WikiGR pack, with its manifest
            file /= "pack.db"
        if not file.is_file():
            raise StoreError(f"No pack at {file}. Build one: resift graph build SOURCE -o {shell_path(file)}")
        ladybug = require("ladybug", extra="graph")
        try:
            database = ladybug.Database(str(file), read_only=True, buffer_pool_size=BUFFER_BYTES, max_num_threads=1)
            connection = ladybug.Connection(database)
        except Exception as exc:
            raise StoreError(f"{file} is not a knowledge pack, or it is damaged. Nothing was changed.") from exc

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
        """Name of the embedder that produced the vectors."""
        return self.meta.get("embedder", "")

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.meta.get("dimension") or 0)

    @property
    def has_links(self) -> bool:
        """Whether the pack has a table of links."""
        return (WIKIGR_LINKS if self._is_wikigr else LINKS) in self.tables

    def close(self) -> None:
        """Close the file, unless the caller opened the connection."""
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed and self._close is not None:
            self._close()

    def info(self) -> PackInfo:
        """Return counts and metadata."""
        most_linked = self._fetch("most_linked") if self.has_links else []
        return PackInfo(
            articles=int(self._fetch("count_articles")[0][0]),
            sections=int(self._fetch("count_sections")[0][0]),
            links=int(self._fetch("count_links")[0][0]) if self.has_links else 0,
            embedder=self.embedder,
            dimension=self.dimension,
            version=int(self.meta["version"]),
            most_linked=tuple((str(title), int(count)) for title, count, _ in most_linked),
            meta=dict(self.meta),
        )

    def _read_vectors(self) -> Vectors:
        rows = self._fetch("all_vectors")
        usable = [row for row in rows if row[2] is not None and len(row[2]) == self.dimension]
        if len(usable) < len(rows) and self._is_wikigr:
            count = len(rows) - len(usable)
            self.unmapped += (f"{count} sections: no embedding, so vector search does not find them",)
        matrix = np.asarray([row[2] for row in usable], dtype=np.float32).reshape(len(usable), self.dimension)
        if self._is_wikigr and usable:
            norms = np.linalg.norm(matrix, axis=1, keepdims=True)
            matrix /= np.where(norms > 0, norms, np.float32(1))
        return Vectors([str(row[0]) for row in usable], [str(row[1]) for row in usable], matrix)

    def _read_texts(self) -> list[tuple[str, str]]:
        return [(str(id), f"{heading}\n{text}") for id, heading, text in self._fetch("all_texts")]

    def sections(self, ids: Sequence[str]) -> list[SectionRow]:
        """Return the sections in the order of the ids. Unknown ids are skipped."""
        rows = self._fetch("sections", {"ids": list(ids)}) if ids else []
        sections = {row[0]: SectionRow(*row) for row in rows}
        return [sections[id] for id in ids if id in sections]

    def neighbors(self, articles: Iterable[str]) -> list[tuple[str, str]]:
        """Return sorted (article, linked article) pairs for links in either direction."""
        ids = sorted(articles)
        rows = self._fetch("neighbors", {"ids": ids}) if ids and self.has_links else []
        return [(str(article), str(other)) for article, other in rows]

    def links_among(self, articles: Iterable[str]) -> list[tuple[str, str, int]]:
        """Return sorted (from, to, times) tuples for the links between these articles."""
        ids = sorted(articles)
        rows = self._fetch("links_among", {"ids": ids}) if ids and self.has_links else []
        return [(str(source), str(target), int(times or 1)) for source, target, times in rows]

    def _fetch(self, name: str, parameters: JsonMapping | None = None) -> list[list[JsonValue]]:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.name} is closed.", store=self.name)
            try:
                return fetch_rows(self._connection, self._statements[name], parameters)
            except Exception as exc:
                # The engine's message may quote stored texts.
                raise StoreError(f"{self.name} could not be read ({type(exc).__name__}).", store=self.name) from exc

    def _map_wikigr(self) -> dict[str, str]:
        """Switch to the statements for WikiGR's tables, record unused tables, and return the metadata."""
        columns = {str(name): str(type) for name, type in self._fetch("section_columns")}
        missing = sorted(WIKIGR_COLUMNS - set(columns))
        if missing:
            raise StoreError(f"{self.name} looks like a WikiGR database, but table Section lacks {', '.join(missing)}.")
        size = columns["embedding"].partition("[")[2].rstrip("]")
        dimension = int(size) if size.isdigit() else 0
        self._statements |= STATEMENTS["wikigr"]
        unused = sorted(self.tables - {ARTICLE, SECTION, HAS_SECTION, WIKIGR_LINKS})
        self.unmapped = tuple(f"table {name}: not used for answers" for name in unused)
        if WIKIGR_LINKS not in self.tables:
            self.unmapped += (f"table {WIKIGR_LINKS}: missing, so there are no links",)
        embedder = WIKIGR_EMBEDDERS.get(dimension, f"unknown, {dimension} dimensions")
        return {"format": WIKIGR, "version": "0", "embedder": embedder, "dimension": str(dimension)}

    def _read_meta(self) -> dict[str, str]:
        meta: dict[str, str] = {}
        if {META, ARTICLE, SECTION} <= self.tables:
            meta = {str(key): str(value) for key, value in self._fetch("meta")}
        version = meta.get("version", "")
        if meta.get("format") != FORMAT or not version.isdigit():
            raise StoreError(f"{self.name} is a graph database, but not a pack. Build one: resift graph build")
        if int(version) > VERSION:
            raise StoreError(f"{self.name} has pack version {version}; Resift reads up to {VERSION}. Update Resift.")
        if meta.get("status") != "complete":
            raise StoreError(f"{self.name} is incomplete. Run the same resift graph build again to finish it.")
        return meta


STAGE = "centrality"
PARTS = ("relevance", "similarity", "pagerank")
MAX_HOPS = 3
MAX_NODES = 100


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Articles with their distance in hops from the articles of the hits, and the links between them."""

    distance: dict[str, int] = field(default_factory=dict)
    links: tuple[tuple[str, str, int], ...] = ()


def expand(pack: Pack, articles: Sequence[str], *, hops: int = 1, max_nodes: int = MAX_NODES) -> Neighborhood:
    """Follow links in both directions. If there are too many articles, the most linked ones are kept."""
    check_bounds(hops, max_nodes)
    distance = dict.fromkeys(list(dict.fromkeys(articles))[:max_nodes], 0)
    frontier = list(distance)
    for hop in range(1, hops + 1):
        counts = Counter(other for _, other in pack.neighbors(frontier) if other not in distance)
        frontier = sorted(counts, key=lambda id: (-counts[id], id))[: max_nodes - len(distance)]
        distance.update(dict.fromkeys(frontier, hop))
        if not frontier:
            break
    return Neighborhood(distance, tuple(pack.links_among(distance)))


def check_bounds(hops: int, max_nodes: int) -> None:
    """Raise InputError if the bounds of an expansion are out of range."""
    if type(hops) is not int or not 0 <= hops <= MAX_HOPS:
        raise InputError(f"hops is {hops!r}; pass 0 to {MAX_HOPS}.")
    if type(max_nodes) is not int or not 1 <= max_nodes <= MAX_NODES:
        raise InputError(f"max_nodes is {max_nodes!r}; pass 1 to {MAX_NODES}.")


@dataclass(frozen=True)
class GraphReranker:
    """Combines relevance, vector similarity and the centrality of a hit's article, each scaled to 0–1 within the pool.

    The random walk starts at the hits, in proportion to their relevance, and follows links in both directions. In a
    neighborhood with fewer than `min_mean_degree` links per article, centrality is not used, and a note reports it.
    """

    name: ClassVar[str] = "graph"

    relevance_weight: float = 0.5
    vector_weight: float = 0.4
    centrality_weight: float = 0.1
    _: KW_ONLY
    damping: float = 0.85
    min_mean_degree: float = 2.0

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.weights) < 0 or not math.isclose(math.fsum(self.weights), 1.0, abs_tol=1e-9):
            raise InputError(f"The weights are {self.weights}; they must not be negative and must sum to 1.")
        if not 0 < self.damping < 1:
            raise InputError(f"damping is {self.damping}; pass a number between 0 and 1, such as 0.85.")

    @property
    def weights(self) -> tuple[float, float, float]:
        """The weights of relevance, vector similarity and centrality."""
        return self.relevance_weight, self.vector_weight, self.centrality_weight

    def rerank(self, hits: Sequence[Hit], neighborhood: Neighborhood, *, trace: Trace | None = None) -> FusedHits:
        """Return the hits in their new order; their similarities are the first-stage scores in the trace."""
        note, weights = "", self.weights
        # Links in both directions count once.
        pairs = {frozenset((source, target)) for source, target, _ in neighborhood.links if source != target}
        degree = 2 * len(pairs) / len(neighborhood.distance) if neighborhood.distance else 0.0
        if degree < self.min_mean_degree:
            note = f"graph too sparse for centrality: {degree:.1f} links per article, "
            note += f"{self.min_mean_degree:g} needed"
            total = math.fsum(weights[:2])
            weights = (weights[0] / total, weights[1] / total, 0.0) if total else (1.0, 0.0, 0.0)
        relevance = _scale({hit.id: hit.score or 0.0 for hit in hits})
        cosines = scores_by_kind(get_trace(hits) if trace is None else trace, StageKind.RETRIEVE)
        similarity = _scale({hit.id: cosines.get(hit.id, hit.score or 0.0) for hit in hits})
        ranks: dict[str, float] = {}
        if not note:
            starts: dict[str, float] = {}
            for hit in hits:
                # Every hit is a starting point, even the least relevant one, because it was retrieved.
                weight = max(starts.get(article_id(hit), 0.0), 0.05 + relevance[hit.id])
                starts[article_id(hit)] = weight
            ranks = self.pagerank(neighborhood, starts)
        centrality = _scale({hit.id: ranks.get(article_id(hit), 0.0) for hit in hits})
        parts = {
            name: {id: weight * value for id, value in part.items()}
            for name, weight, part in zip(PARTS, weights, (relevance, similarity, centrality), strict=True)
        }
        totals = {hit.id: math.fsum(part[hit.id] for part in parts.values()) for hit in hits}
        order = sorted(hits, key=lambda hit: (-totals[hit.id], hit.id))
        ids = tuple(hit.id for hit in order)
        scores = tuple(totals[id] for id in ids)
        record = StageRecord(kind=StageKind.RERANK, name=STAGE, ids=ids, scores=scores, parts=parts, note=note)
        return FusedHits(with_scores(order, scores), record)

    def pagerank(self, neighborhood: Neighborhood, starts: Mapping[str, float]) -> dict[str, float]:
        """Return the personalized PageRank of each article, for a walk that restarts at `starts`."""
        rustworkx = require("rustworkx", extra="graph")
        graph = rustworkx.PyDiGraph(multigraph=False)
        names = sorted(neighborhood.distance)
        nodes = dict(zip(names, graph.add_nodes_from(names), strict=True))
        edges = {(source, target) for source, target, _ in neighborhood.links}
        edges |= {(target, source) for source, target in edges}
        graph.add_edges_from([(nodes[source], nodes[target], 1.0) for source, target in sorted(edges)])
        restarts = {nodes[name]: weight for name, weight in starts.items() if name in nodes and weight > 0}
        shares = rustworkx.pagerank(
            graph, alpha=self.damping, weight_fn=float, personalization=restarts or None, tol=1e-10, max_iter=1000
        )
        return {name: float(shares[node]) for name, node in nodes.items()}


def article_id(hit: Hit) -> str:
    """Return the id of the article that a hit belongs to."""
    return str(hit.metadata.get("article", hit.id))


def _scale(values: Mapping[str, float]) -> dict[str, float]:
    """Scale values to 0–1; equal values become 1."""
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    if high <= low:
        return dict.fromkeys(values, 1.0)
    return {id: (value - low) / (high - low) for id, value in values.items()}


def scores_by_kind(trace: Trace, kind: StageKind, source: str = "") -> dict[str, float]:
    """Return id -> score in the first record of this kind (and source) that scored the hit."""
    return {
        id: score
        for record in reversed(trace.by_kind(kind))
        # The source of a store view ends with its mode, as in notes.vectors.
        if not source or record.source == source or record.source.endswith(f".{source}")
        for id, score in zip(record.ids, record.scores, strict=True)
        if score is not None
    }
