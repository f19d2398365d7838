"""Models of the user's own: a folder is allowed by an explicit call, inspected, and pinned from then on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypedDict, Unpack

from resift._internal.forking import ForkSafeLock
from resift.errors import ModelFileError, ModelNotAllowedError
from resift.models.allowlist import KINDS, SCORE_SCALES, Kind, ModelSpec, PinnedFile, check_name, shipped
from resift.models.model_files import ModelFiles
from resift.models.model_folder import MANIFEST, check_folder, file_names, open_folder
from resift.models.verify import read_unpinned, read_verified
from resift.types import JsonMapping, JsonValue, Languages, ScoreScale, check_languages, check_score_scale
from resift.validation import check_arguments

Manifest = JsonMapping

_MANIFEST_LIMIT = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_allowed: dict[str, ModelFiles] = {}
_lock = ForkSafeLock()


class ModelFacts(TypedDict, total=False):
    """What no file of a model says, and its kind needs; `ModelSpec` has the defaults.

    languages           codes of the languages it was trained on, such as ("en", "de"); "any" unless given
    score_scale         scale of its scores; that of its kind unless given: a cross-encoder gives logits
    max_length          tokens that the model reads, 512 unless given
    query_prefix        put before each question, as its authors trained it
    document_prefix     put before each text
    pooling             how an embedder makes one vector of its tokens: cls (default) or mean
    query_marker_id     the token that marks a question of a late-interaction model
    document_marker_id  the token that marks a text of one
    entailment_index    which label of an NLI model is entailment
    """

    languages: Languages
    score_scale: ScoreScale
    max_length: int
    query_prefix: str
    document_prefix: str
    pooling: Literal["cls", "mean"]
    query_marker_id: int | None
    document_marker_id: int | None
    entailment_index: int | None


@check_arguments
def allow_local(
    path: Path | str,
    manifest: Manifest | Path | str | None = None,
    *,
    id: str | None = None,
    kind: Kind = "cross-encoder",
    onnx: str | None = None,
    tokenizer: str = "tokenizer.json",
    licence: str = "unknown",
    **facts: Unpack[ModelFacts],
) -> ModelSpec:
    """Allow the model in a folder for the rest of this process, under `id` (default `local/<folder name>`).

    Every file is inspected and must match the manifest: a mapping or a JSON file of name to sha256, as
    `write_manifest` makes it. Without one, the folder's own manifest counts, else the bytes found now.
    """
    folder = open_folder(path)
    name = _free_name(id if id is not None else _default_id(folder))
    if kind not in KINDS:
        raise ModelNotAllowedError(f"Unknown kind {kind!r}. Allowed: {', '.join(KINDS)}.")
    facts["languages"] = check_languages(facts.get("languages", "any"))
    facts["score_scale"] = check_score_scale(facts.get("score_scale", SCORE_SCALES[kind]))
    files = _inspected(folder, _read_manifest(folder, manifest))
    spec = ModelSpec(
        id=name,
        kind=kind,
        licence=licence,
        revision=_revision(files),
        onnx=_only_graph(folder, files, onnx),
        tokenizer=_present(folder, files, tokenizer),
        files=files,
        **facts,
    )
    with _lock:
        _allowed[name] = ModelFiles(spec=spec, folder=folder, source="local")
    return spec


def disallow_local(id: str) -> None:
    """Take back what `allow_local` allowed; unknown ids are fine."""
    with _lock:
        _allowed.pop(id, None)


@check_arguments
def write_manifest(folder: Path | str) -> Path:
    """Inspect a folder and write `resift-manifest.json` with sha256 and size of every file into it."""
    real = open_folder(folder)
    files = _inspected(real, None)
    body = {"files": {pinned.name: {"sha256": pinned.sha256, "size": pinned.size} for pinned in files}}
    target = real / MANIFEST
    # Writing through a link would change a file outside the folder.
    if target.is_symlink():
        raise ModelFileError(f"{target} is a symbolic link. Remove it.")
    target.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target


def allowed_local(model_id: str) -> ModelFiles | None:
    """Return the folder that was allowed under that id, if any."""
    with _lock:
        return _allowed.get(model_id)


def allowed_ids(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the ids of all folders allowed so far, or of those of one kind, sorted."""
    with _lock:
        return tuple(sorted(id for id, files in _allowed.items() if kind in (None, files.spec.kind)))


