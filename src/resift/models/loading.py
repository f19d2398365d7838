"""Allowed models in memory: one copy per process, loaded on first use, shared by all callers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from resift.errors import ModelLoadError, ModelNotAllowedError
from resift.models.allowlist import Kind, known, shipped
from resift.models.locate import ModelFiles, resolve
from resift.models.session import OnnxSession, finite
from resift.models.tokenizing import TextTokenizer

_PROBE = ("is this model in order?", "Yes: its answer to this pair is a number.")


class Model:
    """A model's tokenizer and graph. `forward` may be called from any thread."""

    def __init__(self, files: ModelFiles) -> None:
        self.spec = files.spec
        self.tokenizer = TextTokenizer(files.tokenizer_bytes())
        self._session = OnnxSession(files.onnx_bytes())
        self._s_per_token = 0.0
        self.width = self._check()

    def forward(self, ids: list[int], types: list[int]) -> Any:
        """Return the graph's first output for one row of tokens."""
        started = time.perf_counter()
        output = self._session.run(ids, types)
        measured = (time.perf_counter() - started) / max(1, len(ids))
        self._s_per_token += (measured - self._s_per_token) * (0.2 if self._s_per_token else 1.0)
        return output

    def expected_s(self, tokens: int) -> float:
        """Return how long a row of that many tokens is likely to take, from what was measured so far."""
        return self._s_per_token * tokens

    def _check(self) -> int:
        first, second = (self.tokenizer.ids(text) or [] for text in _PROBE)
        row = self.tokenizer.template.pair(first, second)
        try:
            answer = self.forward(*row)
        except Exception as exc:
            raise ModelLoadError(f"{self.spec.id!r} does not run: {type(exc).__name__}: {exc}") from exc
        if not finite(answer):
            raise ModelLoadError(f"{self.spec.id!r} answers with NaN or infinity; its weights are damaged.")
        return int(answer.shape[-1])


_lock = threading.Lock()
_loaded: dict[tuple[str, str], Model] = {}


def of_kind(kind: Kind) -> frozenset[str]:
    """Return the ids of all shipped models of one kind."""
    return frozenset(name for name in known() if (spec := shipped(name)) is not None and spec.kind == kind)


def load(model_id: str, *, kind: Kind, folder: Path | str | None = None) -> Model:
    """Return the model of that id, from memory or from its verified files.

    Raises ModelNotAllowedError before anything is read, ModelFileError or ModelLoadError otherwise.
    """
    files = resolve(model_id, folder=folder, check=False)
    if files.spec.kind != kind:
        allowed = ", ".join(sorted(of_kind(kind)))
        raise ModelNotAllowedError(f"{model_id!r} is a {files.spec.kind}, not a {kind}. Allowed: {allowed}.")
    key = (files.spec.id, str(files.folder))
    with _lock:
        if key not in _loaded:
            _loaded[key] = Model(files)
        return _loaded[key]
