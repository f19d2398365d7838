"""Late interaction beside the cross-encoder, on recordings: a second opinion, a third list, a middle stage.

    resift record DATA/scifact --depth 30 -o RECORDED/scifact.jsonl     one recording per collection
    python -m research.second_opinion RECORDED DATA [--questions 40]

Scores by MaxSim what the default reads of each question, then tries what that could be good for. Numbers are
nDCG@10, differences against the default with 95 % intervals (questions drawn within collections), and the
processor time of late interaction with the texts' vectors kept and not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from research.default_order import SAMPLES
from benchmarks.harness import write_results
from resift.deadline import Deadline
from resift.evaluation.readers import read_collection
from resift.evaluation.fast_replay import FastReplay
from resift.evaluation.measures import Judge
from resift.evaluation.recording import Recording, read_recording
from resift.evaluation.replay import blend_policy, default_setting
from resift.rerankers.late_interaction import LateInteractionReranker
from resift.types import Hit

MEASURE = "nDCG@10"
WINDOWS = 2
PARTS = (0.35, 0.5, 0.7)


class Trials(FastReplay):
    """A recording whose default order can be taken apart: what is read, its logits and its MaxSims."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.setting = default_setting(recording.header)
        place = self._fused_order(self.setting)[1]
        self.read = (place < self._depths(self.setting)) & self.real & ~np.isnan(self.rerank)
        self.fused = self._fused(self.setting)
        self.late = np.full(self.rerank.shape, np.nan)
        self.judge = Judge(recording.qrels(), [MEASURE])

    def values(self, order: Any) -> np.ndarray:
        run = {
            query: [self.ids[row][at] for at in order[row, : min(10, len(self.ids[row]))]]
            for row, query in enumerate(self.queries)
        }
        found = self.judge.quality(run).per_query[MEASURE]
        return np.array([found.get(query, 0.0) for query in self.queries])

    def blended(self, logits: Any, *, extra: Any = 0.0) -> np.ndarray:
        """Return the values of the default's blend with these logits, NaN where nothing was read."""
        policy = blend_policy(self.setting)
        if policy is None:
            raise ValueError("the default blends")
        weight = self._weights(policy, weighed=True)
        total = (1 - weight) * (self.fused + extra) + weight * self._lift(logits, policy)
        total = total + policy.neighbours * self._pull(total, self._sinking(policy, weighed=True))
        nothing = np.isnan(logits).all(axis=1)
        return self.values(np.where(nothing[:, None], self._sorted(self.fused), self._sorted(total)))


def z(values: Any, known: Any) -> Any:
    """Return z-scores over what is known of each row, 0 elsewhere."""
    kept = np.where(known, values, np.nan)
    with np.errstate(all="ignore"):
        mean, deviation = (np.nanmean(kept, axis=1), np.nanstd(kept, axis=1))
    scaled = (kept - mean[:, None]) / np.where(deviation > 0, deviation, 1.0)[:, None]
    return np.nan_to_num(scaled)


def best_of(scores: Any, known: Any, part: float) -> Any:
    """Return which hits of each row are its best `part` by these scores, three at the least."""
    place = np.argsort(np.argsort(-np.where(known, scores, -np.inf), axis=1, kind="stable"), axis=1)
    most = np.maximum(3, np.ceil(known.sum(axis=1) * part))
    return known & (place < most[:, None])


async def ask(trials: Trials, recording: Recording, folder: Path) -> dict[str, float]:
    """Fill in the MaxSims; return what they cost."""
    collection = read_collection(folder)
    texts = {row["id"]: row["text"] for row in collection.documents()}
    late = LateInteractionReranker(cache_mb=2000, max_windows=WINDOWS)
    spent = kept = 0.0
    seen: set[str] = set()
    for row, one in enumerate(recording.queries):
        places = np.flatnonzero(trials.read[row])
        hits = [Hit(trials.ids[row][at], texts[trials.ids[row][at]]) for at in places]
        if not hits:
            continue
        seen.update(hit.id for hit in hits)
        for again in (False, True):
            before = time.process_time()
            said = await late.score(collection.queries[one.query], hits, deadline=Deadline.never())
            passed = time.process_time() - before
            kept, spent = (kept + passed, spent) if again else (kept, spent + passed)
        trials.late[row, places] = said.values
    count = len(recording.queries)
    return {
        "questions": count,
        "ms per question, vectors kept": round(kept / count * 1000, 1),
        "ms per text to encode": round((spent - kept) / max(1, len(seen)) * 1000, 1),
    }


def forms(trials: Trials) -> dict[str, np.ndarray]:
    """Return each form's values."""
    read, logits = trials.read, np.where(trials.read, trials.rerank, np.nan)
    late, first = z(trials.late, read), z(trials.fused, read)
    with np.errstate(all="ignore"):
        mean, deviation = np.nanmean(logits, axis=1)[:, None], np.nanstd(logits, axis=1)[:, None]
    alike = np.where(read, mean + deviation * late, np.nan)
    alone = np.where(read, trials.late, -np.inf)
    found: dict[str, np.ndarray] = {
        "default": trials.blended(logits),
        "late interaction alone": trials.values(trials._sorted(alone)),
        "late interaction instead of the cross-encoder": trials.blended(np.where(read, 2.8 * late, np.nan)),
    }
    for part in (0.25, 0.5, 1.0):
        found[f"a third list, {part} of its z-score"] = trials.blended(logits, extra=part * late)
    for part in (0.2, 0.35, 0.5):
        both = np.where(read, (1 - part) * trials.rerank + part * alike, np.nan)
        found[f"mean with the logits, part {part}"] = trials.blended(both)
    for part in PARTS:
        for name, chosen in (("late interaction", late + first), ("the first stage", first)):
            some = best_of(chosen, read, part)
            found[f"read the {part} that {name} chooses"] = trials.blended(
                np.where(some, trials.rerank, np.nan)
            )
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.second_opinion", description=__doc__)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--questions", type=int, default=40)
    args = parser.parse_args(argv)
    costs, values = {}, {}
    for path in sorted(args.recorded.glob("*.jsonl")):
        recording = read_recording(path)
        recording = Recording(recording.header, recording.queries[: args.questions])
        trials = Trials(recording)
        costs[path.stem] = asyncio.run(ask(trials, recording, args.data / path.stem))
        values[path.stem] = forms(trials)
        print(path.stem, costs[path.stem], flush=True)
    draw = np.random.default_rng(1)
    rows = {}
    for name in next(iter(values.values())):
        drawn = []
        for one in values.values():
            differences = one[name] - one["default"]
            drawn.append(
                differences[draw.integers(0, len(differences), (SAMPLES, len(differences)))].mean(axis=1)
            )
        low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
        rows[name] = {
            "mean": round(float(np.mean([one[name].mean() for one in values.values()])), 4),
            "against the default": [round(float(low), 4), round(float(high), 4)],
            "nDCG@10": {key: round(float(one[name].mean()), 4) for key, one in values.items()},
        }
        print(name, json.dumps(rows[name]))
    print("written:", write_results("second_opinion", {"costs": costs, "forms": rows}).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
