"""Do FlashRank, rerankers, txtai and the frameworks' own rerankers give Resift's order on the same weights?

`python -m benchmarks.same_order`: 12 questions to 8 passages, all written for this. The peers load the
ONNX file that Resift loads, in an environment that is made on first use (`--python PATH` for one of yours).

Asked twice. In one call, as their users do: peers pad a batch to its longest passage, and int8 scores move a
little with the padding, so passages that are as good as equal may swap. And passage by passage, as Resift
does it: without padding the order must be the same to the last place.

LangChain, LlamaIndex and Haystack bring rerankers that run PyTorch (`--frameworks`, an environment of their
own): the same weights as floats, so that scores differ by what int8 takes away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, PEERS, Peer, option_parser, peer_env, read_results, report
from benchmarks.peers.frameworks import FRAMEWORKS

REQUIREMENTS = ["torch==2.13.0", "FlashRank", "rerankers[flashrank]", "txtai", "onnxruntime", "PyYAML"]
FRAMEWORK_REQUIREMENTS = [
    "torch==2.13.0", "sentence-transformers", "langchain-classic", "langchain-community", "llama-index-core",
    "haystack-ai", "sentence-transformers-haystack", "PyYAML", "platformdirs", "filelock", "MarkupSafe",
]  # fmt: skip
FRAMEWORK_NAMES = tuple(FRAMEWORKS)
PEER_NAMES = ("flashrank", "rerankers", "txtai", "txtai two-stage", "resift over txtai")
TWO_STAGE = ("txtai two-stage", "resift over txtai")
PASSAGES = (
    "Travel costs are signed off by the head of your team before the trip.",
    "Receipts for train tickets must be handed in within four weeks.",
    "The canteen serves lunch from noon until two o'clock.",
    "New laptops are ordered through the service desk and arrive in ten days.",
    "A lost badge must be reported to reception on the same day.",
    "Parental leave is requested three months before it begins.",
    "The car park closes at ten in the evening; the gate opens again at six.",
    "Passwords are changed every year and are never sent by mail.",
)
QUESTIONS = (
    "who approves travel expenses?",
    "until when can I hand in train receipts?",
    "when can I eat at the canteen?",
    "how do I get a new laptop?",
    "what should I do if I lose my badge?",
    "how early must I ask for parental leave?",
    "when does the parking gate open?",
    "how often do I have to change my password?",
    "where do I order computers?",
    "may I send a password by mail?",
    "is the car park open at night?",
    "who signs for a business trip?",
)


CHEESE = ("Lyon is famous for its cheese.", "Paris is where the French government sits.", "Cells have mitochondria.")
CAPITAL = ("Lyon is the capital of French cheese.", "Paris is the capital of France.", "Cells have mitochondria.")
EXAMPLES = [
    ("flashrank", "what is the capital of France?", CHEESE, [1, 0, 2]),
    ("rerankers", "what is the capital of France?", CHEESE, [1, 0, 2]),
    ("txtai", "capital of France", CAPITAL, [1, 0, 2]),
    ("txtai two-stage", "capital of France", CAPITAL, [1, 0]),
    ("resift over txtai", "capital of France", CAPITAL, [1, 0]),
]
"""The examples of docs/migrate with the order that the pages print."""


def model_folder() -> Path:
    from resift.models import resolve

    return Path(resolve("cross-encoder/ms-marco-MiniLM-L-12-v2").folder)


def open_peer(python: Path | str) -> Peer:
    """Start the environment's process; it answers one question of one peer at a time."""
    paths = [str(HERE.parent), str(HERE.parent / "src")]
    env = {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    return Peer(python, PEERS / "same_order.py", str(model_folder()), env=env)


def resift_order(query: str) -> list[tuple[int, float]]:
    import resift

    ranking = resift.rerank(query, PASSAGES)
    if ranking.degraded:
        raise RuntimeError(ranking.reason)
    return [(int(hit.id), hit.score) for hit in ranking]


def asked(peer: Peer, name: str, query: str, *, alone: bool) -> list[int] | None:
    """Return the peer's order, or None where it is not installed."""
    if not alone:
        answer = peer.ask({"peer": name, "query": query, "passages": PASSAGES})
        return None if "absent" in answer else [at for at, _ in answer["order"]]
    scores = []
    for at, passage in enumerate(PASSAGES):
        answer = peer.ask({"peer": name, "query": query, "passages": [passage]})
        if "absent" in answer:
            return None
        scores += [(-score, at) for _, score in answer["order"]]
    return [at for _, at in sorted(scores)]


def compared(ours: list[tuple[int, float]], theirs: list[int]) -> dict[str, Any]:
    """Say whether first place and order agree, and how near the scores are of passages that swapped.

    A two-stage search finds fewer passages: then it is their order among ours.
    """
    mine = [at for at, _ in ours if at in theirs]
    logit = dict(ours)
    swapped = [abs(logit[a] - logit[b]) for a, b in zip(mine, theirs, strict=True) if a != b]
    return {"first": mine[0] == theirs[0], "order": mine == theirs, "swapped": max(swapped, default=0.0)}


def run(python: Path | str, names: Sequence[str] = PEER_NAMES) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    own = {query: resift_order(query) for query in QUESTIONS}
    with open_peer(python) as peer:
        for name in names:
            row: dict[str, Any] = {}
            for alone in (False, True):
                if alone and name in TWO_STAGE:
                    continue  # their first stage finds nothing in an index of one
                orders = [(query, asked(peer, name, query, alone=alone)) for query in QUESTIONS]
                found = [compared(own[query], order) for query, order in orders if order]
                if found:
                    row["one passage per call" if alone else "one call"] = {
                        "questions": len(found),
                        "same_first": sum(bool(one["first"]) for one in found),
                        "same_order": sum(bool(one["order"]) for one in found),
                        "widest_swap_in_logits": round(max(one["swapped"] for one in found), 3),
                    }
            if row:
                results[name] = row
        told = peer.ask({"versions": True})
    return {"peers": results, "versions": told["versions"]}


def wrong_examples(python: Path | str) -> list[str]:
    """Return the peers whose answer differs from the order that docs/migrate prints for its example."""
    with open_peer(python) as peer:
        wrong = []
        for name, query, passages, expected in EXAMPLES:
            answer = peer.ask({"peer": name, "query": query, "passages": passages})
            if [position for position, _ in answer["order"]] != expected:
                wrong.append(name)
    return wrong


def disagreements(peers: dict[str, Any]) -> list[str]:
    """Return the peers that disagree with Resift by more than padding and int8 explain."""
    failed = []
    for name, calls in peers.items():
        together, alone = calls["one call"], calls.get("one passage per call")
        if together["same_first"] < together["questions"]:
            failed.append(f"{name}: another first place")
        if name in PEER_NAMES and together["widest_swap_in_logits"] >= 0.35:
            failed.append(f"{name}: distant passages swapped")
        if name in PEER_NAMES and alone and alone["same_order"] < alone["questions"]:
            failed.append(f"{name}: another order without padding")
    return failed


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("same_order", __doc__)
    parser.add_argument("--python", type=Path, default=None, help="a Python that has the peers")
    parser.add_argument("--frameworks", action="store_true", help="the frameworks' own rerankers")
    args = parser.parse_args(argv)
    if args.frameworks:
        python = args.python or peer_env("framework_peers", FRAMEWORK_REQUIREMENTS)
        results, failed = run(python, FRAMEWORK_NAMES), []
    else:
        python = args.python or peer_env("same_order_peers", REQUIREMENTS)
        results, failed = run(python), wrong_examples(python)
    failed += disagreements(results["peers"])
    # The two environments are measured in separate runs; each keeps the results of the other.
    earlier = read_results(args.results)
    versions = {**earlier.get("versions", {}), **results["versions"]}
    found = {
        "peers": {**earlier.get("peers", {}), **results["peers"]},
        "versions": {name: version for name, version in versions.items() if version != "absent"},
    }
    report(args, found)
    for problem in failed:
        print(problem, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
