"""Early exit, an experiment: could candidates be dropped after 4, 6 or 8 of 12 layers without moving the top?

`python -m benchmarks.early_exit record` takes, per collection, some questions and the best candidates of
the text search, and records the first token's state after each of these layers and the score of all twelve.
`python -m benchmarks.early_exit` then fits one linear head per layer on the states of FITTED and picks, on
the same collections with each left out in turn, how far below the tenth best estimate a candidate may be
dropped; the collections of JUDGED see neither. Recorded states lie in benchmarks/.early_exit.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.harness import HERE, machine, write_results

FITTED = ("scifact/train", "nfcorpus/train", "squad2-dev-passages/test", "hotpotqa-distractor-1k/test")
JUDGED = ("cranfield/test", "cosqa/test", "npl-vaswani/test", "chunkeval-multisource/test")
HEADS, LAYERS, TOP = (4, 6, 8), 12, 10
TOKENS = 256
FOLDER = HERE / ".early_exit"
DATA = Path(os.environ.get("RESIFT_DATA", HERE.parent.parent / "shared" / "data"))
MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"
GATE = {"of_top_10_kept": 0.99, "ndcg_moved": 0.001, "of_layers": 0.55}


@dataclass(frozen=True, slots=True)
class Pool:
    """One question's candidates: states by head [heads, candidates, width], scores of all layers, grades."""

    states: np.ndarray
    scores: np.ndarray
    grades: np.ndarray
    ideal: np.ndarray  # all grades of the question, best first


def questions(split: str, count: int, seed: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield some questions of a split that have judgements, with these."""
    name, part = split.split("/")
    grades: dict[str, dict[str, int]] = {}
    for line in (DATA / name / "qrels" / f"{part}.tsv").read_text().splitlines()[1:]:
        question, document, grade = line.split("\t")[:3]
        grades.setdefault(question, {})[document] = int(float(grade))
    rows = map(json.loads, (DATA / name / "queries.jsonl").open(encoding="utf-8"))
    texts = {row["_id"]: row["text"] for row in rows if row["_id"] in grades}
    chosen = np.random.default_rng(seed).permutation(sorted(texts))[:count]
    yield from ((texts[question], grades[question]) for question in chosen.tolist())


def documents(split: str) -> dict[str, str]:
    rows = map(json.loads, (DATA / split.partition("/")[0] / "corpus.jsonl").open(encoding="utf-8"))
    return {row["_id"]: f"{row.get('title') or ''} {row['text']}".strip() for row in rows}


async def record(split: str, count: int, pool: int) -> None:
    """Write states and scores of a split's questions."""
    from resift.stores.sqlite import SQLiteStore
    from resift.types import Hit

    texts, passes = documents(split), Passes()
    made: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "texts.db", create=True)
        await store.add(Hit(key, text) for key, text in texts.items() if text)
        for number, (question, grades) in enumerate(questions(split, count, seed=17)):
            hits = await store.text.search(question, k=pool)
            ran = [passes.run(question, texts[hit.id]) for hit in hits]
            made |= {
                f"{number}.states": np.array([[one[head] for one in ran] for head in range(len(HEADS))]),
                f"{number}.scores": np.array([one[-1][0] for one in ran]),
                f"{number}.grades": np.array([grades.get(hit.id, 0) for hit in hits]),
                f"{number}.ideal": np.array(sorted(grades.values(), reverse=True)),
            }
        await store.close()
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / f"{split.replace('/', '.')}.npz", **made)
    print(split, count, "questions", file=sys.stderr)


