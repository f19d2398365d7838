"""Files into a SQLiteStore: only what changed, in committed batches, so that a killed run can go on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from resift.errors import DataFormatError, InputError
from resift.ingest.chunking import ChunkSize, chunks
from resift.ingest.isolation import FileReader
from resift.ingest.limits import DEFAULT_LIMITS, Limits
from resift.ingest.sections import Section
from resift.ingest.sources import open_source
from resift.ingest.walking import Choice, Skipped, find_files
from resift.stores.sqlite import SQLiteStore

Outcome = Literal["indexed", "unchanged", "empty", "partial", "failed", "removed"]
OnProgress = Callable[[int, int], None]
RowIds = Literal["own", "path"]

_BATCH = 64  # chunks per commit: at most this much work is done again after a kill
_FORMAT = "2"  # part of every digest; raise it when readers or chunking change their output
_PARTIAL = "partial "
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file; "partial" where something in it could not be taken."""

    path: str
    outcome: Outcome
    chunks: int = 0
    flags: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What became of all files, and the paths that were not read."""

    files: tuple[FileReport, ...] = ()
    documents: int = 0
    skipped: tuple[Skipped, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """Return how many files ended that way."""
        return sum(file.outcome == outcome for file in self.files)

    def reasons(self) -> dict[str, int]:
        """Return reason -> how many paths were not read for it, most first."""
        return dict(Counter(one.reason for one in self.skipped).most_common())

    @property
    def complete(self) -> bool:
        """Whether everything that should be read was."""
        broken = self.count("failed") or self.count("partial") or any(one.failed for one in self.skipped)
        return not broken


@dataclass
class _Run:
    store: SQLiteStore
    size: ChunkSize
    row_ids: RowIds
    root: Path
    known: dict[str, str]
    progress: OnProgress
    total: int
    reader: FileReader
    done: int = 0
    reports: list[FileReport] = field(default_factory=list)


async def index_paths(
    store: SQLiteStore,
    paths: Sequence[Path],
    *,
    size: ChunkSize = ChunkSize(),  # noqa: B008 - an immutable value
    choice: Choice = Choice(),  # noqa: B008 - an immutable value
    limits: Limits = DEFAULT_LIMITS,
    row_ids: RowIds = "own",
    prune: bool = False,
    prune_all: bool = False,
    progress: OnProgress = lambda _done, _total: None,
) -> IndexReport:
    """Bring the store up to date with the files; one file that cannot be read never stops the others.

    A file counts as done only after its last chunk is committed and nothing in it was passed over. Rows of
    JSONL and CSV keep their "own" ids, or have the file's "path" before them. `prune` forgets files that are
    gone; more than half of the index only with `prune_all`.
    """
    size.checked()
    found = await asyncio.to_thread(find_files, paths, choice, index=Path(store.path))
    if not found.files and not prune and not found.skipped:
        raise InputError("Nothing to index: no file there.")
    root = _folder_of(store)
    known = dict(await store.sources())
    gone = _gone(known, {_key(file, root) for file in found.files}, root) if prune else []
    if len(gone) * 2 > len(known) and not prune_all:
        raise InputError(
            f"{len(gone)} of {len(known)} indexed files are gone, more than half: is a folder missing? "
            "Nothing was changed. To forget them, run it again with --prune --yes."
        )
    total = sum(_size_of(file) for file in found.files)
    run = _Run(store, size, row_ids, root, known, progress, total, FileReader(limits))
    run.reports.extend([await _forget(store, key) for key in gone])
    try:
        for file in found.files:
            run.reports.append(await _index_or_report(run, file, follow=file not in found.listed))
            run.done += _size_of(file)
            progress(run.done, total)
    finally:
        await run.reader.close()
    return IndexReport(tuple(run.reports), await store.count(), tuple(found.skipped))


async def _index_or_report(run: _Run, file: Path, *, follow: bool) -> FileReport:
    key = _key(file, run.root)
    try:
        return await _index_file(run, file, key, follow=follow)
    except DataFormatError as exc:
        return FileReport(key, "failed", reason=str(exc))
    except InputError as exc:
        return FileReport(key, "failed", reason=f"{key}: {exc}")
    except OSError as exc:
        return FileReport(key, "failed", reason=f"{key}: {exc.strerror or type(exc).__name__}")


async def _index_file(run: _Run, file: Path, key: str, *, follow: bool) -> FileReport:
    digest = await _digest(file, key, f"{run.size.words} {run.size.overlap} {run.row_ids}")
    if run.known.get(key) == digest:
        return FileReport(key, "unchanged")
    if key in run.known:
        # From here until the last chunk the file counts as unfinished.
        await run.store.mark_source(key, None)
    before = set(await run.store.ids({"path": key}))
    flags: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    written: set[str] = set()
    batch: list[dict[str, Any]] = []
    async for section, document in _documents(run, file, key, flags, problems, follow=follow):
        batch.append(document)
        if len(batch) == _BATCH:
            written |= await _add(run.store, batch, key, problems)
            batch = []
            run.progress(run.done + section.position, run.total)
    written |= await _add(run.store, batch, key, problems)
    await run.store.delete(sorted(before - written))
    if problems:
        # Known, so that it can be pruned, but not as done, so that the next run says it again.
        await run.store.mark_source(key, f"{_PARTIAL}{digest}")
        reason = f"{key}: {'; '.join(_summary(problems))}"
        return FileReport(key, "partial", len(written), _summary(flags), reason)
    await run.store.mark_source(key, digest)
    return FileReport(key, "indexed" if written else "empty", len(written), _summary(flags))


async def _add(store: SQLiteStore, batch: list[dict[str, Any]], key: str, problems: Counter[str]) -> set[str]:
    """Write a batch, but for rows whose id belongs to another file; return the ids written."""
    own = [one["id"] for one in batch if one["own_id"]]
    taken = {hit.id: str(hit.metadata.get("path", "")) for hit in await store.get(own)} if own else {}
    kept = []
    for one in batch:
        owner = taken.get(one["id"], key)
        if owner == key:
            kept.append({name: one[name] for name in ("id", "text", "metadata")})
        else:
            there = f"file {owner}" if owner else "a document that came from no file"
            problems[f"the id {one['id'][:100]!r} belongs to {there}; index with --row-ids path"] += 1
    await store.add(kept)
    return {one["id"] for one in kept}


async def _documents(
    run: _Run, file: Path, key: str, flags: Counter[str], problems: Counter[str], *, follow: bool
) -> AsyncIterator[tuple[Section, dict[str, Any]]]:
    copies: Counter[str] = Counter()
    sections = run.reader.sections(file, name=key, follow=follow)
    try:
        async for section in sections:
            flags.update([section.flag] if section.flag else [])
            problems.update([section.problem] if section.problem else [])
            for document in _chunked(section, key, run, copies):
                yield section, document
    finally:
        await sections.aclose()  # type: ignore[attr-defined]


def _chunked(section: Section, key: str, run: _Run, copies: Counter[str]) -> list[dict[str, Any]]:
    if not section.text.strip():
        return []
    own_id = section.id if section.id is None or run.row_ids == "own" else f"{key}#{section.id}"
    pieces = [section.text] if own_id is not None else chunks(section.text, run.size)
    found = []
    for number, piece in enumerate(pieces, start=1):
        text = clean(f"{section.context}\n\n{piece}" if section.context else piece)
        id = clean(own_id) if own_id is not None else _chunk_id(key, text, copies)
        place = {"chunk": number} if len(pieces) > 1 else {}
        metadata = {**section.metadata, **place, "path": key}
        found.append({"id": id, "text": text, "metadata": metadata, "own_id": own_id is not None})
    return found


def clean(text: str) -> str:
    """Return the text without what no database or tokenizer takes: NULs and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def _chunk_id(key: str, text: str, copies: Counter[str]) -> str:
    """Name a chunk by file and content, so that an unchanged chunk keeps its id wherever it moves."""
    name = f"{key}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    copies[name] += 1
    return name if copies[name] == 1 else f"{name}-{copies[name]}"


