"""A whole pipeline without a model, beside version 0.1: two lists of 100, RRF, a stub scorer, blend, k = 10.

`python -m benchmarks.pipeline` installs version 0.1 from this repository's history into an environment of its
own, lets both answer in turns and writes results/pipeline.json. What is measured is our own work per search:
the stores and the scorer answer at once. Times are processor time of each process.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from benchmarks.harness import HERE, Peer, option_parser, peer_env, report
from benchmarks.peers import pipeline as peer_pipeline

FIRST_VERSION = "929669d89b81a88c21a3a0fc9831dc7235453b24"
"""The last commit of version 0.1."""


def main(argv: list[str] | None = None) -> int:
    args = option_parser("pipeline", __doc__).parse_args(argv)
    if args.quick:
        report(args, {"median_processor_ms": {"this version": peer_pipeline.median_ms(20)}})
        return 0
    old = peer_env("resift-0.1", [f"git+file://{HERE.parent}@{FIRST_VERSION}"])
    script = Path(peer_pipeline.__file__)
    subjects = {"version 0.1": Peer(old, script), "this version": Peer(sys.executable, script)}
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(15):
        for name, peer in subjects.items():
            times[name].append(peer.ask({"searches": 100})["ms"])
    for peer in subjects.values():
        peer.close()
    medians = {name: round(statistics.median(values), 3) for name, values in times.items()}
    ratio = round(medians["this version"] / medians["version 0.1"], 3)
    report(args, {"median_processor_ms": medians, "this / 0.1": ratio, "target": 0.5}, packages=["resift"])
    return 0 if ratio <= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
