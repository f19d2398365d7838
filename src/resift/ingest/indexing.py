"""Files into a SQLiteStore: only what changed, in committed batches, so that a killed run can go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from resift.errors import DataFormatError, InputError
from resift.external.records import check_text_keys
from resift.ingest.chunking import ChunkSize
from resift.ingest.indexed_files import digest_of, folder_of, gone_from, key_of, size_of
from resift.ingest.isolation import FileReader
from resift.ingest.limits import DEFAULT_LIMITS, Limits
from resift.ingest.passages import RowIds, passages_of
from resift.ingest.sections import Section
from resift.ingest.walking import Choice, Found, Skipped, find_files
from resift.stores.read_ahead import read_ahead
from resift.stores.sqlite import SQLiteStore
from resift.stores.sqlite_write import Batch
from resift.types import JsonMapping, JsonObject
from resift.validation import check_arguments

Outcome = Literal["indexed", "unchanged", "empty", "partial", "failed", "removed"]
OnProgress = Callable[[int, int], None]
OnWritten = Callable[[int], None]

_BATCH = 64  # chunks per commit: at most this much work is done again after a kill
_AHEAD = 2  # groups of as many chunks that are read or embedded before their turn
_PARTIAL = "partial "


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file; "partial" where something in it could not be taken.

    `text_fields` are the fields of its records that were read as text.
    """

    path: str
    outcome: Outcome
    chunks: int = 0
    flags: tuple[str, ...] = ()
    reason: str = ""
    text_fields: tuple[str, ...] = ()


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
    def text_fields(self) -> tuple[str, ...]:
        """The fields of records that were read as text, over all files."""
        return tuple(dict.fromkeys(field for file in self.files for field in file.text_fields))

    @property
    def complete(self) -> bool:
        """Whether everything that should be read was."""
        broken = self.count("failed") or self.count("partial") or any(one.failed for one in self.skipped)
        return not broken


@dataclass(frozen=True)
class _Run:
    store: SQLiteStore
    size: ChunkSize
    row_ids: RowIds
    root: Path
    known: dict[str, str]
    reader: FileReader
    was_empty: bool
    text_keys: tuple[str, ...] | None
    preparing: set[asyncio.Task[Batch]] = field(default_factory=set)


@dataclass
class _Source:
    """A file on its way into the index: what was read of it, and what is already written."""

    key: str
    size: int
    digest: str = ""
    failure: str = ""
    flags: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)
    foreign_ids: set[str] = field(default_factory=set)
    text_fields: dict[str, None] = field(default_factory=dict)
    before: set[str] | None = None
    written: set[str] = field(default_factory=set)


class _Part(NamedTuple):
    """Some chunks of a file, which are being embedded; `end` where nothing of it follows, or can be read."""

    source: _Source
    position: int = 0
    documents: Sequence[JsonMapping] = ()
    batch: asyncio.Task[Batch] | None = None
    end: bool = False
    failure: str = ""