def allowed_folders() -> tuple[ModelFiles, ...]:
    """Return all folders allowed so far, to hand over to a worker process."""
    with _lock:
        return tuple(_allowed.values())


def allow_again(folders: Iterable[ModelFiles]) -> None:
    """Allow the folders that another process allowed; loading still checks every file against its pin."""
    with _lock:
        _allowed.update({files.spec.id: files for files in folders})


def _default_id(folder: Path) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.name).strip("-_")
    return f"local/{plain[:90] or 'model'}"


def _free_name(id: str) -> str:
    name = check_name(id)
    if shipped(name) is not None:
        raise ModelNotAllowedError(f"{name!r} is a pinned model. Choose another id for your own folder.")
    return name


def _inspected(folder: Path, manifest: Mapping[str, PinnedFile] | None) -> tuple[PinnedFile, ...]:
    """Read each file once: what is hashed is what is inspected is what is pinned."""
    from resift.models.inspect_file import inspect_file

    if manifest is not None:
        check_folder(folder, manifest, required=manifest)
    pins: list[PinnedFile] = []
    for name in file_names(folder):
        if manifest is None:
            data = read_unpinned(folder / name)
            pins.append(PinnedFile(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest()))
        else:
            data = _read_listed(folder / name, manifest[name])
            pins.append(PinnedFile(name=name, size=len(data), sha256=manifest[name].sha256))
        inspect_file(name, data)
    return tuple(pins)


def _read_listed(path: Path, pinned: PinnedFile) -> bytes:
    size = pinned.size if pinned.size >= 0 else path.stat().st_size
    return read_verified(path, PinnedFile(name=pinned.name, size=size, sha256=pinned.sha256))


def _read_manifest(folder: Path, manifest: Manifest | Path | str | None) -> dict[str, PinnedFile] | None:
    if manifest is None:
        own = folder / MANIFEST
        if not own.exists() and not own.is_symlink():
            return None
        manifest = own
    table = manifest if isinstance(manifest, Mapping) else _parsed(Path(manifest))
    listed = table.get("files", table) if isinstance(table, Mapping) else None
    if not isinstance(listed, Mapping) or not listed:
        raise ModelFileError("A manifest maps file names to their sha256; this one lists no file.")
    return {name: _pin(name, entry) for name, entry in listed.items()}


def _parsed(path: Path) -> JsonValue:
    from resift.models.json_inspect import parse_json

    if path.is_symlink():
        raise ModelFileError(f"Manifest {path} is a symbolic link. Put the file itself there.")
    return parse_json(path.name, read_unpinned(path, limit=_MANIFEST_LIMIT))


def _pin(name: object, entry: object) -> PinnedFile:
    digest, size = (entry.get("sha256"), entry.get("size", -1)) if isinstance(entry, Mapping) else (entry, -1)
    plain = (
        isinstance(name, str) and name and not name.startswith("/") and "\\" not in name and "\0" not in name
    )
    if not plain or ".." in PurePosixPath(str(name)).parts:
        raise ModelFileError(f"The manifest names {str(name)[:80]!r}, which is not a plain file name.")
    if not isinstance(digest, str) or _SHA256.fullmatch(digest.lower()) is None:
        raise ModelFileError(f"The manifest has no sha256 of 64 hex digits for {name!r}.")
    if not isinstance(size, int) or isinstance(size, bool):
        raise ModelFileError(f"The manifest's size of {name!r} is not a number.")
    return PinnedFile(name=str(name), size=size, sha256=digest.lower())


def _only_graph(folder: Path, files: tuple[PinnedFile, ...], asked: str | None) -> str:
    if asked is not None:
        return _present(folder, files, asked)
    graphs = [pinned.name for pinned in files if pinned.name.endswith(".onnx")]
    if len(graphs) != 1:
        raise ModelFileError(f"{folder} holds {len(graphs)} .onnx files. Name the one to load with onnx=.")
    return graphs[0]


def _present(folder: Path, files: tuple[PinnedFile, ...], name: str) -> str:
    if name not in {pinned.name for pinned in files}:
        raise ModelFileError(f"{folder} lacks {name!r}. Put all files of the model there.")
    return name


def _revision(files: tuple[PinnedFile, ...]) -> str:
    # As sha256sum prints it: anybody can repeat the revision by hand.
    lines = "".join(f"{pinned.sha256}  {pinned.name}\n" for pinned in files)
    return f"local-{hashlib.sha256(lines.encode()).hexdigest()[:16]}"
