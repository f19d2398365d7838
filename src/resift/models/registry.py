"""Allowlist of models: the built-in pins, the lock file, and the folders that the user allowed.

The built-in pins are data (`allowlist.json` next to this module): id, revision, and the sha256 and size of
each file. An id that is neither pinned nor allowed is rejected before any file is read.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from resift._internal.forking import ForkSafeLock
from resift.errors import MissingExtraError, ModelFileError, ModelNotAllowedError, did_you_mean
from resift.models.known_models import DecoderPrompt, decoder_prompts
from resift.models.verify import MODEL_ID, PinnedFile, read_verified, verify
from resift.types import JsonMapping, Languages, ScorerInfo, ScoreScale, check_languages

if TYPE_CHECKING:
    from resift.models.lock_file import LockedModel

Kind = Literal["cross-encoder", "late-interaction", "bi-encoder", "nli"]

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
    """Description of a model, available before any of its files is opened.

    The weights are either one ONNX file (`onnx`) or safetensors files (`weights`) in the layout of the hub.
    `score_activation` maps a raw score to a probability; None means that it is unknown.
    """

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
    precision: Literal["int8", "fp32"] = "int8"
    score_activation: Literal["sigmoid", "identity"] | None = None
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
            supports_instruction=self.prompt is not None and self.prompt.takes_instruction,
            pointwise=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """An allowed model and the folder with its files.

    `onnx` and `tokenizer` are paths for display. To load, call `read`, `onnx_bytes` or `tokenizer_bytes`,
    which hash the bytes they return, because a file can change between check and use.
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
        """Check every pinned file that exists; required files must exist.

        `only_unread` skips the model and tokenizer files, because loading them hashes them anyway.
        """
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
    spec = _local_specs().get(name) or builtin_spec(name)
    if spec is None:
        spec, _ = find_locked(name) or (None, None)
    if spec is None:
        hint = did_you_mean(name, {*builtin_ids(), *locked_ids(), *_local_specs()})
        raise ModelNotAllowedError(f"model_name {name!r} is not in allowed models. {hint} {pin_advice(name)}")
    return spec


def pin_advice(name: str) -> str:
    """Return the sentence that explains how to pin a model of this name."""
    return f"To pin it, run: resift models add {name if '/' in name else f'./folder --name {name}'}"


def find_locked(model_id: str) -> tuple[ModelSpec, Path | None] | None:
    """Return the spec and folder that the lock file pins under this id, or None.

    A folder of None means that the model's files are in the download folder.
    """
    return _load_locked().get(model_id)


def _load_locked() -> dict[str, tuple[ModelSpec, Path | None]]:
    from resift.models.lock_file import default_lock_path

    path = default_lock_path()
    try:
        status = path.stat()
    except OSError:
        return {}
    return _parse_lock(path.absolute(), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=8)
def _parse_lock(path: Path, mtime_ns: int, size: int) -> dict[str, tuple[ModelSpec, Path | None]]:
    """Read a lock file; the cache key makes it read again only after a change."""
    from resift.models.lock_file import read_lock

    return {
        id: (locked_spec(model), None if model.folder is None else (path.parent / model.folder).resolve())
        for id, model in read_lock(path).items()
    }


_LOCKED_FIELDS = (
    "id", "license", "revision", "files", "weights", "architecture", "engine", "precision", "parameters", "max_length",
    "query_prefix", "document_prefix", "entailment_index", "token_types",
)  # fmt: skip
"""Fields that `LockedModel` and `ModelSpec` share."""


def locked_spec(model: LockedModel) -> ModelSpec:
    """Return the description of a pinned model."""
    if model.kind not in KINDS:
        raise ModelFileError(f"The lock file lists {model.id!r} with kind {model.kind!r}; allowed: {', '.join(KINDS)}.")
    return ModelSpec(
        **{name: getattr(model, name) for name in _LOCKED_FIELDS},
        kind=model.kind,
        tokenizer="tokenizer.json",
        score_activation="sigmoid" if model.score_activation == "sigmoid" else "identity",
        languages=check_languages(model.languages),
        score_scale=SCORE_SCALES[model.kind],
        hub=None if model.repo is None else HubSource(repo=model.repo, revision=model.revision),
    )


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
    local = {id for id, spec in _local_specs().items() if spec.kind == kind}
    return sorted({*builtin_ids(kind), *locked_ids(kind), *local})


def builtin_ids(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the sorted ids of all built-in pins, optionally of one kind only."""
    return tuple(sorted({spec.id for spec in _load_builtin().values() if kind in (None, spec.kind)}))


def locked_ids(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the sorted ids in the lock file, optionally of one kind only."""
    return tuple(sorted(id for id, (spec, _) in _load_locked().items() if kind in (None, spec.kind)))


def builtin_spec(name: str) -> ModelSpec | None:
    """Return the built-in pin with this id or alias, or None."""
    return _load_builtin().get(name)


def find_local(model_id: str) -> ModelFiles | None:
    """Return the folder that was allowed under this id, or None."""
    with _lock:
        return _local.get(model_id)


def _local_specs() -> dict[str, ModelSpec]:
    return {files.spec.id: files.spec for files in allowed_folders()}


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
