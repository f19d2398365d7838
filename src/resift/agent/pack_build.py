"""Build a pack from articles in a working file, which replaces the target when it is complete. Builds can resume."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from resift import __version__
from resift._internal.files import cache_folder
from resift.agent.articles import Article, find_sources, read_articles, resolve_links
from resift.agent.pack import FORMAT, META, STATEMENTS, VERSION, fetch_rows
from resift.errors import InputError, StoreError, require
from resift.ingest.chunking import ChunkSize, clean
from resift.protocols import Embedder
from resift.stores.base import embed_texts, embedder_name
from resift.types import JsonObject
from resift.validation import check_arguments, check_path

if TYPE_CHECKING:
    from ladybug import Connection, Database

OnProgress = Callable[[int, int], None]  # called with (finished sections, all sections)

PASSAGE_SIZE = ChunkSize(160, 30)
_BATCH = 32  # sections per commit, about a second of work
_LINK_BATCH = 2000


class BuildReport(NamedTuple):
    """Counts of a build, and the files that could not be read."""

    articles: int
    sections: int
    links: int
    resumed: int
    failed: tuple[str, ...]
    not_read: tuple[str, ...] = ()  # skipped paths and parts without text, each with the reason


@check_arguments
async def build_pack(
    source: Path | str,
    target: Path | str,
    *,
    embedder: Embedder | None = None,
    size: ChunkSize = PASSAGE_SIZE,
    progress: OnProgress | None = None,
) -> BuildReport:
    """Build a pack from a folder or file of any kind that `resift index` reads, or resume an interrupted build.

    The target is replaced only when the new pack is complete. Files that cannot be read are listed in the report.
    """
    target_path = Path(check_path(target, "target"))
    root, files = await asyncio.to_thread(find_sources, Path(check_path(source, "source")), target=target_path)
    if embedder is None:
        from resift.models.embedder import Embedder as LocalEmbedder

        embedder = LocalEmbedder()
    failed, not_read = list[str](), list[str]()
    for skipped in files.skipped:
        path = skipped.path
        inside = path.is_relative_to(root) and not skipped.failed
        name = path.relative_to(root).as_posix() if inside else path
        (failed if skipped.failed else not_read).append(f"{name}: {skipped.reason}")
    stream = read_articles(root, files.files, size=size, failed=failed.append, incomplete=not_read.append)
    unique: dict[str, Article] = {}
    async with contextlib.aclosing(stream):
        async for article in stream:
            if article.id in unique:
                failed.append(f"{article.source}: duplicate article id {article.id!r}; only the first is kept.")
            else:
                unique[article.id] = article
    articles = list(unique.values())
    if not articles:
        raise InputError(f"{source} contains no articles. {' '.join(failed[:3])}".strip())
    dimension = int((await embed_texts(embedder, ["dimension"], kind="document", store="pack")).shape[1])
    digest = _content_digest(articles, embedder_name(embedder), dimension)
    with _working_file(target_path, digest, dimension) as connection:
        finished = {str(row[0]) for row in fetch_rows(connection, STATEMENTS["build"]["article_ids"])}
        total = sum(len(article.passages) for article in articles)
        new = [article for article in articles if article.id not in finished]
        done = total - sum(len(article.passages) for article in new)
        report = progress or (lambda *_: None)
        batch: list[Article] = []
        for article in new:
            batch.append(article)
            if sum(len(waiting.passages) for waiting in batch) >= _BATCH or article is new[-1]:
                async for embedded in _add_batch(connection, batch, embedder, dimension):
                    done += embedded
                    report(done, total)
                batch = []
        report(total, total)
        links = _write_links_and_meta(connection, articles, embedder_name(embedder), dimension)
    return BuildReport(len(articles), total, links, len(finished), tuple(failed), tuple(not_read))


async def _add_batch(
    connection: Connection, articles: Sequence[Article], embedder: Embedder, dimension: int
) -> AsyncIterator[int]:
    """Embed the sections, yield the size of each step, and commit them with their articles."""
    rows: list[JsonObject] = [
        {
            "id": f"{article.id}#{position}",
            "article": article.id,
            "position": position,
            "heading": passage.heading,
            "text": passage.text,
        }
        for article in articles
        for position, passage in enumerate(article.passages, start=1)
    ]
    parts = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
    for part in parts:
        texts = [f"{row['heading']}\n{row['text']}" for row in part]
        for row, vector in zip(part, await embed_texts(embedder, texts, kind="document", store="pack"), strict=True):
            row["embedding"] = [float(value) for value in vector]
        yield len(part)
    heads = [{"id": article.id, "title": article.title, "source": article.source} for article in articles]
    with _transaction(connection):
        connection.execute(STATEMENTS["build"]["add_articles"], {"rows": _make_storable(heads)})
        statement = STATEMENTS["build"]["add_sections"].format(dimension=dimension)
        for part in parts:
            connection.execute(statement, {"rows": _make_storable(part)})


def _content_digest(articles: Sequence[Article], embedder: str, dimension: int) -> str:
    """Return a digest of the content. An unfinished build is resumed only if its digest is the same."""
    digest = hashlib.sha256(repr((VERSION, embedder, dimension)).encode())
    for article in articles:
        passages = [(passage.heading, passage.text) for passage in article.passages]
        digest.update(repr((article.id, article.title, passages)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@contextlib.contextmanager
def _working_file(target: Path, digest: str, dimension: int) -> Iterator[Connection]:
    """Yield a connection to the working file, then move the file to the target."""
    if target.exists() and not target.is_file():
        raise InputError(f"{target} is not a file, so it cannot be replaced; choose another path.")
    working = target.with_name(target.name + ".building")
    target.parent.mkdir(parents=True, exist_ok=True)
    database, connection = _open_for_writing(working)
    try:
        meta = {}
        if META in {row[0] for row in fetch_rows(connection, STATEMENTS["inspect"]["tables"])}:
            meta = {str(key): str(value) for key, value in fetch_rows(connection, STATEMENTS["read"]["meta"])}
        if meta.get("digest", "") not in ("", digest):  # built from other articles
            connection.close()
            database.close()
            _remove_working_file(working)
            database, connection = _open_for_writing(working)
        for statement in STATEMENTS["create"].values():
            connection.execute(statement.format(dimension=dimension))
        connection.execute(STATEMENTS["build"]["write_meta"], {"key": "digest", "value": digest})
        yield connection
        connection.execute("CHECKPOINT")
    finally:
        connection.close()
        database.close()
    working.replace(target)
    _remove_working_file(working)


def _open_for_writing(path: Path) -> tuple[Database, Connection]:
    ladybug = require("ladybug", extra="graph")
    try:
        database = ladybug.Database(str(path), buffer_pool_size=512 << 20, max_num_threads=1)
        return database, ladybug.Connection(database)
    except Exception as exc:
        raise StoreError(
            f"{path} cannot be opened for building ({type(exc).__name__}). "
            "Another build may be running; if not, delete that file and start again."
        ) from exc


def _remove_working_file(working: Path) -> None:
    """Remove the working file and the files that the engine keeps next to it."""
    for suffix in ("", ".wal", ".shadow", ".checkpoint"):
        working.with_name(working.name + suffix).unlink(missing_ok=True)


def _write_links_and_meta(connection: Connection, articles: Sequence[Article], embedder: str, dimension: int) -> int:
    """Write the links between the articles, mark the pack as complete, and return the number of links."""
    links = resolve_links(articles)
    rows = [{"one": source, "other": other, "times": times} for (source, other), times in links.items()]
    meta = {
        "format": FORMAT,
        "version": str(VERSION),
        "embedder": embedder,
        "dimension": str(dimension),
        "built_by": f"resift {__version__}",
        "status": "complete",
    }
    with _transaction(connection):
        connection.execute(STATEMENTS["build"]["delete_links"])
        for start in range(0, len(rows), _LINK_BATCH):
            connection.execute(STATEMENTS["build"]["add_links"], {"rows": rows[start : start + _LINK_BATCH]})
        for key, value in meta.items():
            connection.execute(STATEMENTS["build"]["write_meta"], {"key": key, "value": value})
    return len(rows)


@contextlib.contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _make_storable(rows: list[JsonObject]) -> list[JsonObject]:
    """Replace lone surrogates and NULs, which the engine cannot store."""
    return [{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]


ARTICLES = Path(__file__).parent / "sample" / "articles"  # the sample articles, which are Markdown files


async def sample_pack(folder: Path | None = None, *, progress: OnProgress | None = None) -> Path:
    """Return the path of the sample pack. It is built if the folder (the cache by default) does not contain it."""
    digest = hashlib.sha256(str(VERSION).encode())
    for path in sorted(ARTICLES.glob("*.md")):
        digest.update(path.name.encode() + path.read_bytes())
    target = (folder or cache_folder("packs")) / f"lighthouses-{digest.hexdigest()[:12]}.lbug"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Each build has its own folder, so that two processes never share a working file.
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            built = Path(temporary) / target.name
            await build_pack(ARTICLES, built, progress=progress)
            built.replace(target)
    return target
