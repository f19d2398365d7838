"""`resift-models.lock`: the models that a project may load, each pinned by the sha256 of its files.

The file is JSON, written by `resift models add` and meant to be committed. Resift reads the lock file in the
working folder, or else the one in the user's configuration folder. `RESIFT_MODELS_LOCK` overrides both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from resift._internal.environment import temporary_variable
from resift._internal.files import atomic_write, config_folder
from resift.errors import ModelFileError
from resift.models.verify import MODEL_ID, SHA256, PinnedFile

LOCK_FILE = "resift-models.lock"
VARIABLE = "RESIFT_MODELS_LOCK"
VERSION = 1
_MAX_BYTES = 16 << 20
_REVISION = re.compile(r"[A-Za-z0-9._-]{0,80}")
_FILE = re.compile(r"[\w.-]{1,120}(?:/[\w.-]{1,120})?", re.ASCII)


class LockedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One pinned model.

    Files come from a hub repository (`repo`) at `revision`, or from `folder`, relative to the lock file if possible.
    """

    id: str
    kind: str
    architecture: str
    files: tuple[PinnedFile, ...]
    weights: tuple[str, ...]
    revision: str
    engine: Literal["native", "torch", "torch-decoder"] = "native"
    precision: str = "int8"
    repo: str | None = None
    folder: str | None = None
    license: str = "unknown"
    languages: tuple[str, ...] | str = "any"
    max_length: int = 512
    pooling: str = "first"
    normalize: bool = True
    score_activation: str = "identity"
    query_prefix: str = ""
    document_prefix: str = ""
    entailment_index: int | None = None
    token_types: bool = True
    parameters: int = 0
    probed: bool = True


class _LockContents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    models: tuple[LockedModel, ...]


def default_lock_path() -> Path:
    """Return the path of the lock file that applies, even if the file does not exist."""
    override = os.environ.get(VARIABLE)
    if override:
        return Path(override).expanduser()
    local = Path(LOCK_FILE)
    return local if local.is_file() else config_folder() / LOCK_FILE


@contextlib.contextmanager
def use_lock(path: Path | None) -> Iterator[None]:
    """Use another lock file in this process and its children; None changes nothing."""
    with temporary_variable(VARIABLE, None if path is None else str(path.absolute())):
        yield


def read_lock(path: Path) -> dict[str, LockedModel]:
    """Return the pinned models by id, {} if there is no file. Raises ModelFileError for a damaged file."""
    try:
        data = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else None
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise ModelFileError(f"Cannot read the lock file {path}: {exc.strerror}.") from exc
    if data is None:
        raise ModelFileError(f"The lock file {path} is larger than {_MAX_BYTES:,} bytes.")
    try:
        contents = msgspec.json.decode(data, type=_LockContents)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelFileError(
            f"The lock file {path} is damaged: {exc}. Restore it, or delete it and add the models again."
        ) from exc
    if contents.version != VERSION:
        raise ModelFileError(
            f"The lock file {path} has version {contents.version}, but Resift reads {VERSION}. Update it."
        )
    for model in contents.models:
        problem = _find_problem(model)
        if problem:
            raise ModelFileError(f"The lock file {path} is damaged: {model.id[:80]!r} has {problem}.")
    return {model.id: model for model in contents.models}


def _find_problem(model: LockedModel) -> str:
    """Return the problem with a row, or "". Names become paths, so they must be plain."""
    names = {file.name for file in model.files}
    languages = model.languages
    checks = (
        (not MODEL_ID.fullmatch(model.id), "an unusual id"),
        (model.repo is not None and not MODEL_ID.fullmatch(model.repo), "an unusual repository"),
        (not _REVISION.fullmatch(model.revision) or ".." in model.revision, "an unusual revision"),
        (model.repo is None and model.folder is None, "neither a repository nor a folder"),
        (model.folder is not None and "\0" in model.folder, "an unusual folder"),
        (not all(_FILE.fullmatch(name) and ".." not in name.split("/") for name in names), "an unusual file name"),
        (not all(SHA256.fullmatch(file.sha256) for file in model.files), "a digest that is not a sha256"),
        (any(file.size < 0 for file in model.files), "a negative file size"),
        (not {"tokenizer.json", *model.weights} <= names or not model.weights, "no tokenizer or weights"),
        (languages != "any" and (isinstance(languages, str) or not languages), "no list of languages"),
        (not 1 <= model.max_length <= 10**6, f"max_length {model.max_length}"),
        (model.precision not in ("int8", "fp32"), f"precision {model.precision[:20]!r}"),
    )
    return next((problem for failed, problem in checks if failed), "")


def write_lock(path: Path, models: dict[str, LockedModel]) -> None:
    """Replace the lock file atomically; models are sorted by id, so that changes are easy to review."""
    rows = [msgspec.to_builtins(models[id]) for id in sorted(models)]
    text = json.dumps({"version": VERSION, "models": rows}, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text)
    except OSError as exc:
        raise ModelFileError(f"Cannot write the lock file {path}: {exc.strerror or exc}.") from exc
