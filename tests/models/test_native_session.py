"""The native engine gives the results of ONNX Runtime 1.31 for the same file.

On a processor with AVX-512 VNNI the results are equal bit for bit. Without VNNI, ONNX Runtime multiplies int8
values with saturating 16-bit sums, so only the comparison between the native kernels is exact.
"""

from __future__ import annotations

import threading
from functools import partial
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resift.errors import ConfigError
from resift.models.engine import Engine
from resift.models.loading import Model
from resift.models.locate import resolve
from resift.models.onnx_bert import UnknownArchitectureError
from resift.models.session import NativeSession, OnnxSession
from resift.native import library
from tests.models.onnx_writer import Node, write_model

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(library.native_kernel().name is None, reason="no compiled code for this processor"),
]

CROSS_ENCODER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
MODELS = [CROSS_ENCODER, "answerdotai/answerai-colbert-small-v1", "BAAI/bge-small-en-v1.5"]
SAME_ARITHMETIC = version("onnxruntime").startswith("1.31.") and any(
    kernel.name == "avx512" for kernel in library.usable_kernels()
)
"""Other versions and processors add up in another order. One int8 step then changes a result by hundredths,
rarely by tenths."""
EVERY_REMAINDER = [*range(3, 13), 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 129, 256, 512]
USABLE = [str(kernel.name) for kernel in library.usable_kernels()]
FEW = [3, 12, 17, 33, 64, 129, 512]
"""For models other than the cross-encoder, which runs the same code at every length."""
LENGTHS = [
    pytest.param(model, tokens, marks=() if model == CROSS_ENCODER or tokens in FEW else pytest.mark.hardening)
    for tokens in EVERY_REMAINDER
    for model in MODELS
]
SHORT = [length for length in EVERY_REMAINDER if length <= 17]
"""For the portable kernel, which takes seconds for the longest rows; benchmarks/kernels.py has them all."""


@pytest.fixture(scope="module")
def sessions():
    """Each model's compiled session beside the runtime's session of the exported graph."""
    files = {name: resolve(name).onnx_bytes() for name in MODELS}
    return {name: (NativeSession(model), OnnxSession(model)) for name, model in files.items()}


def row(tokens: int, seed: int = 0) -> tuple[list[int], list[int]]:
    words = np.random.default_rng(seed).integers(999, 30_000, tokens).tolist()
    second = tokens // 3
    return [101, *words[1:-1], 102], [0] * second + [1] * (tokens - second)


def same(one, other) -> bool:
    return np.array_equal(one, other) if SAME_ARITHMETIC else bool(np.abs(one - other).max() < 1)


@pytest.mark.parametrize(("name", "tokens"), LENGTHS)
def test_every_length_agrees_to_the_last_bit(sessions, name, tokens):
    native, exported = sessions[name]
    asked = row(tokens, seed=tokens)
    assert same(native.run(*asked), exported.run(*asked))


@pytest.fixture(scope="module")
def kernels(sessions):
    """Each model in every kernel of this processor."""
    return {
        model: {
            kernel.name: sessions[model][0]
            if kernel.name == sessions[model][0].kernel
            else NativeSession(resolve(model).onnx_bytes(), kernel=kernel)
            for kernel in library.usable_kernels()
        }
        for model in MODELS
    }


@pytest.mark.parametrize(
    ("model", "lengths"),
    [
        *((model, EVERY_REMAINDER if model == CROSS_ENCODER else FEW) for model in MODELS),
        *(pytest.param(model, EVERY_REMAINDER, marks=pytest.mark.hardening) for model in MODELS[1:]),
    ],
)
def test_every_kernel_returns_the_same_bits(kernels, model, lengths):
    """All lengths in the fast kernels, short ones in portable C."""
    fastest, *others = kernels[model]
    for other in others:
        for tokens in lengths:
            if other == "portable" and tokens not in SHORT:
                continue
            asked = row(tokens, seed=tokens)
            one, two = (kernels[model][name].run(*asked) for name in (fastest, other))
            assert one.tobytes() == two.tobytes(), (other, tokens)


