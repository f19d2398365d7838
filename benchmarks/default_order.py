"""The research behind the default order's trust: forms of the reranker's weight, whole collections left out.

    resift record DATA/scifact --depth 30 -o RECORDED/scifact.jsonl     one recording per collection
    python -m benchmarks.default_order RECORDED

Every number is nDCG@10. The single stages and the shipped order are replayed through the real pipeline.
For the forms each question's value is computed once on a grid of (part of vectors, weight of the reranker);
a form is then a way of choosing the weight from what the question's pool says. Its few numbers are chosen on
all collections but one, and tested on that one.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import write_results
from resift.evaluation.fast_replay import FastReplay
from resift.evaluation.measures import Judge
from resift.evaluation.record_file import Recorded, Recording, read_recording
from resift.evaluation.replay import Setting, default_setting, replay
from resift.trust import Trust

MEASURE = "nDCG@10"
VECTORS = (0.5, 0.55, 0.6)
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(8, 20))
WIDE = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
LOWS, HIGHS = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8), (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
SAMPLES = 2000

Table = dict[str, np.ndarray]
"""Setting or form -> a value per question."""


class Questions:
    """One collection: what each question's pool says, and its value on the grid."""

    def __init__(self, path: Path) -> None:
        self.recording: Recording = read_recording(path)
        self.judge = Judge(self.recording.qrels(), [MEASURE])
        self.ids = [one.query for one in self.recording.queries]
        self.fast = FastReplay(self.recording)
        marks = np.array([one.marks or 0.0 for one in self.recording.queries])
        self.prose = np.array([Trust().prose_part(value) for value in marks])
        self.facts = self._facts()
        start = default_setting(self.recording.header)
        self.grid = np.array(
            [
                [self.values(self._setting(start, vectors, weight)) for weight in WEIGHTS]
                for vectors in VECTORS
            ]
        )
        # Where texts are code, the reranker is not read whatever a form says.
        self.shipped = self.run_values(replay(self.recording, start))

    def _setting(self, start: Setting, vectors: float, weight: float | None) -> Setting:
        from dataclasses import replace

        return replace(start, vectors=vectors, blend_weight=weight, guard=False)

    def values(self, setting: Setting) -> np.ndarray:
        return self.run_values(self.fast.run(setting, most=10))

    def run_values(self, run: Any) -> np.ndarray:
        found = self.judge.quality(run).per_query[MEASURE]
        return np.array([found.get(query, 0.0) for query in self.ids])

    def oracle(self) -> dict[str, float]:
        """Return the mean for each part of the vectors: what the best prior of this collection could give."""
        start = default_setting(self.recording.header)
        return {str(part): float(self.values(self._setting(start, part, None)).mean()) for part in WIDE}

    def single_stages(self) -> Table:
        whole = {"depth": 0}
        plain = {
            "rrf": Setting(method="rrf", **whole),
            "linear": Setting(method="linear", **whole),
            "weighted, nothing read": Setting(method="weighted", **whole),
        }
        found = {name: self.values(setting) for name, setting in plain.items()}
        stores = self.recording.header.stores
        for store, name in zip(stores, ("bm25", "dense"), strict=True):
            lists = {one.query: [id for id, _ in one.lists[store]] for one in self.recording.queries}
            found[name] = self.run_values(lists)
        found["cross-encoder"] = self.run_values(
            {one.query: _reranked(one) for one in self.recording.queries}
        )
        return found

    def _facts(self) -> dict[str, np.ndarray]:
        rows = [_facts_of(one) for one in self.recording.queries]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def at(self, vectors: float, weight: np.ndarray) -> np.ndarray:
        """Return each question's value at the grid's nearest weight; code is as shipped."""
        row = self.grid[VECTORS.index(vectors)]
        place = np.abs(np.array(WEIGHTS)[:, None] - weight[None, :]).argmin(axis=0)
        return np.where(self.prose < 1, self.shipped, row[place, np.arange(len(self.ids))])


def _reranked(one: Recorded) -> list[str]:
    """Return the cross-encoder's order of the best 20 of RRF over lists of 100."""
    rrf: dict[str, float] = {}
    for ranked in one.lists.values():
        for rank, (id, _) in enumerate(ranked[:100], start=1):
            rrf[id] = rrf.get(id, 0.0) + 1 / (60 + rank)
    top = sorted(rrf, key=lambda id: (-rrf[id], id))
    return sorted(top[:20], key=lambda id: (-one.rerank.get(id, -99.0), id)) + top[20:]


