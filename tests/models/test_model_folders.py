"""Model folders in the layout of the hub: modules, poolings, and refusals of altered files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from resift.errors import ModelFileError
from resift.models.embedder import Embedder
from resift.models.hf_folder import read_model_folder
from resift.models.local_models import allow_local
from resift.models.packed_weights import pack_network
from resift.models.pinning import add_model
from resift.models.registry import disallow_local, read_lock
from resift.models.session import TransformerSession
from resift.native.library import native_kernel
from tests.models.model_folders import module_folder, network_folder, static_folder

pytestmark = pytest.mark.skipif(native_kernel().name is None, reason="needs the compiled library")

RANDOM = np.random.default_rng(3)
ALTERED = ("model.safetensors", "config.json", "modules.json", "tokenizer.json", "1_Pooling/config.json")


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ettin_modules() -> list:
    """The head of Ettin: CLS pooling, Dense with GELU, LayerNorm, Dense with one output."""
    gelu, identity = (
        {"activation_function": f"torch.nn.modules.{name}"} for name in ("activation.GELU", "linear.Identity")
    )
    return [
        ("Pooling", {"word_embedding_dimension": 64, "pooling_mode_cls_token": True}, {}),
        ("Dense", {"in_features": 64, "out_features": 64, "bias": False, **gelu}, {"linear.weight": array(64, 64)}),
        ("LayerNorm", {"dimension": 64}, {"norm.weight": array(64), "norm.bias": array(64)}),
        (
            "Dense",
            {"in_features": 64, "out_features": 1, "bias": True, **identity},
            {"linear.weight": array(1, 64), "linear.bias": array(1)},
        ),
    ]


def run_session(folder: Path, ids: list[int]) -> np.ndarray:
    network = read_model_folder(folder).network
    session = TransformerSession(pack_network(network, native_kernel(), "fp32"), native_kernel())
    return session.run(ids, [0] * len(ids))


def test_the_modules_of_ettin_are_a_cross_encoder(tmp_path):
    """The head computes what numpy computes from the CLS state of the encoder."""
    from math import erf

    modules = ettin_modules()
    folder = module_folder(tmp_path / "ettin", modules, name="modernbert-embedder")
    contents = read_model_folder(folder)
    assert (contents.description.kind, contents.description.pooling) == ("cross-encoder", "first")
    assert contents.head == ("dense(64→64)", "gelu", "norm", "dense(64→1)")
    assert "1_Pooling/config.json" in contents.files
    plain = module_folder(tmp_path / "plain", modules[:1], name="modernbert-embedder")
    ids = [1, 7, 9, 2, 11, 2]
    state = run_session(plain, ids).astype(np.float64)
    state = modules[1][2]["linear.weight"] @ state
    state = np.array([value * 0.5 * (1 + erf(value / 2**0.5)) for value in state])
    state = (state - state.mean()) / np.sqrt(state.var() + 1e-5)
    state = state * modules[2][2]["norm.weight"] + modules[2][2]["norm.bias"]
    expected = modules[3][2]["linear.weight"] @ state + modules[3][2]["linear.bias"]
    np.testing.assert_allclose(run_session(folder, ids), expected, rtol=1e-4, atol=1e-4)


def test_embedders_with_dense_and_normalize(tmp_path):
    identity = {"activation_function": "torch.nn.modules.linear.Identity"}
    modules = [
        ("Pooling", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, {}),
        ("Dense", {"in_features": 48, "out_features": 20, "bias": False, **identity}, {"linear.weight": array(20, 48)}),
        ("Normalize", {}, {}),
    ]
    folder = module_folder(tmp_path / "embedder", modules, name="bert-embedder")
    description = read_model_folder(folder).description
    assert (description.kind, description.pooling, description.normalize) == ("bi-encoder", "mean", True)
    assert run_session(folder, [1, 8, 9, 2]).shape == (20,)


def test_static_embedders_are_a_table(tmp_path):
    folder = read_model_folder(static_folder(tmp_path / "static", width=16))
    assert (folder.description.kind, folder.table.shape[1]) == ("bi-encoder", 16)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"type": "sentence_transformers.models.CNN"}, "CNN"), ({"path": "../other"}, "path"), ({"type": 3}, "type")],
)
def test_unknown_modules_are_refused(tmp_path, change, word):
    folder = module_folder(tmp_path / "model", ettin_modules(), name="modernbert-embedder")
    rows = json.loads((folder / "modules.json").read_text())
    rows[1].update(change)
    (folder / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(ModelFileError, match=word):
        read_model_folder(folder)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_modules_that_do_not_fit_together_are_refused(tmp_path, number):
    """The engine would read past the end of the state."""
    modules = ettin_modules()
    kind, config, tensors = modules[number]
    wide = {name: array(*value.shape[:-1], 1 << 16) for name, value in tensors.items() if name != "linear.bias"}
    sizes = {"in_features": 1 << 16, "dimension": 1 << 16}
    modules[number] = (kind, {**config, **sizes}, {**tensors, **wide})
    folder = module_folder(tmp_path / "model", modules, name="modernbert-embedder")
    with pytest.raises(ModelFileError, match="expects 65536 inputs"):
        read_model_folder(folder)


@pytest.mark.parametrize(
    ("network", "name", "value"),
    [
        ("modernbert-cls", "local_attention", 1),
        ("modernbert-cls", "max_position_embeddings", 1 << 20),
        ("bert", "model_type", ["bert"]),
    ],
)
def test_values_without_meaning_are_refused(tmp_path, network, name, value):
    folder = network_folder(tmp_path / "model", network, **{name: value})
    with pytest.raises(ModelFileError, match=name):
        read_model_folder(folder)


def alter(data: bytes, rng: random.Random) -> bytes:
    """Change, remove or repeat a few bytes near the start, where headers and names are."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(min(len(changed), 4000)) if changed else 0
        action = rng.randrange(4)
        if action == 0:
            changed[i] = rng.randrange(256)
        elif action == 1:
            changed[i : i + rng.randint(1, 9)] = b""
        elif action == 2:
            changed[i:i] = rng.choice([b"-1", b"9" * 20, b"null", b"[]", b'"x"', b"1e400", b"0", b"{"])
        else:
            del changed[len(changed) // rng.randint(1, 9) :]
    return bytes(changed)


def attack(folder: Path, count: int, seed: int) -> int:
    """Alter one file at a time; every refusal is a ModelFileError, and what is accepted runs."""
    rng, refused = random.Random(seed), 0
    for _ in range(count):
        name = rng.choice(ALTERED)
        original = (folder / name).read_bytes()
        (folder / name).write_bytes(alter(original, rng))
        try:
            model = read_model_folder(folder)
            TransformerSession(pack_network(model.network, native_kernel(), "int8"), native_kernel()).run(
                [1, 2], [0, 0]
            )
        except ModelFileError:
            refused += 1
        except ValueError as exc:  # a smaller vocabulary than the token ids above
            if "range" not in str(exc):
                raise
        finally:
            (folder / name).write_bytes(original)
    return refused


def test_altered_files_are_refused_or_run(tmp_path):
    folder = module_folder(tmp_path / "model", ettin_modules(), name="modernbert-embedder")
    assert attack(folder, 120, seed=1) > 40


@pytest.mark.hardening
def test_many_altered_files_are_refused_or_run(tmp_path):
    folder = module_folder(tmp_path / "model", ettin_modules(), name="modernbert-embedder")
    assert attack(folder, 10_000, seed=2) > 3_000


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../x"}, {"revision": "../../x"}, {"repo": "a/b/c"}, {"folder": None}, {"max_length": 0},
        {"languages": "english"}, {"languages": []}, {"kind": "decoder"}, {"precision": "int4"},
        {"weights": []}, {"files": []}, {"files": [{"name": "../a", "size": 1, "sha256": "0" * 64}]},
        {"unknown": 1},
    ],
)  # fmt: skip
def test_altered_lock_files_are_refused(tmp_path, change, monkeypatch):
    from resift.models.registry import find_spec

    path = tmp_path / "models.lock"
    add_model(network_folder(tmp_path / "model"), name="mine/model", lock=path, probe=False)
    contents = json.loads(path.read_text())
    contents["models"][0].update(change)
    path.write_text(json.dumps(contents))
    monkeypatch.setenv("RESIFT_MODELS_LOCK", str(path))
    with pytest.raises(ModelFileError):
        find_spec("mine/model")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 9, "models": []}', b"\xff", b"[" * 9000])
