"""Every kernel of this processor: the same bits for every model and length, and what each takes.

`python -m benchmarks.kernels` runs the three carried models over 24 lengths from 3 to 512 tokens and random
rows in each kernel and compares all bits; then it measures processor time per row, the kernels in turn.
`--arm` runs the ARM kernels too, on the same models, in an emulator (Debian's qemu-user, and ziglang from the
package index): slow, and about bits only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.cross_encoder import can_hide_avx512, hiding_library
from benchmarks.harness import HERE, option_parser, report

MODELS = ["cross-encoder/ms-marco-MiniLM-L-12-v2", "answerdotai/answerai-colbert-small-v1", "BAAI/bge-small-en-v1.5"]
LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 129, 256, 512]
SPEED_LENGTHS = [32, 100, 256, 512]

Run = Callable[[list[int], list[int]], np.ndarray]


def kernels(model: str) -> dict[str, Run]:
    """Return a way to run a model in each kernel of this processor."""
    from resift.models.locate import resolve
    from resift.models.session import NativeSession
    from resift.native.library import usable_kernels

    data = resolve(model).onnx_bytes()
    return {str(kernel.name): NativeSession(data, kernel=kernel).run for kernel in usable_kernels()}


def row(tokens: int, seed: int) -> tuple[list[int], list[int]]:
    """Return random words between the usual marks."""
    words = np.random.default_rng(seed).integers(999, 30_000, tokens).tolist()
    second = tokens // 3
    return [101, *words[1:-1], 102], [0] * second + [1] * (tokens - second)


def compare(lengths: list[int], random_rows: int) -> dict:
    """Count rows and how many of them had other bits in some kernel."""
    rows = differ = 0
    rng = np.random.default_rng(5)
    for model in MODELS:
        runs = kernels(model)
        asked = [row(tokens, tokens) for tokens in lengths]
        asked += [row(int(rng.integers(3, 120)), int(rng.integers(1 << 30))) for _ in range(random_rows)]
        for one in asked:
            rows += 1
            differ += len({run(*one).tobytes() for run in runs.values()}) > 1
    return {"models": len(MODELS), "rows": rows, "rows_that_differ": differ, "kernels": list(runs)}


def runtime() -> dict[str, Run]:
    """Return a way to run the model's own graph in ONNX Runtime, on one thread."""
    from resift.models.locate import resolve
    from resift.models.session import OnnxSession

    return {"onnxruntime": OnnxSession(resolve(MODELS[0]).onnx_bytes()).run}


def runtime_without_avx512(lengths: list[int], rounds: int) -> dict:
    """Return the runtime's speed in a process that sees no AVX-512; nothing where that cannot be hidden."""
    if not can_hide_avx512():
        return {}
    words = [sys.executable, "-m", "benchmarks.kernels", "--runtime", str(rounds), *map(str, lengths)]
    hidden = {**os.environ, "LD_PRELOAD": str(hiding_library())}
    done = subprocess.run(words, env=hidden, cwd=HERE.parent, capture_output=True, check=True)
    return json.loads(done.stdout)


def speed(lengths: list[int], rounds: int) -> dict:
    """Return milliseconds of processor time per row: our kernels, the runtime with and without AVX-512."""
    found = timed(kernels(MODELS[0]) | runtime(), lengths, rounds)
    for tokens, row_of in runtime_without_avx512(lengths, rounds).items():
        found[tokens]["onnxruntime, no AVX-512"] = row_of["onnxruntime"]
    return found


def timed(runs: dict[str, Run], lengths: list[int], rounds: int) -> dict:
    """Return each one's milliseconds of processor time per row, the least of some rounds in turn."""
    found: dict = {}
    for tokens in lengths:
        asked, best = row(tokens, tokens), dict.fromkeys(runs, float("inf"))
        for number in range(rounds):
            for name, run in runs.items():
                if name == "portable" and number > 1:
                    continue
                started = time.thread_time()
                run(*asked)
                best[name] = min(best[name], time.thread_time() - started)
        found[f"{tokens} tokens"] = {name: round(value * 1000, 2) for name, value in best.items()}
    return found


