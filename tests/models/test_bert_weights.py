"""Packed weights lie close together in memory, each where C may read whole cache lines."""

from __future__ import annotations

from itertools import pairwise

import pytest

from resift.models.locate import resolve
from resift.models.onnx_bert import OnnxBert
from resift.models.onnx_reader import read_graph
from resift.models.session import BLOCK_BYTES, PackedBert, WeightArena
from resift.native.library import native_kernel


def address(array) -> int:
    return array.ctypes.data


def test_parts_of_a_block_begin_at_cache_lines_and_follow_each_other():
    room = WeightArena()
    sizes = [1, 63, 64, 65, 4096]
    parts = [room.take(size) for size in sizes]
    assert [part.size for part in parts] == sizes
    assert all(address(part) % 64 == 0 for part in parts)
    steps = [address(after) - address(before) for before, after in pairwise(parts)]
    assert steps == [64, 64, 64, 128]


def test_parts_share_no_byte():
    room = WeightArena()
    parts = [room.take(100) for _ in range(20)]
    for number, part in enumerate(parts):
        part[:] = number
    assert all((part == number).all() for number, part in enumerate(parts))


def test_what_does_not_fit_into_the_block_gets_another():
    room = WeightArena()
    small, large, after = room.take(100), room.take(BLOCK_BYTES + 1), room.take(100)
    assert large.size == BLOCK_BYTES + 1
    large[-1] = small[-1] = after[-1] = 1
    assert address(large) % 64 == address(after) % 64 == 0


@pytest.mark.real_model
@pytest.mark.skipif(native_kernel().name is None, reason="no compiled code for this processor")
def test_the_weights_of_a_model_follow_each_other_but_where_a_block_ends():
    kernel = native_kernel()
    data = resolve("cross-encoder/ms-marco-MiniLM-L-12-v2").onnx_bytes()
    weights = PackedBert(OnnxBert(read_graph(data)), kernel)
    linears = [
        linear
        for layer in weights.bert.layer[: weights.bert.layers]
        for linear in (layer.qkv, layer.attention_output, layer.ffn_up, layer.ffn_down)
    ]
    size = kernel.function("bert_packed_size")
    apart = sum(
        after.packed - before.packed != size(before.inputs, before.outputs) for before, after in pairwise(linears)
    )
    # Portable C has two bytes a weight, which is more than one block.
    assert apart <= sum(size(linear.inputs, linear.outputs) for linear in linears) // BLOCK_BYTES
