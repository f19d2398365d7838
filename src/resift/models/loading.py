"""Allowed models in memory: one copy per process, loaded on first use, shared by all callers."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Protocol

from resift._internal.arrays import Array
from resift._internal.forking import ForkSafeLock
from resift.errors import MissingExtraError, ModelLoadError, ModelNotAllowedError
from resift.models.allowlist import KINDS, Kind, ModelSpec, known, shipped
from resift.models.bert_file import UnknownArchitectureError
from resift.models.json_inspect import parse_json
from resift.models.local_models import allowed_ids
from resift.models.locate import ModelFiles, find_spec, resolve
from resift.models.native_session import NativeSession
from resift.models.session import OnnxSession, finite
from resift.models.tokenizing import TextTokenizer
from resift.types import JsonValue

_PROBE = ("is this model in order?", "Yes: its answer to this pair of texts is a number.")
# Both round to int8 in ways of their own, so that they agree closely and not exactly.
_TOLERANCE = 0.05

log = logging.getLogger("resift.models")


class Session(Protocol):
    """A loaded graph that takes one row of tokens."""

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return one row's logits, or the states of its tokens (of the first so many)."""


class Model:
    """A model's tokenizer and graph. `forward` may be called from any thread."""

    def __init__(self, files: ModelFiles) -> None:
        files.verify(unread=True)
        self.spec = files.spec
        self.tokenizer = TextTokenizer(files.tokenizer_bytes())
        self._s_per_token = 0.0
        self._session = _session(files, self._probe())
        # A graph can load and still answer nonsense: one pair is scored before anybody relies on it.
        self.width = self._check_output()
        _check_declared_kind(files)

    def forward(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the graph's first output for one row of tokens; with `first` only of so many tokens."""
        started = time.perf_counter()
        output = self._session.run(ids, types, first=first)
        measured = (time.perf_counter() - started) / max(1, len(ids))
        # Quick to believe good news: a first run is slow, and a neighbour's load passes.
        weight = 0.5 if measured < self._s_per_token else 0.1
        self._s_per_token += (measured - self._s_per_token) * (weight if self._s_per_token else 1.0)
        return output

    def expected_s(self, tokens: int) -> float:
        """Return how long a row of that many tokens is likely to take, from what was measured so far."""
        return self._s_per_token * tokens

    def _probe(self) -> tuple[list[int], list[int]]:
        first, second = (self.tokenizer.ids(text) or [] for text in _PROBE)
        return self.tokenizer.template.pair(first, second)

    def _check_output(self) -> int:
        """Run one pair of texts and return the output's width; refuse numbers or shapes of another kind."""
        ids, types = self._probe()
        try:
            output = self.forward(ids, types)
        except Exception as exc:
            raise ModelLoadError(f"{self.spec.id!r} does not run: {type(exc).__name__}: {exc}") from exc
        if not finite(output):
            raise ModelLoadError(f"{self.spec.id!r} answers with NaN or infinity; its weights are damaged.")
        width = int(output.shape[-1]) if output.ndim else 1
        per_token = output.ndim == 2 and len(output) == len(ids)
        fits = {
            "cross-encoder": output.ndim < 2 and width == 1,
            "nli": output.ndim == 1 and width > 1,
            "bi-encoder": per_token,
            "late-interaction": per_token,
        }
        if not fits[self.spec.kind]:
            raise _wrong_kind(self.spec, f"it returns {_describe_output(output, per_token=per_token)}")
        return width


_OUTPUTS: dict[Kind, str] = {
    "cross-encoder": "one score per pair of texts",
    "nli": "one score per label, for two labels or more",
    "bi-encoder": "one vector per token",
    "late-interaction": "one vector per token, of texts that carry a marker or a prefix",
}


def _describe_output(output: Array, *, per_token: bool) -> str:
    if per_token:
        return f"one vector of {output.shape[-1]} numbers per token"
    if output.ndim < 2:
        return "one number per text" if output.size == 1 else f"{output.size} numbers per text"
    return f"an array of shape {output.shape} per text"


def _check_declared_kind(files: ModelFiles) -> None:
    """Refuse a kind that contradicts the model's own description, where the output alone cannot tell."""
    spec = files.spec
    config, modules = _read_json(files, "config.json"), _read_json(files, "modules.json")
    if spec.kind == "late-interaction":
        pools = isinstance(modules, list) and any(
            str(module.get("type", "")).endswith("Pooling") for module in modules if isinstance(module, dict)
        )
        if pools:
            raise _wrong_kind(spec, "its modules.json pools the tokens into a single vector")
        marks = (spec.query_marker_id, spec.document_marker_id)
        if marks == (None, None) and not spec.query_prefix and not spec.document_prefix:
            raise _wrong_kind(spec, "it was allowed without a marker or a prefix for queries and documents")
    labels = config.get("id2label") if isinstance(config, dict) else None
    if spec.kind == "nli" and isinstance(labels, dict) and spec.entailment_index is not None:
        label = str(labels.get(str(spec.entailment_index), ""))
        # LABEL_0 is what the exporter writes for a label without a name.
        if label and not label.startswith("LABEL_") and not label.lower().startswith("entail"):
            raise _wrong_kind(spec, f"its config.json names label {spec.entailment_index} {label!r}")


def _read_json(files: ModelFiles, name: str) -> JsonValue:
    if all(pinned.name != name for pinned in files.spec.files) or not (files.folder / name).exists():
        return None
    return parse_json(name, files.read(name))


def _wrong_kind(spec: ModelSpec, reason: str) -> ModelNotAllowedError:
    return ModelNotAllowedError(
        f"{spec.id!r} is used as a {spec.kind}, but {reason}. A {spec.kind} needs {_OUTPUTS[spec.kind]}. "
        f"Allow the folder with the kind that fits: {', '.join(KINDS)}."
    )


_lock = ForkSafeLock()
_loaded: dict[tuple[ModelSpec, str], Model] = {}


def shipped_ids(kind: Kind) -> frozenset[str]:
    """Return the ids of all shipped models of one kind."""
    return frozenset(name for name in known() if (spec := shipped(name)) is not None and spec.kind == kind)


def model_ids(kind: Kind) -> list[str]:
    """Return the ids of all models of one kind that load now: shipped, or allowed by `allow_local`."""
    return sorted({*shipped_ids(kind), *allowed_ids(kind)})


def check_kind(model_id: str, kind: Kind) -> ModelSpec:
    """Return what is known of an allowed model of that kind; refuse other names before any file is read."""
    spec = find_spec(model_id)
    if spec.kind != kind:
        allowed = ", ".join(model_ids(kind)) or "none is shipped; use allow_local"
        raise ModelNotAllowedError(f"{model_id!r} is a {spec.kind}, not a {kind}. Allowed: {allowed}.")
    return spec


def load(model_id: str, *, kind: Kind, folder: Path | str | None = None) -> Model:
    """Return the model of that id, from memory or from its verified files.

    Raises ModelNotAllowedError before anything is read, ModelFileError or ModelLoadError otherwise.
    """
    check_kind(model_id, kind)
    files = resolve(model_id, folder=folder, check=False)
    # The whole spec: a folder that is allowed again may have another kind, pooling or prefix.
    key = (files.spec, str(files.folder))
    # Loaded under the lock: two callers at once would need twice the memory.
    with _lock:
        if key not in _loaded:
            _loaded[key] = Model(files)
        return _loaded[key]


def _session(files: ModelFiles, probe: tuple[list[int], list[int]]) -> Session:
    """Return the compiled code's session, or the runtime's for a file that only the runtime knows."""
    model = files.onnx_bytes()
    try:
        native = NativeSession(model)
    except UnknownArchitectureError as exc:
        log.debug("%s is left to ONNX Runtime: %s", files.spec.id, exc)
        return _by_runtime(files, model, str(exc))
    # Tests compare the sessions of the carried files; others are compared here, if the runtime is there.
    if files.spec.carrier is not None:
        return native
    try:
        exported = OnnxSession(model)
    except MissingExtraError:
        return native
    if _agree(native, exported, probe):
        return native
    log.debug("%s is left to ONNX Runtime: the compiled code gives other numbers", files.spec.id)
    return exported


def _by_runtime(files: ModelFiles, model: bytes, reason: str) -> Session:
    try:
        return OnnxSession(model)
    except MissingExtraError as exc:
        raise ModelLoadError(f"{files.spec.id!r} needs ONNX Runtime here ({reason}). {exc}") from exc


def _agree(one: Session, other: Session, probe: tuple[list[int], list[int]]) -> bool:
    first, second = one.run(*probe), other.run(*probe)
    return bool(first.shape == second.shape and abs(first - second).max() < _TOLERANCE)
