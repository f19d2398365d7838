"""Allowed models in memory: one copy per process, loaded on first use, shared by all callers."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Protocol

from resift.arrays import Array
from resift.errors import MissingExtraError, ModelLoadError, ModelNotAllowedError
from resift.forking import ForkSafeLock
from resift.models.allowlist import Kind, ModelSpec, known, shipped
from resift.models.bert_file import UnknownArchitectureError
from resift.models.locate import ModelFiles, find_spec, resolve
from resift.models.native_session import NativeSession
from resift.models.session import OnnxSession, finite
from resift.models.tokenizing import TextTokenizer

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
        self.width = self._check()

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

    def _check(self) -> int:
        try:
            answer = self.forward(*self._probe())
        except Exception as exc:
            raise ModelLoadError(f"{self.spec.id!r} does not run: {type(exc).__name__}: {exc}") from exc
        if not finite(answer):
            raise ModelLoadError(f"{self.spec.id!r} answers with NaN or infinity; its weights are damaged.")
        return int(answer.shape[-1])


_lock = ForkSafeLock()
_loaded: dict[tuple[str, str, str], Model] = {}


def of_kind(kind: Kind) -> frozenset[str]:
    """Return the ids of all shipped models of one kind."""
    return frozenset(name for name in known() if (spec := shipped(name)) is not None and spec.kind == kind)


def check_kind(model_id: str, kind: Kind) -> ModelSpec:
    """Return what is known of an allowed model of that kind; refuse other names before any file is read."""
    spec = find_spec(model_id)
    if spec.kind != kind:
        allowed = ", ".join(sorted(of_kind(kind))) or "none is shipped; use allow_local"
        raise ModelNotAllowedError(f"{model_id!r} is a {spec.kind}, not a {kind}. Allowed: {allowed}.")
    return spec


def load(model_id: str, *, kind: Kind, folder: Path | str | None = None) -> Model:
    """Return the model of that id, from memory or from its verified files.

    Raises ModelNotAllowedError before anything is read, ModelFileError or ModelLoadError otherwise.
    """
    check_kind(model_id, kind)
    files = resolve(model_id, folder=folder, check=False)
    key = (files.spec.id, str(files.folder), files.spec.pin(files.spec.onnx).sha256)
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