@check_arguments
async def index_paths(
    store: SQLiteStore,
    paths: Sequence[Path],
    *,
    size: ChunkSize = ChunkSize(),  # noqa: B008 - an immutable value
    choice: Choice = Choice(),  # noqa: B008 - an immutable value
    limits: Limits = DEFAULT_LIMITS,
    row_ids: RowIds = "own",
    text_keys: Sequence[str] | str | None = None,
    prune: bool = False,
    prune_all: bool = False,
    progress: OnProgress = lambda _done, _total: None,
    written: OnWritten = lambda _count: None,
) -> IndexReport:
    """Bring the store up to date with the files; one file that cannot be read never stops the others.

    A file counts as done only after its last chunk is committed and nothing in it was passed over. Rows of
    JSONL and CSV keep their "own" ids, or have the file's "path" before them; `text_keys` names the fields
    that are their text, instead of the title and every other text field. `prune` forgets files that are
    gone; more than half of the index only with `prune_all`. `progress` hears of bytes, `written` of passages.

    Files are read and cut while earlier ones are embedded, and those written meanwhile that are.
    """
    size.checked()
    keys = check_text_keys(text_keys)
    found = await asyncio.to_thread(find_files, paths, choice, index=Path(store.path))
    if not found.files and not prune and not found.skipped:
        raise InputError("Nothing to index: no file there.")
    root = folder_of(store.path)
    known = dict(await store.sources())
    gone = gone_from(known, {key_of(file, root) for file in found.files}, root) if prune else []
    if len(gone) * 2 > len(known) and not prune_all:
        raise InputError(
            f"{len(gone)} of {len(known)} indexed files are gone, more than half: is a folder missing? "
            "Nothing was changed. To forget them, run it again with --prune --yes."
        )
    total = sum(size_of(file) for file in found.files)
    run = _Run(
        store, size, row_ids, root, known, FileReader(limits, text_keys=keys), not await store.count(), keys
    )
    reports = [await _forget(store, key) for key in gone]
    done = 0
    try:
        async with aclosing(read_ahead(_together(_read(run, found)), depth=_AHEAD)) as groups:
            async for parts in groups:
                written(await _write(run, parts))
                ends = [part for part in parts if part.end]
                reports += await _finish(run, ends)
                done += sum(part.source.size for part in ends)
                progress(done + parts[-1].position, total)
    finally:
        await _cancel(run.preparing)
        await run.reader.close()
    return IndexReport(tuple(reports), await store.count(), tuple(found.skipped))


async def _read(run: _Run, found: Found) -> AsyncGenerator[_Part, None]:
    """Read and cut the files one after the other, and begin to embed what they hold."""
    for file in found.files:
        source = _Source(key_of(file, run.root), size_of(file))
        failure = ""
        try:
            keys = f" {','.join(run.text_keys)}" if run.text_keys else ""
            how = f"{run.size.words} {run.size.overlap} {run.row_ids}{keys}"
            source.digest = await digest_of(file, source.key, how)
            if run.known.get(source.key) != source.digest:
                async with aclosing(_parts(run, file, source, follow=file not in found.listed)) as parts:
                    async for part in parts:
                        yield part
        except (DataFormatError, InputError, OSError) as exc:
            failure = _failure(source.key, exc)
        yield _Part(source, end=True, failure=failure)


async def _parts(run: _Run, file: Path, source: _Source, *, follow: bool) -> AsyncGenerator[_Part, None]:
    waiting: list[JsonObject] = []
    async with aclosing(_documents(run, file, source, follow=follow)) as documents:
        position = 0
        async for section, document in documents:
            waiting.append(document)
            position = section.position
            if len(waiting) == _BATCH:
                yield _Part(source, position, waiting, _prepared(run, waiting))
                waiting = []
    if waiting:
        yield _Part(source, position, waiting, _prepared(run, waiting))


def _prepared(run: _Run, documents: Sequence[JsonMapping]) -> asyncio.Task[Batch]:
    given = [{name: one[name] for name in ("id", "text", "metadata")} for one in documents]
    task = asyncio.create_task(run.store.prepare(given))
    run.preparing.add(task)
    task.add_done_callback(run.preparing.discard)
    return task


async def _cancel(tasks: Iterable[asyncio.Task[Batch]]) -> None:
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _together(parts: AsyncGenerator[_Part, None]) -> AsyncGenerator[list[_Part], None]:
    """Gather parts that are written in one transaction: a commit for each short file would take its time.

    Rows with ids of their own are written alone, since the next file may have the same ids.
    """
    group: list[_Part] = []
    async with aclosing(parts) as source:
        async for part in source:
            alone = any(one["own_id"] for one in part.documents)
            if alone and group:
                yield group
                group = []
            group.append(part)
            if alone or len(group) >= _BATCH or sum(len(one.documents) for one in group) >= _BATCH:
                yield group
                group = []
    if group:
        yield group


async def _begin(run: _Run, source: _Source) -> set[str]:
    """Return the ids that the index holds of a file; from here on it counts as unfinished."""
    if source.before is None:
        if source.key in run.known:
            await run.store.mark_sources({source.key: None})
        source.before = set() if run.was_empty else set(await run.store.ids({"path": source.key}))
    return source.before


