"""Altered model files against the compiled code, built with AddressSanitizer and UBSan: nothing may crash.

`python -m tests.hardening.hostile_models` alters a small BERT 10,000 times (shapes, types, heads, operations,
bytes), allows each file as a user would (`allow_local`), loads it in one kernel of this processor after the
other and runs what loads, and reranks by it (`resift.rerank`). A file is refused with a reason, or it runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
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


def watched_library(folder: Path) -> tuple[Path, str]:
    """Compile the library with sanitizers; return it and the runtime that has to be loaded before Python."""
    from tools.native_build import build_library, library_name

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler")
    target = folder / library_name()
    build_library([compiler], platform.machine(), target, extra=SANITIZERS)
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    return target, runtime.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 files, no result file")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=500, help="files per process")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        first, count, library = options.inside
        print(json.dumps(tried(int(first), int(count), library)))
        return
    files = 100 if options.quick else options.files
    outcomes: Counter = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library, runtime = watched_library(Path(folder))
        environment = {
            **os.environ,
            "LD_PRELOAD": runtime,
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        }
        for first in range(0, files, options.batch):
            count = min(options.batch, files - first)
            inside = [
                sys.executable,
                "-m",
                "tests.hardening.hostile_models",
                "--inside",
                str(first),
                str(count),
                str(library),
            ]
            done = subprocess.run(
                inside, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
            )
            if done.returncode != 0:
                outcomes["crashed"] += 1
                print(f"files {first} to {first + count}: {done.stderr[-2000:]}", file=sys.stderr)
                continue
            outcomes.update(json.loads(done.stdout))
    data = {
        "files": files,
        **outcomes,
        "crashed": outcomes["crashed"],
        "s": round(time.perf_counter() - started),
    }
    if not options.quick:
        write_results("hostile_models", data)
    print(json.dumps({"machine": machine(), **data}, indent=2))


if __name__ == "__main__":
    main()
