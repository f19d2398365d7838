"""Every kernel of this processor: the same bits for every model and length, and what each takes.

`python -m benchmarks.kernels` runs the three carried models over 24 lengths from 3 to 512 tokens and random
rows in each kernel and compares all bits; then it measures processor time per row, the kernels in turn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import machine, write_results

MODELS = [
    "cross-encoder/ms-marco-MiniLM-L-12-v2",
    "answerdotai/answerai-colbert-small-v1",
    "BAAI/bge-small-en-v1.5",
]
LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 129, 256, 512]
SPEED_LENGTHS = [32, 100, 256, 512]

Run = Callable[[list[int], list[int]], np.ndarray]


def kernels(model: str) -> dict[str, Run]:
    """Return a way to run a model in each kernel of this processor."""
    from resift.models.locate import resolve
    from resift.models.native_session import NativeSession
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


def speed(lengths: list[int], rounds: int) -> dict:
    """Return milliseconds of processor time per row, the least of some rounds in turn."""
    runs = kernels(MODELS[0])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rows, no result file")
    options = parser.parse_args()
    lengths = LENGTHS[:4] if options.quick else LENGTHS
    data = {
        "bits": compare(lengths, 1 if options.quick else 20),
        "cpu_ms_per_row": speed(
            SPEED_LENGTHS[:1] if options.quick else SPEED_LENGTHS, 2 if options.quick else 15
        ),
    }
    if not options.quick:
        write_results("kernels", data)
    print(json.dumps({"machine": machine(), **data}, indent=2))


if __name__ == "__main__":
    main()
