"""Custom models: `allow_local` inspects a folder, pins its files and allows the model in this process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypedDict, Unpack

from resift.errors import ModelFileError, ModelNotAllowedError
from resift.models import registry
from resift.models.registry import Kind, ModelFiles, ModelSpec
from resift.models.verify import SHA256, PinnedFile, read_unpinned, read_verified
from resift.types import JsonMapping, Languages, ScoreScale, check_languages, check_score_scale
from resift.validation import check_arguments

MANIFEST = "resift-manifest.json"
SUFFIXES = (".onnx", ".safetensors", ".json", ".txt")

_MAX_ENTRIES = 64
_MAX_DEPTH = 3
_MAX_MANIFEST_BYTES = 1 << 20


class ModelFacts(TypedDict, total=False):
    """Properties of a model that its files do not declare; the others are described in `ModelSpec`.

    `languages` are codes such as ("en", "de"); the default is "any". Without `score_scale`, the scale of the kind
    applies: a cross-encoder returns logits. `licence` is the old name of `license`, removed in 0.4.
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
    licence: str


MIN_LENGTH = 16
"""Minimum of max_length in tokens; with fewer, special tokens leave no room, and all texts look the same."""


@check_arguments
def allow_local(
    path: Path | str,
    manifest: JsonMapping | Path | str | None = None,
    *,
    id: str | None = None,
    kind: Kind | None = None,
    onnx: str | None = None,
    tokenizer: str = "tokenizer.json",
    license: str = "unknown",
    **facts: Unpack[ModelFacts],
) -> ModelSpec:
    """Allow the model in a folder for the rest of this process, under `id` (default `local/<folder name>`).

    The folder contains an ONNX file, or safetensors weights in the hub's layout, which declare their own kind.
    Without `kind`, an ONNX file is loaded as a cross-encoder. Every file is inspected and must match the
    manifest, a mapping or JSON file from name to sha256 as written by `write_manifest`. By default, the
    manifest in the folder applies. Without a manifest, the files are pinned in their current state.
    """
    if "licence" in facts:
        warnings.warn("allow_local(licence=…) is now license=…", DeprecationWarning, stacklevel=3)
        license = facts.pop("licence")
    folder = open_folder(path)
    if id is None:
        folder_name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.name).strip("-_")
        id = f"local/{folder_name[:90] or 'model'}"
    name = registry.check_model_id(id)
    if facts.get("max_length", MIN_LENGTH) < MIN_LENGTH:
        raise ModelNotAllowedError(f"max_length is {facts['max_length']}; it must be at least {MIN_LENGTH}.")
    if registry.builtin_spec(name) is not None:
        raise ModelNotAllowedError(f"{name!r} is a built-in model. Choose another id for your own folder.")
    pins = _read_manifest(folder, manifest)
    if onnx is None and _has_safetensors(folder):
        spec = _describe_safetensors(folder, name, kind=kind, license=license, facts=facts, pins=pins)
    else:
        kind = kind or "cross-encoder"
        facts["languages"] = check_languages(facts.get("languages", "any"))
        facts["score_scale"] = check_score_scale(facts.get("score_scale", registry.SCORE_SCALES[kind]))
        files = _inspect_folder(folder, pins)
        graphs = [onnx] if onnx else [pinned.name for pinned in files if pinned.name.endswith(".onnx")]
        if len(graphs) != 1:
            raise ModelFileError(f"{folder} contains {len(graphs)} .onnx files. Pass onnx= with the one to load.")
        for required in (graphs[0], tokenizer):
            if required not in {pinned.name for pinned in files}:
                raise _missing_file_error(folder, required)
        spec = ModelSpec(
            id=name,
            kind=kind,
            license=license,
            revision=_compute_revision(files),
            onnx=graphs[0],
            tokenizer=tokenizer,
            files=files,
            **facts,  # type: ignore[misc]  # `licence` was removed above
        )
    registry.restore_allowed([ModelFiles(spec=spec, folder=folder, source="local")])
    return spec


