"""A collection small enough to reason about by hand."""

from __future__ import annotations

import json
from pathlib import Path

DOCUMENTS = {
    "apple": "An apple is a red or green fruit that grows on trees",
    "banana": "A banana is a long yellow fruit",
    "car": "A car has an engine and four wheels",
    "train": "A train runs on rails and has an engine",
    "tree": "A tree has leaves and roots and some trees bear fruit",
    "wheel": "A wheel is round and turns on an axle of a car",
}
QUERIES = {"q1": "red fruit", "q2": "engine wheels", "q3": "leaves roots", "q4": "yellow banana", "q5": "rails"}
QRELS = {
    "q1": {"apple": 2, "banana": 1, "car": 0},
    "q2": {"car": 2, "wheel": 1},
    "q3": {"tree": 1},
    "q4": {"banana": 1},
    "q5": {"train": 1, "car": 0},
}


def write_collection(folder: Path) -> Path:
    """Write the collection as a BEIR folder and return the folder."""
    (folder / "qrels").mkdir(parents=True)
    _jsonl(folder / "corpus.jsonl", [{"_id": id, "title": "", "text": text} for id, text in DOCUMENTS.items()])
    _jsonl(folder / "queries.jsonl", [{"_id": id, "text": text} for id, text in QUERIES.items()])
    rows = ["query-id\tcorpus-id\tscore"]
    rows += [f"{query}\t{id}\t{grade}" for query, judged in QRELS.items() for id, grade in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def _jsonl(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
