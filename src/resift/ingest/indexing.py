"""Update an index from files. Only changes are embedded, in batches, so that an interrupted run can resume."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from resift.errors import DataFormatError, InputError, MissingExtraError, ModelNotAllowedError, StoreError
from resift.external.records import check_text_keys
from resift.ingest.chunking import ChunkSize, IndexedPassage, RowIds, split_section
from resift.ingest.sources import DEFAULT_LIMITS, FileLimits, open_source
from resift.ingest.walking import FileFilter, FoundFiles, Skipped, find_files
from resift.ingest.worker import FileReader, file_size
from resift.stores.base import read_ahead
from resift.stores.sqlite import SQLiteStore
from resift.stores.sqlite.writer import Batch
from resift.validation import check_arguments

Outcome = Literal["indexed", "unchanged", "empty", "partial", "failed", "removed"]

_FORMAT = "3"  # part of every digest; increment it when the output of readers or chunking changes
_BATCH = 64  # passages per commit; at most this much work is repeated after a crash
_READ_AHEAD = 2  # batches to read and embed while earlier ones are written
_HEX_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class FileReport:
    """The outcome for one file, and the record fields that were read as text."""

    path: str
    outcome: Outcome
    chunks: int = 0
    flags: tuple[str, ...] = ()
    reason: str = ""
    text_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The outcome for all files, and the skipped paths."""

    files: tuple[FileReport, ...] = ()
    documents: int = 0
    skipped: tuple[Skipped, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """Return the number of files with this outcome."""
        return sum(file.outcome == outcome for file in self.files)

    def reasons(self) -> dict[str, int]:
        """Return reason -> number of paths skipped for it, most frequent first."""
        return dict(Counter(path.reason for path in self.skipped).most_common())

    def failures(self) -> list[str]:
        """Return the reason for each failed file. A missing parser is listed once for all affected files."""
        files: dict[str, list[FileReport]] = {}
        for file in self.files:
            reason = file.reason.removeprefix(f"{file.path}: ")
            if reason:
                files.setdefault(reason if MissingExtraError.HINT in reason else file.reason, []).append(file)
        return [
            group[0].reason if len(group) == 1 else f"{len(group)} files, such as {group[0].path}: {reason}"
            for reason, group in files.items()
        ]

    @property
    def text_fields(self) -> tuple[str, ...]:
        """The record fields that were read as text, across all files."""
        return tuple(dict.fromkeys(field for file in self.files for field in file.text_fields))

    @property
    def complete(self) -> bool:
        """Whether every file was read without problems."""
        has_failures = any(file.outcome in ("failed", "partial") for file in self.files)
        return not has_failures and not any(path.failed for path in self.skipped)


@check_arguments
async def index_paths(
    store: SQLiteStore,
    paths: Sequence[Path],
    *,
    size: ChunkSize = ChunkSize(),  # noqa: B008 - an immutable value
    file_filter: FileFilter = FileFilter(),  # noqa: B008 - an immutable value
    limits: FileLimits = DEFAULT_LIMITS,
    row_ids: RowIds = "own",
    text_keys: Sequence[str] | str | None = None,
    prune: bool = False,
    prune_all: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    written: Callable[[int], None] = lambda _count: None,
    choice: FileFilter | None = None,
) -> IndexReport:
    """Update the store from the files. A file that cannot be read does not stop the others.

    A file is marked as done once its last passage is committed, unless something in it was skipped. Rows keep
    their "own" ids, or the "path" of the file is put before each. `prune` deletes the passages of files that no
    longer exist; if more than half of the files are gone, `prune_all` is also required. `progress` is called
    with bytes, `written` with passages.
    """
    size.validate()
    if choice is not None:
        warnings.warn("choice= is now file_filter=", DeprecationWarning, stacklevel=2)
        file_filter = choice
    keys = check_text_keys(text_keys)
    found_files = await asyncio.to_thread(find_files, paths, file_filter, index=Path(store.path))
    if not found_files.files and not prune and not found_files.skipped:
        raise InputError("Nothing to index: no files found.")
    root = (await asyncio.to_thread(Path(store.path).absolute)).parent
    digests = dict(await store.sources())
    deleted = _find_deleted(digests, {_file_key(file, root) for file in found_files.files}, root) if prune else []
    if len(deleted) * 2 > len(digests) and not prune_all:
        raise InputError(
            f"{len(deleted)} of {len(digests)} indexed files are gone, more than half: is a folder missing? "
            "Nothing was changed. To delete them from the index, run again with --prune --yes."
        )
    total = sum(file_size(file) for file in found_files.files)
    run = _Run(store, size, row_ids, root, digests, FileReader(limits, text_keys=keys), not await store.count(), keys)
    reports, done = [], 0
    for key in deleted:
        ids = await store.ids({"path": key})
        await store.delete(ids)
        await store.mark_sources({key: None})
        reports.append(FileReport(key, "removed", len(ids)))
    try:
        async with aclosing(read_ahead(_group_parts(_read_files(run, found_files)), depth=_READ_AHEAD)) as groups:
            async for parts in groups:
                written(await _write_parts(run, parts))
                ends = [part for part in parts if part.end]
                marks: dict[str, str | None] = {}
                reports += [await _finish_file(run, part.file, part.failure, marks) for part in ends]
                await store.mark_sources(marks)
                done += sum(part.file.size for part in ends)
                progress(done + parts[-1].position, total)
    finally:
        embedding = list(run.embedding)
        for task in embedding:
            task.cancel()
        await asyncio.gather(*embedding, return_exceptions=True)
        await run.reader.close()
    return IndexReport(tuple(reports), await store.count(), tuple(found_files.skipped))


@dataclass(frozen=True)
class _Run:
    store: SQLiteStore
    size: ChunkSize
    row_ids: RowIds
    root: Path
    digests: dict[str, str]
    reader: FileReader
    was_empty: bool
    text_keys: tuple[str, ...] | None
    embedding: set[asyncio.Task[Batch]] = field(default_factory=set)


@dataclass
class _File:
    """A file being indexed: its problems so far, and the ids already written."""

    key: str
    size: int
    digest: str = ""
    failure: str = ""
    flags: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    conflicting_ids: set[str] = field(default_factory=set)
    text_fields: dict[str, None] = field(default_factory=dict)
    ids_before: set[str] | None = None
    written: set[str] = field(default_factory=set)


class _Part(NamedTuple):
    """Passages of a file, with the task that embeds them. `end` is set on the last part of a file."""

    file: _File
    position: int = 0
    passages: Sequence[IndexedPassage] = ()
    batch: asyncio.Task[Batch] | None = None
    end: bool = False
    failure: str = ""


async def _read_files(run: _Run, found_files: FoundFiles) -> AsyncGenerator[_Part, None]:
    """Read and split the files one at a time, and start embedding their passages."""
    keys = f" {','.join(run.text_keys)}" if run.text_keys else ""
    settings = f"{run.size.words} {run.size.overlap} {run.row_ids}{keys}"
    for path in found_files.files:
        file = _File(_file_key(path, run.root), file_size(path))
        failure = ""
        try:
            digest = hashlib.sha256(f"{_FORMAT} {settings}\n".encode())
            with open_source(path, name=file.key).file as data:
                while block := await asyncio.to_thread(data.read, 1 << 22):
                    digest.update(block)
            file.digest = digest.hexdigest()
            if run.digests.get(file.key) != file.digest:
                async with aclosing(_read_parts(run, path, file, follow=path not in found_files.listed)) as parts:
                    async for part in parts:
                        yield part
        except (DataFormatError, InputError, OSError) as exc:
            failure = _describe_failure(file.key, exc)
        yield _Part(file, end=True, failure=failure)


async def _read_parts(run: _Run, path: Path, file: _File, *, follow: bool) -> AsyncGenerator[_Part, None]:
    pending: list[IndexedPassage] = []
    copies: Counter[str] = Counter()
    position = chunks = 0
    async with aclosing(run.reader.sections(path, name=file.key, follow=follow)) as sections:
        async for section in sections:
            file.flags.update([section.flag] if section.flag else [])
            file.problems.update([section.problem] if section.problem else [])
            file.text_fields.update(dict.fromkeys(section.fields))
            size, row_ids = run.size, run.row_ids
            for passage in split_section(section, file.key, size=size, row_ids=row_ids, copies=copies, position=chunks):
                chunks += 1
                pending.append(passage)
                position = section.position
                if len(pending) == _BATCH:
                    yield _Part(file, position, pending, _start_embedding(run, pending))
                    pending = []
    if pending:
        yield _Part(file, position, pending, _start_embedding(run, pending))


def _start_embedding(run: _Run, passages: Sequence[IndexedPassage]) -> asyncio.Task[Batch]:
    documents = [{key: value for key, value in passage.items() if key != "own_id"} for passage in passages]
    task = asyncio.create_task(run.store.prepare(documents))
    run.embedding.add(task)
    task.add_done_callback(run.embedding.discard)
    return task


async def _group_parts(parts: AsyncGenerator[_Part, None]) -> AsyncGenerator[list[_Part], None]:
    """Group parts into transactions. Rows with ids get their own, because the next file may contain the same ids."""
    group: list[_Part] = []
    async with aclosing(parts) as source:
        async for part in source:
            is_separate = any(passage["own_id"] for passage in part.passages)
            if is_separate and group:
                yield group
                group = []
            group.append(part)
            if is_separate or len(group) >= _BATCH or sum(len(each.passages) for each in group) >= _BATCH:
                yield group
                group = []
    if group:
        yield group


async def _write_parts(run: _Run, parts: Sequence[_Part]) -> int:
    """Write parts in one transaction. Returns the number of passages."""
    ready: list[tuple[_Part, Batch]] = []
    for part in parts:
        if part.batch is None or part.file.failure:
            continue
        await _load_ids_before(run, part.file)
        try:
            ready.append((part, await _drop_conflicts(run, part, await part.batch)))
        except InputError as exc:
            part.file.failure = _describe_failure(part.file.key, exc)
    await run.store.write(Batch.join(batch for _, batch in ready))
    count = 0
    for part, _ in ready:
        ids = {passage["id"] for passage in part.passages} - part.file.conflicting_ids
        part.file.written |= ids
        count += len(ids)
    return count


async def _load_ids_before(run: _Run, file: _File) -> set[str]:
    """Return the ids of a file that are already in the index, and mark the file as unfinished."""
    if file.ids_before is None:
        if file.key in run.digests:
            await run.store.mark_sources({file.key: None})
        file.ids_before = set() if run.was_empty else set(await run.store.ids({"path": file.key}))
    return file.ids_before


async def _drop_conflicts(run: _Run, part: _Part, batch: Batch) -> Batch:
    """Return the batch without rows whose id belongs to another file."""
    file = part.file
    own_ids = [passage["id"] for passage in part.passages if passage["own_id"]]
    for hit in await run.store.get(own_ids) if own_ids else []:
        owner = str(hit.metadata.get("path", ""))
        if owner != file.key:
            origin = f"file {owner}" if owner else "a document that does not come from a file"
            file.problems[f"the id {hit.id[:100]!r} belongs to {origin}; index with --row-ids path"] += 1
            file.conflicting_ids.add(hit.id)
    return batch.select({passage["id"] for passage in part.passages} - file.conflicting_ids)


async def _finish_file(run: _Run, file: _File, failure: str, marks: dict[str, str | None]) -> FileReport:
    """Delete the passages that a file no longer contains, and record the state of the file in `marks`."""
    key = file.key
    if reason := file.failure or failure:
        if not file.written:
            return FileReport(key, "failed", reason=reason)
        # Keep the passages read before the failure, and those of the rest from an earlier run.
        marks[key] = f"partial {file.digest}"
        return FileReport(key, "partial", len(file.written), reason=reason)
    if run.digests.get(key) == file.digest:
        return FileReport(key, "unchanged")
    await run.store.delete(sorted(await _load_ids_before(run, file) - file.written))
    chunks, flags, fields = len(file.written), _summarize(file.flags), tuple(file.text_fields)
    if file.problems:
        # Record the file as partial: it can be pruned, and the next run reports its problems again.
        marks[key] = f"partial {file.digest}"
        return FileReport(key, "partial", chunks, flags, f"{key}: {'; '.join(_summarize(file.problems))}", fields)
    marks[key] = file.digest
    return FileReport(key, "indexed" if chunks else "empty", chunks, flags, text_fields=fields)


def _describe_failure(key: str, exc: Exception) -> str:
    if isinstance(exc, OSError):
        return f"{key}: {exc.strerror or type(exc).__name__}"
    return str(exc) if isinstance(exc, DataFormatError) else f"{key}: {exc}"


def _summarize(counts: Counter[str]) -> tuple[str, ...]:
    shown = [f"{text} ({count} times)" if count > 1 else text for text, count in counts.most_common(3)]
    return (*shown, f"and {len(counts) - 3} more") if len(counts) > 3 else tuple(shown)


def _file_key(file: Path, root: Path) -> str:
    """Return the path of a file relative to the store, with undecodable bytes in hex."""
    absolute = file.absolute()
    try:
        name = Path(os.path.relpath(absolute, root)).as_posix()
    except ValueError:  # the file is on another drive
        name = absolute.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _find_deleted(indexed: Iterable[str], present: set[str], root: Path) -> list[str]:
    """Return the indexed files that no longer exist. A file that cannot be checked counts as existing."""
    deleted = []
    for key in sorted(set(indexed) - present):
        raw = _HEX_ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), key.encode())
        with contextlib.suppress(OSError):
            if not (root / key).exists() and not (root / os.fsdecode(raw)).exists():
                deleted.append(key)
    return deleted


