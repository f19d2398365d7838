"""Files of other shapes, types and operations than the compiled code knows never reach it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from resift.models.onnx_bert import LIMITS, OnnxBert, UnknownArchitectureError
from resift.models.onnx_reader import read_graph
from resift.models.session import NativeSession
from resift.native.library import native_kernel
from tests.hardening.hostile_models import attempt, attempt_rerank
from tests.models.small_bert import CLASSES, FFN, HIDDEN, SmallBert, altered

pytestmark = pytest.mark.skipif(native_kernel().name is None, reason="no compiled code")


def product(bert: SmallBert, module: str) -> str:
    """Return what the names of a linear layer's weights begin with."""
    path = module.replace(".layer.", "/layer#").replace(".", "/").replace("#", ".")
    node = next(node for node in bert.nodes if node.name == f"/{path}/MatMul_quant")
    return str(node.inputs[1]).removesuffix("_quantized")


def widened(bert: SmallBert, module: str, shape: tuple[int, int]) -> None:
    """Give a linear layer consistent weights and bias of another shape."""
    bert.weights[product(bert, module) + "_quantized"] = np.ones(shape, dtype="int8")
    bert.weights[f"{module}.bias"] = np.zeros(shape[1], dtype="float32")


def test_the_small_model_itself_runs():
    session = NativeSession(SmallBert().write())
    assert np.isfinite(session.run([1, 2, 3], [0, 0, 1])).all()
    assert session.run([1, 2, 3], [0, 0, 1]).shape == (CLASSES,)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        ("bert.encoder.layer.1.intermediate.dense", (HIDDEN, 24 * FFN)),
        ("bert.encoder.layer.1.output.dense", (2 * FFN, HIDDEN)),
        ("bert.encoder.layer.0.attention.self.query", (HIDDEN, 2 * HIDDEN)),
        ("bert.encoder.layer.1.attention.self.value", (HIDDEN, HIDDEN // 2)),
        ("bert.pooler.dense", (HIDDEN, 3 * HIDDEN)),
        ("classifier", (HIDDEN, LIMITS["classes"] + 1)),
        ("classifier", (HIDDEN, 0)),
        ("classifier", (2 * HIDDEN, 1)),
    ],
)
def test_a_layer_of_another_width_is_refused(module, shape):
    """A later layer that is wider than the first once wrote past the end of a buffer."""
    bert = SmallBert()
    widened(bert, module, shape)
    with pytest.raises(UnknownArchitectureError):
        NativeSession(bert.write())


@pytest.mark.parametrize("length", [0, 1, HIDDEN - 1, HIDDEN + 1])
@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.1.output.LayerNorm.weight",
        "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.0.attention.output.dense.bias",
        "bert.encoder.layer.1.attention.self.key.bias",
    ],
)
def test_a_norm_or_bias_of_another_length_is_refused(name, length):
    bert = SmallBert()
    bert.weights[name] = np.zeros(length, dtype="float32")
    with pytest.raises(UnknownArchitectureError, match="shape"):
        NativeSession(bert.write())


@pytest.mark.parametrize("table", ["word", "token_type", "position"])
@pytest.mark.parametrize("shape", [(0, HIDDEN), (3, HIDDEN - 1), (3, HIDDEN + 64), (HIDDEN,), (2, 2, HIDDEN)])
def test_a_table_of_another_shape_is_refused(table, shape):
    bert = SmallBert()
    bert.weights[f"bert.embeddings.{table}_embeddings.weight_quantized"] = np.zeros(shape, dtype="uint8")
    with pytest.raises(UnknownArchitectureError):
        NativeSession(bert.write())


def test_a_smaller_vocabulary_bounds_the_ids():
    bert = SmallBert()
    bert.weights["bert.embeddings.word_embeddings.weight_quantized"] = np.zeros((5, HIDDEN), dtype="uint8")
    session = NativeSession(bert.write())
    session.run([4, 4], [0, 1])
    with pytest.raises(ValueError, match="range"):
        session.run([5, 4], [0, 1])


@pytest.mark.parametrize("heads", [(3, 21), (0, HIDDEN), (-2, -32), (2**31, 2**31), (HIDDEN, 1), (4, 16)])
def test_heads_that_do_not_divide_are_refused(heads):
    bert = SmallBert()
    for node in bert.nodes:
        if node.name.endswith("attention/self/Constant"):
            node.attributes = {"value": np.array(heads, dtype="int64")}
    with pytest.raises(UnknownArchitectureError):
        NativeSession(bert.write())


def test_weights_with_a_zero_point_are_left_to_the_runtime():
    bert = SmallBert()
    name = product(bert, "bert.encoder.layer.1.output.dense") + "_zero_point"
    bert.weights[name] = np.array(3, dtype="int8")
    with pytest.raises(UnknownArchitectureError, match="symmetric"):
        NativeSession(bert.write())


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Conv", "Gelu"])
def test_other_operations_are_left_to_the_runtime(op):
    bert = SmallBert()
    next(node for node in bert.nodes if node.op == "Erf").op = op
    with pytest.raises(UnknownArchitectureError, match="operation"):
        OnnxBert(read_graph(bert.write())).sizes  # noqa: B018 - reading the sizes checks the graph


def test_altered_files_crash_nothing(tmp_path):
    """Each is refused with a reason, or runs; tests/hardening tries 10,000 with sanitizers."""
    outcomes = [attempt(altered(seed), tmp_path) for seed in range(40)]
    assert {"runs", "refused"} == set(outcomes)


def test_altered_files_go_a_users_way(tmp_path, monkeypatch):
    """Allowed as a folder and reranked by: refused in words, degraded with a reason, or an answer."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert attempt_rerank(SmallBert(classes=1).write(), tmp_path) == "runs"
    outcomes = [attempt_rerank(altered(seed, classes=1), tmp_path) for seed in range(500, 530)]
    assert {"runs", "refused"} == set(outcomes)
