"""Allowlist of models: the built-in pins (`allowlist.json`), the lock file, and the folders that the user allowed.

Other ids are rejected before any file is read. `resift models add` writes the lock file `resift-models.lock`. The one
in the working folder applies, or else that in the configuration folder; `RESIFT_MODELS_LOCK` overrides both.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from resift._internal.environment import temporary_variable
from resift._internal.files import atomic_write, config_folder
from resift._internal.forking import ForkSafeLock
from resift.errors import MissingExtraError, ModelFileError, ModelNotAllowedError, did_you_mean
from resift.models.known_models import DecoderPrompt, decoder_prompts
from resift.models.verify import MODEL_ID, PinnedFile, read_verified, verify
from resift.types import JsonMapping, Languages, ScorerInfo, ScoreScale

Kind = Literal["cross-encoder", "late-interaction", "bi-encoder", "nli"]
Precision = Literal["int8", "fp32"]
ScoreActivation = Literal["sigmoid", "identity"]

SCORE_SCALES: Mapping[Kind, ScoreScale] = {
    "cross-encoder": "logit",
    "late-interaction": "unknown",  # a sum over the tokens of the query
    "bi-encoder": "cosine",
    "nli": "probability",
}
"""Score scale of each kind of model, unless the model declares another one."""

KINDS: tuple[Kind, ...] = tuple(SCORE_SCALES)

Engine = Literal["native", "torch", "torch-decoder"]
"""Backend that runs a model; a decoder scores a pair by its answer to a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPackage:
    """A Python package that contains model files. It is located but never imported."""

    name: str
    version: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A repository on the Hugging Face hub, at a fixed commit."""

    repo: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Description of a model: one ONNX file (`onnx`), or safetensors files (`weights`) in the layout of the hub."""

    id: str
    kind: Kind
    license: str
    revision: str
    tokenizer: str
    files: tuple[PinnedFile, ...]
    onnx: str = ""
    weights: tuple[str, ...] = ()
    architecture: str = ""
    engine: Engine = "native"
    precision: Precision = "int8"
    score_activation: ScoreActivation | None = None
    parameters: int = 0
    languages: Languages = "any"
    score_scale: ScoreScale = "unknown"
    max_length: int = 512
    query_prefix: str = ""
    document_prefix: str = ""
    pooling: Literal["cls", "mean", "last"] = "cls"
    query_marker_id: int | None = None
    document_marker_id: int | None = None
    entailment_index: int | None = None
    token_types: bool = True
    aliases: tuple[str, ...] = ()
    package: ModelPackage | None = None
    hub: HubSource | None = None

    @property
    def is_static(self) -> bool:
        """Whether the model is a table with one vector per token."""
        return self.architecture in ("static", "model2vec")

    @property
    def prompt(self) -> DecoderPrompt | None:
        """The prompt of a decoder; None for other models."""
        return decoder_prompts()[self.architecture] if self.engine == "torch-decoder" else None

    @property
    def licence(self) -> str:
        """Old name of `license`."""
        return self.license

    @property
    def model_digest(self) -> str:
        """The sha256 of the ONNX file or, for safetensors, of the digests of all weight files and the precision."""
        if self.onnx:
            return self.pin(self.onnx).sha256
        digests = [self.pin(name).sha256 for name in self.weights]
        return hashlib.sha256("\n".join([*digests, self.precision]).encode()).hexdigest()

    def pin(self, name: str) -> PinnedFile:
        """Return the pin of one file."""
        pinned = next((pinned for pinned in self.files if pinned.name == name), None)
        if pinned is None:
            raise ModelNotAllowedError(f"{name!r} is not a pinned file of {self.id!r}.")
        return pinned

    def scorer_info(self, name: str) -> ScorerInfo:
        """Return the description of a pointwise scorer with this name and model."""
        return ScorerInfo(
            name=name,
            score_scale=self.score_scale,
            languages=self.languages,
            max_length=self.max_length,
            model_digest=self.model_digest,
            supports_instruction=self.prompt is not None and bool(self.prompt.instruction_line),
            pointwise=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """An allowed model and the folder with its files.

    `onnx` and `tokenizer` are paths for display. The methods return bytes that were hashed, as a file can change.
    """

    spec: ModelSpec
    folder: Path
    source: Literal["folder", "local", "cache", "package", "hub"] = "folder"

    @property
    def onnx(self) -> Path:
        """Path of the model file."""
        return self.folder / self.spec.onnx

    @property
    def tokenizer(self) -> Path:
        """Path of the tokenizer file."""
        return self.folder / self.spec.tokenizer

    def onnx_bytes(self) -> bytes:
        """Return the verified bytes of the model file."""
        return self.read(self.spec.onnx)

    def tokenizer_bytes(self) -> bytes:
        """Return the verified bytes of the tokenizer file."""
        return self.read(self.spec.tokenizer)

    def read(self, name: str) -> bytes:
        """Return the verified bytes of a pinned file."""
        return read_verified(self.folder / name, self.spec.pin(name))

    def verify(self, *, only_unread: bool = False) -> None:
        """Check every pinned file that exists; `only_unread` skips the files that loading hashes anyway."""
        for pinned in self.spec.files:
            if only_unread and pinned.name in (self.spec.onnx, self.spec.tokenizer, *self.spec.weights):
                continue
            path = self.folder / pinned.name
            if pinned.required or path.exists():
                verify(path, pinned)


_local: dict[str, ModelFiles] = {}
_lock = ForkSafeLock()


def find_spec(model_id: str) -> ModelSpec:
    """Return the description of an allowed model without opening its files."""
    name = check_model_id(model_id)
    local = find_local(name)
    spec = builtin_spec(name) if local is None else local.spec
    if spec is not None:
        return spec
    if name not in locked_models():
        hint = did_you_mean(name, {*builtin_ids(), *locked_models(), *_local})
        raise ModelNotAllowedError(f"model_name {name!r} is not in allowed models. {hint} {pin_advice(name)}")
    return locked_models()[name][0]


def pin_advice(name: str) -> str:
    """Return the sentence that explains how to pin a model of this name."""
    return f"To pin it, run: resift models add {name if '/' in name else f'./folder --name {name}'}"


def check_kind(model_id: str, kind: Kind) -> ModelSpec:
    """Return the description of an allowed model of this kind; reject other ids before any file is read."""
    spec = find_spec(model_id)
    if spec.kind != kind:
        allowed = ", ".join(model_ids(kind)) or "none is pinned; run: resift models add ORG/NAME"
        raise ModelNotAllowedError(f"{model_id!r} is a {spec.kind}, not a {kind}. Allowed: {allowed}.")
    for module in ("torch", "transformers") if spec.engine != "native" else ():
        # The import takes seconds, so it waits until the model is loaded.
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module, "torch")
    return spec


