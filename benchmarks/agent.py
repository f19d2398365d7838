"""Whether the agent finds the right article, and admits when there is none: cross-encoder on and off.

    python -m benchmarks.agent
    python -m benchmarks.agent --only answerability
    python -m benchmarks.agent --quick    # three questions on the sample, a smoke test

Three packs: the shipped sample with its written questions, and 220 abstracts each of SciFact and Cranfield
(where RESIFT_DATA has them) with links made up at random, which must not help and must not harm much.
Questions that a pack cannot answer are those of the other two.

`answerability` asks an index of twelve short texts 60 questions that they answer and 60 near the topic that
they do not (tests/agent/answerability). Writes results/agent.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import option_parser, report
from resift import Index
from resift.agent import KnowledgeGraphAgent, build_pack
from resift.agent.pack_build import ARTICLES

QUESTIONS = Path(__file__).resolve().parent.parent / "tests" / "agent" / "answerability"
DATA = Path(os.environ.get("RESIFT_DATA", "../shared/data"))
DOCUMENTS, QUERIES = 220, 40
MODES = {
    "vectors": {"use_enhancements": False},
    "graph": {},
    "cross-encoder": {"enable_cross_encoder": True, "enable_reranker": False},
    "cross-encoder and graph": {"enable_cross_encoder": True},
}


def sample() -> tuple[Path, list[tuple[str, set[str]]]]:
    return ARTICLES, [(row["question"], {row["article"]}) for row in sample_questions() if row["article"]]


def sample_questions() -> list[dict[str, str | None]]:
    """Return questions with the title of the article that answers them, or None."""
    lines = QUESTIONS.with_name("sample_questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def collection(name: str, folder: Path) -> tuple[Path, list[tuple[str, set[str]]]]:
    """Some judged queries, the documents that answer them, others beside them, and links at random."""
    chance = random.Random(name)
    rows = map(json.loads, (DATA / name / "corpus.jsonl").open(encoding="utf-8"))
    corpus = {row["_id"]: row for row in rows if row["text"].strip()}
    texts = {row["_id"]: row["text"] for row in map(json.loads, (DATA / name / "queries.jsonl").open(encoding="utf-8"))}
    wanted: dict[str, set[str]] = {}
    for line in (DATA / name / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0 and document in corpus:
            wanted.setdefault(query, set()).add(document)
    chosen = chance.sample(sorted(wanted), QUERIES)
    needed = set().union(*(wanted[query] for query in chosen))
    others = chance.sample(sorted(set(corpus) - needed), max(0, DOCUMENTS - len(needed)))
    kept = sorted(needed | set(others))
    lines = [
        json.dumps(
            {
                "id": id,
                "title": corpus[id].get("title") or id,
                "text": corpus[id]["text"],
                "links": chance.sample(kept, 3),
            }
        )
        for id in kept
    ]
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file, [(texts[query], wanted[query]) for query in chosen]


def measured(pack: Path, asked: list[tuple[str, set[str]]], off_topic: list[str], **options) -> dict:
    first = three = found = invented = 0
    times = []
    with KnowledgeGraphAgent(pack, **options) as agent:
        agent.query("warm up")
        for question, right in asked:
            started = time.perf_counter()
            ranking = agent.retrieve(question)
            times.append((time.perf_counter() - started) * 1000)
            hits = [hit.metadata["title"] in right or hit.metadata["article"] in right for hit in ranking]
            first, three = first + any(hits[:1]), three + any(hits[:3])
            found += agent.query(question)["found"]
        invented = sum(agent.query(question)["found"] for question in off_topic)
    return {
        "right_article_first": round(first / len(asked), 3),
        "right_article_in_first_three": round(three / len(asked), 3),
        "answered": round(found / len(asked), 3),
        "off_topic_answered": f"{invented} of {len(off_topic)}",
        "retrieve_ms_median": round(statistics.median(times), 1),
    }


def answerability(folder: Path, *, quick: bool) -> dict:
    """Count the questions that were answered with the right sentence, and those that were declined."""
    corpus, asked = (
        [json.loads(line) for line in (QUESTIONS / name).read_text(encoding="utf-8").splitlines()]
        for name in ("corpus.jsonl", "questions.jsonl")
    )
    for row in corpus:
        (folder / f"{row['id']}.md").write_text(f"# {row['title']}\n\n{row['text']}\n", encoding="utf-8")
    counts: dict[str, dict[str, int]] = {}
    confidences, right = [], []
    with Index(folder / "corpus.db") as index:
        index.add_files([folder / f"{row['id']}.md" for row in corpus])
        for row in asked[:4] if quick else asked:
            answer = index.ask(row["question"])
            quoted = [row["answer"] and row["answer"] in one["text"] for one in answer["sentences"]]
            names = ("answerable", "right_sentence") if row["answer"] else ("near_topic", "declined")
            good = any(quoted) if row["answer"] else not answer["found"]
            half = counts.setdefault(row["half"], {})
            for name, count in zip(names, (1, good), strict=True):
                half[name] = half.get(name, 0) + int(count)
            if answer["found"]:
                confidences.append(answer["confidence"])
                right.append(bool(quoted[0]))
    return {
        "halves": counts,
        "mean_confidence": round(statistics.fmean(confidences), 3),
        "first_sentence_right": round(statistics.fmean(right), 3),
    }


def main(argv: list[str] | None = None) -> int:
    args = option_parser("agent", __doc__, parts=("answerability", "packs")).parse_args(argv)
    packages = ["resift", "ladybug", "rustworkx", "onnxruntime", "numpy"]
    passed = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "answerability" in args.only:
            results = answerability(folder, quick=args.quick)
            report(args, {"answerability": results}, packages=packages, keep=True)
        if "packs" in args.only:
            results = packs(folder, quick=args.quick)
            report(args, {"packs": results}, packages=packages, keep=True)
            best = results["sample"]["modes"]["cross-encoder and graph"]
            passed = args.quick or best["right_article_in_first_three"] >= 0.9
    return 0 if passed else 1


def packs(folder: Path, *, quick: bool) -> dict:
    """Ask each pack its own questions and those of the others, in every mode."""
    sources = {"sample": sample()}
    if not quick:
        there = [name for name in ("scifact", "cranfield") if (DATA / name).is_dir()]
        sources |= {name: collection(name, folder) for name in there}
    none = [row["question"] for row in sample_questions() if row["article"] is None]
    results = {}
    for name, (source, asked) in sources.items():
        pack = folder / f"{name}.lbug"
        started = time.perf_counter()
        built = asyncio.run(build_pack(source, pack))
        built_s = time.perf_counter() - started
        others = [question for other, (_, rows) in sources.items() if other != name for question, _ in rows[:20]]
        chosen, strange = (asked[:3], none[:2]) if quick else (asked, none + others)
        results[name] = {
            "articles": built.articles,
            "sections": built.sections,
            "links": built.links,
            "questions": len(chosen),
            "build_s": round(built_s, 1),
            "modes": {mode: measured(pack, chosen, strange, **options) for mode, options in MODES.items()},
        }
        print(name, results[name], file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