async def _digest(file: Path, key: str, how: str) -> str:
    """Return what changes when the file, or how it is read, changes; only for regular files."""
    digest = hashlib.sha256(f"{_FORMAT} {how}\n".encode())
    with open_source(file, name=key).file as data:
        while block := await asyncio.to_thread(data.read, 1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _gone(known: Iterable[str], present: set[str], root: Path) -> list[str]:
    """Return the indexed files that are no longer there; one that cannot be looked at is not gone."""
    gone = []
    for key in sorted(set(known) - present):
        with contextlib.suppress(OSError):
            if not _path_of(key, root).exists():
                gone.append(key)
    return gone


async def _forget(store: SQLiteStore, key: str) -> FileReport:
    ids = await store.ids({"path": key})
    await store.delete(ids)
    await store.mark_source(key, None)
    return FileReport(key, "removed", len(ids))


def _folder_of(store: SQLiteStore) -> Path:
    return Path(store.path).absolute().parent


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _key(file: Path, root: Path) -> str:
    """Name a file relative to the store, whatever the current folder is; bytes that are no text in hex."""
    absolute = file.absolute()
    try:
        name = Path(os.path.relpath(absolute, root)).as_posix()
    except ValueError:  # another drive
        name = absolute.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _path_of(key: str, root: Path) -> Path:
    """Return the file that a key names."""
    plain = root / key
    if "\\x" not in key or plain.exists():
        return plain
    raw = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), key.encode())
    return root / os.fsdecode(raw)


def _summary(counted: Counter[str]) -> tuple[str, ...]:
    shown = [f"{text} ({count} times)" if count > 1 else text for text, count in counted.most_common(3)]
    return (*shown, f"and {len(counted) - 3} more") if len(counted) > 3 else tuple(shown)
