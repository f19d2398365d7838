"""Two-stage search side by side: Resift's TwoStage and txtai's Reranker, interleaved in one run.

    python -m benchmarks.two_stage            # with txtai in an environment of its own
    python -m benchmarks.two_stage --quick    # Resift alone, a smoke test

limit 3, factor 10: thirty texts go through the cross-encoder per query. Medians; wall time says what a user
waits, processor time says the same on a machine that is busy with other things.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from pathlib import Path

from benchmarks.harness import HERE, PEERS, Peer, option_parser, peer_env, report

REQUIREMENTS = ("torch==2.13.0", "txtai==9.14.0", "onnxruntime")
FOREIGN = ("txtai-onnx", "txtai-torch")
WORDS = str.split(
    "heart disease exercise risk people years study blood pressure training walking group sleep diet salt "
    "sugar muscle lung oxygen patient trial doctor nurse clinic test dose drug therapy week month result the "
    "of and to in a is that for it as was with be by on not are this have from or had an which one we all"
)
LIMIT = 3


def texts(count: int, words: int) -> list[str]:
    rng = random.Random(11)
    return [" ".join(rng.choices(WORDS, k=max(8, round(rng.gauss(words, words / 4))))) for _ in range(count)]


def model_folder() -> Path:
    from resift.models.locate import resolve

    return resolve("cross-encoder/ms-marco-MiniLM-L-12-v2").folder


def started(name: str, python: Path | str, folder: Path, corpus: list[str]) -> Peer:
    paths = [str(HERE.parent), str(HERE.parent / "src")] if name == "resift" else [str(HERE.parent)]
    peer = Peer(python, PEERS / "two_stage.py", name, str(folder), env={"PYTHONPATH": os.pathsep.join(paths)})
    peer.ask({"texts": corpus})
    return peer


def race(peers: dict[str, Peer], queries: list[str]) -> dict:
    """Return median ms per query, how many times Resift's that is, and on how many answers they agree."""
    answers: dict[str, list[dict]] = {name: [] for name in peers}
    for peer in peers.values():
        peer.ask({"query": queries[0], "limit": LIMIT})
    for number, query in enumerate(queries):
        names = list(peers)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            answers[name].append(peers[name].ask({"query": query, "limit": LIMIT}))
    told: dict = {}
    for clock in ("ms", "cpu_ms"):
        medians = {name: round(statistics.median(one[clock] for one in given), 1) for name, given in answers.items()}
        told[f"{clock}_per_query"] = medians
        told[f"{clock}_times_resift"] = {name: round(value / medians["resift"], 2) for name, value in medians.items()}
    if "txtai-onnx" in answers:
        pairs = zip(answers["resift"], answers["txtai-onnx"], strict=True)
        same = sum(one["ids"] == other["ids"] for one, other in pairs)
        told["same_answer_as_txtai_onnx"] = f"{same} of {len(queries)}"
    told["rss_mb"] = {name: peer.rss_mb() for name, peer in peers.items()}
    return told


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("two_stage", __doc__)
    parser.add_argument("--queries", type=int, default=7)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--words", type=int, default=80)
    args = parser.parse_args(argv)
    corpus = texts(60 if args.quick else args.documents, 20 if args.quick else args.words)
    rng = random.Random(5)
    queries = [" ".join(rng.choices(WORDS[:30], k=6)) for _ in range(1 if args.quick else args.queries)]
    pythons: dict[str, Path | str] = {"resift": sys.executable}
    if not args.quick:
        foreign = peer_env("two_stage", REQUIREMENTS)
        pythons |= dict.fromkeys(FOREIGN, foreign)
    folder = model_folder()
    peers = {name: started(name, python, folder, corpus) for name, python in pythons.items()}
    try:
        data = race(peers, queries)
    finally:
        for peer in peers.values():
            peer.close()
    shape = {"documents": len(corpus), "words": args.words, "queries": len(queries), "reranked": LIMIT * 10}
    peers_used = {"txtai": "9.14.0", "torch": "2.13.0"}
    found = {"race": data, "shape": shape, "peers": peers_used}
    report(args, found, packages=["resift", "onnxruntime", "numpy"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