async def _write(run: _Run, parts: Sequence[_Part]) -> int:
    """Write some parts in one transaction; return how many passages were written."""
    ready: list[tuple[_Part, Batch]] = []
    for part in parts:
        if part.batch is None or part.source.failure:
            continue
        await _begin(run, part.source)
        try:
            ready.append((part, await _owned(run, part, await part.batch)))
        except InputError as exc:
            part.source.failure = _failure(part.source.key, exc)
    await run.store.write(Batch.joined(batch for _, batch in ready))
    count = 0
    for part, _ in ready:
        ids = {one["id"] for one in part.documents} - part.source.foreign_ids
        part.source.written |= ids
        count += len(ids)
    return count


async def _owned(run: _Run, part: _Part, batch: Batch) -> Batch:
    """Return the batch without rows whose id belongs to another file."""
    source = part.source
    own = [one["id"] for one in part.documents if one["own_id"]]
    for hit in await run.store.get(own) if own else []:
        owner = str(hit.metadata.get("path", ""))
        if owner != source.key:
            there = f"file {owner}" if owner else "a document that came from no file"
            source.foreign[f"the id {hit.id[:100]!r} belongs to {there}; index with --row-ids path"] += 1
            source.foreign_ids.add(hit.id)
    return batch.only({one["id"] for one in part.documents} - source.foreign_ids)


async def _finish(run: _Run, ends: Sequence[_Part]) -> list[FileReport]:
    """Forget what files no longer hold and mark them as done; say what became of each."""
    marks: dict[str, str | None] = {}
    reports = [await _finished(run, part.source, part.failure, marks) for part in ends]
    await run.store.mark_sources(marks)
    return reports


async def _finished(run: _Run, source: _Source, failure: str, marks: dict[str, str | None]) -> FileReport:
    key = source.key
    if failure or source.failure:
        return FileReport(key, "failed", reason=source.failure or failure)
    if run.known.get(key) == source.digest:
        return FileReport(key, "unchanged")
    await run.store.delete(sorted(await _begin(run, source) - source.written))
    problems = source.problems + source.foreign
    chunks, flags, fields = len(source.written), _summary(source.flags), tuple(source.text_fields)
    if problems:
        # Known, so that it can be pruned, but not as done, so that the next run says it again.
        marks[key] = f"{_PARTIAL}{source.digest}"
        return FileReport(key, "partial", chunks, flags, f"{key}: {'; '.join(_summary(problems))}", fields)
    marks[key] = source.digest
    return FileReport(key, "indexed" if chunks else "empty", chunks, flags, text_fields=fields)


def _failure(key: str, exc: Exception) -> str:
    if isinstance(exc, OSError):
        return f"{key}: {exc.strerror or type(exc).__name__}"
    return str(exc) if isinstance(exc, DataFormatError) else f"{key}: {exc}"


async def _documents(
    run: _Run, file: Path, source: _Source, *, follow: bool
) -> AsyncGenerator[tuple[Section, JsonObject], None]:
    copies: Counter[str] = Counter()
    async with aclosing(run.reader.sections(file, name=source.key, follow=follow)) as sections:
        async for section in sections:
            source.flags.update([section.flag] if section.flag else [])
            source.text_fields.update(dict.fromkeys(section.fields))
            source.problems.update([section.problem] if section.problem else [])
            for document in passages_of(
                section, source.key, size=run.size, row_ids=run.row_ids, copies=copies
            ):
                yield section, document


async def _forget(store: SQLiteStore, key: str) -> FileReport:
    ids = await store.ids({"path": key})
    await store.delete(ids)
    await store.mark_sources({key: None})
    return FileReport(key, "removed", len(ids))


def _summary(counted: Counter[str]) -> tuple[str, ...]:
    shown = [f"{text} ({count} times)" if count > 1 else text for text, count in counted.most_common(3)]
    return (*shown, f"and {len(counted) - 3} more") if len(counted) > 3 else tuple(shown)
