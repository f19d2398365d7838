"""One ONNX graph on one thread, called by any number of threads at once. No downloads, no policy."""

from __future__ import annotations

import math
import os
from types import ModuleType
from typing import Any

from resift._internal.arrays import Array, np
from resift.errors import ModelLoadError, require


class OnnxSession:
    """A loaded graph that takes one row of tokens; several threads may run it at the same time."""

    def __init__(self, model: bytes) -> None:
        runtime = onnx_runtime()
        options = _options(runtime)
        try:
            self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        # The runtime raises types of its own, which nobody without it could catch.
        except Exception as exc:
            raise ModelLoadError(f"The runtime refuses the graph: {type(exc).__name__}: {exc}") from exc
        self._inputs = {given.name for given in self._session.get_inputs()}
        self._output = [self._session.get_outputs()[0].name]

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the graph's first output for one row, without the batch dimension; `first` cuts rows off."""
        row = np.array([ids], dtype=np.int64)
        feeds = {"input_ids": row}
        if "attention_mask" in self._inputs:
            feeds["attention_mask"] = np.ones_like(row)
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.array([types], dtype=np.int64)
        output: Array = self._session.run(self._output, feeds)[0][0]
        return output[:first] if output.ndim > 1 else output


def onnx_runtime() -> ModuleType:
    """Import ONNX Runtime with its telemetry off, unless the environment already says otherwise."""
    # Version 1.31 writes an id to the temporary folder and reports to its maker as soon as it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return require("onnxruntime", extra="onnx")


def finite(values: Array) -> bool:
    """Whether every number of an array is one."""
    return math.isfinite(float(abs(values).sum()))


def _options(runtime: ModuleType) -> Any:
    options = runtime.SessionOptions()
    # One thread per run and no pool: nothing spins, nothing is lost in a fork, no run waits for another.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return options