def _compute_revision(files: tuple[PinnedFile, ...]) -> str:
    # The digest of sha256sum's output, so that the revision can be recomputed by hand.
    listing = "".join(f"{pinned.sha256}  {pinned.name}\n" for pinned in files)
    return f"local-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"


def _has_safetensors(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    weights = {"model.safetensors", "model.safetensors.index.json", "modules.json"} & names
    configs = {"config.json", "modules.json"} & names
    return bool(configs and weights) and not any(name.endswith(".onnx") for name in names)


def _describe_safetensors(
    folder: Path, name: str, *, kind: Kind | None, license: str, facts: ModelFacts, pins: dict[str, PinnedFile] | None
) -> ModelSpec:
    """Describe a folder in the hub's layout and pin the files that the model needs; other files are ignored."""
    from resift.models.hf_folder import read_model_folder
    from resift.models.pinning import lock_model

    model = lock_model(folder, name, read_model_folder(folder))
    if kind is not None and kind != model.kind:
        raise ModelNotAllowedError(f"{folder} contains a {model.kind}, not a {kind}.")
    for file in model.files:
        pinned = file if pins is None else pins.get(file.name)
        if pinned is None or pinned.sha256 != file.sha256:
            problem = "is not in the manifest" if pinned is None else "differs from the manifest"
            raise ModelFileError(f"{file.name!r} in {folder} {problem}.")
    unsupported = sorted(set(facts) - {"languages", "max_length", "query_prefix", "document_prefix"})
    if unsupported:
        raise ModelNotAllowedError(f"{unsupported[0]}= applies only to ONNX; safetensors models declare it themselves.")
    spec = registry.locked_spec(model)
    changes = {**facts, "license": license if license != "unknown" else model.license}
    changes["languages"] = check_languages(facts.get("languages", spec.languages))
    if facts.get("max_length", 1) > spec.max_length:
        raise ModelNotAllowedError(f"max_length is {facts['max_length']}; this model accepts {spec.max_length}.")
    return dataclasses.replace(spec, revision=_compute_revision(spec.files), **changes)  # type: ignore[arg-type]


@check_arguments
def write_manifest(folder: Path | str) -> Path:
    """Inspect a folder and add a `resift-manifest.json` with the sha256 and size of every file."""
    real = open_folder(folder)
    files = _inspect_folder(real, None)
    body = {"files": {pinned.name: {"sha256": pinned.sha256, "size": pinned.size} for pinned in files}}
    target = real / MANIFEST
    # Writing through a link would change a file outside the folder.
    if target.is_symlink():
        raise ModelFileError(f"{target} is a symbolic link. Remove it.")
    target.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target


def open_folder(path: Path | str) -> Path:
    """Return the resolved path of a folder; raise ModelFileError if it is not a readable folder."""
    try:
        folder = Path(path).expanduser().resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as exc:
        raise ModelFileError(f"Model folder {str(path)[:200]!r} does not exist or cannot be read.") from exc
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a folder. Pass the folder that contains the model's files.")
    return folder


def check_folder(folder: Path, names: Iterable[str], *, required: Iterable[str], allow_hardlinks: bool = False) -> None:
    """Reject a folder that has links, files not in `names`, or lacks one of the `required` files."""
    present = set(list_files(folder, allow_hardlinks=allow_hardlinks))
    extra = sorted(present - set(names))
    if extra:
        raise ModelFileError(
            f"{folder} contains a file that is not part of the model: {extra[0]!r}. "
            "Remove it; a model folder may contain only the files in its manifest."
        )
    missing = sorted(set(required) - present)
    if missing:
        raise _missing_file_error(folder, missing[0])


def list_files(folder: Path, *, allow_hardlinks: bool = False) -> list[str]:
    """Return the sorted names of all files below the folder; reject links and unknown file types."""
    names: list[str] = []
    pending: list[tuple[str, str, int]] = [(os.fspath(folder), "", 0)]
    entry_count = 0
    while pending:
        path, prefix, depth = pending.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                entry_count += 1
                if entry_count > _MAX_ENTRIES or depth > _MAX_DEPTH:
                    raise ModelFileError(f"{folder} has too many files or levels for a model folder.")
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, name + "/", depth + 1))
                elif name != MANIFEST:
                    _check_regular_file(entry.path, name, allow_hardlinks=allow_hardlinks)
                    if PurePosixPath(name).suffix.lower() not in SUFFIXES:
                        raise ModelFileError(
                            f"{name!r} in {folder} has a file type that is never loaded. "
                            f"Allowed: {', '.join(SUFFIXES)}."
                        )
                    names.append(name)
    return sorted(names)


