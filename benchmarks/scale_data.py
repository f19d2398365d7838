"""A million passages whose first tens of thousands are real: texts and vectors for benchmarks.scale.

Real: every passage of the collections in RESIFT_DATA, its first 400 characters embedded by the default
embedder (once; kept in the folder). Filled up: a passage is made of two real ones whose vectors are near each
other (one of the ten nearest among 500 drawn at random). Its vector is a point between theirs (20 to 80 % of
the way) with Gaussian noise a quarter as long as the vector; its text is the first half of one and the second
half of the other. Questions are real questions of the same collections. Everything follows from one seed.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import HERE

COLLECTIONS = (
    "chunkeval-multisource",
    "cosqa",
    "cranfield",
    "hotpotqa-distractor-1k",
    "nfcorpus",
    "npl-vaswani",
    "scifact",
    "squad2-dev-passages",
)
_KINDS = {"corpus": "document", "queries": "query"}
_LONGEST = 400
_QUESTIONS = 50  # of each collection
_STEP = 10_000


class Passages:
    """The passages and questions of a folder; vectors are mapped from a file, texts made when asked for."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.texts, real, self.questions, self.question_vectors = _real(folder)
        path = folder / f"vectors-{size}.f32"
        if not path.exists():
            _fill(path, real, size)
        self.vectors = np.memmap(path, dtype=np.float32, mode="r", shape=(size, real.shape[1]))
        self.partners = _partners(size, len(real))

    def document(self, number: int) -> dict[str, Any]:
        """Return a passage as a store takes it."""
        text = self.texts[number] if number < len(self.texts) else self._mixed(number)
        return {"id": f"p{number}", "text": text, "metadata": {"part": number % 1000, "real": number < len(self.texts)}}

    def _mixed(self, number: int) -> str:
        first, second = (self.texts[at].split() for at in self.partners[number])
        return " ".join(first[: len(first) // 2] + second[len(second) // 2 :])


class Questions:
    """The questions alone: a process that is measured should hold nothing else."""

    def __init__(self, folder: Path) -> None:
        path = folder / "questions.json"
        if not path.exists():
            _, _, asked, vectors = _real(folder)
            np.save(folder / "questions.npy", vectors)
            path.write_text(json.dumps(asked))
        self.questions: list[str] = json.loads(path.read_text())
        self.question_vectors = np.load(folder / "questions.npy")


def _real(folder: Path) -> tuple[list[str], Any, list[str], Any]:
    data = Path(os.environ.get("RESIFT_DATA") or HERE.parent.parent / "shared" / "data")
    texts: list[str] = []
    questions: list[str] = []
    vectors, asked = [], []
    for name in COLLECTIONS:
        for file, into, rows in (("corpus", texts, vectors), ("queries", questions, asked)):
            found = [json.loads(line) for line in (data / name / f"{file}.jsonl").open(encoding="utf-8")]
            given = [f"{row.get('title') or ''}\n{row['text']}".strip()[:_LONGEST] for row in found]
            if file == "queries":
                given = given[:_QUESTIONS]
            into.extend(given)
            rows.append(_embedded(folder / f"{name}.{file}.npy", given, _KINDS[file])[: len(given)])
    return texts, np.concatenate(vectors), questions, np.concatenate(asked)


def _embedded(path: Path, texts: list[str], kind: Any) -> Any:
    if not path.exists():
        from resift.models.embedder import Embedder

        rows = asyncio.run(Embedder().embed(texts, kind=kind))
        np.save(path, np.asarray(rows, dtype=np.float32))
    return np.load(path)


def _partners(size: int, real: int) -> Any:
    """Return two real passages for each place; the second is replaced by a near one when vectors are made."""
    chance = np.random.default_rng(11)
    return chance.integers(0, real, (size, 2))


def _fill(path: Path, real: Any, size: int) -> None:
    chance = np.random.default_rng(7)
    partners = _partners(size, len(real))
    made = np.memmap(path.with_suffix(".part"), dtype=np.float32, mode="w+", shape=(size, real.shape[1]))
    made[: len(real)] = real[:size]
    for start in range(min(len(real), size), size, _STEP):
        first = partners[start : start + _STEP, 0]
        drawn = chance.integers(0, len(real), 500)
        alike = real[first] @ real[drawn].T
        nearest = np.argpartition(-alike, 10, axis=1)[:, :10]
        second = drawn[nearest[np.arange(len(first)), chance.integers(0, 10, len(first))]]
        way = chance.uniform(0.2, 0.8, (len(first), 1)).astype(np.float32)
        rows = real[first] * (1 - way) + real[second] * way
        noise = chance.standard_normal(rows.shape, dtype=np.float32)
        rows += noise * np.float32(0.25 / np.sqrt(real.shape[1]))
        made[start : start + len(rows)] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    made.flush()
    path.with_suffix(".part").rename(path)
