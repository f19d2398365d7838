"""Articles into a pack: embedded and committed in batches beside the target, renamed when complete."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from resift import __version__
from resift.agent import pack_schema as schema
from resift.agent.articles import Article, find_sources, read_articles
from resift.agent.graph_connection import GraphConnection, rows_of
from resift.agent.links import LinkResolver
from resift.errors import InputError, StoreError, require
from resift.ingest.chunking import ChunkSize
from resift.protocols import Embedder
from resift.stores.embedding import identity_of, unit_vectors
from resift.types import JsonObject
from resift.validation import check_arguments, check_path

OnProgress = Callable[[int, int], None]
"""Called with (sections done, sections in all)."""

PASSAGE = ChunkSize(160, 30)
_BATCH = 32  # sections per commit, about a second of work: what a kill can cost
_LINK_BATCH = 2000


class BuildReport(NamedTuple):
    """What a build did."""

    articles: int
    sections: int
    links: int
    resumed: int
    failed: tuple[str, ...]
    not_read: tuple[str, ...] = ()
    """Paths that were left out on purpose and parts that have no text, each with the reason."""


@dataclass
class _Work:
    connection: GraphConnection
    embedder: Embedder
    dimension: int
    progress: OnProgress
    total: int
    finished: set[str]
    done: int = 0
    batch: list[Article] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return sum(len(article.passages) for article in self.batch)


@check_arguments
async def build_pack(
    source: Path | str,
    target: Path | str,
    *,
    embedder: Embedder | None = None,
    size: ChunkSize = PASSAGE,
    progress: OnProgress | None = None,
) -> BuildReport:
    """Build a pack from a folder or file; a run that was killed goes on where it was.

    Every kind of file that `resift index` reads becomes articles: Word, PDF, slides, tables, mail, code.
    The target appears only when it is complete and replaces an older one at once. Files that cannot be
    read are listed in the report, and everything else is built.
    """
    place = Path(check_path(target, "target"))
    root, found = await asyncio.to_thread(find_sources, Path(check_path(source, "source")), target=place)
    chosen = embedder or _default_embedder()
    failed = [f"{one.path}: {one.reason}" for one in found.skipped if one.failed]
    not_read = [f"{_within(one.path, root)}: {one.reason}" for one in found.skipped if not one.failed]
    reading = read_articles(root, found.files, size=size, failed=failed.append, incomplete=not_read.append)
    async with contextlib.aclosing(reading):
        articles = _unique([article async for article in reading], failed)
    if not articles:
        raise InputError(f"{source} has no article. {' '.join(failed[:3])}".strip())
    dimension = int((await unit_vectors(chosen, ["dimension"], kind="document", store="pack")).shape[1])
    digest = _digest(articles, identity_of(chosen), dimension)
    with _working_file(place, digest, dimension) as connection:
        done = {str(row[0]) for row in rows_of(connection, schema.ARTICLE_IDS)}
        total = sum(len(article.passages) for article in articles)
        work = _Work(connection, chosen, dimension, progress or _silent, total, done)
        await _add_articles(work, articles)
        links = _finish(connection, articles, identity_of(chosen))
    return BuildReport(len(articles), total, links, len(done), tuple(failed), tuple(not_read))


def _within(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _default_embedder() -> Embedder:
    from resift.models.embedder import Embedder as LocalEmbedder

    return LocalEmbedder()


def _unique(articles: Iterable[Article], failed: list[str]) -> list[Article]:
    """Return the articles with the first of each id; others are reported."""
    found: dict[str, Article] = {}
    for article in articles:
        if article.id in found:
            failed.append(
                f"{article.source}: the article {article.id!r} is there already; only the first is kept."
            )
        else:
            found[article.id] = article
    return list(found.values())


def _digest(articles: Sequence[Article], embedder: str, dimension: int) -> str:
    """Return what must be equal for an unfinished build to be continued."""
    whole = hashlib.sha256(repr((schema.VERSION, embedder, dimension)).encode())
    for article in articles:
        whole.update(repr((article.id, article.title, article.passages)).encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


@contextlib.contextmanager
def _working_file(target: Path, digest: str, dimension: int) -> Iterator[GraphConnection]:
    """Yield a connection to the file under construction, and put it in its place at the end."""
    ladybug = require("ladybug", extra="graph")
    if target.exists() and not target.is_file():
        raise InputError(f"{target} is no file that could be replaced; name another one for the pack.")
    working = target.with_name(target.name + ".building")
    target.parent.mkdir(parents=True, exist_ok=True)
    database, connection = _opened(ladybug, working)
    try:
        if _begun(connection) not in ("", digest):
            connection.close()
            database.close()
            _remove(working)
            database, connection = _opened(ladybug, working)
        for statement in schema.CREATE_TABLES:
            connection.execute(statement.format(dimension=dimension))
        _set(connection, "digest", digest)
        yield connection
        connection.execute("CHECKPOINT")
    finally:
        connection.close()
        database.close()
    working.replace(target)
    _remove(working)


def _opened(ladybug: ModuleType, path: Path) -> tuple[Any, Any]:
    try:
        database = ladybug.Database(str(path), buffer_pool_size=512 << 20, max_num_threads=1)
        return database, ladybug.Connection(database)
    except Exception as exc:
        raise StoreError(
            f"{path} cannot be opened for building ({type(exc).__name__}). "
            "Another build may be running; if not, delete that file and start again."
        ) from exc


def _begun(connection: GraphConnection) -> str:
    if "Meta" not in {row[0] for row in rows_of(connection, schema.TABLES)}:
        return ""
    meta = {str(key): str(value) for key, value in rows_of(connection, schema.READ_META)}
    return meta.get("digest", "")


def _remove(working: Path) -> None:
    """Remove the file under construction and what the engine keeps beside it, and nothing else."""
    for suffix in ("", ".wal", ".shadow", ".checkpoint"):
        working.with_name(working.name + suffix).unlink(missing_ok=True)


async def _add_articles(work: _Work, articles: Sequence[Article]) -> None:
    for article in articles:
        if article.id in work.finished:
            work.done += len(article.passages)
            continue
        work.batch.append(article)
        if work.waiting >= _BATCH:
            await _commit(work)
    await _commit(work)
    work.progress(work.total, work.total)


async def _commit(work: _Work) -> None:
    batch, work.batch = work.batch, []
    if not batch:
        return
    rows = [
        {
            "id": f"{article.id}#{position}",
            "article": article.id,
            "position": position,
            "heading": passage.heading,
            "text": passage.text,
        }
        for article in batch
        for position, passage in enumerate(article.passages, start=1)
    ]
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        texts = [f"{row['heading']}\n{row['text']}" for row in part]
        vectors = await unit_vectors(work.embedder, texts, kind="document", store="pack")
        for row, vector in zip(part, vectors, strict=True):
            row["embedding"] = [float(value) for value in vector]
        work.done += len(part)
        work.progress(work.done, work.total)
    heads = [{"id": article.id, "title": article.title, "source": article.source} for article in batch]
    with _transaction(work.connection):
        work.connection.execute(schema.ADD_ARTICLES, {"rows": _clean(heads)})
        statement = schema.ADD_SECTIONS.format(dimension=work.dimension)
        for start in range(0, len(rows), _BATCH):
            work.connection.execute(statement, {"rows": _clean(rows[start : start + _BATCH])})


def _finish(connection: GraphConnection, articles: Sequence[Article], embedder: str) -> int:
    resolver = LinkResolver()
    for article in articles:
        resolver.add(article.id, article.aliases, article.targets)
    rows = [{"one": one, "other": other, "times": times} for (one, other), times in resolver.links().items()]
    dimension = rows_of(connection, "MATCH (s:Section) RETURN size(s.embedding) LIMIT 1")
    with _transaction(connection):
        connection.execute("MATCH (:Article)-[l:LINKS]->(:Article) DELETE l")
        for start in range(0, len(rows), _LINK_BATCH):
            connection.execute(schema.ADD_LINKS, {"rows": rows[start : start + _LINK_BATCH]})
        facts = {
            "format": schema.FORMAT,
            "version": str(schema.VERSION),
            "embedder": embedder,
            "dimension": str(dimension[0][0]),
            "built_by": f"resift {__version__}",
            "status": "complete",
        }
        for key, value in facts.items():
            _set(connection, key, value)
    return len(rows)


@contextlib.contextmanager
def _transaction(connection: GraphConnection) -> Iterator[None]:
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _set(connection: GraphConnection, key: str, value: str) -> None:
    connection.execute(schema.WRITE_META, {"key": key, "value": value})


def _clean(rows: list[JsonObject]) -> list[JsonObject]:
    """Replace lone surrogates and NUL, which the engine cannot store."""
    return [
        {
            key: value.encode("utf-8", "replace").decode().replace("\x00", " ")
            if isinstance(value, str)
            else value
            for key, value in row.items()
        }
        for row in rows
    ]


def _silent(_done: int, _total: int) -> None:
    return None
