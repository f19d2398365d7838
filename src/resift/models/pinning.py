"""Add models to the lock file: fetch and inspect the files, probe the scores, and pin the digests."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from resift._internal.arrays import Array
from resift.errors import InputError, ModelNotAllowedError
from resift.events import Sink
from resift.models.download import download_repository
from resift.models.embedder import embed_tokens
from resift.models.hf_folder import FolderDescription, read_model_folder
from resift.models.known_models import known_models
from resift.models.loading import Model
from resift.models.local_models import open_folder
from resift.models.lock_file import LockedModel, default_lock_path, read_lock, write_lock
from resift.models.pairs import PairModel, PairOptions
from resift.models.probe import MAX_INT8_ERROR, ProbeReport, Score, compare_precisions, probe_scores
from resift.models.registry import ModelFiles, ModelSpec, builtin_spec, check_model_id, locked_spec
from resift.models.tokenizer import split_windows
from resift.models.verify import PinnedFile
from resift.types import Languages, check_languages

PrecisionChoice = Literal["auto", "int8", "fp32"]
Notify = Callable[[str], None]
"""Callback for progress messages, called with one line per step."""

MIN_LENGTH = 8
"""Lower limit of max_length in tokens: a query and a document need a few each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedModel:
    """A newly pinned model, the location of its files, and the probe report (None if not probed)."""

    model: LockedModel
    description: FolderDescription
    folder: Path
    lock: Path
    probe: ProbeReport | None


def add_model(
    source: str | Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    lock: Path | None = None,
    precision: PrecisionChoice = "auto",
    probe: bool = True,
    languages: Languages | None = None,
    max_length: int | None = None,
    notify: Notify = lambda line: None,
    progress: Sink | None = None,
) -> AddedModel:
    """Pin a model from the hub (`org/name`) or from a local folder in the lock file.

    With precision "auto", int8 is used unless its scores differ too much from fp32. Raises ModelFileError for
    files that cannot be loaded, and ModelProbeError for implausible scores.
    """
    lock_path = lock or default_lock_path()
    read_lock(lock_path)  # report a damaged lock file before downloading anything
    folder, repo, commit = _get_files(source, revision, progress)
    model_id = check_model_id(name or repo or f"local/{folder.name}")
    if builtin_spec(model_id) is not None:
        raise ModelNotAllowedError(f"{model_id!r} is built in. Choose another name with --name.")
    description = read_model_folder(folder).description
    limit = description.positions
    if max_length is not None and not MIN_LENGTH <= max_length <= limit:
        raise InputError(f"max_length is {max_length}; this model accepts {MIN_LENGTH} to {limit} tokens.")
    published = known_models().get(repo or model_id)
    notify(f"{description.kind}, {description.architecture}, {description.parameters / 1e6:.1f} M parameters")
    model = lock_model(folder, model_id, description)
    # A folder below the lock file is stored as a relative path, so that a checkout can be moved.
    base = lock_path.absolute().parent.resolve()
    stored_folder = folder.relative_to(base).as_posix() if folder.is_relative_to(base) else str(folder)
    changes: dict[str, object] = {
        "revision": commit or "",
        "precision": "fp32" if model.engine != "native" else "int8" if precision == "auto" else precision,
        "repo": repo,
        "folder": None if repo else stored_folder,
        "probed": probe,
    }
    if published:
        changes |= {
            "license": published.license,
            "languages": published.languages,
            "max_length": min(model.max_length, published.max_length),
            "query_prefix": model.query_prefix or published.query_prefix,
            "document_prefix": model.document_prefix or published.document_prefix,
        }
    if languages:
        changes["languages"] = check_languages(languages)
    if max_length:
        changes["max_length"] = max_length
    model = msgspec.structs.replace(model, **changes)
    report = None
    if probe:
        model, report = _check_scores(model, folder, auto=precision == "auto", notify=notify)
    write_lock(lock_path, {**read_lock(lock_path), model.id: model})
    return AddedModel(model=model, description=description, folder=folder, lock=lock_path, probe=report)