@check_arguments
def open_index(
    path: Path,
    *,
    embedder: str | None = None,
    language: str | None = None,
    text_only: bool = False,
    read_only: bool = False,
) -> SQLiteStore:
    """Open a store. An existing file keeps its embedder and language; `text_only` creates or uses no vectors."""
    store = SQLiteStore(path, language=language, read_only=read_only, create=not read_only)
    if text_only:
        return store
    try:
        metadata = store.metadata()
        # None for an empty file, which can still be built with or without an embedder.
        built_with = metadata.embedder or ("" if metadata.generation else None)
        if built_with is not None and embedder not in (None, built_with):
            raise StoreError(
                f"{path} was built with {built_with or 'no embedder'}, not with {embedder}. "
                "Omit --embedder, or index into a new file."
            )
        model = embedder if built_with is None else built_with
        if model != "":
            from resift.models.embedder import DEFAULT_EMBEDDER, Embedder

            try:
                store.use_embedder(Embedder(model or DEFAULT_EMBEDDER))
            except ModelNotAllowedError as exc:
                if not built_with:
                    raise
                raise StoreError(
                    f"{path} was built with {built_with}, which is not an allowed model here. Open it for "
                    "keyword search (text_only=True, --text-only), or allow it: resift.models.allow_local."
                ) from exc
    except BaseException:
        store.release()
        raise
    return store
