"""The native engine computes what transformers computes, with the same bits on every kernel."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from resift.errors import ModelFileError
from resift.models.architectures import build_network
from resift.models.architectures.tensors import Config, Tensors
from resift.models.network import Network
from resift.models.packed_weights import load_packed, pack_network, save_packed
from resift.models.transformer_session import TransformerSession
from resift.native.library import usable_kernels

FOLDER = Path(__file__).parent / "networks"
NAMES = sorted(path.name for path in FOLDER.iterdir())
KERNELS = [kernel for kernel in usable_kernels() if kernel.name]

pytestmark = pytest.mark.skipif(not KERNELS, reason="needs the compiled library")


def read_config(name: str) -> dict[str, object]:
    return json.loads((FOLDER / name / "config.json").read_text())


@cache
def read_network(name: str) -> Network:
    tensors = load_file(FOLDER / name / "model.safetensors")
    network = build_network(Config(read_config(name)), Tensors(tensors))
    return network if network.head else dataclasses.replace(network, pooling="none")


def rows(name: str) -> list[dict[str, list]]:
    return json.loads((FOLDER / name / "expected.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_fp32_matches_transformers(name: str):
    """Logits, or the first token's state, for texts of one token up to the longest."""
    session = TransformerSession(pack_network(read_network(name), KERNELS[0], "fp32"), KERNELS[0])
    outputs = [session.run(row["ids"], row["types"]).reshape(-1)[:64] for row in rows(name)]
    expected = [np.array(row["expected"]) for row in rows(name)]
    spread = np.concatenate(expected).std()
    for output, reference in zip(outputs, expected, strict=True):
        width = min(output.size, reference.size)
        np.testing.assert_allclose(output[:width], reference[:width], atol=1e-4 * spread)


@pytest.mark.parametrize("name", NAMES)
def test_int8_stays_close_to_fp32(name: str):
    """Quantization changes scores by a small share of their spread."""
    fp32, int8 = (
        TransformerSession(pack_network(read_network(name), KERNELS[0], precision), KERNELS[0])
        for precision in ("fp32", "int8")
    )
    pairs = [(fp32.run(row["ids"], row["types"]), int8.run(row["ids"], row["types"])) for row in rows(name)]
    spread = np.concatenate([exact.reshape(-1) for exact, _ in pairs]).std()
    assert max(np.abs(exact - rounded).mean() for exact, rounded in pairs) < 0.1 * spread


@pytest.mark.parametrize("precision", ["int8", "fp32"])
@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_returns_the_same_bits(name: str, precision: str):
    outputs = []
    for kernel in KERNELS:
        session = TransformerSession(pack_network(read_network(name), kernel, precision), kernel)
        outputs.append([session.run(row["ids"], row["types"]).tobytes() for row in rows(name)])
    assert all(output == outputs[0] for output in outputs)


