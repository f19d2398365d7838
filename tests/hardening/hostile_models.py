"""Altered model files against the compiled code, built with AddressSanitizer and UBSan: nothing may crash.

`python -m tests.hardening.hostile_models` alters a small BERT 10,000 times (shapes, types, heads, operations,
bytes), allows each file as a user would (`allow_local`), loads it in one kernel of this processor after the
other and runs what loads, and reranks by it (`resift.rerank`). A file is refused with a reason, or it runs.

With `--safetensors`, folders of the hub's layout are altered instead: headers, shapes, types, offsets and
bytes of the weights, values of the config, modules. Every refusal must be a ModelFileError.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.hardening.report import ROOT, machine, write_results

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "model": {
        "type": "WordLevel",
        "vocab": {word: at for at, word in enumerate((*SPECIAL, *(f"w{n}" for n in range(36))))},
        "unk_token": "[UNK]",
    },
}
"""Words w0 to w35: as many as the small model has."""

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"]


def attempt(model: bytes, folder: Path, kernel=None) -> str:
    """Allow a file and run a row of each length that it allows; return whether it was refused or ran."""
    from resift.errors import ModelFileError
    from resift.models.local_models import allow_local
    from resift.models.locate import resolve
    from resift.models.onnx_bert import UnknownArchitectureError
    from resift.models.registry import disallow_local
    from resift.models.session import NativeSession

    (folder / "model.onnx").write_bytes(model)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    try:
        allowed = allow_local(folder, id="local/altered")
        session = NativeSession(resolve(allowed.id).onnx_bytes(), kernel=kernel)
    except (UnknownArchitectureError, ModelFileError):
        return "refused"
    finally:
        disallow_local("local/altered")
    for tokens in (1, 3, 17, 24, 512):
        try:
            session.run([tokens % 40] * tokens, [1] * tokens)
        except ValueError:  # longer than the file's positions, or an id beyond its words
            continue
    return "runs"


def attempt_rerank(model: bytes, folder: Path) -> str:
    """Go a user's way with a file: allow its folder, rerank by it; return whether it was refused or ran.

    Where ONNX Runtime is installed it has the first word on files of strangers, and the graph of the small
    model has no wires: take it away, so that files reach the compiled code.
    """
    import resift
    from resift.errors import ResiftError
    from resift.models import allow_local, disallow_local

    (folder / "model.onnx").write_bytes(model)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    name = f"altered/{hashlib.sha256(model).hexdigest()[:32]}"
    try:
        allow_local(folder, id=name, max_length=24)
        ranking = resift.rerank("w1 w2", [f"w{at} w{at + 1}" for at in range(3, 12)], model=name)
    except ResiftError:
        return "refused"
    finally:
        disallow_local(name)
    if len(ranking) != 9 or (ranking.degraded and not ranking.reason):
        raise AssertionError("a document was lost, or nothing was said")
    return "refused" if ranking.degraded else "runs"


NETWORKS = ROOT / "tests" / "models" / "networks"
ODD_VALUES = (
    None, True, -1, 0, 1, 2, 3, 7, 63, 64, 65, 255, 1 << 16, 1 << 31, 1 << 40, 1e-30, 1e30,
    "", "gelu", "x", [], [1], {},
)  # fmt: skip
MODULES = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "StaticEmbedding", "Router")


def alter_folder(seed: int, folder: Path) -> None:
    """Write a small network of the hub's layout with one to three alterations."""
    rng = random.Random(seed)
    source = rng.choice(sorted(path for path in NETWORKS.iterdir()))
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    weights = (source / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    header, body = json.loads(weights[8 : 8 + size]), bytearray(weights[8 + size :])
    modules: list[str] | None = None
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(8)
        entry = header[rng.choice([name for name in header if name != "__metadata__"])]
        if kind <= 2:
            config[rng.choice(sorted(config))] = rng.choice(ODD_VALUES)
        elif kind == 3:
            entry["shape"] = [rng.choice((0, 1, 2, 64, 65, 1 << 30, -1)) for _ in range(rng.randrange(4))]
        elif kind == 4:
            entry[rng.choice(("dtype", "data_offsets", "shape"))] = rng.choice(
                ("F16", "BF16", "F64", "I8", "U8", [0, 0], [0, 1 << 40], [8, 4], [-8, 8], None, {})
            )
        elif kind == 5:
            for _ in range(rng.randint(1, 64)):
                body[rng.randrange(len(body))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 6 and len(header) > 1:
            name = rng.choice(sorted(header))
            moved = header.pop(name)
            if rng.random() < 0.5:
                header[rng.choice((name + "x", "classifier.weight", name.replace("0", "1")))] = moved
            if not any(key != "__metadata__" for key in header):
                header[name] = moved
        else:
            modules = [rng.choice(MODULES) for _ in range(rng.randrange(5))]
    raw = bytearray(json.dumps(header).encode())
    if rng.random() < 0.1:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    length = len(raw) if rng.random() < 0.95 else rng.choice((0, 1, len(raw) + 8, 1 << 40, (1 << 64) - 1))
    data = length.to_bytes(8, "little") + raw + body
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data))]
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    (folder / "modules.json").unlink(missing_ok=True)
    if modules is not None:
        write_modules(rng, folder, modules, config.get("hidden_size", config.get("dim")))


