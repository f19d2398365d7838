"""Milliseconds per pair of the native engine and of other libraries, on random models of real shapes.

    python -m benchmarks.model_speed --only MiniLM-L-12 ettin-32m     # needs torch and transformers
    python -m benchmarks.model_speed --seconds 60                     # fewer rounds for slow shapes

Pairs of 100 tokens, n = 20 and 100. The native engine runs one pair per thread; torch runs batches of 20
with all threads. ONNX Runtime runs if `onnx` and `onnxruntime` are installed: dynamic int8, the better of
one batch and one pair at a time. OpenVINO runs the same graph in fp32 if it is installed. llama.cpp runs
8-bit weights (Q8_0), n = 20 only, if `gguf` and `xllamacpp` are installed. With AVX-512, the native engine
also runs with its AVX2 kernel; the other libraries still use all of the processor. The engines take turns,
and the fastest of the rounds counts. Besides the time on the clock there is the CPU time, which other
programs on the machine change less; compare it with `--threads 1`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import option_parser, read_results, report
from benchmarks.llama_cpp import llama_runner, write_gguf
from benchmarks.model_parity import WORDS, save, shapes
from resift.models.engine import usable_cores
from resift.models.hf_folder import read_model_folder
from resift.models.packed_weights import pack_network
from resift.models.session import TransformerSession
from resift.native.library import Kernel, native_kernel, usable_kernels

NAMES = ("MiniLM-L-12", "ettin-17m", "ettin-32m", "bge-reranker-base", "ModernBERT base (cls)", "bge-reranker-v2-m3")
TOKENS, BATCH = 100, 20
LLAMA = "llama.cpp Q8_0"


def export_onnx(model: Any, batch: np.ndarray, path: Path) -> None:
    """Write the model as an ONNX graph for any number of rows and tokens."""
    import torch

    class FirstOutput(torch.nn.Module):
        """The graph needs tensors; some models return an object whatever their configuration says."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, mask: Any) -> Any:
            return self.model(input_ids=tokens, attention_mask=mask)[0]

    tokens = torch.tensor(batch)
    torch.onnx.export(
        FirstOutput().eval(),
        (tokens, torch.ones_like(tokens)),
        str(path),
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask")},
        dynamo=False,
    )


