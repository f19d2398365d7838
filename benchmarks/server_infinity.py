"""`resift serve` beside infinity: requests per second of a rerank route at 1, 8 and 32 clients.

    python -m benchmarks.server_infinity --model FOLDER [--peer-python PYTHON]

FOLDER is MiniLM-L-12 in the Hugging Face layout (config.json, model.safetensors, tokenizer.json); infinity runs it
with torch. Resift runs its bundled int8 copy of the same model. Both servers stay up; one is under load at a time.
Each client sends its next request as soon as the one before is answered. A number is the median over rounds.

Without --peer-python, infinity is installed into an environment of its own under benchmarks/.envs.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import option_parser, peer_env, report
from benchmarks.server import QUERY, text_of
from tests.server.load import closed_loop, request_bytes
from tests.server.process import Server, real

REQUIREMENTS = ["torch==2.13.0", "infinity-emb[server,torch]"]
CLIENTS = (1, 8, 32)
DOCUMENTS = 20
CHARACTERS = 520  # about 100 tokens
MIN_RATIO = 4.5


def start_infinity(python: Path, model: Path) -> Server:
    """Start infinity on a free port and wait until it answers a rerank request."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"--engine torch --device cpu --no-bettertransformer --no-compile --port {port} --log-level error"
    command = [str(python.parent / "infinity_emb"), "v2", "--model-id", str(model), "--served-model-name", "m"]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", *options.split()],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"},
    )
    server = Server(process, port)
    server.until(_answers, seconds=180)
    return server


def _answers(server: Server) -> bool:
    if server.process.poll() is not None:
        raise SystemExit("infinity ended: " + "".join(server.lines[-20:]))
    try:
        return server.post("/rerank", {"model": "m", "query": "a", "documents": ["a b"]}).status == 200
    except ConnectionError:
        return False


def measure(servers: dict[str, tuple[Server, str]], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Put each server under the same load in turn."""
    draw = random.Random(1)
    bodies = [
        {"model": "m", "query": QUERY, "documents": [text_of(CHARACTERS, draw) for _ in range(DOCUMENTS)]}
        for _ in range(64)
    ]
    rows = []
    for clients in CLIENTS:
        rates: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, (server, path) in servers.items():
                requests = [request_bytes(path, body) for body in bodies]
                load = asyncio.run(
                    closed_loop(server.port, requests, connections=clients, seconds=seconds, patient=True)
                )
                if set(load.answers) != {200}:
                    raise SystemExit(f"{name} answered {load.row()}; expected 200 only.")
                # The larger of two rates, so that neither server loses by its way of waiting: over the whole run,
                # refused clients still wait after the load, and within the load, a large batch is not finished.
                finished = sum(start + took <= seconds for start, took in load.answers[200])
                rates[name].append(max(load.rate(), finished / seconds))
        found = {name: round(statistics.median(values), 2) for name, values in rates.items()}
        rows.append({"clients": clients, **found, "ratio": round(found["resift"] / found["infinity"], 2)})
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("server_infinity", __doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of MiniLM-L-12 with safetensors")
    parser.add_argument("--peer-python", type=Path, help="Python of an environment with infinity-emb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of load per round and server")
    args = parser.parse_args(argv)
    python = args.peer_python or peer_env("infinity", REQUIREMENTS)
    version = subprocess.run(
        [str(python), "-c", "import importlib.metadata as m; print(m.version('infinity-emb'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    rounds, seconds = (1, 2.0) if args.quick else (args.rounds, args.seconds)
    infinity = start_infinity(python, args.model)
    resift = real("--any-model", "--embedder", "none", "--no-access-log")
    try:
        rows = measure({"resift": (resift, "/infinity/rerank"), "infinity": (infinity, "/rerank")}, rounds, seconds)
    finally:
        resift.stop()
        infinity.stop()
    data = {"documents": DOCUMENTS, "rates": rows, "versions": {"infinity-emb": version}}
    report(args, data, packages=["uvicorn"])
    return int(any(row["ratio"] < MIN_RATIO for row in rows))


if __name__ == "__main__":
    sys.exit(main())