def test_damaged_lock_files_are_refused(tmp_path, data):
    (tmp_path / "models.lock").write_bytes(data)
    with pytest.raises(ModelFileError):
        read_lock(tmp_path / "models.lock")


def test_a_static_embedder_counts_no_special_tokens_and_maps_shared_rows(tmp_path: Path):
    """model2vec averages the words alone and leaves out unknown ones; rows may be shared and weighted."""
    folder = static_folder(tmp_path / "static", width=16)
    table = load_file(folder / "model.safetensors")["embeddings"]
    table[:] = np.random.default_rng(3).standard_normal(table.shape)
    mapping = np.arange(len(table), dtype=np.int64)[::-1].copy()
    weights = np.linspace(0.5, 2, len(table), dtype=np.float32)
    save_file({"embeddings": table, "mapping": mapping, "weights": weights}, folder / "model.safetensors")
    allow_local(folder, id="mine/static")
    try:
        vector = Embedder("mine/static").embed_sync(["water zzzz boils"], kind="document")[0]
        empty = Embedder("mine/static").embed_sync(["zzzz"], kind="document")[0]
    finally:
        disallow_local("mine/static")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    ids = [vocabulary["water"], vocabulary["boils"]]
    expected = (table[mapping[ids]] * weights[ids, None]).mean(axis=0)
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-6)
    assert not empty.any()


@pytest.mark.parametrize(
    ("config", "types"),
    [
        ({"model_input_names": ["input_ids", "attention_mask"]}, False),
        ({"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, True),
        ({"tokenizer_class": "TokenizersBackend"}, False),
        ({"tokenizer_class": "BertTokenizer"}, True),
    ],
)
def test_token_types_follow_the_tokenizer_config(tmp_path: Path, config: dict[str, object], types: bool):
    folder = network_folder(tmp_path / "model")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_model_folder(folder).description.token_types is types


def test_lower_case_that_the_tokenizer_does_not_do_is_refused(tmp_path: Path):
    folder = network_folder(tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    read_model_folder(folder)  # its tokenizer lowers the case
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "normalizer": None}))
    with pytest.raises(ModelFileError, match="upper case"):
        read_model_folder(folder)
