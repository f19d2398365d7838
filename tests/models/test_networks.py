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
from resift.models.network import Dense, Network, NetworkLayer, Norm
from resift.models.packed_weights import load_packed, pack_network, save_packed, to_float32
from resift.models.session import TransformerSession
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


def random_network(*, hidden: int, heads: int, ffn: int, rotary: bool, layers: int = 2) -> Network:
    """Return a network of unusual sizes; its widest layers are int8."""
    rng = np.random.default_rng(7)

    def dense(outputs: int, inputs: int) -> Dense:
        weight = rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        return Dense(weight.astype(np.float32), rng.standard_normal(outputs).astype(np.float32) * 0.1)

    def norm() -> Norm:
        return Norm(rng.uniform(0.5, 1.5, hidden).astype(np.float32), None)

    blocks = [
        NetworkLayer(
            qkv=dense(3 * hidden, hidden),
            attention_output=dense(hidden, hidden),
            ffn_up=dense(2 * ffn if rotary else ffn, hidden),
            ffn_down=dense(hidden, ffn),
            attention_norm=norm(),
            ffn_norm=norm(),
            rope_theta=10_000.0 if rotary else None,
        )
        for _ in range(layers)
    ]
    word = rng.standard_normal((60, hidden)).astype(np.float32)
    return Network(
        hidden=hidden, heads=heads, ffn=ffn, positions=80, word=word, layers=blocks, embedding_norm=norm(),
        pre_norm=rotary, gated=rotary, pooling="none",
    )  # fmt: skip


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize(("hidden", "heads", "ffn"), [(140, 7, 301), (192, 4, 130)])
def test_unusual_widths_have_the_same_bits_in_int8_and_stay_close(rotary: bool, hidden: int, heads: int, ffn: int):
    network = random_network(hidden=hidden, heads=heads, ffn=ffn, rotary=rotary)
    ids = [5 + i % 50 for i in range(70)]
    packed = [pack_network(network, kernel, "int8") for kernel in KERNELS]
    outputs = [
        TransformerSession(weights, kernel).run(ids, [0] * len(ids))
        for weights, kernel in zip(packed, KERNELS, strict=True)
    ]
    assert "layer.0.qkv.scales" in packed[0].arrays
    assert all(output.tobytes() == outputs[0].tobytes() for output in outputs)
    exact = TransformerSession(pack_network(network, KERNELS[0], "fp32"), KERNELS[0]).run(ids, [0] * len(ids))
    assert np.abs(exact - outputs[0]).mean() < 0.03 * exact.std()


def test_extreme_weights_do_not_saturate():
    """All weights and activations at their limits: AVX2 adds products of two levels in 16 bits."""
    network = random_network(hidden=128, heads=2, ffn=128, rotary=False, layers=1)
    layer = network.layers[0]
    signs = np.where(np.arange(128) % 4 < 2, 1.0, -1.0).astype(np.float32)
    flat = Dense(np.tile(signs, (128, 1)), layer.ffn_down.bias)
    up = Dense(np.tile(signs, (128, 1)) * 9, layer.ffn_up.bias)
    network = dataclasses.replace(network, layers=[dataclasses.replace(layer, ffn_up=up, ffn_down=flat)])
    outputs = [
        TransformerSession(pack_network(network, kernel, "int8"), kernel).run([5, 6, 7], [0] * 3).tobytes()
        for kernel in KERNELS
    ]
    assert all(output == outputs[0] for output in outputs)


@pytest.mark.parametrize("hidden", [2, 12, 100, 101])
def test_norms_of_any_width(hidden: int):
    """Rows are filled up with zeros, which must not count as deviations from the mean."""
    network = random_network(hidden=hidden, heads=1, ffn=8, rotary=False, layers=0)
    session = TransformerSession(pack_network(network, KERNELS[0], "fp32"), KERNELS[0])
    ids = [3, 4, 5, 6, 7]
    rows = network.word[ids].astype(np.float64)
    expected = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    assert network.embedding_norm is not None
    np.testing.assert_allclose(
        session.run(ids, [0] * 5), expected * network.embedding_norm.weight, rtol=1e-4, atol=1e-5
    )


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
        ({"is_decoder": True}, "only encoders"),
        ({"num_hidden_layers": 3}, "no tensor"),
        ({"num_hidden_layers": 1}, "does not account for"),
        ({"intermediate_size": 96}, "config requires"),
        ({"hidden_size": -1}, "integer"),
        ({"hidden_act": "swish"}, "Supported: "),
        ({"num_attention_heads": 7}, "do not divide"),
        ({"num_attention_heads": 1 << 16}, "do not divide"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change: dict[str, object], message: str):
    tensors = load_file(FOLDER / "bert" / "model.safetensors")
    with pytest.raises(ModelFileError, match=message):
        build_network(Config({**read_config("bert"), **change}), Tensors(tensors))


def test_rotary_heads_of_an_odd_width_are_refused():
    """Rotary positions pair the two halves of a head."""
    tensors = load_file(FOLDER / "modernbert-cls" / "model.safetensors")
    config = read_config("modernbert-cls")
    config["num_attention_heads"] = config["hidden_size"]
    with pytest.raises(ModelFileError, match="even width"):
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


def test_weights_at_odd_addresses_are_copied():
    """The C code reads whole floats."""
    values = np.arange(6, dtype=np.float32)
    misplaced = np.frombuffer(b"xx" + values.tobytes(), np.float32, offset=2)
    assert not misplaced.flags.aligned
    assert to_float32(misplaced).flags.aligned
    np.testing.assert_array_equal(to_float32(misplaced), values)
