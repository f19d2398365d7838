"""Milliseconds per pair of the native engine, beside torch and ONNX Runtime, on random models of real shapes.

    python -m benchmarks.model_speed --only MiniLM-L-12 ettin-32m     # needs torch and transformers

Pairs of 100 tokens, n = 20 and 100. The native engine runs one pair per thread; torch runs batches of 20
with all threads. ONNX Runtime runs if `onnx` and `onnxruntime` are installed: dynamic int8, the better of
one batch and one pair at a time. The engines take turns, and the fastest of the rounds counts. Besides the
time on the clock there is the CPU time, which other programs on the machine change less; compare it with
`--threads 1`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import option_parser, read_results, report
from benchmarks.model_parity import WORDS, save, shapes
from resift.models.engine import usable_cores
from resift.models.hf_folder import read_model_folder
from resift.models.packed_weights import pack_network
from resift.models.safetensors_model import TransformerSession
from resift.native.library import native_kernel

NAMES = ("MiniLM-L-12", "ettin-17m", "ettin-32m", "bge-reranker-base", "ModernBERT base (cls)", "bge-reranker-v2-m3")
TOKENS, BATCH = 100, 20


def onnx_runners(model: Any, batch: np.ndarray, folder: Path, threads: int) -> dict[str, Callable[[], Any]]:
    """Return runs of one batch and of single rows in ONNX Runtime, dynamic int8."""
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model.config.return_dict = False
    tokens = torch.tensor(batch)
    torch.onnx.export(
        model,
        (tokens, torch.ones_like(tokens)),
        str(folder / "model.onnx"),
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask")},
        dynamo=False,
    )
    quantize_dynamic(folder / "model.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / "int8.onnx"), options)

    def run(rows: np.ndarray) -> None:
        session.run(None, {"input_ids": rows, "attention_mask": np.ones_like(rows)})

    return {"batch": lambda: run(batch), "row": lambda: [run(batch[i : i + 1]) for i in range(len(batch))]}


def measure(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """Return milliseconds per pair of each engine."""
    import torch

    shape, kernel = shapes()[name], native_kernel()
    torch.manual_seed(7)
    torch.set_num_threads(threads)
    batch = np.random.default_rng(5).integers(5, WORDS, (BATCH, TOKENS))
    tensor, mask = torch.tensor(batch), torch.ones((BATCH, TOKENS), dtype=torch.long)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(threads) as pool:
        model = shape.build()
        save(Path(temporary) / "model", model, shape)
        network = read_model_folder(Path(temporary) / "model").network
        assert network is not None
        session = TransformerSession(pack_network(network, kernel, "int8"), kernel)
        rows = [(row.tolist(), [0] * TOKENS) for row in batch]

        @torch.inference_mode()
        def run_torch() -> None:
            model(input_ids=tensor, attention_mask=mask)

        def run_native() -> None:
            list(pool.map(lambda row: session.run(*row), rows))

        runs: dict[str, Callable[[], Any]] = {"native int8": run_native, "torch fp32": run_torch}
        if find_spec("onnxruntime") and find_spec("onnx"):
            for kind, run in onnx_runners(model, batch, Path(temporary), threads).items():
                runs[f"onnxruntime int8 ({kind})"] = run
        result: dict[str, Any] = {"tokens": TOKENS, "threads": threads}
        for pairs in (20, 100):
            times: dict[str, list[tuple[float, float]]] = {engine: [] for engine in runs}
            for turn in range(rounds + 1):
                for engine, run in runs.items():
                    clock, cpu = time.perf_counter(), time.process_time()
                    for _ in range(pairs // BATCH):
                        run()
                    spent = (time.perf_counter() - clock, time.process_time() - cpu)
                    if turn:  # the first turn warms up
                        times[engine].append((spent[0] * 1000 / pairs, spent[1] * 1000 / pairs))
            for i, label in enumerate(("ms_per_pair", "cpu_ms_per_pair")):
                best = {engine: round(min(row[i] for row in rows), 2) for engine, rows in times.items()}
                ratio = round(best["torch fp32"] / best["native int8"], 2)
                result.setdefault(f"n={pairs}", {})[label] = {**best, "times_torch": ratio}
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Measure shapes one by one; each result is written at once."""
    parser = option_parser("model_speed", __doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), help="some shapes")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="threads of every engine")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    args = parser.parse_args(argv)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in ["MiniLM-L-12"] if args.quick else args.only:
        earlier = read_results(args.results).get("shapes", {})
        row = measure(name, 1 if args.quick else args.rounds, args.threads)
        report(
            args,
            {"kernel": native_kernel().name, "shapes": {**earlier, name: row}},
            packages=("torch", "transformers", "onnxruntime"),
            keep=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
