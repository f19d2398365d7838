"""Early exit, an experiment: could candidates be dropped after 4, 6 or 8 of 12 layers without moving the top?

`python -m research.early_exit record` takes, per collection, some questions and the best candidates of
the text search, and records the first token's state after each of these layers and the score of all twelve.
`python -m research.early_exit` then fits one head per layer on the states of FITTED and picks, on the same
collections with each left out in turn, where a candidate may be dropped: how far below the tenth best
estimate, or behind which share of its pool. Heads see one layer or all so far, linear or not, and learn one
of three targets. The collections of JUDGED see neither fit nor choice. Recorded
states lie in benchmarks/.early_exit.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.harness import HERE, machine, write_results

FITTED = ("scifact/train", "nfcorpus/train", "squad2-dev-passages/test", "hotpotqa-distractor-1k/test")
JUDGED = ("cranfield/test", "cosqa/test", "npl-vaswani/test", "chunkeval-multisource/test")
HEADS, LAYERS, TOP = (4, 6, 8), 12, 10
TOKENS = 256
FOLDER = HERE.parent / "research" / ".early_exit"
DATA = Path(os.environ.get("RESIFT_DATA", HERE.parent.parent / "shared" / "data"))
MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"
FIELDS = ("states", "scores", "grades", "ideal")
GOALS = (0.99, 0.97, 0.95)
GATE = {"of_top_10_kept": 0.99, "ndcg_moved": 0.001, "of_layers": 0.55}


@dataclass(frozen=True, slots=True)
class Pools:
    """The candidates of a collection's questions; where one has fewer than others, the score is -inf."""

    states: np.ndarray  # [heads, questions, candidates, width]
    scores: np.ndarray  # of all layers
    grades: np.ndarray
    ideal: np.ndarray  # the discounted gain of a question's best grades

    def sizes(self) -> np.ndarray:
        return np.isfinite(self.scores).sum(1)


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
    np.savez_compressed(states_file(split), **made)
    print(split, count, "questions", file=sys.stderr)


class Passes:
    """The model cut off after some layers, and whole."""

    def __init__(self) -> None:
        from resift.models.loading import Model
        from resift.models.locate import resolve
        from resift.models.session import NativeSession

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


def states_file(split: str) -> Path:
    return FOLDER / f"{split.replace('/', '.')}.npz"


def recorded(split: str) -> Pools:
    """Return a split's pools that have enough candidates to drop some."""
    with np.load(states_file(split)) as file:
        numbers = sorted({int(name.partition(".")[0]) for name in file.files})
        found = [{field: file[f"{number}.{field}"] for field in FIELDS} for number in numbers]
    found = [one for one in found if len(one["scores"]) > TOP]
    places = max(len(one["scores"]) for one in found)

    def filled(one: np.ndarray, nothing: float, axis: int = 0) -> np.ndarray:
        wide = [(0, places - size if number == axis else 0) for number, size in enumerate(one.shape)]
        return np.pad(one.astype(np.float64), wide, constant_values=nothing)

    return Pools(
        np.stack([filled(one["states"], 0, axis=1) for one in found], axis=1),
        np.stack([filled(one["scores"], -np.inf) for one in found]),
        np.stack([filled(one["grades"], 0) for one in found]),
        np.array([gain(one["ideal"][None])[0] for one in found]),
    )


def gain(grades: np.ndarray) -> np.ndarray:
    """Return the discounted gain of the first TOP grades of each row."""
    best = grades[:, :TOP]
    return best @ (1 / np.log2(np.arange(2, best.shape[1] + 2)))


def one_layer(states: np.ndarray, number: int) -> np.ndarray:
    return states[number]


def layers_so_far(states: np.ndarray, number: int) -> np.ndarray:
    return np.concatenate(states[: number + 1], axis=-1)


def bent(states: np.ndarray, number: int) -> np.ndarray:
    """Return the states beside 768 random ramps of them: a head that is no longer linear."""
    one = states[number]
    drawn = np.random.default_rng(number).normal(size=(one.shape[-1], 768)) / np.sqrt(one.shape[-1])
    return np.concatenate([one, np.maximum(one @ drawn, 0)], axis=-1)


def the_score(pools: Pools) -> np.ndarray:
    return pools.scores