def onnx_int8(graph: Path, threads: int) -> Any:
    """Return a session of ONNX Runtime for the graph in dynamic int8."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(graph, graph.with_name("int8.onnx"), weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(graph.with_name("int8.onnx")), options)


def onnx_runners(graph: Path, batch: np.ndarray, threads: int) -> dict[str, Callable[[], Any]]:
    """Return runs of one batch and of single rows in ONNX Runtime, dynamic int8."""
    session = onnx_int8(graph, threads)

    def run(rows: np.ndarray) -> None:
        session.run(None, {"input_ids": rows, "attention_mask": np.ones_like(rows)})

    return {
        "onnxruntime int8 (batch)": lambda: run(batch),
        "onnxruntime int8 (row)": lambda: [run(batch[i : i + 1]) for i in range(len(batch))],
    }


def openvino_runner(graph: Path, batch: np.ndarray, threads: int) -> Callable[[], Any]:
    """Return a run of one batch in OpenVINO, fp32."""
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(graph), "CPU", options)
    rows = {"input_ids": batch, "attention_mask": np.ones_like(batch)}
    return lambda: compiled(rows)


def runners(name: str, folder: Path, threads: int, pool: ThreadPoolExecutor) -> dict[str, Callable[[], Any]]:
    """Build a shape and return a run of one batch in each engine."""
    import torch

    shape, kernel = shapes()[name], native_kernel()
    torch.manual_seed(7)
    torch.set_num_threads(threads)
    batch = random_batch()
    tensor, mask = torch.tensor(batch), torch.ones((BATCH, TOKENS), dtype=torch.long)
    model = shape.build()
    save(folder / "model", model, shape)
    network = read_model_folder(folder / "model").network
    assert network is not None
    rows = [(row.tolist(), [0] * TOKENS) for row in batch]

    def native_runner(kernel: Kernel) -> Callable[[], Any]:
        session = TransformerSession(pack_network(network, kernel, "int8"), kernel)
        return lambda: list(pool.map(lambda row: session.run(*row), rows))

    @torch.inference_mode()
    def run_torch() -> None:
        model(input_ids=tensor, attention_mask=mask)

    engines: dict[str, Callable[[], Any]] = {"native int8": native_runner(kernel), "torch fp32": run_torch}
    for other in usable_kernels():
        if kernel.name == "avx512" and other.name == "avx2":
            engines["native int8, AVX2 kernel"] = native_runner(other)
    if find_spec("onnxruntime") and find_spec("onnx"):
        graph = folder / "model.onnx"
        export_onnx(model, batch, graph)
        engines |= onnx_runners(graph, batch, threads)
        if find_spec("openvino"):
            engines["openvino fp32"] = openvino_runner(graph, batch, threads)
    if find_spec("gguf") and find_spec("xllamacpp"):
        write_gguf(model, folder / "model.gguf")
    return engines


def random_batch() -> np.ndarray:
    return np.random.default_rng(5).integers(5, WORDS, (BATCH, TOKENS))


def timed(run: Callable[[], Any], pairs: int) -> tuple[float, float]:
    """Return milliseconds per pair on the clock and of CPU time."""
    time.sleep(0.2)  # threads of the engine before may still be waiting actively
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in range(pairs // BATCH):
        run()
    spent = time.perf_counter() - clock, time.process_time() - cpu
    return spent[0] * 1000 / pairs, spent[1] * 1000 / pairs


def measure(name: str, rounds: int, threads: int, seconds: float) -> dict[str, Any]:
    """Return milliseconds per pair of each engine, and how many times as long as the native engine it takes."""
    result: dict[str, Any] = {"tokens": TOKENS, "threads": threads}
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(threads) as pool:
        engines = runners(name, Path(temporary), threads, pool)
        for run in engines.values():  # warms up
            run()
        started = time.perf_counter()
        times: dict[int, dict[str, list[tuple[float, float]]]] = {
            pairs: {engine: [] for engine in engines} for pairs in (20, 100)
        }
        for turn in range(rounds):
            if turn and (time.perf_counter() - started) * (turn + 1) / turn > seconds:
                break
            for pairs, by_engine in times.items():
                for engine, run in engines.items():
                    by_engine[engine].append(timed(run, pairs))
            result["rounds"] = turn + 1
        graph = Path(temporary) / "model.gguf"
        if graph.exists():  # last, because its waiting threads would slow down the others
            run = llama_runner(graph, random_batch(), threads, scores="ettin" not in name and "ModernBERT" not in name)
            times[BATCH][LLAMA] = [timed(run, BATCH) for _ in range(1 + rounds)][1:]
    for pairs, by_engine in times.items():
        for i, label in enumerate(("ms_per_pair", "cpu_ms_per_pair")):
            best = {engine: round(min(row[i] for row in rows), 2) for engine, rows in by_engine.items() if rows}
            result.setdefault(f"n={pairs}", {})[label] = {**best, **ratios(best)}
    return result


def ratios(best: dict[str, float]) -> dict[str, float]:
    """Return the time of each other engine as a multiple of the native engine's."""
    found = {}
    for engine in ("torch", "onnxruntime", "openvino", "llama.cpp"):
        times = [value for name, value in best.items() if name.startswith(engine)]
        if times:
            found[f"times_{engine}"] = round(min(times) / best["native int8"], 2)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure shapes one by one; each result is written at once."""
    parser = option_parser("model_speed", __doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), help="some shapes")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="threads of every engine")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument("--seconds", type=float, default=600, help="time for the rounds of one shape")
    args = parser.parse_args(argv)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in ["MiniLM-L-12"] if args.quick else args.only:
        print(f"{name}: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        earlier = read_results(args.results).get("shapes", {})
        row = measure(name, 1 if args.quick else args.rounds, args.threads, args.seconds)
        for pairs in ("n=20", "n=100"):
            times = row[pairs]["ms_per_pair"]
            print(
                f"{name:24} {pairs:6} " + "  ".join(f"{key} {value}" for key, value in times.items()), file=sys.stderr
            )
        report(
            args,
            {"kernel": native_kernel().name, "shapes": {**earlier, name: row}},
            packages=("torch", "transformers", "onnxruntime", "openvino", "xllamacpp"),
            keep=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
