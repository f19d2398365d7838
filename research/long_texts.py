"""Which windows of long texts must be read: every window's logit once, then rules of choosing on top.

    python -m research.long_texts WORK [--size 4] [--questions 300]     # RESIFT_DATA: where the data lies

The long texts are consecutive chunks of chunkeval's five sources, `size` of them as one text; the best 14 of
each question are read. Numbers are nDCG@10 of the default blend (without neighbours), against the same with
every window read (with a bootstrap interval), the part of the windows that a rule reads, and how many
questions it changes. Logits are kept in WORK, so it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import write_results
from resift.deadline import Deadline
from resift.evaluation.readers import Collection, read_collection
from resift.evaluation.running import build_index
from resift.evaluation.significance import bootstrap_interval
from resift.evaluation.systems import find_system
from resift.fusion.weighted import weighted
from resift.models.engine import shared_engine
from resift.models.loading import load
from resift.models.pairs import SKIP_BELOW_LOGIT
from resift.models.pairs import WINDOW
from resift.models.pairs import rank_windows
from resift.models.tokenizer import split_windows
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.retrieval.fan_out import fan_out
from resift.shape import blend
from resift.types import Hit, Ranking, StageKind, Trace, make_record, rescored

SOURCE = "chunkeval-multisource"
DEPTH = 14
Read = list[int]
Rule = Callable[[dict[str, Any], list[int]], Read]
"""From a text (split_windows, ids, logits) and the query's ids to the places of the windows that are read."""


