"""Load allowed models on first use; all callers in a process share one copy."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from resift._internal.arrays import Array
from resift._internal.forking import ForkSafeLock
from resift.errors import MissingExtraError, ModelFileError, ModelLoadError, ModelNotAllowedError
from resift.models.inspection import parse_json
from resift.models.locate import resolve
from resift.models.onnx_bert import UnknownArchitectureError
from resift.models.registry import KINDS, Kind, ModelFiles, ModelSpec, check_kind, model_ids, pin_advice
from resift.models.session import NativeSession, OnnxSession, Session, open_safetensors
from resift.models.tokenizer import TextTokenizer
from resift.models.torch_session import TorchSession
from resift.types import JsonValue
from resift.validation import Options, option

T = TypeVar("T")

_PROBE = ("is this model in order?", "Yes: its answer to this pair of texts is a number.")
# The two engines round to int8 differently, so they agree closely but not exactly.
_TOLERANCE = 0.05

MIN_TEXT_TOKENS = 32  # minimum number of tokens that a decoder's prompt must leave for query and document

_OUTPUTS: dict[Kind, str] = {
    "cross-encoder": "one score per pair of texts",
    "nli": "one score per label, for two labels or more",
    "bi-encoder": "one vector per token",
    "late-interaction": "one vector per token, of texts with a marker or a prefix",
}

log = logging.getLogger("resift.models")


def load(model_id: str, *, kind: Kind, folder: Path | str | None = None) -> Model:
    """Return the model with this id, from memory or from its verified files.

    Raises ModelNotAllowedError before any file is read, and ModelFileError or ModelLoadError afterwards.
    """
    check_kind(model_id, kind)
    files = resolve(model_id, folder=folder, check=False)
    # The key includes the whole spec, because a folder may be allowed again with another kind, pooling or prefix.
    key = (files.spec, str(files.folder))
    # Load under the lock, because two callers at once would need twice the memory.
    with _lock:
        if key not in _loaded:
            _loaded[key] = Model(files)
        return _loaded[key]


class Model:
    """A loaded model with its tokenizer. `forward` may be called from any thread."""

    def __init__(self, files: ModelFiles, *, device: str = "cpu") -> None:
        """Load verified files; `device` applies to models in PyTorch."""
        files.verify(only_unread=True)
        self.spec = files.spec
        self.prompt = self.spec.prompt
        # Static embedders use no special tokens, and model2vec drops unknown tokens.
        self.tokenizer = TextTokenizer(
            files.tokenizer_bytes(),
            plain=self.spec.is_static or self.prompt is not None,
            drop_unknown=self.spec.architecture == "model2vec",
            token_types=self.spec.token_types,
        )
        if self.prompt is not None:
            self.tokenizer.template = self.tokenizer.prompt_template(self.prompt.fixed_parts())
            prompt_size = self.tokenizer.template.size
            if self.spec.max_length < prompt_size + MIN_TEXT_TOKENS:
                raise ModelLoadError(
                    f"{self.spec.id!r} has max_length {self.spec.max_length}, but its prompt has {prompt_size} tokens."
                )
        self.pools = bool(files.spec.weights) and files.spec.kind == "bi-encoder"
        """Whether the model returns one vector per text instead of one per token."""
        self._seconds_per_token = 0.0
        query, document = (self.tokenizer.ids(text) or [] for text in _PROBE)
        probe = self.tokenizer.template.pair(query, document)
        if self.spec.engine != "native":
            self._session: Session = TorchSession(files, answers=self._answer_ids(), device=device)
        else:
            self._session = _open_session(files, probe)
        # A graph can load and still return nonsense, so score one pair before the model is used.
        self.width = self._check_output(*probe)
        _check_declared_kind(files)

    def forward(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the model's output for one row of tokens; with `first`, only for this many tokens."""
        start = time.perf_counter()
        output = self._session.run(ids, types, first=first)
        measured = (time.perf_counter() - start) / max(1, len(ids))
        # Fast measurements weigh more, because the first run is slow and load from other processes is temporary.
        weight = 0.5 if measured < self._seconds_per_token else 0.1
        self._seconds_per_token += (measured - self._seconds_per_token) * (weight if self._seconds_per_token else 1.0)
        return output

    def expected_s(self, tokens: int) -> float:
        """Return the expected time in seconds for a row of `tokens` tokens, based on the runs so far."""
        return self._seconds_per_token * tokens

    def _answer_ids(self) -> tuple[int, ...]:
        """Return the token ids of a decoder's answers; () for other models."""
        if self.prompt is None:
            return ()
        words = [word for word in (self.prompt.positive, self.prompt.negative) if word is not None]
        ids = [self.tokenizer.ids(word) or [] for word in words]
        if any(len(tokens) != 1 for tokens in ids):
            raise ModelFileError(f"The answers {' and '.join(words)} are not single tokens of {self.spec.id!r}.")
        return tuple(tokens[0] for tokens in ids)

    def _check_output(self, ids: list[int], types: list[int]) -> int:
        """Run the probe and return the output's width; reject NaN and the output shape of another kind of model."""
        spec = self.spec
        try:
            output = self.forward(ids, types)
        except Exception as exc:
            raise ModelLoadError(f"{spec.id!r} does not run: {type(exc).__name__}: {exc}") from exc
        if not math.isfinite(float(abs(output).sum())):
            raise ModelLoadError(f"{spec.id!r} returns NaN or infinity; its weights are damaged.")
        width = int(output.shape[-1]) if output.ndim else 1
        per_token = output.ndim == 2 and len(output) == len(ids)
        fits = {
            "cross-encoder": output.ndim < 2 and width == 1,
            "nli": output.ndim == 1 and width > 1,
            "bi-encoder": per_token or (self.pools and output.ndim == 1),
            "late-interaction": per_token,
        }
        if not fits[spec.kind]:
            if per_token:
                actual = f"one vector of {width} numbers per token"
            elif output.ndim < 2:
                actual = "one number per text" if output.size == 1 else f"{output.size} numbers per text"
            else:
                actual = f"an array of shape {output.shape} per text"
            raise _wrong_kind_error(spec, f"it returns {actual}")
        return width


