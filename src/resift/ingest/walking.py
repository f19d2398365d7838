"""List the files to read: all files named by the caller, and the readable ones in folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from resift._internal.files import O_NOFOLLOW, O_NONBLOCK
from resift.errors import DataFormatError, InputError, require
from resift.ingest.sources import GZIP, SAMPLE_BYTES, has_reader, is_readable

PACKAGE_FOLDERS = frozenset({"node_modules", "bower_components", "jspm_packages", "site-packages", "__pycache__"})
# Files that mark a folder to skip. Cargo's `target`, for example, contains a CACHEDIR.TAG.
_FOLDER_MARKERS = {"pyvenv.cfg": "a virtual environment", "CACHEDIR.TAG": "a cache"}
_MAX_IGNORE_FILE_BYTES = 1 << 20
_MAX_PATTERN_LENGTH = 1_000
_MAX_PATTERN_GLOBSTARS = 3  # each "**" multiplies the matching time by the depth of the path
_MAX_DEPTH = 100
POLL_INTERVAL_S = 2.0


class Skipped(NamedTuple):
    """A skipped path and the reason. `failed` marks paths that need attention."""

    path: Path
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Selects the files to read in a folder. Patterns follow the rules of .gitignore."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    gitignore: bool = True


@dataclass(slots=True)
class FoundFiles:
    """The files to read, in order; the subset listed from folders; and the skipped paths."""

    files: list[Path] = field(default_factory=list)
    listed: set[Path] = field(default_factory=set)
    skipped: list[Skipped] = field(default_factory=list)


def find_files(
    paths: Iterable[Path], file_filter: FileFilter = FileFilter(), *, index: Path | None = None
) -> FoundFiles:
    """Return the files under the paths, except the index. Symbolic links inside folders are not followed."""
    walk = FolderWalk(file_filter, index)
    for path in paths:
        if stat.S_ISDIR(_stat(path).st_mode):
            walk.add_folder(path, path, [], 0)
        elif not walk.is_index(path):
            walk.found.files.append(path)
    walk.found.files = list(dict.fromkeys(walk.found.files))
    return walk.found


def check_paths(paths: Iterable[Path]) -> None:
    """Raise DataFormatError for a path that does not exist."""
    for path in paths:
        _stat(path)


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except (OSError, ValueError) as exc:  # ValueError: the name is not a valid path
        raise DataFormatError("No such file or folder.", file=str(path)) from exc


async def watch(
    paths: Sequence[Path],
    file_filter: FileFilter = FileFilter(),
    *,
    index: Path | None = None,
    interval_s: float = POLL_INTERVAL_S,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Yield immediately, then after each change under the paths, until canceled."""

    def stamp_files() -> dict[Path, tuple[int, int]]:
        stamps = {}
        existing = [path for path in paths if path.exists()]
        for file in find_files(existing, file_filter, index=index).files:
            with contextlib.suppress(OSError):  # deleted since it was listed
                status = file.stat()
                stamps[file] = (status.st_mtime_ns, status.st_size)
        return stamps

    before: dict[Path, tuple[int, int]] | None = None
    while True:
        now = await asyncio.to_thread(stamp_files)
        if now != before:
            before = now
            yield
        await sleep(interval_s)


class IgnoreRule(NamedTuple):
    """One line of a .gitignore file."""

    regex: re.Pattern[str]
    ignores: bool
    folders_only: bool


RulesByFolder = Sequence[tuple[str, list[IgnoreRule]]]
"""Folders, relative to the root, with the rules of their .gitignore files; outermost folder first."""


def parse_ignore_rules(lines: Iterable[str]) -> list[IgnoreRule]:
    """Return the rules of a .gitignore file, in order."""
    rules = []
    for line in lines:
        text = line if line.endswith("\\ ") else line.rstrip()
        # pathspec lets a pattern with a trailing slash match everything in the folder; git does not.
        body = text.rstrip("/")
        regex, ignores = _compile_pattern(body)
        if regex is not None:
            rules.append(IgnoreRule(regex, ignores, text != body))
    return rules


def is_ignored(rules: Sequence[IgnoreRule], path: str, *, folder: bool) -> bool | None:
    """Return whether the rules ignore a path relative to their folder, or None if none matches. The last match wins."""
    for rule in reversed(rules):
        match = rule.regex.search(path) if folder or not rule.folders_only else None
        # A group matches if the pattern matched a folder above the path. That folder was already checked.
        if match is not None and match.lastgroup is None:
            return rule.ignores
    return None


def compile_patterns(patterns: Sequence[str], option: str) -> list[re.Pattern[str]]:
    """Compile the patterns of --include or --exclude."""
    compiled = []
    for pattern in patterns:
        regex, includes = _compile_pattern(pattern)
        if regex is None or not includes:
            raise InputError(f"{option} takes patterns such as '*.md' or 'docs/**', without '!' or '#'.")
        compiled.append(regex)
    return compiled


