"""Allowed models in memory: one copy per process, loaded on first use, shared by all callers."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from resift.errors import ModelLoadError, ModelNotAllowedError, require
from resift.models.allowlist import Kind, ModelSpec, known, shipped
from resift.models.lean_graph import UnknownArchitectureError, lean_graph
from resift.models.locate import ModelFiles, find_spec, resolve
from resift.models.session import OnnxSession, finite
from resift.models.tokenizing import TextTokenizer

_PROBE = ("is this model in order?", "Yes: its answer to this pair of texts is a number.")
_TOLERANCE = 0.05

log = logging.getLogger("resift.models")


class Model:
    """A model's tokenizer and graph. `forward` may be called from any thread."""

    def __init__(self, files: ModelFiles, *, exact: bool = True) -> None:
        files.verify(unread=True)
        self.spec = files.spec
        self.tokenizer = TextTokenizer(files.tokenizer_bytes())
        self._s_per_token = 0.0
        self._session = _session(files, self._probe(), exact=exact)
        self.width = self._check()

    def forward(self, ids: list[int], types: list[int]) -> Any:
        """Return the graph's first output for one row of tokens."""
        started = time.perf_counter()
        output = self._session.run(ids, types)
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


_lock = threading.Lock()
_loaded: dict[tuple[str, str, str, bool], Model] = {}


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


def load(model_id: str, *, kind: Kind, folder: Path | str | None = None, exact: bool = True) -> Model:
    """Return the model of that id, from memory or from its verified files.

    Raises ModelNotAllowedError before anything is read, ModelFileError or ModelLoadError otherwise.
    """
    check_kind(model_id, kind)
    files = resolve(model_id, folder=folder, check=False)
    key = (files.spec.id, str(files.folder), files.spec.pin(files.spec.onnx).sha256, exact)
    with _lock:
        if key not in _loaded:
            _loaded[key] = Model(files, exact=exact)
        return _loaded[key]


def _session(files: ModelFiles, probe: tuple[list[int], list[int]], *, exact: bool) -> OnnxSession:
    model = files.onnx_bytes()
    try:
        lean = OnnxSession(lean_graph(model, require("numpy", extra="local"), exact=exact))
    except (UnknownArchitectureError, ModelLoadError) as exc:
        log.debug("%s runs as exported: %s", files.spec.id, exc)
        return OnnxSession(model)
    # Tests compare the two graphs of the carried files; all others are compared here.
    if files.spec.carrier is None:
        exported = OnnxSession(model)
        if not _same(lean.run(*probe), exported.run(*probe)):
            log.debug("%s runs as exported: the lean graph disagrees", files.spec.id)
            return exported
    return lean


def _same(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and abs(one - other).max() < _TOLERANCE)