def write_modules(rng: random.Random, folder: Path, kinds: list[str], hidden: object) -> None:
    """Write modules of sentence-transformers whose declared sizes fit their tensors, but not always each other."""
    rows = []
    width = hidden if isinstance(hidden, int) and 0 < hidden < 1 << 12 else 64
    for number, kind in enumerate(kinds):
        path = f"{number}_{kind}"
        rows.append({"type": f"sentence_transformers.models.{kind}", "path": path})
        (folder / path).mkdir(exist_ok=True)
        inputs = width if rng.random() < 0.7 else rng.choice((1, 63, 64, 65, 4096, 1 << 16))
        outputs = rng.choice((1, 2, 64, 1000))
        shapes = {"norm.weight": [inputs], "norm.bias": [inputs]}
        if kind in ("Dense", "StaticEmbedding"):
            shapes = {"linear.weight": [outputs, inputs], "linear.bias": [outputs]}
        if kind == "StaticEmbedding":
            shapes = {"embedding.weight": [outputs, inputs]}
        if kind == "Dense":
            width = outputs
        values = {
            **rng.choice(({"pooling_mode": "mean"}, {"pooling_mode_cls_token": True}, {"pooling_mode": 3}, {})),
            "in_features": inputs, "out_features": outputs, "dimension": inputs,
            "activation_function": f"torch.nn.{rng.choice(('GELU', 'Tanh', 'Identity', 'x'))}",
        }  # fmt: skip
        if rng.random() < 0.2:
            values[rng.choice(sorted(values))] = rng.choice(ODD_VALUES)
        (folder / path / "config.json").write_text(json.dumps(values), encoding="utf-8")
        (folder / path / "model.safetensors").write_bytes(safetensors_bytes(shapes, rng))
    for row in rows:
        if row["type"].endswith(("Transformer", "Normalize")) or rng.random() < 0.03:
            row["path"] = rng.choice(("", "", "", ".", "..", "0_Pooling"))
    (folder / "modules.json").write_text(json.dumps(rows), encoding="utf-8")