@settings(max_examples=15, deadline=None)
@given(tokens=st.integers(3, 40), seed=st.integers(0, 10**6), constant=st.booleans())
def test_any_row_has_the_same_bits_in_every_kernel(kernels, tokens, seed, constant):
    ids, types = row(tokens, seed)
    ids = [ids[1]] * tokens if constant else ids
    answers = {session.run(ids, types).tobytes() for session in kernels[CROSS_ENCODER].values()}
    assert len(answers) == 1


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_number_of_workers_changes_no_bit(sessions, workers):
    native, _ = sessions[CROSS_ENCODER]
    asked = [row(tokens, seed=tokens) for tokens in (120, 7, 64, 33, 5, 90, 12, 48)]
    found = {}
    engine = Engine(workers=workers)
    try:
        tasks = [partial(lambda at: found.update({at: native.run(*asked[at])}), at) for at in range(len(asked))]
        assert engine.submit(tasks).future.result(600)  # portable C on a busy machine takes its time
    finally:
        engine.close()
    assert all(np.array_equal(found[at], native.run(*one)) for at, one in enumerate(asked))


def test_the_first_states_are_those_of_all_tokens(sessions):
    """A model that pools by the first token computes only that one's state at the end."""
    native, _ = sessions["BAAI/bge-small-en-v1.5"]
    asked = row(50)
    assert np.array_equal(native.run(*asked, first=1), native.run(*asked)[:1])


@pytest.mark.skipif(not SAME_ARITHMETIC, reason="without VNNI, sums of ONNX Runtime saturate for some random rows")
@given(tokens=st.integers(3, 140), seed=st.integers(0, 10**6), constant=st.booleans())
def test_any_row_agrees_to_the_last_bit(sessions, tokens, seed, constant):
    """Also rows of one and the same word, whose activations are nearly constant."""
    native, exported = sessions[CROSS_ENCODER]
    ids, types = row(tokens, seed)
    ids = [ids[1]] * tokens if constant else ids
    assert same(native.run(ids, types), exported.run(ids, types))


def test_threads_share_a_session(sessions):
    """Each thread works in memory of its own; long and short rows in turn."""
    native, _ = sessions[CROSS_ENCODER]
    asked = [row(tokens, seed=tokens) for tokens in (120, 7, 64, 200, 33)]
    alone = [native.run(*one) for one in asked]
    wrong: list[int] = []

    def hammer() -> None:
        for number, (one, expected) in enumerate(zip(asked, alone, strict=True)):
            if not np.array_equal(native.run(*one), expected):
                wrong.append(number)

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("ids", "types"),
    [
        ([], []),
        ([101] * 513, [0] * 513),
        ([101, -1, 102], [0, 0, 0]),
        ([101, 30_522, 102], [0, 0, 0]),
        ([101, 102], [0, 2]),
        ([101, 102], [0]),
    ],
)
def test_tokens_out_of_range_are_refused_before_any_memory_is_read(sessions, ids, types):
    with pytest.raises(ValueError, match=r"range|types"):
        sessions[CROSS_ENCODER][0].run(ids, types)


def test_a_graph_of_another_kind_is_left_to_the_runtime():
    node = Node("Add", ["input_ids", "input_ids"], ["sum"], name="add")
    model = write_model([node], {}, inputs={"input_ids": ["n"]}, outputs={"sum": ["n"]})
    with pytest.raises(UnknownArchitectureError):
        NativeSession(model)


def test_a_model_computes_in_compiled_code_unless_it_is_switched_off(monkeypatch):
    """RESIFT_NATIVE=0 asks ONNX Runtime instead, and the score is the same."""
    files = resolve(CROSS_ENCODER)
    compiled = Model(files)
    monkeypatch.setenv(library.SWITCH, "0")
    runtime = Model(files)
    assert isinstance(compiled._session, NativeSession)
    assert isinstance(runtime._session, OnnxSession)
    asked = row(40)
    assert same(compiled.forward(*asked), runtime.forward(*asked))


def test_without_the_library_the_runtime_computes(monkeypatch, tmp_path):
    """An installation without a C compiler has no library."""
    monkeypatch.delenv(library.SWITCH, raising=False)  # a kernel that is asked for by name must be there
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "absent.so")
    library.usable_kernels.cache_clear()
    try:
        assert isinstance(Model(resolve(CROSS_ENCODER))._session, OnnxSession)
    finally:
        monkeypatch.undo()
        library.usable_kernels.cache_clear()


def test_a_kernel_can_be_forced_by_name(monkeypatch):
    for name in USABLE:
        monkeypatch.setenv(library.SWITCH, name)
        assert NativeSession(resolve(CROSS_ENCODER).onnx_bytes()).kernel == name


@pytest.mark.parametrize("name", ["avx9000", "neon" if "neon" not in USABLE else "avx2"])
def test_a_kernel_that_is_unknown_or_does_not_run_here_is_one_clear_error(monkeypatch, name):
    monkeypatch.setenv(library.SWITCH, name)
    with pytest.raises(ConfigError, match="portable"):
        library.native_kernel()
