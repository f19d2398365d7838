"""Requests per second of `/v2/rerank` with a stub scorer, in turns with another version of Resift.

`python -m benchmarks.server_versions --other CHECKOUT` starts both servers (uvicorn, one process each) and
sends requests of 20 documents on 8 connections, each as soon as the one before is answered. One server is
under load at a time. The other checkout needs its `tests/server/stub_server.py`.

A number is the median over rounds. The processor time of the server per request is next to the rate, because
a busy machine disturbs it less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
from pathlib import Path

from tests.server.load import closed_loop, request_bytes
from tests.server.process import ROOT, Server, start

STUB = ("--any-model", "--embedder", "none", "--no-access-log")
WORDS = ("wing", "flow", "air", "speed", "shock", "layer", "heat", "plate", "body", "edge", "drag", "lift")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server_versions", description=__doc__)
    parser.add_argument("--other", type=Path, help="checkout of the version to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load per round and version")
    parser.add_argument("--quick", action="store_true", help="one short round of this version")
    args = parser.parse_args(argv)
    rounds, seconds = (1, 0.3) if args.quick else (args.rounds, args.seconds)
    checkouts = {"this": ROOT} if args.other is None else {"this": ROOT, "other": args.other.resolve()}
    servers = {
        name: start(*STUB, folder=folder, env={"PYTHONPATH": str(folder / "src")}) for name, folder in checkouts.items()
    }
    try:
        rates, costs = _measure(servers, rounds, seconds)
    finally:
        for server in servers.values():
            server.stop()
    for title, values, unit in (("rate", rates, "requests/s"), ("processor time", costs, "ms per request")):
        ratio = f", ratio {values['this'] / values['other']:.2f}" if "other" in values else ""
        print(f"{title}: {', '.join(f'{name} {value:.2f} {unit}' for name, value in values.items())}{ratio}")
    return 0


def _measure(servers: dict[str, Server], rounds: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=80)) for _ in range(200)]
    bodies = [{"query": "flow over a wing", "documents": draw.sample(texts, 20)} for _ in range(50)]
    requests = [request_bytes("/v2/rerank", body) for body in bodies]
    rates: dict[str, list[float]] = {name: [] for name in servers}
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            before = _processor_s(server)
            load = asyncio.run(closed_loop(server.port, requests, connections=8, seconds=seconds))
            if set(load.answers) != {200}:
                raise SystemExit(f"{name} answered {load.row()}; expected 200 only.")
            rates[name].append(load.rate())
            costs[name].append((_processor_s(server) - before) * 1000 / load.count(200))
    return _medians(rates), _medians(costs)


def _medians(values: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in values.items()}


def _processor_s(server: Server) -> float:
    """Return the processor time of a server so far; Linux only."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
