"""Writes the tables of docs/benchmarks.md from benchmarks/results/*.json: `python -m tools.build_comparison`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; the words around it are written by hand. A
table whose results are missing is left empty.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results"
TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)

COLLECTIONS = {
    "scifact": "SciFact",
    "nfcorpus": "NFCorpus",
    "cranfield": "Cranfield",
    "chunkeval-multisource": "chunkeval",
    "cosqa": "cosqa",
    "npl-vaswani": "npl",
    "squad2-dev-passages": "SQuAD 2",
    "hotpotqa-distractor-1k": "HotpotQA",
}
SYSTEMS = {
    "bm25": "BM25",
    "dense": "dense",
    "rrf": "RRF",
    "linear": "min-max sum",
    "cross-encoder": "cross-encoder alone",
    "default": "**Resift's default**",
}


def main() -> int:
    """Write the page anew."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def filled(text: str) -> str:
    """Return the page with every table as the results have it."""
    return TABLE.sub(lambda match: f"<!-- table: {match[1]} -->\n{_table(match[1])}<!-- end -->", text)


def _table(name: str) -> str:
    source, make = TABLES[name]
    file = RESULTS / f"{source}.json"
    if not file.exists():
        return ""
    try:
        return make(json.loads(file.read_text(encoding="utf-8"))) + "\n"
    except KeyError:
        return ""


def cross_encoder(data: Mapping[str, Any]) -> str:
    """Processor time per pair, as a multiple of ours."""
    names = ["resift", "onnxruntime", "flashrank", "sentence-transformers", "rerankers"]
    rows = [
        [shape, *(_number(row["cpu_ms_times_resift"].get(name)) for name in names)]
        for shape, row in sorted(data["speed"].items(), key=_shape)
    ]
    return _markdown(["passages", *names], rows)


def model_speed(data: Mapping[str, Any]) -> str:
    """Return milliseconds per pair of each model shape and engine; engines that never ran have no column."""
    engines = {
        "resift": "native int8",
        "resift, AVX2": "native int8, AVX2 kernel",
        "onnxruntime int8": "onnxruntime int8",
        "openvino fp32": "openvino fp32",
        "llama.cpp Q8_0": "llama.cpp Q8_0",
        "torch fp32": "torch fp32",
        "× onnxruntime": "times_onnxruntime",
        "× torch": "times_torch",
    }
    rows = []
    for name, shape in sorted(data["shapes"].items(), key=lambda item: item[1]["n=20"]["ms_per_pair"]["native int8"]):
        for pairs in ("n=20", "n=100"):
            times = dict(shape[pairs]["ms_per_pair"])
            times["onnxruntime int8"] = min(value for key, value in times.items() if key.startswith("onnxruntime"))
            rows.append([name, pairs, *(times.get(engine) for engine in engines.values())])
    used = [0, 1, *(i for i in range(2, len(engines) + 2) if any(row[i] is not None for row in rows))]
    headers = ["shape", "pairs", *engines]
    cells = [[row[i] if i < 2 else _number(row[i]) for i in used] for row in rows]
    return _markdown([headers[i] for i in used], cells)


def model_parity(data: Mapping[str, Any]) -> str:
    """Return the differences of each shape from transformers."""
    rows = []
    for name, row in sorted(data["shapes"].items(), key=lambda item: (item[0].startswith("embedder"), item[0].lower())):
        difference = f"{row['fp32_difference']:.1e}"
        rows.append([name, f"{row['lengths'][1]:,}", difference, _number(row.get("int8_tau"), 3)])
    return _markdown(["shape", "tokens up to", "fp32 difference", "int8 τ"], rows)


def model_precision(data: Mapping[str, Any]) -> str:
    """Return nDCG@10 of both precisions on real weights."""
    rows = [
        [name, str(row["queries"]), *(_number(row[key], 4) for key in ("ndcg10_fp32", "ndcg10_int8", "difference"))]
        for name, row in data["real_weights"].items()
    ]
    return _markdown(["model and collection", "queries", "fp32", "int8", "difference"], rows)


def cold_start(data: Mapping[str, Any]) -> str:
    """From a new process to the first score, and the memory then."""
    rows = [
        [name, _number(row["seconds"]), _number(row["rss_mb"], 0)]
        for name, row in sorted(data["cold_start"].items(), key=lambda item: item[1]["seconds"])
    ]
    return _markdown(["", "seconds", "MB"], rows)