def _facts_of(one: Recorded) -> dict[str, float]:
    words, meaning = [[id for id, _ in ranked] for ranked in one.lists.values()]
    logits = np.array(sorted(one.rerank.values(), reverse=True)[:20] or [0.0])
    share = 1 / np.exp(logits - logits[0]).sum()
    return {
        "nothing (constant)": 0.0,
        "share of the first": float(share),
        "share of the first, squared": float(share**2),
        "spread of the logits": float(min(1.0, logits.std() / 5)),
        "best probability": float(1 / (1 + math.exp(-logits[0]))),
        "fewer hits with a logit above 0": float(1 - (logits > 0).mean()),
        "disagreement of the lists": 1 - len(set(words[:10]) & set(meaning[:10])) / 10,
        "peakedness of the vectors' list": _peak(list(one.lists.values())[1]),
        "peakedness of the words' list": _peak(next(iter(one.lists.values()))),
    }


def _peak(ranked: Any) -> float:
    """Return how far the first stands above the list, in deviations, as 0 to 1."""
    scores = np.array([score for _, score in ranked if score is not None] or [0.0])
    deviation = scores.std()
    return float(min(1.0, (scores[0] - scores.mean()) / deviation / 10)) if deviation > 0 else 0.0


Form = Callable[[Questions, tuple[float, ...]], np.ndarray]


def one_fact(name: str) -> tuple[Form, list[tuple[float, ...]]]:
    def weight(questions: Questions, numbers: tuple[float, ...]) -> np.ndarray:
        low, high = numbers[1:]
        return low + (high - low) * questions.facts[name]

    if name.startswith("nothing"):
        return weight, [(part, low, low) for part in VECTORS for low in (*LOWS, 0.85, 0.9)]
    pairs = [(low, high) for low, high in product(LOWS, HIGHS) if low < high]
    return weight, [(part, *pair) for part in VECTORS for pair in pairs]


COMBINED = (
    "share of the first, squared",
    "disagreement of the lists",
    "best probability",
    "spread of the logits",
)


def combined() -> tuple[Form, list[tuple[float, ...]]]:
    """A small fitted combiner: a base and one number per fact."""

    def weight(questions: Questions, numbers: tuple[float, ...]) -> np.ndarray:
        facts = np.array([questions.facts[name] for name in COMBINED])
        return np.clip(numbers[1] + np.array(numbers[2:]) @ facts, 0.4, 0.95)

    steps = (-0.1, 0.0, 0.1, 0.2)
    return weight, [
        (0.55, base, *rest) for base in (0.6, 0.65, 0.7, 0.75, 0.8) for rest in product(steps, repeat=4)
    ]


def left_out(every: dict[str, Questions], form: Form, settings: list[tuple[float, ...]]) -> dict[str, float]:
    """Return each collection's mean under the numbers that all the others chose."""
    means = {
        name: np.array([found.at(numbers[0], form(found, numbers)).mean() for numbers in settings])
        for name, found in every.items()
    }
    return {
        name: float(
            means[name][np.mean([row for other, row in means.items() if other != name], axis=0).argmax()]
        )
        for name in every
    }


def interval(differences: np.ndarray, draw: np.random.Generator) -> list[float]:
    picks = draw.integers(0, len(differences), (SAMPLES, len(differences)))
    low, high = np.percentile(differences[picks].mean(axis=1), [2.5, 97.5])
    return [round(float(low), 4), round(float(high), 4)]


def measured(every: dict[str, Questions]) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    order = {}
    for name, found in every.items():
        singles = found.single_stages()
        order[name] = {
            "questions": len(found.ids),
            **{stage: round(float(values.mean()), 4) for stage, values in singles.items()},
            "default": round(float(found.shipped.mean()), 4),
            "against": {
                stage: interval(found.shipped - singles[stage], draw) for stage in ("rrf", "cross-encoder")
            },
            "vectors": {part: round(value, 4) for part, value in found.oracle().items()},
        }
    forms = {fact: one_fact(fact) for fact in next(iter(every.values())).facts}
    forms["fitted: four facts"] = combined()
    rows = {}
    for name, (form, settings) in forms.items():
        found_out = left_out(every, form, settings)
        rows[name] = {
            "settings": len(settings),
            "mean": round(float(np.mean(list(found_out.values()))), 4),
            "left out": {collection: round(value, 4) for collection, value in found_out.items()},
        }
    return {"order": order, "forms": rows}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default_order", description=__doc__)
    parser.add_argument("recorded", type=Path, help="a folder with one recording per collection")
    parser.add_argument("--dry", action="store_true", help="print and write nothing")
    args = parser.parse_args(argv)
    data = measured({path.stem: Questions(path) for path in sorted(args.recorded.glob("*.jsonl"))})
    for name, row in data["order"].items():
        print(name, row)
    for name, row in sorted(data["forms"].items(), key=lambda one: -one[1]["mean"]):
        print(f"{row['mean']:.4f} {name} ({row['settings']})", row["left out"])
    if not args.dry:
        print("written:", write_results("default_order", data).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