def safetensors_bytes(shapes: dict[str, list[int]], rng: random.Random) -> bytes:
    """Return a sound file with tensors of those shapes, all values equal."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + struct.pack("<f", rng.choice((0.01, 1.0, 1e30))) * (end // 4)


def attempt_folder(folder: Path, kernel, precision: str) -> str:
    """Read an altered folder, pack its network and run rows of some lengths."""
    from resift.errors import ModelError, ModelFileError
    from resift.models.hf_folder import read_model_folder
    from resift.models.packed_weights import pack_network
    from resift.models.session import StaticSession, TransformerSession

    try:
        model = read_model_folder(folder)
        if model.table is not None:
            StaticSession(model.table).run([0], [0])
        network = model.network
        if network is None:
            return "runs"
        session = TransformerSession(pack_network(network, kernel, precision), kernel)
    except ModelFileError:
        return "refused"
    for tokens in (1, 3, 17, 130):
        try:
            session.run([tokens % 40] * tokens, [0] * tokens)
        except (ValueError, ModelError):  # longer than the network's positions, or an id beyond its words
            continue
    return "runs"


def try_folders(first: int, count: int, library: str) -> Counter:
    """Try some altered folders in this process with that library."""
    import warnings

    from resift.native import library as native

    warnings.simplefilter("ignore")  # numpy: NaN and overflow in altered weights
    native.LIBRARY = Path(library)
    kernels = [kernel for kernel in native.usable_kernels() if kernel.name]
    outcomes: Counter = Counter()
    with tempfile.TemporaryDirectory() as name:
        for seed in range(first, first + count):
            alter_folder(seed, Path(name))
            kernel = kernels[0] if seed % 4 else kernels[-1]
            try:
                outcomes[attempt_folder(Path(name), kernel, ("int8", "fp32")[seed % 2])] += 1
            except Exception as exc:
                print(f"folder {seed}: {type(exc).__name__}: {exc}", file=sys.stderr)
                outcomes[f"other error {type(exc).__name__}"] += 1
    return outcomes


def tried(first: int, count: int, library: str) -> Counter:
    """Try some altered files in this process with that library."""
    from resift.native import library as native
    from tests.models.small_bert import altered

    native.LIBRARY = Path(library)
    sys.modules["onnxruntime"] = None  # type: ignore[assignment]
    kernels = native.usable_kernels()
    outcomes: Counter = Counter()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for seed in range(first, first + count):
            kernel = kernels[seed % len(kernels)]
            outcomes[attempt(altered(seed), Path(one), kernel)] += 1
            outcomes["rerank " + attempt_rerank(altered(seed, classes=1), Path(other))] += 1
    return outcomes


def watched_library(folder: Path, built: Path | None = None) -> tuple[Path, str]:
    """Compile the library with sanitizers; return it and the runtime that has to be loaded before Python."""
    from tools.native_build import build_library, library_name

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler")
    target = built or folder / library_name()
    if built is None:
        build_library([compiler], platform.machine(), target, extra=SANITIZERS)
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return target, runtime.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 files, no result file")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=500, help="files per process")
    parser.add_argument("--library", type=Path, help="a library that was built with sanitizers before")
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--safetensors", action="store_true", help="alter folders with safetensors")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        first, count, library = options.inside
        run = try_folders if options.safetensors else tried
        print(json.dumps(run(int(first), int(count), library)))
        return
    files = 100 if options.quick else options.files
    outcomes: Counter = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library, runtime = watched_library(Path(folder), options.library)
        environment = {
            **os.environ,
            "LD_PRELOAD": runtime,
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        }
        for first in range(options.first, options.first + files, options.batch):
            count = min(options.batch, options.first + files - first)
            inside = [
                sys.executable,
                "-m",
                "tests.hardening.hostile_models",
                *(["--safetensors"] if options.safetensors else []),
                "--inside",
                str(first),
                str(count),
                str(library),
            ]
            done = subprocess.run(inside, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
            if done.returncode != 0:
                outcomes["crashed"] += 1
                print(f"files {first} to {first + count}: {done.stderr[-2000:]}", file=sys.stderr)
                continue
            if done.stderr:
                print(done.stderr[-2000:], file=sys.stderr)
            outcomes.update(json.loads(done.stdout))
    data = {"files": files, **outcomes, "crashed": outcomes["crashed"], "s": round(time.perf_counter() - started)}
    if not options.quick:
        write_results("hostile_folders" if options.safetensors else "hostile_models", data)
    print(json.dumps({"machine": machine(), **data}, indent=2))


if __name__ == "__main__":
    main()