def within_the_pool(pools: Pools) -> np.ndarray:
    """Return how far each score is from the mean of its pool."""
    real = np.isfinite(pools.scores)
    return pools.scores - np.mean(pools.scores, axis=1, where=real, keepdims=True)


def around_the_tenth(pools: Pools) -> np.ndarray:
    """Return how far each score is from the tenth best, no farther than 4: the head learns the border."""
    return np.clip(pools.scores - tenth_best(pools.scores), -4, 4)


def tenth_best(values: np.ndarray) -> np.ndarray:
    return -np.partition(-values, TOP - 1, axis=1)[:, TOP - 1 : TOP]


SEEN: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "one layer": one_layer,
    "layers so far": layers_so_far,
    "one layer, not linear": bent,
}
LEARNT: dict[str, Callable[[Pools], np.ndarray]] = {
    "the score": the_score,
    "the score within its pool": within_the_pool,
    "the distance to the tenth": around_the_tenth,
}


@dataclass(frozen=True, slots=True)
class Head:
    """What a head looks at and what it learns to say."""

    seen: str
    learnt: str

    def fit(self, several: Sequence[Pools], number: int, strength: float = 300.0) -> np.ndarray:
        """Return weights and a constant that estimate the target from the states (ridge)."""
        rows, target = [], []
        for pools in several:
            real = np.isfinite(pools.scores)
            rows.append(SEEN[self.seen](pools.states, number)[real])
            target.append(LEARNT[self.learnt](pools)[real])
        states, wanted = np.concatenate(rows), np.concatenate(target)
        mean, deviation = states.mean(0), states.std(0) + 1e-6
        unit = (states - mean) / deviation
        square = unit.T @ unit + strength * np.eye(unit.shape[1])
        weights = np.linalg.solve(square, unit.T @ (wanted - wanted.mean())) / deviation
        return np.append(weights, wanted.mean() - mean @ weights)

    def estimates(self, several: Sequence[Pools], pools: Pools) -> np.ndarray:
        """Fit on some pools and return [heads, questions, candidates] for others."""
        found = []
        for number in range(len(HEADS)):
            weights = self.fit(several, number)
            values = SEEN[self.seen](pools.states, number) @ weights[:-1] + weights[-1]
            found.append(np.where(np.isfinite(pools.scores), values, -np.inf))
        return np.array(found)


def within_margins(estimate: np.ndarray, margin: float) -> np.ndarray:
    """Return who is at most a margin below the tenth best estimate."""
    return estimate >= tenth_best(estimate) - margin


def best_share(estimate: np.ndarray, share: float) -> np.ndarray:
    """Return the best share of each pool, ten at least."""
    sizes = np.isfinite(estimate).sum(1)  # of those that are left
    keep = np.maximum(TOP, np.ceil(share * estimate.shape[1])).astype(int)
    limit = -np.sort(-estimate, axis=1)[np.arange(len(estimate)), np.minimum(keep, sizes) - 1]
    return estimate >= limit[:, None]


Rule = Callable[[np.ndarray, float], np.ndarray]
RULES: dict[str, tuple[Rule, Sequence[float]]] = {
    "a margin below the tenth": (within_margins, (1, 1.5, 2, 2.5, 3, 4, 5, 7, 99)),
    "the best share": (best_share, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)),
}


def survivors(
    pools: Pools, estimates: np.ndarray, rule: str, limits: Sequence[float]
) -> tuple[np.ndarray, dict[str, float]]:
    """Return which candidates go through all layers, and two of the gate's numbers as means."""
    real = np.isfinite(pools.scores)
    alive, done = real, np.zeros(len(real))
    for layer, before, estimate, limit in zip(HEADS, (0, *HEADS), estimates, limits, strict=False):
        done += alive.sum(1) * (layer - before)
        alive = alive & RULES[rule][0](np.where(alive, estimate, -np.inf), limit)
    done += alive.sum(1) * (LAYERS - HEADS[-1])
    told = {
        "of_top_10_kept": alive[pools.scores >= tenth_best(pools.scores)].mean(),
        "of_layers": (done / (LAYERS * real.sum(1))).mean(),
    }
    return alive, {name: round(float(value), 4) for name, value in told.items()}