def long_collection(data: Path, out: Path, size: int) -> Path:
    """Write the collection whose texts are `size` consecutive chunks; a text is as relevant as its best."""
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    whole: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    seen: dict[str, int] = {}
    for line in (data / "corpus.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        source = row["metadata"]["source"]
        id = f"{source}-{seen.get(source, 0) // size}"
        seen[source] = seen.get(source, 0) + 1
        whole[row["_id"]] = id
        texts.setdefault(id, []).append(row["text"])
    rows = [json.dumps({"_id": id, "text": "\n".join(parts)}) for id, parts in texts.items()]
    (out / "corpus.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (out / "queries.jsonl").write_bytes((data / "queries.jsonl").read_bytes())
    best: dict[tuple[str, str], int] = {}
    for line in (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, doc, grade = line.split("\t")
        best[query, whole[doc]] = max(int(grade), best.get((query, whole[doc]), 0))
    judged = "".join(f"{query}\t{id}\t{grade}\n" for (query, id), grade in best.items())
    (out / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    return out


async def record(collection: Collection, index: Path, queries: list[str], out: Path) -> None:
    """Write one line per question: the lists, and every window's logit of the texts that would be read."""
    pipeline = find_system("default").open(index)
    model = load(DEFAULT_MODEL, kind="cross-encoder")
    template, length = model.tokenizer.template, model.spec.max_length
    with out.open("a", encoding="utf-8") as file:
        for query in queries:
            text = collection.queries[query]
            branches = await fan_out(pipeline.stores, text, k=300)
            fused = weighted([one.hits for one in branches], searched=[one.ref.kind for one in branches])
            asked = (model.tokenizer.ids(text) or [])[: length // 2]
            budget = min(length, max(128, WINDOW)) - template.size - len(asked)
            docs: dict[str, dict[str, Any]] = {}
            tasks: list[Any] = []

            def read(doc: dict[str, Any], at: int, asked: list[int] = asked) -> None:
                row = template.pair(asked, doc["ids"][slice(*doc["split_windows"][at])])
                doc["logits"][at] = float(model.forward(*row).reshape(-1)[0])

            for hit in fused[:DEPTH]:
                ids = model.tokenizer.ids(hit.text) or []
                parts = split_windows(len(ids), budget)
                docs[hit.id] = {"ids": ids, "split_windows": parts, "logits": [0.0] * len(parts)}
                tasks += [partial(read, docs[hit.id], at) for at in range(len(parts))]
            await shared_engine().run(tasks, deadline=Deadline.never())
            lists = {one.ref.name: [(hit.id, hit.score) for hit in one.hits] for one in branches}
            row = {
                "id": query,
                "query": asked,
                "docs": docs,
                "lists": lists,
                "qrels": collection.qrels[query],
            }
            file.write(json.dumps(row) + "\n")
            file.flush()
    await pipeline.close()


def order(row: dict[str, Any], scores: dict[str, float]) -> list[str]:
    """Return the ids in the default order with these scores."""
    lists = [[Hit(id, "", score, name) for id, score in ranked] for name, ranked in row["lists"].items()]
    fused = weighted(lists, searched=["doc", "vector"], marks=0.0)
    read = sorted((hit for hit in fused if hit.id in scores), key=lambda hit: (-scores[hit.id], hit.id))
    rest = [hit for hit in fused if hit.id not in scores]
    hits = rescored([*read, *rest], [*(scores[hit.id] for hit in read), *(None for _ in rest)])
    judged = make_record(StageKind.RERANK, "rerank", hits, scored=True, source="cross-encoder")
    return blend(Ranking(tuple(hits), trace=Trace(fused.records).then(judged))).ids[:10]


def ndcg(ids: list[str], qrels: dict[str, int]) -> float:
    gains = sorted((grade for grade in qrels.values() if grade > 0), reverse=True)[:10]
    ideal = sum(grade / math.log2(place + 2) for place, grade in enumerate(gains))
    return sum(max(0, qrels.get(id, 0)) / math.log2(place + 2) for place, id in enumerate(ids)) / ideal


def fixed(most: int) -> Rule:
    return lambda doc, query: rank_windows(doc["split_windows"], doc["ids"], query)[:most]


def first(most: int) -> Rule:
    return lambda doc, query: list(range(min(most, len(doc["split_windows"]))))


def skim(begin: int, most: int, hopeless: float = SKIP_BELOW_LOGIT) -> Rule:
    def read(doc: dict[str, Any], query: list[int]) -> Read:
        places = rank_windows(doc["split_windows"], doc["ids"], query)[:most]
        hope = max(doc["logits"][at] for at in places[:begin]) >= hopeless
        return places if hope else places[:begin]

    return read


RULES: dict[str, Rule] = {
    "every window": lambda doc, _: list(range(len(doc["split_windows"]))),
    **{f"the first {most}": first(most) for most in (1, 2, 3)},
    **{f"the {most} most promising": fixed(most) for most in (1, 2, 3, 4, 6)},
    **{f"skim 1, {most} at most, on from {low}": skim(1, most, low) for most in (3, 32) for low in (-10, -8)},
    **{
        f"skim 2, {most} at most, on from {low}": skim(2, most, low)
        for most in (3, 4, 6, 32)
        for low in (-6, -4, -2)
    },
}


def interval(mine: list[float], base: list[float]) -> list[float]:
    differences = [one - other for one, other in zip(mine, base, strict=True)]
    return [round(bound, 4) for bound in bootstrap_interval(differences)]


def kept_rows(path: Path) -> list[dict[str, Any]]:
    """Return the questions that were recorded, after taking away a last line that was cut."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    path.write_bytes(whole + b"\n" if whole else b"")
    return [json.loads(line) for line in whole.splitlines()]


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, list[float]] = {}
    parts: dict[str, float] = {}
    for name, rule in RULES.items():
        read = every = 0
        for row in rows:
            scores = {}
            for id, doc in row["docs"].items():
                places = rule(doc, row["query"])
                scores[id] = max(doc["logits"][at] for at in places)
                read, every = read + len(places), every + len(doc["logits"])
            values.setdefault(name, []).append(ndcg(order(row, scores), row["qrels"]))
        parts[name] = read / every
    base = values["every window"]
    return {
        name: {
            "nDCG@10": round(sum(mine) / len(mine), 4),
            "difference": round(sum(mine) / len(mine) - sum(base) / len(base), 4),
            "interval": interval(mine, base),
            "read": round(parts[name], 3),
            "changed": sum(abs(one - other) > 1e-9 for one, other in zip(mine, base, strict=True)),
        }
        for name, mine in values.items()
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.long_texts", description=__doc__)
    parser.add_argument("work", type=Path, help="where the collection, its index and the logits are kept")
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--questions", type=int, default=300)
    args = parser.parse_args(argv)
    name = f"long-{args.size}"
    data = Path(os.environ.get("RESIFT_DATA", "../shared/data")) / SOURCE
    collection = read_collection(long_collection(data, args.work / name, args.size))
    queries = sorted(collection.queries, key=lambda query: hashlib.sha256(query.encode()).digest())
    kept = args.work / f"{name}.jsonl"
    known = {row["id"] for row in kept_rows(kept)}
    missing = [query for query in queries[: args.questions] if query not in known]
    if missing:
        asyncio.run(record(collection, build_index(collection, args.work), missing, kept))
    rows = kept_rows(kept)[: args.questions]
    texts = [doc for row in rows for doc in row["docs"].values()]
    told = {
        "questions": len(rows),
        "texts read per question": round(len(texts) / len(rows), 1),
        "windows per text": round(sum(len(doc["split_windows"]) for doc in texts) / len(texts), 2),
        "rules": judged(rows),
    }
    print(json.dumps(told, indent=1))
    print("written:", write_results(f"long_texts_{args.size}", told).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
