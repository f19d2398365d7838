"""How often the answer is inside the context, against the plain best hits at the same number of tokens.

    python -m benchmarks.context            # needs RESIFT_DATA with contextual-code and chunkeval-multisource
    python -m benchmarks.context --quick    # a made-up corpus, a smoke test

A query counts if every chunk that is judged relevant is in the text as a whole. `plain` joins the best hits
until the next one does not fit. `context` is `ranking.context`. Both count tokens with the tokenizer of the
cross-encoder, headers included.
"""

from __future__ import annotations

import collections
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import option_parser, report
from resift.index import Index
from resift.types import Hit, Ranking

SETS = ("contextual-code", "chunkeval-multisource")
BUDGETS = (500, 1000, 2000)
DEPTH = 40


def read_set(folder: Path, queries: int) -> tuple[list[dict], list[tuple[str, set[str]]]]:
    """Return the chunks with document and position, and queries with their relevant chunks."""
    positions: collections.Counter[str] = collections.Counter()
    chunks = []
    for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        document = row["metadata"].get("document") or row["metadata"]["source"]
        position = row["metadata"].get("position", positions[document])
        positions[document] += 1
        place = {"document": document, "position": position}
        chunks.append({"id": row["_id"], "text": row["text"], "metadata": place})
    relevant: dict[str, set[str]] = collections.defaultdict(set)
    for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, chunk, grade = line.split("\t")
        if int(grade) > 0:
            relevant[query].add(chunk)
    texts = {}
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts[row["_id"]] = row["text"]
    judged = [(texts[id], relevant[id]) for id in texts if id in relevant]
    step = max(1, len(judged) // queries)
    return chunks, judged[step // 2 :: step][:queries]


def made_up() -> tuple[list[dict], list[tuple[str, set[str]]]]:
    """Return a tiny corpus for the smoke run."""
    words = ("harbor", "anchor", "lantern", "compass", "rudder", "mast")
    chunks = [
        {
            "id": f"{document}-{i}",
            "text": f"The {word} of ship {document} is described here. It is painted.",
            "metadata": {"document": document, "position": i},
        }
        for document in ("a", "b")
        for i, word in enumerate(words)
    ]
    return chunks, [("anchor of ship a", {"a-1"}), ("mast of ship b", {"b-5"})]


def plain_ids(hits: list[Hit], max_tokens: int, count) -> tuple[set[str], int]:
    """Return the ids of the best hits that fit, with the headers that a context has."""
    text, ids = "", set()
    for number, hit in enumerate(hits, start=1):
        longer = f"{text}[{number}] {hit.metadata['document']}\n{hit.text}\n\n"
        if count(longer) > max_tokens:
            break
        text = longer
        ids.add(hit.id)
    return ids, count(text)


def whole_ids(ranking: Ranking, texts: dict[str, str], max_tokens: int) -> tuple[set[str], int, float]:
    """Return the ids of the chunks that are completely in the context, its tokens and the time in ms."""
    started = time.perf_counter()
    context = ranking.context(max_tokens)
    spent_ms = (time.perf_counter() - started) * 1000
    pieces = {piece.id: piece for source in context.sources for piece in source.pieces}
    joined = context.text
    whole = {id for id, piece in pieces.items() if piece.end == len(texts[id]) and piece.text.strip() in joined}
    return whole, context.tokens, spent_ms


def measure(index: Index, judged: list[tuple[str, set[str]]], texts: dict[str, str]) -> dict:
    """Return the share of answered queries per budget."""
    inside: dict[int, dict[str, list[bool]]] = {budget: {"plain": [], "context": []} for budget in BUDGETS}
    used: dict[int, dict[str, list[int]]] = {budget: {"plain": [], "context": []} for budget in BUDGETS}
    times: list[float] = []
    for query, relevant in judged:
        ranking = index.search(query, k=DEPTH)
        count = ranking.reader.token_counter() or (lambda text: len(text) // 4)
        for budget in BUDGETS:
            ids, tokens = plain_ids(list(ranking), budget, count)
            inside[budget]["plain"].append(relevant <= ids)
            used[budget]["plain"].append(tokens)
            ids, tokens, spent_ms = whole_ids(ranking, texts, budget)
            inside[budget]["context"].append(relevant <= ids)
            used[budget]["context"].append(tokens)
            times.append(spent_ms)
    return {
        "queries": len(judged),
        "context_ms": round(statistics.median(times), 1),
        "budgets": {
            str(budget): {
                **{name: round(statistics.fmean(values), 3) for name, values in inside[budget].items()},
                "gained": sum(b and not a for a, b in zip(*inside[budget].values(), strict=True)),
                "lost": sum(a and not b for a, b in zip(*inside[budget].values(), strict=True)),
                "mean_tokens": {name: round(statistics.fmean(values)) for name, values in used[budget].items()},
            }
            for budget in BUDGETS
        },
    }


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("context", __doc__, parts=SETS)
    parser.add_argument("--queries", type=int, default=500, help="at most this many per collection, evenly spread")
    parser.add_argument("--indexes", type=Path, help="folder that keeps the indexes between runs")
    args = parser.parse_args(argv)
    data = os.environ.get("RESIFT_DATA")
    if not args.quick and not data:
        parser.error("RESIFT_DATA is not set: the folder with the collections")
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.only[:1] if args.quick else args.only:
            chunks, judged = made_up() if args.quick else read_set(Path(data or "") / name, args.queries)
            path = Path(args.indexes or scratch) / f"{name}.db"
            with Index(path, text_only=args.quick) as index:
                if not len(index):
                    index.add(chunks)
                texts = {chunk["id"]: chunk["text"] for chunk in chunks}
                found[name] = {"chunks": len(chunks), **measure(index, judged, texts)}
    report(args, {**found, "depth": DEPTH}, packages=["resift"], keep=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