def judge(pools: Pools, estimates: np.ndarray, rule: str, limits: Sequence[float]) -> dict[str, float]:
    """Return what the gate asks, as means over questions."""
    alive, told = survivors(pools, estimates, rule, limits)
    exact = np.argsort(-pools.scores, axis=1, kind="stable")
    early = np.argsort(-np.where(alive, pools.scores, -np.inf), axis=1, kind="stable")
    graded = np.where(alive, pools.grades, 0)
    moved = gain(np.take_along_axis(graded, early, 1)) - gain(np.take_along_axis(pools.grades, exact, 1))
    return {**told, "ndcg_moved": round(float((moved / np.maximum(pools.ideal, 1e-9)).mean()), 4)}


def choose(
    fitted: dict[str, Pools], head: Head, rule: str, goals: Sequence[float]
) -> dict[float, tuple[float, ...]]:
    """Return, per goal, the limits that keep it with the fewest layers, by heads of the other collections."""
    left_out = {
        name: head.estimates([other for key, other in fitted.items() if key != name], pools)
        for name, pools in fitted.items()
    }
    best = {goal: (1.0, (RULES[rule][1][-1],) * len(HEADS)) for goal in goals}
    for limits in itertools.product(RULES[rule][1], repeat=len(HEADS)):
        told = [survivors(pools, left_out[name], rule, limits)[1] for name, pools in fitted.items()]
        layers = float(np.mean([one["of_layers"] for one in told]))
        for goal in goals:
            if min(one["of_top_10_kept"] for one in told) >= goal:
                best[goal] = min(best[goal], (layers, limits))
    return {goal: limits for goal, (_, limits) in best.items()}


def passes_gate(told: dict[str, float]) -> bool:
    return (
        told["of_top_10_kept"] >= GATE["of_top_10_kept"]
        and abs(told["ndcg_moved"]) <= GATE["ndcg_moved"]
        and told["of_layers"] <= GATE["of_layers"]
    )


def experiment() -> dict:
    """Fit and choose on some collections, and judge on others."""
    fitted = {split: recorded(split) for split in FITTED}
    judged = {split: recorded(split) for split in JUDGED if states_file(split).exists()}
    rows = []
    for seen, learnt, rule in itertools.product(SEEN, LEARNT, RULES):
        head = Head(seen, learnt)
        estimates = {name: head.estimates(list(fitted.values()), pools) for name, pools in judged.items()}
        for goal, limits in choose(fitted, head, rule, GOALS).items():
            told = {name: judge(pools, estimates[name], rule, limits) for name, pools in judged.items()}
            mean = {key: round(float(np.mean([one[key] for one in told.values()])), 4) for key in GATE}
            names = {"seen": seen, "learnt": learnt, "rule": rule, "goal": goal, "limits": limits}
            passed = all(map(passes_gate, told.values()))
            rows.append({**names, "judged": told, "mean": mean, "passed": passed})
            print(seen, "|", learnt, "|", rule, goal, limits, mean, passed, file=sys.stderr)
    return {
        "questions": {name: len(pools.scores) for name, pools in (fitted | judged).items()},
        "candidates": int(np.median(np.concatenate([pools.sizes() for pools in judged.values()]))),
        "correlation_within_pools": correlations(fitted, judged),
        "perfect_heads": {
            f"{pool} candidates": round((HEADS[0] + (LAYERS - HEADS[0]) * TOP / pool) / LAYERS, 3)
            for pool in (20, 50, 100)
        },
        "gate": GATE,
        "tried": len(rows),
        "rules": rows,
    }


def correlations(fitted: dict[str, Pools], judged: dict[str, Pools]) -> dict[str, dict[str, float]]:
    """Return, per collection and layer, how estimates go with the scores of all layers, within pools."""
    head, told = Head("one layer", "the score within its pool"), {}
    for name, pools in judged.items():
        estimates = head.estimates(list(fitted.values()), pools)
        told[name] = {
            f"layer {layer}": round(float(np.mean(list(map(_correlation, estimate, pools.scores)))), 3)
            for layer, estimate in zip(HEADS, estimates, strict=True)
        }
    return told


def _correlation(estimate: np.ndarray, scores: np.ndarray) -> float:
    real = np.isfinite(scores)
    return float(np.corrcoef(estimate[real], scores[real])[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", choices=["record", "judge"], default="judge")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--candidates", type=int, default=50)
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