def _compile_pattern(text: str) -> tuple[re.Pattern[str] | None, bool]:
    """Translate a .gitignore pattern to a regular expression that takes linear time per name.

    For `*a*a*a`, pathspec's expression tries every way to divide a name. The first match of each part before
    the last star is as good as any later one, so these parts become atomic groups.
    """
    translator = require("pathspec.patterns.gitignore.spec", extra="files").GitIgnoreSpecPattern
    translated = None
    if len(text) <= _MAX_PATTERN_LENGTH and text.count("**") <= _MAX_PATTERN_GLOBSTARS:
        with contextlib.suppress(ValueError):  # git ignores patterns that it cannot parse
            translated, includes = translator.pattern_to_regex(text)
    if translated is None:
        return None, False
    star = "[^/]*"
    regex, *parts = translated.split(star)
    for number, part in enumerate(parts, start=1):
        ends_name = number == len(parts) or "/" in part.replace("[^/]", "")
        regex += f"{star}{part}" if ends_name else f"(?>{star}?{part})"
    return re.compile(regex), bool(includes)


class FolderWalk:
    """Lists folders recursively and collects the files to read and the skipped paths."""

    def __init__(
        self,
        file_filter: FileFilter,
        index: Path | None,
        scandir: Callable[[Path], Iterable[os.DirEntry[str]]] = os.scandir,
    ) -> None:
        self.found = FoundFiles()
        self._include = compile_patterns(file_filter.include, "--include")
        self._exclude = compile_patterns(file_filter.exclude, "--exclude")
        self._gitignore = file_filter.gitignore
        self._index = None if index is None else index.absolute()
        self._scandir = scandir

    def is_index(self, path: Path) -> bool:
        """Return whether a path is the index or one of the files that SQLite keeps next to it."""
        if self._index is None or path.absolute().parent != self._index.parent:
            return False
        return path.name in {self._index.name + ending for ending in ("", "-wal", "-shm", "-journal")}

    def add_folder(self, root: Path, folder: Path, rules: RulesByFolder, depth: int) -> None:
        """Add the files of a folder and its subfolders. `rules` are those of the parent folders."""
        if depth > _MAX_DEPTH:
            self._skip(folder, "nested too deeply", failed=True)
            return
        try:
            entries = sorted(self._scandir(folder), key=lambda entry: os.fsencode(entry.name))
        except OSError as exc:
            self._skip(folder, exc.strerror or type(exc).__name__, failed=True)
            return
        if self._gitignore and (own_rules := self._load_rules(folder / ".gitignore")):
            rules = [*rules, (folder.relative_to(root).as_posix(), own_rules)]
        for entry in entries:
            path = Path(entry.path)
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                reason = self._reason_to_skip(root, entry, rules, is_folder=is_folder)
            except OSError as exc:
                self._skip(path, exc.strerror or type(exc).__name__, failed=True)
                continue
            if reason:
                self._skip(path, reason)
            elif is_folder:
                self.add_folder(root, path, rules, depth + 1)
            elif not self.is_index(path):
                self.found.files.append(path)
                self.found.listed.add(path)

    def _reason_to_skip(self, root: Path, entry: os.DirEntry[str], rules: RulesByFolder, *, is_folder: bool) -> str:
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if entry.name.startswith("."):
            return "hidden"
        if entry.is_symlink():
            return _describe_link(path, root)
        # The nearest .gitignore with a match decides.
        names = ((own, name if base == "." else name.removeprefix(f"{base}/")) for base, own in reversed(rules))
        decisions = (is_ignored(own, relative, folder=is_folder) for own, relative in names)
        if next((ignored for ignored in decisions if ignored is not None), False):
            return "ignored by .gitignore"
        if any(regex.search(name) for regex in self._exclude):
            return "excluded by --exclude"
        if is_folder:
            marker = next((kind for file, kind in _FOLDER_MARKERS.items() if (path / file).is_file()), "")
            return f"in {entry.name}" if entry.name in PACKAGE_FOLDERS else marker
        return self._reason_to_skip_file(path, name, entry)

    def _reason_to_skip_file(self, path: Path, name: str, entry: os.DirEntry[str]) -> str:
        if not entry.is_file(follow_symlinks=False):
            return "not a regular file"
        if self._include and not any(regex.search(name) for regex in self._include):
            return "not in --include"
        return "" if self.is_index(path) or _is_text(path) else "not text"

    def _load_rules(self, path: Path) -> list[IgnoreRule]:
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                return []
            with path.open("rb") as file:
                text = file.read(_MAX_IGNORE_FILE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as exc:
            self._skip(path, exc.strerror or type(exc).__name__, failed=True)
            return []
        return parse_ignore_rules(text.splitlines())

    def _skip(self, path: Path, reason: str, *, failed: bool = False) -> None:
        self.found.skipped.append(Skipped(path, reason, failed))


def _is_text(path: Path) -> bool:
    """Return whether a file can be read, judging by its suffix or else by its content."""
    suffix = path.suffix.lower()
    if has_reader(suffix) or suffix == GZIP:
        return True
    # The file may have become a pipe since it was listed. Without O_NONBLOCK, opening a pipe could block forever.
    descriptor = os.open(path, os.O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return is_readable(file.read(SAMPLE_BYTES))


def _describe_link(path: Path, root: Path) -> str:
    try:
        inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # pathlib raises RuntimeError for a loop
        return "a circular link"
    return "a link inside the folder" if inside else "a link to outside the folder"
