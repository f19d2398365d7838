"""Whether a folder holds exactly a model's files: nothing linked, nothing extra, nothing of another kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from resift.errors import ModelFileError

MANIFEST = "resift-manifest.json"
SUFFIXES = (".onnx", ".safetensors", ".json", ".txt")
_MAX_ENTRIES = 64
_MAX_DEPTH = 3


def open_folder(path: Path | str) -> Path:
    """Return the folder's real path, or say why it is none."""
    try:
        folder = Path(path).expanduser().resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as exc:
        raise ModelFileError(f"Model folder {str(path)[:200]!r} does not exist or cannot be read.") from exc
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a folder. Give the folder that holds the model's files.")
    return folder


def check_folder(
    folder: Path, names: Iterable[str], *, required: Iterable[str], hardlinks: bool = False
) -> None:
    """Refuse a folder with links, with files beyond `names`, or without one of the `required`."""
    allowed = set(names)
    found = set(file_names(folder, hardlinks=hardlinks))
    extra = sorted(found - allowed)
    if extra:
        raise ModelFileError(
            f"{folder} holds a file that is not part of the model: {extra[0]!r}. "
            "Remove it; a model folder holds only the files of its manifest."
        )
    missing = sorted(set(required) - found)
    if missing:
        raise ModelFileError(f"{folder} lacks {missing[0]!r}. Put all files of the model there.")


def file_names(folder: Path, *, hardlinks: bool = False) -> list[str]:
    """Return the names of all files below the folder, with '/', sorted; refuse links and unknown kinds."""
    names: list[str] = []
    for entry, name in _walk(folder):
        if name == MANIFEST:
            continue
        _refuse_link(entry, name, hardlinks=hardlinks)
        if PurePosixPath(name).suffix.lower() not in SUFFIXES:
            raise ModelFileError(
                f"{name!r} in {folder} is of a kind that is never loaded. Allowed: {', '.join(SUFFIXES)}."
            )
        names.append(name)
    return sorted(names)


def _walk(folder: Path) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield each non-folder entry and its name; bounded, and never through a link."""
    waiting: list[tuple[str, str, int]] = [(os.fspath(folder), "", 0)]
    seen = 0
    while waiting:
        place, prefix, depth = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                seen += 1
                if seen > _MAX_ENTRIES or depth > _MAX_DEPTH:
                    raise ModelFileError(f"{folder} holds too much to be a model folder.")
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, name + "/", depth + 1))
                else:
                    yield entry, name


def _refuse_link(entry: os.DirEntry[str], name: str, *, hardlinks: bool) -> None:
    # DirEntry.stat() leaves st_nlink at 0 on Windows; os.lstat fills it.
    status = os.lstat(entry.path)
    if stat.S_ISLNK(status.st_mode):
        raise ModelFileError(f"{name!r} is a symbolic link. Put the file itself there.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{name!r} is not a regular file.")
    if status.st_nlink > 1 and not hardlinks:
        # Someone who can write the other name can change what loads after it was checked.
        raise ModelFileError(f"{name!r} is hard-linked from elsewhere. Copy the file instead.")