class Passes:
    """The model cut off after some layers, and whole."""

    def __init__(self) -> None:
        from resift.models.loading import Model
        from resift.models.locate import resolve
        from resift.models.native_session import NativeSession

        files = resolve(MODEL)
        whole = NativeSession(files.onnx_bytes())
        self.tokenizer = Model(files).tokenizer
        self.sessions = [*(_cut_off(whole, layers) for layers in HEADS), whole]

    def run(self, question: str, text: str) -> list[np.ndarray]:
        """Return the first token's state after each head's layer, and the score."""
        asked = self.tokenizer.ids(question)[: TOKENS // 2]
        ids, types = self.tokenizer.template.pair(asked, self.tokenizer.ids(text)[: TOKENS - 3 - len(asked)])
        return [session.run(ids, types, first=1).reshape(-1) for session in self.sessions]


def _cut_off(whole, layers: int):
    """Return a session on the same weights that ends with the states after some layers."""
    session = copy.copy(whole)
    bert = type(whole._weights.bert).from_buffer_copy(whole._weights.bert)
    bert.layers, bert.classes = layers, 0
    session._weights = SimpleNamespace(bert=bert, sizes=whole._weights.sizes, kept=whole._weights)
    return session


def recorded(split: str) -> list[Pool]:
    """Return a split's pools that have enough candidates to drop some."""
    with np.load(FOLDER / f"{split.replace('/', '.')}.npz") as file:
        numbers = sorted({int(name.partition(".")[0]) for name in file.files})
        fields = ("states", "scores", "grades", "ideal")
        pools = [Pool(*(file[f"{number}.{field}"] for field in fields)) for number in numbers]
    return [pool for pool in pools if len(pool.scores) > TOP]


def fit(pools: Sequence[Pool], strength: float = 30.0) -> np.ndarray:
    """Return one linear head per layer, weights and a constant, that estimates the score (ridge)."""
    target = np.concatenate([pool.scores for pool in pools])
    heads = []
    for number in range(len(HEADS)):
        states = np.concatenate([pool.states[number] for pool in pools]).astype(np.float64)
        mean, deviation = states.mean(0), states.std(0) + 1e-6
        unit = (states - mean) / deviation
        weights = np.linalg.solve(
            unit.T @ unit + strength * np.eye(unit.shape[1]), unit.T @ (target - target.mean())
        )
        weights /= deviation
        heads.append(np.append(weights, target.mean() - mean @ weights))
    return np.array(heads)


def kept(pool: Pool, heads: np.ndarray, margins: Sequence[float]) -> tuple[np.ndarray, float]:
    """Return which candidates go through all layers, and the share of layers computed."""
    alive, done = np.ones(len(pool.scores), bool), 0
    for number, (layer, margin) in enumerate(zip(HEADS, margins, strict=True)):
        done += int(alive.sum()) * (layer - ([0, *HEADS][number]))
        estimate = pool.states[number] @ heads[number, :-1] + heads[number, -1]
        tenth = np.sort(estimate[alive])[-min(TOP, int(alive.sum()))]
        alive &= estimate >= tenth - margin
    done += int(alive.sum()) * (LAYERS - HEADS[-1])
    return alive, done / (LAYERS * len(pool.scores))


def judge(pools: Sequence[Pool], heads: np.ndarray, margins: Sequence[float]) -> dict[str, float]:
    """Return what the gate asks, as means over questions."""
    found, moved, layers = [], [], []
    for pool in pools:
        alive, share = kept(pool, heads, margins)
        exact = np.argsort(-pool.scores, kind="stable")
        early = exact[alive[exact]]
        found.append(float(alive[exact[:TOP]].mean()))
        moved.append(ndcg(pool, early) - ndcg(pool, exact))
        layers.append(share)
    means = {"of_top_10_kept": found, "ndcg_moved": moved, "of_layers": layers}
    return {name: round(float(np.mean(values)), 4) for name, values in means.items()}


def ndcg(pool: Pool, order: np.ndarray) -> float:
    discount = 1 / np.log2(np.arange(2, TOP + 2))
    gained, best = pool.grades[order[:TOP]], pool.ideal[:TOP]
    total = float(best @ discount[: len(best)])
    return float(gained @ discount[: len(gained)]) / total if total else 0.0


def choose(fitted: dict[str, list[Pool]], goal: float) -> tuple[float, ...]:
    """Return the margins with the fewest layers that keep the goal, each judged by the others' heads."""
    left_out = {
        name: fit([pool for other, pools in fitted.items() if other != name for pool in pools])
        for name in fitted
    }
    steps = (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 99)
    best = (1.0, (99.0, 99.0, 99.0))
    for margins in itertools.product(steps, repeat=len(HEADS)):
        told = [judge(pools, left_out[name], margins) for name, pools in fitted.items()]
        if min(one["of_top_10_kept"] for one in told) >= goal:
            best = min(best, (float(np.mean([one["of_layers"] for one in told])), margins))
    return best[1]


def passes_gate(told: dict[str, float]) -> bool:
    return (
        told["of_top_10_kept"] >= GATE["of_top_10_kept"]
        and abs(told["ndcg_moved"]) <= GATE["ndcg_moved"]
        and told["of_layers"] <= GATE["of_layers"]
    )


def experiment() -> dict:
    """Fit and choose on some collections, and judge on others."""
    fitted = {split: recorded(split) for split in FITTED}
    judged = {split: recorded(split) for split in JUDGED}
    heads = fit([pool for pools in fitted.values() for pool in pools])
    rows = {}
    for goal in (0.99, 0.97, 0.95):
        margins = choose(fitted, goal)
        told = {name: judge(pools, heads, margins) for name, pools in judged.items()}
        passed = all(map(passes_gate, told.values()))
        rows[f"kept {goal} where fitted"] = {"margins": margins, "judged": told, "passed": passed}
    return {
        "questions": {name: len(pools) for name, pools in (fitted | judged).items()},
        "candidates": int(np.median([len(pool.scores) for pools in judged.values() for pool in pools])),
        "correlation_with_the_score": correlations(judged, heads),
        "gate": GATE,
        "rules": rows,
    }


def correlations(judged: dict[str, list[Pool]], heads: np.ndarray) -> dict[str, dict[str, float]]:
    """Return, per collection and head, how the estimates go with the scores of all layers."""
    told: dict[str, dict[str, float]] = {}
    for name, pools in judged.items():
        scores = np.concatenate([pool.scores for pool in pools])
        for number, layer in enumerate(HEADS):
            estimate = np.concatenate([pool.states[number] @ heads[number, :-1] for pool in pools])
            told.setdefault(name, {})[f"layer {layer}"] = round(float(np.corrcoef(estimate, scores)[0, 1]), 3)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", choices=["record", "judge"], default="judge")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--splits", nargs="*", default=[*FITTED, *JUDGED])
    options = parser.parse_args()
    if options.step == "record":
        for split in options.splits:
            asyncio.run(record(split, options.questions, options.candidates))
        return
    data = experiment()
    write_results("early_exit", data)
    print(json.dumps({"machine": machine(), **data}, indent=2))


if __name__ == "__main__":
    main()