def two_stage(data: Mapping[str, Any]) -> str:
    """TwoStage against txtai's Reranker."""
    race = data["race"]
    rows = [
        [name, _number(race["cpu_ms_times_resift"][name]), _number(race["rss_mb"][name], 0)]
        for name in race["cpu_ms_times_resift"]
    ]
    return _markdown(["", "processor time × ours", "MB"], rows)


def fusion(data: Mapping[str, Any]) -> str:
    """Milliseconds of RRF: ours first."""
    cases = [case for case in data["cases"] if case["method"] == "rrf"]
    ours = {name for case in cases for name in case["ms"] if name.startswith("resift")}
    own = sorted(ours, key=lambda name: (name != "resift", "k=100" not in name, name))
    names = own + sorted({name for case in cases for name in case["ms"]} - set(own))
    rows = [
        [f"{case['lists']} × {case['hits']}", *(_number(case["ms"].get(name), 3) for name in names)] for case in cases
    ]
    return _markdown(["lists × hits", *names], rows)


def quality(data: Mapping[str, Any]) -> str:
    """nDCG@10 of first stages, the cross-encoder and what ships."""
    results = [data["collections"][name] for name in COLLECTIONS]
    rows = [["queries", *(str(result["questions"]) for result in results)]]
    rows += [[text, *(_number(result["nDCG@10"][name], 3) for result in results)] for name, text in SYSTEMS.items()]
    for other in ("rrf", "cross-encoder"):
        spans = (result["against"][other] for result in results)
        rows.append([f"against {SYSTEMS[other]}, 95 %", *(f"{low:+.3f} to {high:+.3f}" for low, high in spans)])
    return _markdown(["", *COLLECTIONS.values()], rows)


def installation(data: Mapping[str, Any]) -> str:
    """Megabytes of a fresh environment."""
    told = {
        "resift": "`resift`",
        "resift[local]": "`resift[local]`, model files included",
        "resift, carrier without its requirements": "`resift` and the model files, without ONNX Runtime",
        "peers of cross_encoder_peers": "FlashRank + sentence-transformers + rerankers, without model files",
        "peers of two_stage": "txtai + onnxruntime, without model files",
    }
    sizes = data["installation"]
    rows = [[text, _number(sizes[name]["all_mb"], 0)] for name, text in told.items() if name in sizes]
    return _markdown(["", "MB"], rows)


def same_order(data: Mapping[str, Any]) -> str:
    """How often peers give our order on the same weights."""
    rows = []
    for name, ways in data["peers"].items():
        for way, row in ways.items():
            counts = [f"{row[key]} of {row['questions']}" for key in ("same_first", "same_order")]
            rows.append([name, way, *counts, _number(row["widest_swap_in_logits"], 3)])
    return _markdown(["peer", "calls", "same first", "same order", "widest swap, logits"], rows)


def context(data: Mapping[str, Any]) -> str:
    """How often all relevant chunks are complete in a prompt: the best hits, and the context."""
    rows = []
    for name in ("contextual-code", "chunkeval-multisource"):
        for budget, row in sorted(data[name]["budgets"].items(), key=lambda item: int(item[0])):
            shares = [f"{100 * row[key]:.1f} %" for key in ("plain", "context")]
            queries = str(data[name]["queries"])
            rows.append([name, queries, budget, *shares, f"{row['gained']} / {row['lost']}"])
    return _markdown(["collection", "queries", "tokens", "best hits", "context", "won / lost"], rows)


def adapters(data: Mapping[str, Any]) -> str:
    """Return milliseconds per 100 documents of each kind of results, slowest first."""
    times = data["cpu_ms"]
    return _markdown(["results of", f"ms per {data['documents']}"], [[name, f"{ms:.2f}"] for name, ms in times.items()])


def _shape(item: tuple[str, Any]) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", item[0]))


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


TABLES: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "adapters": ("adapters", adapters),
    "cold_start": ("cross_encoder", cold_start),
    "context": ("context", context),
    "cross_encoder": ("cross_encoder", cross_encoder),
    "model_parity": ("model_parity", model_parity),
    "model_precision": ("model_parity", model_precision),
    "model_speed": ("model_speed", model_speed),
    "model_speed_avx2": ("model_speed_avx2", model_speed),
    "fusion": ("fusion", fusion),
    "installation": ("cold_start", installation),
    "quality": ("default_table", quality),
    "same_order": ("same_order", same_order),
    "two_stage": ("two_stage", two_stage),
}

if __name__ == "__main__":
    sys.exit(main())
