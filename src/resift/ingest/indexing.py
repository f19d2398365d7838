"""Files into a SQLiteStore: only what changed, in committed batches, so that a killed run can go on."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from resift.errors import DataFormatError, InputError
from resift.ingest.chunking import ChunkSize, chunks
from resift.ingest.readers import files_under, read_sections
from resift.ingest.sections import Section
from resift.stores.sqlite import SQLiteStore

Outcome = Literal["indexed", "unchanged", "empty", "failed", "removed"]
OnProgress = Callable[[int, int], None]

_BATCH = 64  # chunks per commit: at most this much work is done again after a kill
_FORMAT = "1"  # part of every digest; raise it when readers or chunking change their output


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file."""

    path: str
    outcome: Outcome
    chunks: int = 0
    flags: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What became of all files."""

    files: tuple[FileReport, ...] = ()
    documents: int = 0

    def count(self, outcome: Outcome) -> int:
        """Return how many files ended that way."""
        return sum(file.outcome == outcome for file in self.files)


@dataclass
class _Run:
    store: SQLiteStore
    size: ChunkSize
    root: Path
    known: dict[str, str]
    progress: OnProgress
    total: int
    done: int = 0
    reports: list[FileReport] = field(default_factory=list)


async def index_paths(
    store: SQLiteStore,
    paths: Sequence[Path],
    *,
    size: ChunkSize = ChunkSize(),  # noqa: B008 - an immutable value
    prune: bool = False,
    progress: OnProgress = lambda _done, _total: None,
) -> IndexReport:
    """Bring the store up to date with the files; one file that cannot be read never stops the others.

    A file counts as indexed only after its last chunk is committed. `prune` forgets files that are gone.
    """
    size.checked()
    files = files_under(paths)
    if not files and not prune:
        raise InputError("Nothing to index: no text, Markdown, HTML, JSONL, CSV or PDF file there.")
    root = _folder_of(store)
    total = sum(file.stat().st_size for file in files)
    run = _Run(store, size, root, dict(await store.sources()), progress, total)
    for file in files:
        run.reports.append(await _index_or_tell(run, file))
        run.done += file.stat().st_size if file.exists() else 0
        progress(run.done, total)
    if prune:
        run.reports.extend(await _pruned(run, {_key(file, root) for file in files}))
    return IndexReport(tuple(run.reports), await store.count())


async def _index_or_tell(run: _Run, file: Path) -> FileReport:
    key = _key(file, run.root)
    try:
        return await _index_file(run, file, key)
    except DataFormatError as exc:
        return FileReport(key, "failed", reason=str(exc))
    except InputError as exc:
        return FileReport(key, "failed", reason=f"{key}: {exc}")
    except OSError as exc:
        return FileReport(key, "failed", reason=f"{key}: {exc.strerror or type(exc).__name__}")


async def _index_file(run: _Run, file: Path, key: str) -> FileReport:
    digest = _digest(file, run.size)
    if run.known.get(key) == digest:
        return FileReport(key, "unchanged")
    if key in run.known:
        # From here until the last chunk the file counts as unfinished.
        await run.store.mark_source(key, None)
    before = set(await run.store.ids({"path": key}))
    flags: Counter[str] = Counter()
    written: set[str] = set()
    batch: list[dict[str, Any]] = []
    for section, document in _documents(file, key, run.size, flags):
        batch.append(document)
        if len(batch) == _BATCH:
            await run.store.add(batch)
            written.update(one["id"] for one in batch)
            batch = []
            run.progress(run.done + section.position, run.total)
    await run.store.add(batch)
    written.update(one["id"] for one in batch)
    await run.store.delete(sorted(before - written))
    await run.store.mark_source(key, digest)
    return FileReport(key, "indexed" if written else "empty", len(written), _told(flags))


def _documents(
    file: Path, key: str, size: ChunkSize, flags: Counter[str]
) -> Iterator[tuple[Section, dict[str, Any]]]:
    copies: Counter[str] = Counter()
    for section in read_sections(file, name=key):
        if section.flag:
            flags[section.flag] += 1
        if not section.text.strip():
            continue
        pieces = [section.text] if section.id is not None else chunks(section.text, size)
        for number, piece in enumerate(pieces, start=1):
            text = clean(f"{section.context}\n\n{piece}" if section.context else piece)
            id = section.id or _chunk_id(key, text, copies)
            place = {"chunk": number} if len(pieces) > 1 else {}
            yield section, {"id": id, "text": text, "metadata": {**section.metadata, **place, "path": key}}


def clean(text: str) -> str:
    """Return the text without what no database or tokenizer takes: NULs and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def _chunk_id(key: str, text: str, copies: Counter[str]) -> str:
    """Name a chunk by file and content, so that an unchanged chunk keeps its id wherever it moves."""
    name = f"{key}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    copies[name] += 1
    return name if copies[name] == 1 else f"{name}-{copies[name]}"


def _digest(file: Path, size: ChunkSize) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {size.words} {size.overlap}\n".encode())
    with file.open("rb") as data:
        while block := data.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


async def _pruned(run: _Run, present: set[str]) -> list[FileReport]:
    reports = []
    for key in sorted(set(run.known) - present):
        if (run.root / key).exists():
            continue  # not named in this run, but not gone either
        ids = await run.store.ids({"path": key})
        await run.store.delete(ids)
        await run.store.mark_source(key, None)
        reports.append(FileReport(key, "removed", len(ids)))
    return reports


def _folder_of(store: SQLiteStore) -> Path:
    return Path(store.path).absolute().parent


def _key(file: Path, root: Path) -> str:
    """Name a file relative to the store, whatever the current folder is."""
    absolute = file.absolute()
    try:
        return Path(os.path.relpath(absolute, root)).as_posix()
    except ValueError:  # another drive
        return absolute.as_posix()


def _told(flags: Counter[str]) -> tuple[str, ...]:
    shown = [f"{flag} ({count} times)" if count > 1 else flag for flag, count in flags.most_common(3)]
    return (*shown, f"and {len(flags) - 3} more") if len(flags) > 3 else tuple(shown)