def _check_regular_file(path: str, name: str, *, allow_hardlinks: bool) -> None:
    # DirEntry.stat() leaves st_nlink at 0 on Windows; os.lstat fills it.
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise ModelFileError(f"{name!r} is a symbolic link. Replace it with the file itself.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{name!r} is not a regular file.")
    if status.st_nlink > 1 and not allow_hardlinks:
        # Anyone with write access to the other name could change the file after the check.
        raise ModelFileError(f"{name!r} has a second name (a hard link). Copy the file instead.")


def _missing_file_error(folder: Path, name: str) -> ModelFileError:
    return ModelFileError(f"{folder} lacks {name!r}. Put all the model's files there.")


def _inspect_folder(folder: Path, manifest: Mapping[str, PinnedFile] | None) -> tuple[PinnedFile, ...]:
    """Read, hash and inspect each file once; return the pins of the inspected bytes."""
    from resift.models.inspection import inspect_file

    if manifest is not None:
        check_folder(folder, manifest, required=manifest)
    pins: list[PinnedFile] = []
    for name in list_files(folder):
        if manifest is None:
            data = read_unpinned(folder / name)
            digest = hashlib.sha256(data).hexdigest()
        else:
            digest, size = manifest[name].sha256, manifest[name].size
            # A manifest may list digests without sizes.
            size = size if size >= 0 else (folder / name).stat().st_size
            data = read_verified(folder / name, PinnedFile(name=name, size=size, sha256=digest))
        pins.append(PinnedFile(name=name, size=len(data), sha256=digest))
        inspect_file(name, data)
    return tuple(pins)


def _read_manifest(folder: Path, manifest: JsonMapping | Path | str | None) -> dict[str, PinnedFile] | None:
    table = folder / MANIFEST if manifest is None else manifest
    if not isinstance(table, Mapping):
        from resift.models.inspection import parse_json

        path = Path(table)
        if manifest is None and not os.path.lexists(path):
            return None
        if path.is_symlink():
            raise ModelFileError(f"Manifest {path} is a symbolic link. Replace it with the file itself.")
        table = parse_json(path.name, read_unpinned(path, limit=_MAX_MANIFEST_BYTES))
    files = table.get("files", table) if isinstance(table, Mapping) else None
    if not isinstance(files, Mapping) or not files:
        raise ModelFileError("A manifest maps file names to their sha256; this one lists no files.")
    return {name: _parse_pin(name, entry) for name, entry in files.items()}


def _parse_pin(name: object, entry: object) -> PinnedFile:
    digest, size = (entry.get("sha256"), entry.get("size", -1)) if isinstance(entry, Mapping) else (entry, -1)
    plain = isinstance(name, str) and name and not name.startswith("/") and "\\" not in name and "\0" not in name
    if not plain or ".." in PurePosixPath(str(name)).parts:
        raise ModelFileError(f"The manifest names {str(name)[:80]!r}, which is not a plain file name.")
    if not isinstance(digest, str) or SHA256.fullmatch(digest.lower()) is None:
        raise ModelFileError(f"The manifest has no sha256 of 64 hex digits for {name!r}.")
    if not isinstance(size, int) or isinstance(size, bool):
        raise ModelFileError(f"The size of {name!r} in the manifest is not an integer.")
    return PinnedFile(name=str(name), size=size, sha256=digest.lower())