def emulated(lengths: list[int]) -> dict:
    """Count rows whose bits in an ARM kernel are not those of this processor's fastest kernel."""
    from resift.models.locate import resolve
    from resift.models.session import NativeSession

    rows, differ = 0, dict.fromkeys(("neon", "i8mm"), 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = arm_program(folder)
        for model in MODELS:
            data = resolve(model).onnx_bytes()
            (folder / "model").write_bytes(b"".join(raw_model(data)))
            asked = [row(tokens, tokens) for tokens in lengths]
            expected = b"".join(NativeSession(data).run(*one).tobytes() for one in asked)
            given = b"".join(
                struct.pack("<2i", len(ids), len(ids)) + np.array([ids, types], "<i4").tobytes() for ids, types in asked
            )
            rows += len(asked)
            for kernel in differ:
                command = [*program, kernel, str(folder / "model")]
                told = subprocess.run(command, input=given, capture_output=True, check=True).stdout
                differ[kernel] += told != expected
            print(model, differ, flush=True)
    return {"models": len(MODELS), "rows": rows, "models_that_differ": differ, "under": "qemu-aarch64"}


def arm_program(folder: Path) -> list[str]:
    """Compile kernel_rows.c with the ARM kernels, and return how it is run here."""
    from tools.native_build import FLAGS, FOLDER, compile_objects, run
    from tools.wheels import zig

    compiler, target = zig("aarch64-linux-musl"), folder / "kernel_rows"
    objects = compile_objects(compiler, "aarch64", folder, flags=(*FLAGS, "-static"))
    words = [f"-I{FOLDER}", "-o", str(target), str(HERE / "kernel_rows.c"), *map(str, objects), "-lm"]
    run([*compiler, *FLAGS, "-static", *words])
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        raise SystemExit("no qemu-aarch64: install Debian's qemu-user")
    return [emulator, "-cpu", "max", str(target)]


def raw_model(data: bytes) -> Iterator[bytes]:
    """Yield a model's weights, not packed for any kernel, in the order in which kernel_rows.c reads them."""
    from resift.models.onnx_bert import OnnxBert
    from resift.models.onnx_reader import read_graph
    from resift.models.session import PackedBert
    from resift.native.library import Kernel

    plain: dict[int, bytes] = {}

    def pack(weights: int, inputs: int, outputs: int, packed: int, _sums: int) -> None:
        plain[packed] = ctypes.string_at(weights, inputs * outputs)

    library = SimpleNamespace(bert_pack_raw=pack, bert_packed_size_raw=lambda inputs, outputs: inputs * outputs)
    weights = PackedBert(OnnxBert(read_graph(data)), Kernel("raw", "", library))
    bert, sizes = weights.bert, weights.sizes

    def linear(one) -> bytes:
        sides = b"".join(ctypes.string_at(at, 4 * one.outputs) for at in (one.scales, one.bias))
        return struct.pack("<2i", one.inputs, one.outputs) + plain[one.packed] + sides

    def norm(one) -> bytes:
        return b"".join(ctypes.string_at(at, 4 * bert.hidden) for at in (one.weight, one.bias))

    def table(one, rows: int) -> bytes:
        values = ctypes.string_at(one.values, rows * bert.hidden)
        return struct.pack("<i", rows) + values + struct.pack("<fi", one.scale, one.zero_point)

    yield struct.pack("<4i", bert.hidden, bert.heads, bert.ffn, bert.layers)
    yield struct.pack("<f2i", bert.attention_scale, bert.scale_query_and_key, bert.classes)
    yield table(bert.word, sizes.words) + table(bert.token_type, sizes.token_types)
    yield struct.pack("<i", sizes.positions) + ctypes.string_at(bert.position, 4 * sizes.positions * bert.hidden)
    yield norm(bert.embedding_norm)
    for layer in bert.layer[: bert.layers]:
        yield from map(linear, (layer.qkv, layer.attention_output, layer.ffn_up, layer.ffn_down))
        yield from map(norm, (layer.attention_norm, layer.ffn_norm))
    if bert.classes:
        yield linear(bert.pooler) + linear(bert.classifier)


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("kernels", __doc__, parts=("bits", "speed"))
    parser.add_argument("--arm", action="store_true", help="the ARM kernels in an emulator, nothing else")
    parser.add_argument("--runtime", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.runtime:
        rounds, *lengths = options.runtime
        print(json.dumps(timed(runtime(), lengths, rounds)))
        return 0
    if options.arm:
        report(options, {"bits_emulated": emulated(LENGTHS[:2] if options.quick else LENGTHS)}, keep=True)
        return 0
    lengths = LENGTHS[:4] if options.quick else LENGTHS
    data: dict = {}
    if "bits" in options.only:
        data["bits"] = compare(lengths, 1 if options.quick else 20)
    if "speed" in options.only:
        data["cpu_ms_per_row"] = speed(
            SPEED_LENGTHS[:1] if options.quick else SPEED_LENGTHS, 2 if options.quick else 15
        )
    report(options, data, keep=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
