"""Recordings of the collections that train and test the default order (`benchmarks.train_order`).

    python -m benchmarks.order_recordings OUT --data FOLDER [FOLDER …] [--only scifact …] [--xquad FOLDER]

Each collection is a BEIR folder below one of the data folders. A part of it is recorded: queries and other
documents are chosen by a digest of their ids, relevant documents always stay, and texts are cut. OUT gets one
recording per collection, as `resift record` makes them. A recording has no text of the collection.
With --scorers, those in SCORED get two more recordings: the same lists with the scores of other rerankers.
With --xquad, the files of https://github.com/google-deepmind/xquad are first written as BEIR folders.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import option_parser
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import UnsupportedLanguageError
from resift.evaluation import recording as recordings
from resift.evaluation.evaluated_systems import find_system
from resift.evaluation.readers import read_collection
from resift.evaluation.runner import answer_cache_key, build_index
from resift.plugins import load_reranker
from resift.protocols import describe_scorer
from resift.types import Hit

DEPTH = 16

# Written down on 2026-11-18, before the first recording of this set; java-methods was added before its own.
TRAIN = (
    "contextual-code", "cosqa", "scifact", "nfcorpus", "cranfield", "chunkeval-multisource", "npl-vaswani",
    "squad2-dev-passages", "hotpotqa-distractor-1k", "pubmedqa", "xquad-en", "xquad-de", "rust-chunks",
    "java-methods",
)  # fmt: skip
BLIND = (
    "xquad-ar", "xquad-ru", "xquad-zh", "xquad-hi", "xquad-th", "sentence-ja", "sentence-ko", "xquad-es",
    "python-functions", "js-functions", "go-chunks",
)  # fmt: skip
"""For the final figures alone. Exception: the three code collections decided against one set of weights
(docs/how-it-works.md), so a later choice for code needs new ones."""

XQUAD = ("ar", "ru", "hi", "th", "es")
SCORED = ("scifact", "squad2-dev-passages", "contextual-code", "cranfield")
OTHER_SCORERS = ("late-interaction", "semantic-bm25")


def cut_collection(source: Path, target: Path, *, queries: int, documents: int, characters: int) -> None:
    """Write the recorded part of a collection as a BEIR folder."""
    collection = read_collection(source)
    by_digest = lambda id: hashlib.sha256(id.encode()).digest()  # noqa: E731
    chosen = sorted(collection.queries, key=by_digest)[:queries]
    with (source / "corpus.jsonl").open(encoding="utf-8") as file:
        rows = {str(row["_id"]): row for row in map(json.loads, file)}
    kept = {id for query in chosen for id in collection.qrels[query] if id in rows}
    kept |= set(sorted(rows.keys() - kept, key=by_digest)[: max(0, documents - len(kept))])
    (target / "qrels").mkdir(parents=True, exist_ok=True)
    with (target / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for id in sorted(kept):
            row = rows[id]
            document = {"_id": id, "title": row.get("title") or "", "text": row["text"][:characters]}
            if document["text"].strip():
                file.write(json.dumps(document) + "\n")
    with (target / "queries.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": id, "text": collection.queries[id]}) + "\n" for id in chosen)
    with (target / "qrels" / "test.tsv").open("w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for query in chosen:
            file.writelines(f"{query}\t{id}\t{grade}\n" for id, grade in collection.qrels[query].items())


def record_collection(folder: Path, out: Path, work: Path) -> None:
    """Record the default pipeline; without reranker scores if the reranker does not know the language."""
    collection = read_collection(folder)
    index = build_index(collection, work)
    system = find_system("default")
    key = answer_cache_key(system, collection)
    partial = out.with_suffix(".part")
    try:
        recordings.record(system, [collection], partial, index=index, key=key, depth=DEPTH)
    except UnsupportedLanguageError:
        partial.unlink(missing_ok=True)

        def without_reranker(path: Path | None):
            pipeline = system.open(path)
            pipeline.stages = tuple(s for s in pipeline.stages if not isinstance(s, recordings.Rerank))
            return pipeline

        lexical = replace(system, open=without_reranker)
        recordings.record(lexical, [collection], partial, index=index, key=key, depth=0)
    partial.rename(out)


def record_other_scorer(folder: Path, base: Path, out: Path, name: str) -> None:
    """Write the recording again with the scores of another reranker for the same candidates."""
    collection = read_collection(folder)
    texts = {row["id"]: row["text"] for row in collection.documents()}
    recording = recordings.read_recording(base)
    scorer = load_reranker(name)
    info = describe_scorer(scorer)
    header = replace(recording.header, reranker=name, score_scale=info.score_scale, languages=info.languages)
    lines = [recordings.recording_line(header)]
    for query in recording.queries:
        hits = [Hit(id, texts[id]) for id in query.rerank]
        scores = run_sync(scorer.score(collection.queries[query.query], hits, deadline=Deadline.never()))
        known = zip(query.rerank, scores.values, strict=True)
        rerank = {id: float(value) for id, value in known if value is not None}
        lines.append(recordings.recording_line(replace(query, rerank=rerank)))
    out.parent.mkdir(exist_ok=True)
    out.write_text("".join(lines), encoding="utf-8")


def write_xquad(source: Path, target: Path) -> None:
    """Write XQuAD files as BEIR folders: the passage of each question is relevant."""
    for language in XQUAD:
        folder = target / f"xquad-{language}"
        if folder.exists():
            continue
        data = json.loads((source / f"xquad.{language}.json").read_text(encoding="utf-8"))["data"]
        passages = [paragraph for article in data for paragraph in article["paragraphs"]]
        (folder / "qrels").mkdir(parents=True)
        corpus = [{"_id": f"p{i}", "text": row["context"]} for i, row in enumerate(passages)]
        asked = [(qa["id"], qa["question"], i) for i, row in enumerate(passages) for qa in row["qas"]]
        (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
        queries = [json.dumps({"_id": id, "text": text}) + "\n" for id, text, _ in asked]
        (folder / "queries.jsonl").write_text("".join(queries))
        judgments = "".join(f"{id}\tp{i}\t1\n" for id, _, i in asked)
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgments)


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("order_recordings", __doc__, parts=(*TRAIN, *BLIND))
    parser.add_argument("out", type=Path, help="folder of the recordings")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of collections")
    parser.add_argument("--xquad", type=Path, help="folder of the XQuAD files")
    parser.add_argument("--queries", type=int, default=30, help="of each collection")
    parser.add_argument("--documents", type=int, default=400, help="of each collection; relevant ones stay")
    parser.add_argument(
        "--characters",
        type=int,
        default=1000,
        help="of each text; a low limit makes functions equally long, so that they look like chunks of files",
    )
    parser.add_argument("--scorers", action="store_true", help="also with other rerankers")
    args = parser.parse_args(argv)
    work = args.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    if args.xquad:
        write_xquad(args.xquad, work / "xquad")
    folders = [*args.data, work / "xquad"]
    for name in args.only[:1] if args.quick else args.only:
        source = next((folder / name for folder in folders if (folder / name).is_dir()), None)
        if source is None:
            print(f"{name}: not in the data folders", flush=True)
            continue
        part, out = work / "parts" / name, args.out / f"{name}.jsonl"
        started = time.process_time()
        if not part.exists():
            sizes = {"queries": args.queries, "documents": args.documents, "characters": args.characters}
            cut_collection(source, part, **sizes)
        if not out.exists():
            record_collection(part, out, work)
        for scorer in OTHER_SCORERS if args.scorers and name in SCORED else ():
            other = args.out / scorer / f"{name}.jsonl"
            if not other.exists():
                record_other_scorer(part, out, other, scorer)
        print(f"{name}: {time.process_time() - started:.0f} s of CPU", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
