"""Cross-encoder reranking side by side: Resift, ONNX Runtime, FlashRank, sentence-transformers, rerankers.

`python -m benchmarks.cross_encoder`: one run, interleaved rounds, medians. ONNX peers use the same file,
torch peers the same shape with random weights. Peers live in benchmarks/.envs, made on first use. Wall time
says what a user waits; processor time says the same on a machine that is busy with other things. Peers named
"…, no AVX-512" see a processor without it (without_avx512.c), as they would where the avx2 kernel is the
fastest: forced on a processor with AVX-512, it runs against peers that use all of it. `--before FOLDER` lets
a compiled checkout of an earlier version run beside this one. `--quick` runs Resift alone in a few seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import (
    ENVS,
    HERE,
    PEERS,
    Peer,
    option_parser,
    peer_env,
    read_results,
    report,
    write_results,
)  # fmt: skip

OWN = ("resift", "resift, avx2", "resift, not compiled", "onnxruntime")
FOREIGN = ("flashrank", "sentence-transformers", "rerankers")
NO_AVX512 = ", no AVX-512"
WITHOUT_AVX512 = tuple(name + NO_AVX512 for name in ("resift, not compiled", "onnxruntime", FOREIGN[1]))
BEFORE = "resift, before"
SECTIONS = ["race", "calls", "cold_start", "agreement", "processors", "cascade"]
REQUIREMENTS = ["torch==2.13.0", "sentence-transformers", "FlashRank", "rerankers[transformers]", "onnxruntime"]
QUERY = "how does regular exercise change the risk of heart disease?"
WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an "
    "which one we all her she there would their been has when who will more no if out so said what up its "
    "about into than them can only other new some could time these two may then do first any my now such "
    "like our over heart disease exercise risk people years study blood pressure training walking group"
)


def passages(count: int, tokens: int, *, seed: int) -> list[str]:
    """Return texts whose lengths scatter by a quarter around the number of tokens, as real passages do."""
    rng = random.Random(seed)
    sizes = [max(5, round(rng.gauss(tokens, tokens / 4))) for _ in range(count)]
    return [" ".join(rng.choices(WORDS.split(), k=size)) + "." for size in sizes]


def model_folder() -> Path:
    from resift.models.locate import resolve

    return resolve("cross-encoder/ms-marco-MiniLM-L-12-v2").folder


def start(name: str, python: Path | str, folder: Path, before: Path | None = None) -> Peer:
    """Start a peer by its name in the table of results."""
    library, hidden = name.removesuffix(NO_AVX512), name.endswith(NO_AVX512)
    paths = [HERE.parent]
    if library in OWN:
        paths.append(HERE.parent / "src")
    if name == BEFORE and before:
        library, paths = "resift", [HERE.parent, before / "src"]
    env = {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    if hidden:
        env["LD_PRELOAD"] = str(hiding_library())
    return Peer(python, PEERS / "cross_encoder.py", library, str(folder), env=env)


def hiding_library() -> Path:
    """Return the library that hides AVX-512 from a process, compiled on first use."""
    source, made = HERE / "without_avx512.c", ENVS / "without_avx512.so"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        ENVS.mkdir(exist_ok=True)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


def can_hide_avx512() -> bool:
    """Whether a process here can be shown a processor without AVX-512, and there is any to hide."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "cpuid_fault" in told and "avx512_vnni" in told and shutil.which("cc") is not None


def speed(peers: dict[str, Peer], plan: dict[int, list[int]], rounds: int, done: Callable[[dict], None]) -> dict:
    """Return median ms per pair for each length, count and peer, and how many times Resift's that is.

    `done` is told after each case what there is, so that a run that is cut short has not been for nothing.
    """
    told: dict = {}
    for tokens, counts in plan.items():
        for count in counts:
            answers: dict[str, list[dict]] = {name: [] for name in peers}
            for number in range(rounds):
                texts = passages(count, tokens, seed=number)
                for name in turned(list(peers), number):
                    answers[name].append(peers[name].ask({"query": QUERY, "texts": texts}))
            row: dict = {"rounds": rounds, "load_average": load_average()}
            for clock in ("ms", "cpu_ms"):
                per_pair = {
                    name: round(statistics.median(answer[clock] for answer in given) / count, 2)
                    for name, given in answers.items()
                }
                row[f"{clock}_per_pair"] = per_pair
                row[f"{clock}_times_resift"] = {
                    name: round(value / per_pair["resift"], 2) for name, value in per_pair.items()
                }
            told[f"{tokens} tokens, n={count}"] = row
            print(tokens, count, row, file=sys.stderr)
            done(told)
    return told


