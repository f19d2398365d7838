"""What an index could learn of itself: do titles and sentences choose the part of the vectors well?

    python -m research.self_supervision CACHE RECORDED DATA [--cases 100]

For passages drawn at random, a title asks for its text and a sentence for the rest of its passage, the asked
words taken out of it, so that none is there only because it was copied. Both lists are made anew with that
text in place of the passage, and the part of the vectors that puts it highest (nDCG@10 of one answer) is
what the index would learn. Then the recorded questions tell what it is worth: nDCG@10 of the weighted lists
with the learned part, with the shipped one, and with the best of all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import write_results
from resift.evaluation.readers import read_collection
from resift.evaluation.running import build_index
from resift.evaluation.fast_replay import FastReplay
from resift.evaluation.measures import Judge
from resift.evaluation.recording import read_recording
from resift.evaluation.replay import Setting
from resift.models.embedder import Embedder
from resift.scaling import z_scores
from resift.stores.sqlite import SQLiteStore
from resift.text.analysis import Analyzer
from resift.trust import Trust

PARTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0)
K1, B = 0.9, 0.4
DEPTH = 300
_END = re.compile(r"(?<=[.!?])\s+|\n+")


def cases_of(title: str, body: str, draw: random.Random) -> dict[str, tuple[str, str]]:
    """Return kind -> (what is asked, the text that should answer)."""
    whole = f"{title} {body}".strip()
    found = {}
    if len(title.split()) >= 3 and len(body.split()) >= 15:
        found["title"] = (title, body)
    sentences = [one.strip() for one in _END.split(body) if len(one.split()) >= 5]
    words = whole.split()
    if len(sentences) >= 3:
        asked = draw.choice(sentences)
        found["sentence"] = (" ".join(asked.split()[:25]), whole.replace(asked, " ", 1))
    elif len(words) >= 16:
        size = min(10, len(words) // 2)
        at = draw.randrange(len(words) - size)
        found["sentence"] = (" ".join(words[at : at + size]), " ".join(words[:at] + words[at + size :]))
    return found


class Words:
    """BM25 over a corpus in which one text can be replaced."""

    def __init__(self, texts: list[str]) -> None:
        self.analyze = Analyzer().analyze
        counts = [Counter(self.analyze(text).terms) for text in texts]
        self.lengths = np.array([float(sum(one.values())) for one in counts])
        self.postings: dict[str, list[tuple[int, int]]] = {}
        for at, one in enumerate(counts):
            for term, often in one.items():
                self.postings.setdefault(term, []).append((at, often))

    def scores(self, query: str, at: int, text: str) -> Any:
        """Return every document's score, with `text` as document `at`."""
        found, mean = np.zeros(len(self.lengths)), self.lengths.mean()
        instead = Counter(self.analyze(text).terms)
        size = sum(instead.values())
        for term in self.analyze(query).terms:
            postings = self.postings.get(term, [])
            idf = math.log(1 + (len(found) - len(postings) + 0.5) / (len(postings) + 0.5))
            for place, often in [*((p, n) for p, n in postings if p != at), (at, instead[term])]:
                length = size if place == at else self.lengths[place]
                found[place] += idf * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
        return found


def gains(words: Any, cosines: Any, at: int) -> list[float]:
    """Return for each part of the vectors what the right answer's place is worth."""
    lists = [np.argsort(-scores, kind="stable")[:DEPTH] for scores in (words, cosines)]
    lists[0] = lists[0][words[lists[0]] > 0]
    pool = np.unique(np.concatenate([*lists, [at]]))
    columns = []
    for scores, ranked in zip((words, cosines), lists, strict=True):
        last = float(scores[ranked].min()) if len(ranked) == DEPTH else 0.0
        columns.append(np.array(z_scores(np.where(np.isin(pool, ranked), scores[pool], last).tolist())))
    place = int(np.flatnonzero(pool == at)[0])
    told = []
    for part in PARTS:
        fused = part * columns[1] + (1 - part) * columns[0]
        rank = int((fused > fused[place]).sum())
        told.append(1 / math.log2(rank + 2) if rank < 10 else 0.0)
    return told


async def learned(folder: Path, cache: Path, count: int) -> dict[str, Any]:
    """Return kind -> mean gain per part, and how many cases."""
    collection = read_collection(folder)
    store = SQLiteStore(build_index(collection, cache), read_only=True)
    documents = list(collection.documents())
    vectors: dict[str, Any] = {}
    for start in range(0, len(documents), 500):
        vectors |= await store.vectors_of([one["id"] for one in documents[start : start + 500]])
    await store.close()
    matrix = np.array([vectors[one["id"]] for one in documents], dtype=np.float32)
    rows = {row["_id"]: row for row in map(json.loads, (folder / "corpus.jsonl").open(encoding="utf-8"))}
    draw, chosen = random.Random(7), []
    seen: Counter[str] = Counter()
    for at in draw.sample(range(len(documents)), min(len(documents), 4 * count)):
        row = rows[documents[at]["id"]]
        for kind, pair in cases_of((row.get("title") or "").strip(), row["text"].strip(), draw).items():
            if seen[kind] < count:
                seen[kind] += 1
                chosen.append((kind, at, *pair))
    embedder, words = Embedder(), Words([one["text"] for one in documents])
    asked = np.asarray(await embedder.embed([query for _, _, query, _ in chosen], kind="query"))
    answers = np.asarray(await embedder.embed([text for *_, text in chosen], kind="document"))
    found: dict[str, list[list[float]]] = {}
    for (kind, at, query, text), vector, answer in zip(chosen, asked, answers, strict=True):
        cosines = matrix @ vector
        cosines[at] = answer @ vector
        found.setdefault(kind, []).append(gains(words.scores(query, at, text), cosines, at))
    return {
        kind: {
            "cases": len(told),
            "gain": {
                str(part): round(value, 4) for part, value in zip(PARTS, np.mean(told, axis=0), strict=True)
            },
            "chosen": PARTS[int(np.mean(told, axis=0).argmax())],
        }
        for kind, told in found.items()
    }


def worth(recorded: Path) -> dict[float, float]:
    """Return part of the vectors -> nDCG@10 of the weighted lists on the recorded questions."""
    recording = read_recording(recorded)
    replay, judge = FastReplay(recording), Judge(recording.qrels(), ["nDCG@10"])
    settings = {part: Setting(method="weighted", vectors=part, depth=0) for part in PARTS}
    return {
        part: round(judge.quality(replay.run(one, most=10)).mean("nDCG@10"), 4)
        for part, one in settings.items()
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.self_supervision", description=__doc__)
    for name in ("cache", "recorded", "data"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--only", nargs="+", help="which collections")
    args = parser.parse_args(argv)
    told = {}
    for path in sorted(args.recorded.glob("*.jsonl")):
        if args.only and path.stem not in args.only:
            continue
        found = asyncio.run(learned(args.data / path.stem, args.cache, args.cases))
        parts = worth(path)
        for one in found.values():
            one["against shipped"] = round(parts[one["chosen"]] - parts[Trust().vectors], 4)
        best = max(parts, key=lambda part: parts[part])
        told[path.stem] = {
            **found,
            "best": best,
            "best against shipped": round(parts[best] - parts[Trust().vectors], 4),
            "nDCG@10": {str(part): value for part, value in parts.items()},
        }
        print(path.stem, json.dumps(told[path.stem]), flush=True)
    print("written:", write_results("self_supervision", {"collections": told}).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