def model_ids(kind: Kind) -> list[str]:
    """Return the ids of all allowed models of one kind: built in, pinned, or allowed by `allow_local`."""
    local = {files.spec.id for files in allowed_folders() if files.spec.kind == kind}
    locked = {id for id, (spec, _) in locked_models().items() if spec.kind == kind}
    return sorted({*builtin_ids(kind), *locked, *local})


def builtin_ids(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the sorted ids of all built-in pins, optionally of one kind only."""
    return tuple(sorted({spec.id for spec in _load_builtin().values() if kind in (None, spec.kind)}))


def builtin_spec(name: str) -> ModelSpec | None:
    """Return the built-in pin with this id or alias, or None."""
    return _load_builtin().get(name)


def find_local(model_id: str) -> ModelFiles | None:
    """Return the folder that was allowed under this id, or None."""
    with _lock:
        return _local.get(model_id)


def allowed_folders() -> tuple[ModelFiles, ...]:
    """Return all allowed folders, for example to pass them to a worker process."""
    with _lock:
        return tuple(_local.values())


def restore_allowed(folders: Iterable[ModelFiles]) -> None:
    """Allow folders that have already been inspected; loading still checks every file against its pin."""
    with _lock:
        _local.update({files.spec.id: files for files in folders})


def disallow_local(id: str) -> None:
    """Revoke an `allow_local` permission. Unknown ids are ignored."""
    with _lock:
        _local.pop(id, None)


def check_model_id(model_id: object) -> str:
    """Return the id if it is a plain name; reject paths, URLs and control characters."""
    if not isinstance(model_id, str):
        raise ModelNotAllowedError(f"A model id is a string such as 'org/name', not {type(model_id).__name__}.")
    reasons = (
        ("it is empty", not model_id),
        ("it contains a control character", any(unicodedata.category(char).startswith("C") for char in model_id)),
        ("it is a URL", "://" in model_id or model_id.lower().startswith(("http:", "https:", "file:"))),
        ("it contains a backslash", "\\" in model_id),
        ("it is a path", ".." in model_id or model_id.startswith(("/", "~", ".")) or model_id.count("/") > 1),
        ("a model id is 'name' or 'org/name' in letters, digits, '.', '_' and '-'", not MODEL_ID.fullmatch(model_id)),
    )
    reason = next((reason for reason, applies in reasons if applies), None)
    if reason is not None:
        raise ModelNotAllowedError(
            f"model_name {model_id[:80]!r} is not in allowed models: {reason}. Known: {', '.join(builtin_ids())}. "
            "To use your own model files, run: resift models add ./folder --name NAME."
        )
    return model_id


def parse_spec(entry: JsonMapping) -> ModelSpec:
    """Build a spec from one entry of `allowlist.json`."""
    return msgspec.convert({"score_scale": SCORE_SCALES[entry["kind"]], **entry}, ModelSpec)


@functools.cache
def _load_builtin() -> dict[str, ModelSpec]:
    """Return the built-in pins by id and by alias."""
    text = Path(__file__).with_name("allowlist.json").read_text(encoding="utf-8")
    specs = [parse_spec(entry) for entry in json.loads(text)["models"]]
    return {name: spec for spec in specs for name in (spec.id, *spec.aliases)}


# --- The lock file ------------------------------------------------------------------------------------------

LOCK_FILE = "resift-models.lock"
VARIABLE = "RESIFT_MODELS_LOCK"
VERSION = 1
_MAX_BYTES = 16 << 20


_ModelId = Annotated[str, msgspec.Meta(pattern=rf"\A{MODEL_ID.pattern}\Z")]


class LockedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One pinned model, from a hub repository at `revision`, or from a folder (relative to the lock file)."""

    id: _ModelId
    kind: Kind
    architecture: str
    files: tuple[PinnedFile, ...]
    weights: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    revision: Annotated[str, msgspec.Meta(pattern=r"\A(?!.*\.\.)[A-Za-z0-9._-]{0,80}\Z")]
    engine: Engine = "native"
    precision: Precision = "int8"
    repo: _ModelId | None = None
    folder: Annotated[str, msgspec.Meta(pattern=r"\A[^\0]*\Z")] | None = None
    license: str = "unknown"
    languages: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | Literal["any"] = "any"
    max_length: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 512
    pooling: str = "first"
    normalize: bool = True
    score_activation: ScoreActivation = "identity"
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
        raise ModelFileError(f"The lock file {path} has version {contents.version}; Resift reads {VERSION}. Update it.")
    for model in contents.models:
        problem = "neither a repository nor a folder" if model.repo is None and model.folder is None else ""
        if not {"tokenizer.json", *model.weights} <= {file.name for file in model.files}:
            problem = "no tokenizer or weights"
        if problem:
            raise ModelFileError(f"The lock file {path} is damaged: {model.id!r} has {problem}.")
    return {model.id: model for model in contents.models}


def write_lock(path: Path, models: dict[str, LockedModel]) -> None:
    """Replace the lock file atomically; models are sorted by id, so that changes are easy to review."""
    rows = [msgspec.to_builtins(models[id]) for id in sorted(models)]
    text = json.dumps({"version": VERSION, "models": rows}, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text)
    except OSError as exc:
        raise ModelFileError(f"Cannot write the lock file {path}: {exc.strerror or exc}.") from exc


def locked_models() -> dict[str, tuple[ModelSpec, Path | None]]:
    """Return the spec and the folder of each model in the lock file; None means the download folder."""
    path = default_lock_path()
    try:
        status = path.stat()
    except OSError:
        return {}
    return _parse_lock(path.absolute(), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=8)
def _parse_lock(path: Path, mtime_ns: int, size: int) -> dict[str, tuple[ModelSpec, Path | None]]:
    """Read a lock file; the cache key makes it read again only after a change."""
    return {
        id: (locked_spec(model), None if model.folder is None else (path.parent / model.folder).resolve())
        for id, model in read_lock(path).items()
    }


_LOCKED_FIELDS = (
    "id", "kind", "license", "revision", "files", "weights", "architecture", "engine", "precision", "parameters",
    "languages", "max_length", "query_prefix", "document_prefix", "score_activation", "entailment_index", "token_types",
)  # fmt: skip
"""Fields that `LockedModel` and `ModelSpec` share."""


def locked_spec(model: LockedModel) -> ModelSpec:
    """Return the description of a pinned model."""
    return ModelSpec(
        **{name: getattr(model, name) for name in _LOCKED_FIELDS},
        tokenizer="tokenizer.json",
        score_scale=SCORE_SCALES[model.kind],
        hub=None if model.repo is None else HubSource(repo=model.repo, revision=model.revision),
    )