_lock = ForkSafeLock()
_loaded: dict[tuple[ModelSpec, str], Model] = {}


def _open_session(files: ModelFiles, probe: tuple[list[int], list[int]]) -> Session:
    """Return a session of the native engine, or of ONNX Runtime if the native engine does not support the file."""
    if files.spec.weights:
        return open_safetensors(files)
    model = files.onnx_bytes()
    try:
        native = NativeSession(model)
    except UnknownArchitectureError as exc:
        log.debug("%s runs in ONNX Runtime: %s", files.spec.id, exc)
        try:
            return OnnxSession(model)
        except MissingExtraError as missing:
            raise ModelLoadError(f"{files.spec.id!r} requires ONNX Runtime ({exc}). {missing}") from missing
    # Tests compare the two engines on the bundled models. Other files are compared here if ONNX Runtime is installed.
    if files.spec.package is not None:
        return native
    try:
        onnx_session = OnnxSession(model)
    except MissingExtraError:
        return native
    scores, expected = native.run(*probe), onnx_session.run(*probe)
    if scores.shape == expected.shape and abs(scores - expected).max() < _TOLERANCE:
        return native
    log.debug("%s runs in ONNX Runtime: the native engine returns different scores", files.spec.id)
    return onnx_session


def _check_declared_kind(files: ModelFiles) -> None:
    """Reject a kind that contradicts the model's own config, in cases that the output shape cannot reveal."""
    spec = files.spec
    config, modules = _read_json(files, "config.json"), _read_json(files, "modules.json")
    if spec.kind == "late-interaction":
        has_pooling = isinstance(modules, list) and any(
            str(module.get("type", "")).endswith("Pooling") for module in modules if isinstance(module, dict)
        )
        if has_pooling:
            raise _wrong_kind_error(spec, "its modules.json pools the tokens into a single vector")
        markers = (spec.query_marker_id, spec.document_marker_id)
        if markers == (None, None) and not spec.query_prefix and not spec.document_prefix:
            raise _wrong_kind_error(spec, "it has neither a marker nor a prefix for queries and documents")
    labels = config.get("id2label") if isinstance(config, dict) else None
    if spec.kind == "nli" and isinstance(labels, dict) and spec.entailment_index is not None:
        label = str(labels.get(str(spec.entailment_index), ""))
        # Exporters name an unnamed label LABEL_0.
        if label and not label.startswith("LABEL_") and not label.lower().startswith("entail"):
            raise _wrong_kind_error(spec, f"its config.json names label {spec.entailment_index} {label!r}")


def _read_json(files: ModelFiles, name: str) -> JsonValue:
    if all(pinned.name != name for pinned in files.spec.files) or not (files.folder / name).exists():
        return None
    return parse_json(name, files.read(name))


def _wrong_kind_error(spec: ModelSpec, reason: str) -> ModelNotAllowedError:
    return ModelNotAllowedError(
        f"{spec.id!r} is used as a {spec.kind}, but {reason}. A {spec.kind} needs {_OUTPUTS[spec.kind]}. "
        f"Allow the folder with the correct kind: {', '.join(KINDS)}."
    )


class Lazy(Generic[T]):
    """Creates a value on the first call and returns it from then on. After a failure, the next call tries again."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._value: T | None = None
        self._lock = ForkSafeLock()

    def __call__(self) -> T:
        """Return the value, creating it on the first call."""
        with self._lock:
            if self._value is None:
                self._value = self._create()
            return self._value


def model_option(kind: Kind, *, default: str) -> Any:
    """Declare the option `model` for a plugin that runs a model of this kind; the argument is `model_name`."""
    return option(
        "Model id: built in, pinned with `resift models add`, or allowed with `allow_local`.",
        key="model",
        default=default,
        choices=lambda: model_ids(kind),
        advice=pin_advice,
    )


@dataclass(frozen=True, kw_only=True)
class ModelFolder(Options):
    """Location of a local model's files."""

    folder: str | None = option(
        "Folder with the model's files, to use instead of the cache.", default=None, kind="path", must_exist=True
    )
