"""Which files a run reads: named ones as they are, folders by their content; a reason for each left out."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resift._internal.atomic_files import O_NOFOLLOW, O_NONBLOCK
from resift.errors import DataFormatError, InputError
from resift.ingest.decoding import SAMPLE_BYTES
from resift.ingest.ignoring import Rule, ignored, matches, rules_of
from resift.ingest.kinds import has_reader, suffix_by_content, unreadable

PACKAGE_FOLDERS = frozenset(
    {"node_modules", "bower_components", "jspm_packages", "site-packages", "__pycache__"}
)
_MARKED_FOLDERS = {"pyvenv.cfg": "a virtual environment", "CACHEDIR.TAG": "a cache"}
"""A file in a folder that says what the folder is: cargo's `target`, for one, has a CACHEDIR.TAG."""

_MOST_IGNORE_BYTES = 1 << 20
_DEEPEST = 100

Rules = Sequence[tuple[str, list[Rule]]]
"""Per folder, from the outermost on, what its .gitignore says."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that is not read, and why; `failed` where somebody should look after it."""

    path: Path
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What a folder's files must be to be read: patterns as in .gitignore."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    gitignore: bool = True


@dataclass(slots=True)
class Found:
    """The files to read, in order, those among them that came from folders, and what was left out."""

    files: list[Path] = field(default_factory=list)
    listed: set[Path] = field(default_factory=set)
    skipped: list[Skipped] = field(default_factory=list)


def find_files(paths: Iterable[Path], choice: Choice = Choice(), *, index: Path | None = None) -> Found:
    """Return the files under the paths; a link out of a folder is never followed.

    `index` is the file being written, never read. Raises DataFormatError for a path that is not there.
    """
    walk = _Walk(choice, index)
    for path in paths:
        status = _status(path)
        if stat.S_ISDIR(status.st_mode):
            walk.folder(path, path, [], 0)
        elif not walk.is_index(path):
            walk.found.files.append(path)
    walk.found.files = list(dict.fromkeys(walk.found.files))
    return walk.found


def check_paths(paths: Iterable[Path]) -> None:
    """Raise DataFormatError for a path that does not exist."""
    for path in paths:
        _status(path)


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except (OSError, ValueError) as exc:  # ValueError: a name that no file can have
        raise DataFormatError("No such file or folder.", file=str(path)) from exc


def files_under(paths: Iterable[Path]) -> list[Path]:
    """Return the files to read under the paths."""
    return find_files(paths).files


class _Walk:
    def __init__(
        self,
        choice: Choice,
        index: Path | None,
        scandir: Callable[[Path], Iterable[os.DirEntry[str]]] = os.scandir,
    ) -> None:
        self.found = Found()
        self._include = _patterns(choice.include, "--include")
        self._exclude = _patterns(choice.exclude, "--exclude")
        self._gitignore = choice.gitignore
        self._index = None if index is None else index.absolute()
        self._scandir = scandir

    def is_index(self, path: Path) -> bool:
        """Say whether a path is the index or one of the files that SQLite keeps beside it."""
        if self._index is None or path.absolute().parent != self._index.parent:
            return False
        beside = {self._index.name + ending for ending in ("", "-wal", "-shm", "-journal")}
        return path.name in beside

    def folder(self, root: Path, folder: Path, rules: Rules, depth: int) -> None:
        """Take the files of a folder and of those in it; `rules` are those of the folders above."""
        if depth > _DEEPEST:
            self._skip(folder, "nested too deeply", failed=True)
            return
        try:
            entries = sorted(self._scandir(folder), key=lambda entry: os.fsencode(entry.name))
        except OSError as exc:
            self._skip(folder, exc.strerror or type(exc).__name__, failed=True)
            return
        within = folder.relative_to(root).as_posix()
        here = [*rules, (within, self._rules(folder))] if self._gitignore else []
        for entry in entries:
            self._entry(root, entry, here, depth)

    def _entry(self, root: Path, entry: os.DirEntry[str], rules: Rules, depth: int) -> None:
        path = Path(entry.path)
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            reason = self._reason(root, entry, rules, is_folder=is_folder)
        except OSError as exc:
            self._skip(path, exc.strerror or type(exc).__name__, failed=True)
            return
        if reason:
            self._skip(path, reason)
        elif is_folder:
            self.folder(root, path, rules, depth + 1)
        elif not self.is_index(path):
            self.found.files.append(path)
            self.found.listed.add(path)

    def _reason(self, root: Path, entry: os.DirEntry[str], rules: Rules, *, is_folder: bool) -> str:
        """Return why a path is left out, or ""."""
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if entry.name.startswith("."):
            return "hidden"
        if entry.is_symlink():
            return _link_reason(path, root)
        if _is_ignored(rules, name, folder=is_folder):
            return "ignored by .gitignore"
        if matches(self._exclude, name):
            return "left out by --exclude"
        return _folder_reason(path) if is_folder else self._file_reason(path, name, entry)

    def _file_reason(self, path: Path, name: str, entry: os.DirEntry[str]) -> str:
        if not entry.is_file(follow_symlinks=False):
            return "not a regular file"
        if self._include and not matches(self._include, name):
            return "not in --include"
        return "" if self.is_index(path) else _no_text(path)

    def _rules(self, folder: Path) -> list[Rule]:
        path = folder / ".gitignore"
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                return []
            with path.open("rb") as file:
                text = file.read(_MOST_IGNORE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as exc:
            self._skip(path, exc.strerror or type(exc).__name__, failed=True)
            return []
        return rules_of(text.splitlines())

    def _skip(self, path: Path, reason: str, *, failed: bool = False) -> None:
        self.found.skipped.append(Skipped(path, reason, failed))


def _folder_reason(path: Path) -> str:
    """Return why a folder inside a named one is left out: nobody wrote what is in it to be searched."""
    if path.name in PACKAGE_FOLDERS:
        return f"in {path.name}"
    return next((kind for name, kind in _MARKED_FOLDERS.items() if (path / name).is_file()), "")


def _is_ignored(rules: Rules, name: str, *, folder: bool) -> bool:
    """Ask the rules of the nearest folder first."""
    for within, listed in reversed(rules):
        inner = name if within == "." else name.removeprefix(f"{within}/")
        verdict = ignored(listed, inner, folder=folder)
        if verdict is not None:
            return verdict
    return False


def _no_text(path: Path) -> str:
    """Return why a file whose suffix says nothing is not read, or "" if its content is text."""
    suffix = path.suffix.lower()
    if has_reader(suffix) or suffix == ".gz":
        return ""
    # It may have become a pipe since it was listed; opening one would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        sample = file.read(SAMPLE_BYTES)
    return "" if suffix_by_content(sample) else unreadable(sample)


def _patterns(patterns: Sequence[str], option: str) -> list[Rule]:
    rules = rules_of(patterns)
    if len(rules) != len(patterns) or any(rule.negated for rule in rules):
        raise InputError(f"{option} takes patterns such as '*.md' or 'docs/**', without '!' or '#'.")
    return rules


def _link_reason(path: Path, root: Path) -> str:
    try:
        inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # RuntimeError is what pathlib makes of a circle
        return "a link that leads in a circle"
    return "a link inside the folder" if inside else "a link out of the folder"
