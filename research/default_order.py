"""The research behind the default order's trust: forms of the reranker's weight, whole collections left out.

    resift record DATA/scifact --depth 30 -o RECORDED/scifact.jsonl     one recording per collection
    python -m research.default_order RECORDED [--data DATA]

Every number is nDCG@10. The single stages and the shipped order are replayed through the real pipeline.
For the forms each question's value is computed once on a grid of (part of vectors, weight of the reranker);
a form is then a way of choosing the weight from what the question's pool says. Its few numbers are chosen on
all collections but one, and tested on that one. With the collections' texts at hand (--data), coverage of the
question by words and pieces per word are tried too.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import write_results
from resift.evaluation.readers import read_collection
from resift.evaluation.fast_replay import FastReplay
from resift.evaluation.measures import Judge
from resift.evaluation.recording import RecordedQuery, Recording, read_recording
from resift.evaluation.replay import Setting, default_setting, replay
from resift.models.loading import load
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.trust import Trust

MEASURE = "nDCG@10"
SINGLE = ("bm25", "dense", "rrf", "linear", "cross-encoder")
VECTORS = (0.5, 0.55, 0.6, 0.65)
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(8, 20))
WIDE = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
LOWS, HIGHS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8), (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
LETTERS = ((4.2, 6), (4, 6), (4, 5.5), (4.5, 6), (4.5, 5.5), (4.2, 5.7))
CONSTANT = "nothing (constant)"
SAMPLES = 2000

Table = dict[str, np.ndarray]
"""Setting or form -> a value per question."""


class Questions:
    """One collection: what each question's pool says, and its value on the grid."""

    def __init__(self, path: Path, data: Path | None = None) -> None:
        self.recording: Recording = read_recording(path)
        self.judge = Judge(self.recording.qrels(), [MEASURE])
        self.ids = [one.query for one in self.recording.queries]
        self.fast = FastReplay(self.recording)
        marks = np.array([one.marks or 0.0 for one in self.recording.queries])
        self.letters = float(np.mean([one.letters for one in self.recording.queries if one.letters] or [0.0]))
        self.prose = np.array([Trust().prose_part(value) for value in marks])
        self.facts = self._facts()
        if data is not None:
            self.facts |= text_facts(self.recording, data / path.stem)
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

    def best_constant(self) -> float:
        """Return the weight of the reranker that would have been best for all questions, shipped vectors."""
        return WEIGHTS[int(self.grid[VECTORS.index(Trust().vectors)].mean(axis=1).argmax())]

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


def _reranked(one: RecordedQuery) -> list[str]:
    """Return the cross-encoder's order of the best 20 of RRF over lists of 100."""
    rrf: dict[str, float] = {}
    for ranked in one.lists.values():
        for rank, (id, _) in enumerate(ranked[:100], start=1):
            rrf[id] = rrf.get(id, 0.0) + 1 / (60 + rank)
    top = sorted(rrf, key=lambda id: (-rrf[id], id))
    return sorted(top[:20], key=lambda id: (-one.rerank.get(id, -99.0), id)) + top[20:]


def _facts_of(one: RecordedQuery) -> dict[str, float]:
    words, meaning = [[id for id, _ in ranked] for ranked in one.lists.values()]
    logits = np.array(sorted(one.rerank.values(), reverse=True)[:20] or [0.0])
    share = float(1 / np.exp(logits - logits[0]).sum())
    best = 1 / (1 + math.exp(-logits[0]))
    apart = {most: 1 - len(set(words[:most]) & set(meaning[:most])) / most for most in (3, 5, 10, 20)}
    z_words, z_meaning = (_over_pool(ranked, {*words, *meaning}) for ranked in one.lists.values())
    read = [id for id in one.rerank if id in z_words]

    def plain(low: float, high: float) -> float:
        return float(np.clip((high - (one.letters or 5.0)) / (high - low), 0, 1))

    return {
        CONSTANT: 0.0,
        "share of the first": share,
        "share of the first, squared": share**2,
        "spread of the logits": float(min(1.0, logits.std() / 5)),
        "best probability": best,
        "best logit": float(np.clip((logits[0] + 5) / 15, 0, 1)),
        "fewer hits with a logit above 0": float(1 - (logits > 0).mean()),
        **{f"disagreement of the lists' first {most}": value for most, value in apart.items()},
        "disagreement of the lists' scores": (1 - _alike(z_words, z_meaning, list(z_words))) / 2,
        "agreement with the vectors": max(0.0, _alike(one.rerank, z_meaning, read)),
        "agreement with the words": max(0.0, _alike(one.rerank, z_words, read)),
        "peakedness of the vectors' list": _peak(list(one.lists.values())[1]),
        "peakedness of the words' list": _peak(next(iter(one.lists.values()))),
        **{f"plain words: {low} to {high} letters": plain(low, high) for low, high in LETTERS},
        "mean of plain words and disagreement": (plain(4.2, 6) + apart[10]) / 2,
        "mean of plain words and squared share": (plain(4.2, 6) + share**2) / 2,
        "plain words × squared share": plain(4.2, 6) * share**2,
        "disagreement × best probability": apart[10] * best,
        "disagreement × share": apart[10] * share,
        "mean of disagreement and best probability": (apart[10] + best) / 2,
        "mean of disagreement and squared share": (apart[10] + share**2) / 2,
    }


def _over_pool(ranked: Any, pool: set[str]) -> dict[str, float]:
    """Return each hit's score in the list, its last where the list lacks it."""
    known = {id: score or 0.0 for id, score in ranked}
    last = min(known.values(), default=0.0)
    return {id: known.get(id, last) for id in sorted(pool)}