def lock_model(folder: Path, model_id: str, description: FolderDescription) -> LockedModel:
    """Pin the current files of a model in a folder. Nothing is probed, and no lock file is written."""
    files = []
    for name in description.files:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            files.append(PinnedFile(name=name, size=file.tell(), sha256=digest))
    return LockedModel(
        **{name: getattr(description, name) for name in _DESCRIBED_FIELDS},
        id=model_id,
        kind="bi-encoder" if description.kind == "static" else description.kind,
        files=tuple(files),
        revision="",
        probed=False,
    )


_DESCRIBED_FIELDS = (
    "architecture", "engine", "weights", "license", "languages", "max_length", "pooling", "normalize",
    "score_activation", "query_prefix", "document_prefix", "entailment_index", "token_types", "parameters",
)  # fmt: skip
"""Fields that `FolderDescription` and `LockedModel` share."""


def remove_model(model_id: str, *, lock: Path | None = None) -> Path:
    """Remove a model from the lock file and return the lock file's path. Downloads stay in the cache."""
    path = lock or default_lock_path()
    models = read_lock(path)
    if model_id not in models:
        pinned = ", ".join(sorted(models)) or "none"
        raise ModelNotAllowedError(f"{path} does not pin {model_id!r}. Pinned: {pinned}.")
    write_lock(path, {id: model for id, model in models.items() if id != model_id})
    return path


def probe_model(files: ModelFiles) -> ProbeReport:
    """Run the probe on a pinned model, loaded exactly as in production."""
    return _probe(_make_scorer(files), files.spec)


def _probe(score: Score, spec: ModelSpec) -> ProbeReport:
    model_id = spec.hub.repo if spec.hub else spec.id
    return probe_scores(score, model_id=model_id, languages=spec.languages, check_order=spec.kind != "nli")


def _get_files(source: str | Path, revision: str | None, progress: Sink | None) -> tuple[Path, str | None, str | None]:
    """Return the folder with the files and, for a hub model, its repository and commit."""
    text = str(source)
    if isinstance(source, Path) or text.startswith((".", "/", "~")) or Path(text).is_dir():
        if revision is not None:
            raise InputError("A revision applies only to models from the hub; a local folder has none.")
        return open_folder(source), None, None
    repo, _, tagged = text.partition("@")
    check_model_id(repo)
    folder, commit = download_repository(repo, revision or tagged or "main", progress=progress)
    return folder, repo, commit


def _check_scores(model: LockedModel, folder: Path, *, auto: bool, notify: Notify) -> tuple[LockedModel, ProbeReport]:
    scorers = {}
    for precision in ("fp32", "int8") if model.engine == "native" else ("fp32",):
        spec = locked_spec(msgspec.structs.replace(model, precision=precision))
        scorers[precision] = _make_scorer(ModelFiles(spec=spec, folder=folder, source="local"))
    error = None
    if not spec.is_static and model.engine == "native":
        error = compare_precisions(scorers["int8"], scorers["fp32"])
        if auto and error > MAX_INT8_ERROR:
            notify(f"int8 changes scores by up to {error:.0%} of their spread, so the model is pinned as fp32")
            model = msgspec.structs.replace(model, precision="fp32")
        elif error > MAX_INT8_ERROR:
            notify(f"warning: {model.precision} was requested, but int8 changes scores by up to {error:.0%}")
    # The published scores are for full precision.
    report = dataclasses.replace(_probe(scorers["fp32"], spec), int8_error=error)
    report.require_passed(model.id)
    return model, report


def _make_scorer(files: ModelFiles) -> Score:
    """Return a function that scores documents with a model: by its logit, or by the cosine of its embeddings."""
    model = Model(files)
    if files.spec.kind == "bi-encoder":

        def embed(text: str) -> Array:
            ids = model.tokenizer.ids(text) or []
            _, end = split_windows(len(ids), files.spec.max_length - model.tokenizer.template.size)[0]
            return embed_tokens(model, ids[:end])

        def cosines(query: str, documents: Sequence[str]) -> list[float]:
            vector = embed(files.spec.query_prefix + query)
            return [float(vector @ embed(files.spec.document_prefix + document)) for document in documents]

        return cosines
    label = files.spec.entailment_index or 0
    pairs = PairModel(model, PairOptions(read_score=lambda output: float(output.reshape(-1)[label])))
    return lambda query, documents: pairs.predict([(query, document) for document in documents])
