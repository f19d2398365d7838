"""Index throughput: milliseconds of processor time per text, side by side with other libraries.

python -m benchmarks.embedding           # with peers, in an environment of their own
python -m benchmarks.embedding --quick   # Resift alone, small numbers, no result file
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
from pathlib import Path

from benchmarks.cross_encoder import passages
from benchmarks.harness import HERE, PEERS, Peer, option_parser, peer_env, report

REQUIREMENTS = ["torch==2.13.0", "sentence-transformers", "fastembed", "onnxruntime"]
MOST = 500  # words, each of one token but for the last with its full stop
FOREIGN = ("onnxruntime", "fastembed", "sentence-transformers")


def model_folder() -> Path:
    """Return where the embedder's files are."""
    from resift.models.locate import resolve

    return resolve("BAAI/bge-small-en-v1.5").folder


def race(peers: dict[str, Peer], tokens: int, count: int, rounds: int) -> dict:
    """Let all embed the same texts in turn; return medians per text."""
    found: dict[str, list[dict]] = {name: [] for name in peers}
    for number in range(rounds):
        # Of a text longer than the window others read the beginning, Resift all of it: none is longer here.
        texts = [" ".join(text.split()[:MOST]) for text in passages(count, tokens, seed=number)]
        for name, peer in peers.items():
            found[name].append(peer.ask({"texts": texts}))
    per_text = {
        unit: {name: round(statistics.median(one[unit] for one in runs) / count, 2) for name, runs in found.items()}
        for unit in ("cpu_ms", "ms")
    }
    own = per_text["cpu_ms"]["resift"]
    times = {name: round(value / own, 2) for name, value in per_text["cpu_ms"].items()}
    return {**per_text, "cpu_ms_times_resift": times, "texts": count, "rounds": rounds}


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("embedding", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--env", help="Python of an environment that has the peers already")
    parser.add_argument("--peers", nargs="*", default=list(FOREIGN))
    options = parser.parse_args(argv)
    pythons: dict = {"resift": sys.executable}
    if not options.quick and options.peers:
        python = options.env or peer_env("embedding_peers", REQUIREMENTS)
        pythons |= dict.fromkeys(options.peers, python)
    folder, script = model_folder(), PEERS / "embedding.py"
    with contextlib.ExitStack() as stack:
        root = {"PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parent / "src")])}
        peers = {
            name: stack.enter_context(Peer(python, script, name, str(folder), env=root))
            for name, python in pythons.items()
        }
        for peer in peers.values():
            peer.ask({"texts": passages(2, 50, seed=99)})
        plan = [20] if options.quick else [100, 250, 500]
        data = {
            f"{tokens} tokens": race(
                peers, tokens, 2 if options.quick else options.texts, 1 if options.quick else options.rounds
            )
            for tokens in plan
        }
    report(options, data, packages=["onnxruntime", "tokenizers", "numpy"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
