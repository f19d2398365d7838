"""The lean graph says what the file's own graph says, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from resift.models.bert_file import UnknownArchitectureError
from resift.models.lean_graph import lean_graph
from resift.models.locate import resolve
from resift.models.onnx_wire import Node, read_graph, write_model
from resift.models.session import OnnxSession
from resift.models.tokenizing import TextTokenizer

pytestmark = pytest.mark.real_model

MODELS = [
    "cross-encoder/ms-marco-MiniLM-L-12-v2",
    "answerdotai/answerai-colbert-small-v1",
    "BAAI/bge-small-en-v1.5",
]
QUERY = "how do plants make sugar from light?"
TEXTS = [
    "",
    "Photosynthesis turns light, water and carbon dioxide into sugar.",
    "The 1987 annual report lists 42 % of revenue under 'other'. " * 3,
    "光合作用 🌱 فوتوسنتز \x07 fotosynthese",
    "word " * 300,
]


def rows(files):
    tokenizer = TextTokenizer(files.tokenizer_bytes())
    query = tokenizer.ids(QUERY)
    return [tokenizer.template.pair(query, tokenizer.ids(text)) for text in TEXTS]


@pytest.mark.parametrize("name", MODELS)
def test_lean_and_exported_graph_agree_to_the_last_bit(name):
    files = resolve(name)
    model = files.onnx_bytes()
    lean, exported = OnnxSession(lean_graph(model, np)), OnnxSession(model)
    for row in rows(files):
        assert np.array_equal(lean.run(*row), exported.run(*row))


def test_a_graph_of_another_kind_is_refused_for_the_exported_one_to_run():
    node = Node("Add", ["input_ids", "input_ids"], ["sum"], name="add")
    model = write_model([node], {}, inputs={"input_ids": ["n"]}, outputs={"sum": ["n"]})
    with pytest.raises(UnknownArchitectureError):
        lean_graph(model, np)


def test_what_is_written_reads_back():
    weights = {"w": np.arange(6, dtype="float32").reshape(2, 3), "i": np.array([-1, 2], dtype="int64")}
    node = Node("MatMul", ["x", "w"], ["y"], name="n", attributes={"axis": -1, "perm": (0, 1), "alpha": 0.5})
    model = write_model([node], weights, inputs={"x": ["a", 2]}, outputs={"y": ["a", 3]})
    read = read_graph(model, np)
    assert [(found.op, found.inputs, found.outputs, found.name) for found in read.nodes] == [
        ("MatMul", ["x", "w"], ["y"], "n")
    ]
    assert all(np.array_equal(read.weights[name], array) for name, array in weights.items())