def _alike(one: Any, other: Any, ids: list[str]) -> float:
    """Return the correlation of two scores over these hits, 0 where there is none."""
    left, right = (np.array([scores[id] for id in ids]) for scores in (one, other))
    if len(ids) < 3 or left.std() < 1e-9 or right.std() < 1e-9:
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


_WORD = re.compile(r"\w+")


def text_facts(recording: Recording, folder: Path) -> dict[str, np.ndarray]:
    """Return what the texts of the first five of each list say: coverage of the question, pieces per word."""
    collection = read_collection(folder)
    texts = {row["id"]: row["text"] for row in collection.documents()}
    words = {id: set(_WORD.findall(text.lower())) for id, text in texts.items()}
    seen = Counter(word for found in words.values() for word in found)
    tokenizer = load(DEFAULT_MODEL, kind="cross-encoder").tokenizer
    covered, whole = [], []
    for one in recording.queries:
        lists = [[id for id, _ in ranked[:5]] for ranked in one.lists.values()]
        asked = set(_WORD.findall(collection.queries[one.query].lower()))
        idf = {word: math.log(1 + len(texts) / (1 + seen[word])) for word in asked}
        parts = [sum(idf[word] for word in asked & words[id]) / sum(idf.values()) for id in lists[0] if idf]
        covered.append(float(np.mean(parts)) if parts else 0.0)
        begun = [texts[id][:600] for id in dict.fromkeys(lists[0] + lists[1])]
        pieces = sum(len(tokenizer.ids(" ".join(_WORD.findall(text))) or []) for text in begun)
        count = sum(len(_WORD.findall(text)) for text in begun)
        whole.append(min(1.0, max(0.0, (1.4 - pieces / max(1, count)) / 0.4)))
    return {
        "the question covered by words": np.array(covered),
        "the question not covered by words": 1 - np.array(covered),
        "fewer pieces per word": np.array(whole),
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

    if name == CONSTANT:
        return weight, [(part, low, low) for part in VECTORS for low in (*LOWS, 0.85, 0.9)]
    pairs = [(low, high) for low, high in product(LOWS, HIGHS) if low < high]
    return weight, [(part, *pair) for part in VECTORS for pair in pairs]


COMBINED = (
    "plain words: 4.2 to 6 letters",
    "disagreement of the lists' first 10",
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


def left_out(
    every: dict[str, Questions], form: Form, settings: list[tuple[float, ...]]
) -> dict[str, np.ndarray]:
    """Return each collection's values under the numbers that all the others chose."""
    means = {
        name: np.array([found.at(numbers[0], form(found, numbers)).mean() for numbers in settings])
        for name, found in every.items()
    }
    chosen = {
        name: settings[np.mean([row for other, row in means.items() if other != name], axis=0).argmax()]
        for name in every
    }
    return {name: found.at(chosen[name][0], form(found, chosen[name])) for name, found in every.items()}


def interval_of_means(one: Table, other: Table, draw: np.random.Generator) -> list[float]:
    """Return the interval of the difference of two means over collections, questions drawn within each."""
    drawn = []
    for name, values in one.items():
        differences = values - other[name]
        picks = draw.integers(0, len(differences), (SAMPLES, len(differences)))
        drawn.append(differences[picks].mean(axis=1))
    low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
    return [round(float(low), 4), round(float(high), 4)]


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
            "letters per word": round(found.letters, 2),
            "best constant weight": found.best_constant(),
            **{stage: round(float(values.mean()), 4) for stage, values in singles.items()},
            "default": round(float(found.shipped.mean()), 4),
            "against": {
                stage: interval(found.shipped - singles[stage], draw) for stage in ("rrf", "cross-encoder")
            },
            "vectors": {part: round(value, 4) for part, value in found.oracle().items()},
        }
    forms = {fact: one_fact(fact) for fact in next(iter(every.values())).facts}
    forms["fitted: four facts"] = combined()
    found_out = {name: left_out(every, form, settings) for name, (form, settings) in forms.items()}
    rows = {}
    for name, values in found_out.items():
        best = {collection: max(order[collection][stage] for stage in SINGLE) for collection in values}
        means = {collection: float(row.mean()) for collection, row in values.items()}
        rows[name] = {
            "settings": len(forms[name][1]),
            "mean": round(float(np.mean(list(means.values()))), 4),
            "against the constant": interval_of_means(values, found_out[CONSTANT], draw),
            "worst against the best single stage": round(
                min(means[collection] - best[collection] for collection in best), 4
            ),
            "left out": {collection: round(value, 4) for collection, value in means.items()},
        }
    return {"order": order, "forms": rows}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.default_order", description=__doc__)
    parser.add_argument("recorded", type=Path, help="a folder with one recording per collection")
    parser.add_argument("--data", type=Path, help="the folder of the collections, for facts of their texts")
    parser.add_argument("--dry", action="store_true", help="print and write nothing")
    args = parser.parse_args(argv)
    data = measured({path.stem: Questions(path, args.data) for path in sorted(args.recorded.glob("*.jsonl"))})
    for name, row in data["order"].items():
        print(name, row)
    for name, row in sorted(data["forms"].items(), key=lambda one: -one[1]["mean"]):
        print(
            f"{row['mean']:.4f} {name} ({row['settings']})", {k: v for k, v in row.items() if k != "settings"}
        )
    if not args.dry:
        print("written:", write_results("default_order", data).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