def load_average() -> float | None:
    """Return how many processes want the processors; above their number, trust ratios only."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def turned(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


def cold_start(folder: Path, pythons: dict[str, Path | str], rounds: int, before: Path | None) -> dict:
    """Return seconds from process start to the first answer, and resident memory then."""
    told = {}
    for name, python in pythons.items():
        seconds, memory = [], []
        for _ in range(rounds):
            with start(name, python, folder, before) as peer:
                peer.ask({"query": QUERY, "texts": ["Exercise lowers the risk of heart disease."]})
                seconds.append(time.perf_counter() - peer.started)
                memory.append(peer.rss_mb())
        told[name] = {"seconds": round(statistics.median(seconds), 2), "rss_mb": statistics.median(memory)}
        print("cold", name, told[name], file=sys.stderr)
    return told


def concurrency(peer: Peer, rounds: int, *, count: int, callers: int = 8) -> dict:
    """Return pairs per second of one caller, and of eight at once on the same work each."""
    texts = passages(count, 100, seed=1)
    alone, together = [], []
    for _ in range(rounds):
        alone.append(sum(peer.ask({"query": QUERY, "texts": texts})["ms"] for _ in range(callers)))
        together.append(peer.ask({"query": QUERY, "texts": texts, "callers": callers})["ms"])
    pairs = len(texts) * callers * 1000
    rates = {"one caller": pairs / statistics.median(alone), f"{callers} callers": pairs / statistics.median(together)}
    return {name: round(rate, 1) for name, rate in rates.items()} | {
        "ratio": round(statistics.median(alone) / statistics.median(together), 2)
    }


def calls(folder: Path, rounds: int, *, count: int, few: int) -> dict:
    """Return ms per pair of the same texts in calls of a few and in one call, in turns.

    The rows of the race cannot say this: each count has texts of its own, whose mean length is another.
    """
    found: dict[int, list[float]] = {few: [], count: []}
    with start("resift", sys.executable, folder) as peer:
        peer.ask({"query": QUERY, "texts": passages(few, 100, seed=rounds)})
        for number in range(rounds):
            texts = passages(count, 100, seed=number)
            for size in (few, count) if number % 2 == 0 else (count, few):
                parts = [texts[at : at + size] for at in range(0, count, size)]
                ms = sum(peer.ask({"query": QUERY, "texts": part})["ms"] for part in parts)
                found[size].append(ms / count)
    median = {size: statistics.median(per_pair) for size, per_pair in found.items()}
    return {
        "rounds": rounds,
        "ms_per_pair": {f"calls of {size}": round(value, 2) for size, value in median.items()},
        "ratio": round(median[count] / median[few], 3),
    }


def real_texts(count: int) -> tuple[list[str], list[str]]:
    """Return queries and passages of SciFact if it is there, else synthetic ones."""
    data = Path(os.environ.get("RESIFT_DATA", HERE.parent.parent / "shared" / "data")) / "scifact"
    if not data.is_dir():
        return [QUERY], passages(count, 100, seed=3)
    with (data / "corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"][:480] for line, _ in zip(lines, range(count), strict=False)]
    queries = [json.loads(line)["text"] for line in (data / "queries.jsonl").open(encoding="utf-8")]
    return queries, texts


def best_first(scores):
    return (-scores).argsort(kind="stable")


def agreement(folder: Path, count: int) -> dict:
    """Compare scores with the plain ONNX run of the same file, one pair per run."""
    import numpy as np
    import onnxruntime

    from resift.rerankers.cross_encoder import CrossEncoderReranker

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    queries, texts = real_texts(count)
    pairs = [(queries[at % min(10, len(queries))], text) for at, text in enumerate(texts)]
    model = CrossEncoderReranker()._model
    ours = np.array(model.predict(pairs))
    tokenizer = model.model.tokenizer
    plain = []
    for query, text in pairs:
        ids, types = tokenizer.template.pair(tokenizer.ids(query), tokenizer.ids(text))
        feeds = {"input_ids": [ids], "attention_mask": [[1] * len(ids)], "token_type_ids": [types]}
        plain.append(session.run(None, {name: np.array(row, "int64") for name, row in feeds.items()})[0][0, 0])
    moved = np.abs(ours - np.array(plain))
    return {
        "pairs": len(pairs),
        "max_difference": round(float(moved.max()), 4),
        "mean_difference": round(float(moved.mean()), 4),
        "same_order": bool((best_first(ours) == best_first(np.array(plain))).all()),
    }


def processors(folder: Path, count: int) -> dict:
    """Say how far scores of the same pairs move between a processor with AVX-512 and one without."""
    queries, texts = real_texts(count)
    asked = {"query": queries[0], "texts": texts}
    told: dict = {"pairs": len(texts)}
    kinds = {"resift": ("resift", "resift, avx2")}
    if can_hide_avx512():
        kinds["onnxruntime"] = ("resift, not compiled", WITHOUT_AVX512[0])
    for library, names in kinds.items():
        scores = []
        for name in names:
            with start(name, sys.executable, folder) as peer:
                scores.append(peer.ask(asked)["scores"])
        moved = [abs(one - other) for one, other in zip(*scores, strict=True)]
        told[library] = {
            "max_difference": round(max(moved), 4),
            "pairs_that_differ": sum(map(bool, moved)),
            "same_order": sorted(range(count), key=lambda at: -scores[0][at])
            == sorted(range(count), key=lambda at: -scores[1][at]),
        }
    return told


def cascade(queries_used: int, pool: int) -> dict:
    """Count how many pairs the cascade saves, and whether its top ten is the full one."""
    from resift.rerankers.cascade import CascadeReranker
    from resift.rerankers.cross_encoder import CrossEncoderReranker
    from resift.rerankers.late_interaction import LateInteractionReranker
    from resift.rerankers.rescore import rescore
    from resift.types import Hit

    queries, texts = real_texts(1000)
    costly, late = CrossEncoderReranker(), LateInteractionReranker(cache_mb=1000)
    tries = {f"first-stage order, patience {p}": CascadeReranker(costly, k=10, patience=p) for p in (10, 20, 40)}
    tries |= {
        f"late interaction, patience {p}": CascadeReranker(costly, cheap=late, k=10, patience=p) for p in (10, 20, 40)
    }
    scored = {name: [] for name in tries}
    kept = {name: [] for name in tries}
    for query in queries[:queries_used]:
        words = set(query.lower().split())
        first = sorted(range(len(texts)), key=lambda at: -len(words & set(texts[at].lower().split())))[:pool]
        hits = [Hit(f"{at:04}", texts[at]) for at in first]
        full = asyncio.run(rescore(costly, query, hits, k=10))
        for name, reranker in tries.items():
            ranking = asyncio.run(rescore(reranker, query, hits, k=10))
            scored[name].append((len(hits) - len(ranking.unscored)) / len(hits))
            kept[name].append(len(set(ranking.ids) & set(full.ids)) / len(full.ids))
    return {
        name: {
            "queries": len(kept[name]),
            "pairs_scored": round(statistics.mean(scored[name]), 3),
            "of_top_10_found": round(statistics.mean(kept[name]), 3),
        }
        for name in tries
    }


def race(pythons: dict, folder: Path, options: argparse.Namespace) -> dict:
    """Start all peers, let them answer once, then measure speed and concurrency."""
    plan = {100: [5], 256: [2]} if options.quick else {100: options.counts, 256: options.long_counts}
    with contextlib.ExitStack() as stack:
        peers = {
            name: stack.enter_context(start(name, python, folder, options.before)) for name, python in pythons.items()
        }
        for peer in peers.values():
            peer.ask({"query": QUERY, "texts": passages(2, 100, seed=0)})
        together = concurrency(peers["resift"], options.rounds, count=1 if options.quick else 20)
        kept = {} if options.quick else read_results(options.results).get("speed", {})

        def done(found: dict) -> None:
            if not options.quick:
                write_results(options.results, {**read_results(options.results), "speed": {**kept, **found}})

        found = speed(peers, plan, options.rounds, done)
        return {"speed": {**kept, **found}, "concurrency": together}


def contestants(options: argparse.Namespace) -> dict[str, Path | str]:
    """Return who takes part, and in which environment."""
    pythons: dict[str, Path | str] = dict.fromkeys(OWN[:1] if options.quick else OWN, sys.executable)
    if options.before:
        pythons[BEFORE] = sys.executable
    if options.peers:
        pythons |= dict.fromkeys(options.peers, peer_env("cross_encoder_peers", REQUIREMENTS))
        if can_hide_avx512():
            known = {name.removesuffix(NO_AVX512): name for name in WITHOUT_AVX512}
            pythons |= {known[name]: python for name, python in pythons.items() if name in known}
    return pythons


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("cross_encoder", __doc__, parts=SECTIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="*", default=[20, 40, 100, 200], help="at ~100 tokens")
    parser.add_argument("--long-counts", type=int, nargs="*", default=[20, 100], help="at ~256 tokens")
    parser.add_argument("--peers", nargs="*", default=list(FOREIGN), help="which of the other libraries")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a compiled checkout of an earlier version")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds, options.peers, options.only = 1, [], SECTIONS[:4]
    folder = model_folder()
    pythons = contestants(options)
    data: dict = {}
    for section in options.only:
        if section == "race":
            data |= race(pythons, folder, options)
        elif section == "calls":
            data[section] = calls(
                folder, options.rounds, count=4 if options.quick else 200, few=2 if options.quick else 20
            )
        elif section == "cold_start":
            data[section] = cold_start(folder, pythons, options.rounds, options.before)
        elif section == "agreement":
            data[section] = agreement(folder, 12 if options.quick else 400)
        elif section == "processors":
            data[section] = processors(folder, 200)
        else:
            data[section] = cascade(10, 100)
        if not options.quick:
            write_results(options.results, {**read_results(options.results), **data})
    report(options, data, packages=["onnxruntime", "tokenizers", "numpy"], keep=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