def test_flash_names_are_the_same_network():
    """The tensor names of flash-attention's XLM-RoBERTa give the same scores."""
    plain = load_file(FOLDER / "xlm-roberta" / "model.safetensors")
    renamed = {}
    for key, value in plain.items():
        parts = key.split(".")
        if key.startswith("roberta.embeddings.LayerNorm."):
            renamed[f"roberta.emb_ln.{parts[-1]}"] = value
        elif ".encoder.layer." not in key:
            renamed[key] = value
    for layer in range(2):
        old, new = f"roberta.encoder.layer.{layer}.", f"roberta.encoder.layers.{layer}."
        for part in ("weight", "bias"):
            qkv = [plain[f"{old}attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            renamed[f"{new}mixer.Wqkv.{part}"] = np.concatenate(qkv)
            renamed[f"{new}mixer.out_proj.{part}"] = plain[f"{old}attention.output.dense.{part}"]
            renamed[f"{new}norm1.{part}"] = plain[f"{old}attention.output.LayerNorm.{part}"]
            renamed[f"{new}mlp.fc1.{part}"] = plain[f"{old}intermediate.dense.{part}"]
            renamed[f"{new}mlp.fc2.{part}"] = plain[f"{old}output.dense.{part}"]
            renamed[f"{new}norm2.{part}"] = plain[f"{old}output.LayerNorm.{part}"]
    flash = build_network(Config(read_config("xlm-roberta")), Tensors(renamed))
    sessions = [
        TransformerSession(pack_network(network, KERNELS[0], "int8"), KERNELS[0])
        for network in (flash, read_network("xlm-roberta"))
    ]
    row = rows("xlm-roberta")[-1]
    first, second = (session.run(row["ids"], row["types"]) for session in sessions)
    assert first.tobytes() == second.tobytes()


def test_long_texts_are_attended_in_windows():
    """A token far outside the window of every layer changes nothing in a model without global layers."""
    config = {**read_config("modernbert-embedder"), "layer_types": ["sliding_attention"] * 4}
    tensors = load_file(FOLDER / "modernbert-embedder" / "model.safetensors")
    network = dataclasses.replace(build_network(Config(config), Tensors(tensors)), pooling="none")
    session = TransformerSession(pack_network(network, KERNELS[0], "int8"), KERNELS[0])
    ids = [5 + i % 50 for i in range(200)]
    before = session.run(ids, [0] * 200, first=1)
    after = session.run([*ids[:-1], 7], [0] * 200, first=1)  # four layers of 16 positions reach 64 positions
    assert before.tobytes() == after.tobytes()
    assert session.run([*ids[:10], 7, *ids[11:]], [0] * 200, first=1).tobytes() != before.tobytes()


def test_packed_weights_survive_the_file(tmp_path: Path):
    packed = pack_network(read_network("modernbert-cls"), KERNELS[0], "int8")
    with (tmp_path / "packed").open("wb") as file:
        save_packed(packed, file)
    row = rows("modernbert-cls")[1]
    scores = [
        TransformerSession(weights, KERNELS[0]).run(row["ids"], row["types"])
        for weights in (packed, load_packed(tmp_path / "packed"))
    ]
    assert scores[0].tobytes() == scores[1].tobytes()


def test_a_damaged_packed_file_is_refused(tmp_path: Path):
    path = tmp_path / "packed"
    with path.open("wb") as file:
        save_packed(pack_network(read_network("bert"), KERNELS[0], "int8"), file)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum"):
        load_packed(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen2"}, "no native implementation"),
        ({"num_hidden_layers": 3}, "no tensor"),
        ({"num_hidden_layers": 1}, "does not explain"),
        ({"intermediate_size": 96}, "config asks for"),
        ({"hidden_size": -1}, "integer"),
        ({"hidden_act": "swish"}, "supported are"),
        ({"num_attention_heads": 7}, "do not divide"),
        ({"num_attention_heads": 1 << 16}, "do not divide"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change: dict[str, object], message: str):
    tensors = load_file(FOLDER / "bert" / "model.safetensors")
    with pytest.raises(ModelFileError, match=message):
        build_network(Config({**read_config("bert"), **change}), Tensors(tensors))


def test_rotary_heads_of_an_odd_width_are_refused():
    """The engine rotates 16 numbers of each half at a time; narrower halves would read past their tables."""
    tensors = load_file(FOLDER / "modernbert-cls" / "model.safetensors")
    config = read_config("modernbert-cls")
    config["num_attention_heads"] = config["hidden_size"] // 16
    with pytest.raises(ModelFileError, match="multiple of 32"):
        build_network(Config(config), Tensors(tensors))


def test_ids_out_of_range_are_refused():
    """The C code looks tokens up unchecked."""
    session = TransformerSession(pack_network(read_network("bert"), KERNELS[0], "int8"), KERNELS[0])
    for ids in ([], [-1], [60], [5] * 49):
        with pytest.raises(ValueError, match="range"):
            session.run(ids, [0] * len(ids))


def test_bfloat16_weights_are_read():
    """bfloat16 comes as the upper halves of float32."""
    from resift.models.packed_weights import to_float32

    values = np.array([1.0, -2.5, 0.15625], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(to_float32(halves), values)
