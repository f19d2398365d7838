"""`resift serve` under load: rates, overload, fairness, drain, soak, bad requests, the API, real clients.

    python -m benchmarks.server                 # all but the last two, some ten minutes
    python -m benchmarks.server --quick         # a smoke run of each part, nothing written
    python -m benchmarks.server --only rates drain    # only these parts
    python -m benchmarks.server --only schema         # schemathesis, in an environment of its own
    python -m benchmarks.server --only clients        # real clients, each in its own environment

The stub is a scorer without a model, so that the figures are the server's own. Overload, fairness and model
use the real one. Every server is a real process on this machine, and so is the load: on two cores the client
takes its share of them too.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import option_parser, report
from tests.server.load import Load, closed_loop, open_loop, request_bytes
from tests.server.process import Server, real, start

STUB = ("--any-model", "--embedder", "none", "--no-access-log")
WORDS = [
    "harbour",
    "lighthouse",
    "keeper",
    "lantern",
    "storm",
    "coast",
    "ship",
    "sailor",
    "lamp",
    "tower",
    "rock",
    "island",
    "night",
    "signal",
    "fog",
    "bell",
    "oldest",
    "stone",
    "built",
    "light",
    "sea",
    "water",
]
QUERY = "which harbour has the oldest lighthouse"


def text_of(size: int, seed: random.Random) -> str:
    """Return about that many characters of words."""
    return " ".join(seed.choices(WORDS, k=size // 6))


def rerank_requests(
    documents: int, size: int, *, path: str = "/v2/rerank", count: int = 16, lead: str = ""
) -> list[bytes]:
    """Return ready-made requests with different documents."""
    seed = random.Random(documents * size)
    return [
        request_bytes(
            path, {"model": "m", "query": QUERY, "documents": [lead + text_of(size, seed) for _ in range(documents)]}
        )
        for _ in range(count)
    ]


def cpu_s(server: Server) -> float:
    """Return the processor time that a server has used."""
    import os

    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(server: Server) -> float:
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def open_files(server: Server) -> int:
    import os

    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def with_stub(work: Callable[[Server], dict[str, Any]], *words: str) -> dict[str, Any]:
    server = start(*STUB, *words)
    try:
        return work(server)
    finally:
        server.stop()


def rates(quick: bool) -> dict[str, Any]:
    """Requests per second and latency of the stub, at two sizes."""
    seconds = 2.0 if quick else 60.0

    def measure(server: Server) -> dict[str, Any]:
        found = {}
        for name, documents, connections in (("25 documents", 25, 64), ("100 documents", 100, 16)):
            used = cpu_s(server)
            load = asyncio.run(
                closed_loop(server.port, rerank_requests(documents, 1000), connections=connections, seconds=seconds)
            )
            each = (cpu_s(server) - used) / max(1, load.count(200))
            found[name] = {**load.row(), "connections": connections, "server_cpu_ms": round(each * 1000, 2)}
        return found

    return with_stub(measure)


def overload(quick: bool) -> dict[str, Any]:
    """Five times more requests than the real model can answer."""
    from tests.hardening.availability import attack_overload

    outcome = attack_overload(seed=1, count=5 if quick else 30)
    return {"requests": outcome.tried, **outcome.figures, "did_not_hold": outcome.examples}


def fairness(quick: bool) -> dict[str, Any]:
    """Requests of 10 documents alone, and while requests of 1,000 run, with the real model."""
    small = rerank_requests(10, 200, count=8)
    large = rerank_requests(60 if quick else 1000, 200, count=4)
    rounds = 8 if quick else 60
    server = real("--any-model", "--embedder", "none", "--no-access-log")
    try:
        alone = asyncio.run(_timed(server.port, small, rounds))

        async def together() -> Load:
            held = [asyncio.ensure_future(_timed(server.port, [body], 1000)) for body in large[:3]]
            await asyncio.sleep(1.0)
            found = await _timed(server.port, small, rounds)
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            return found

        mixed = asyncio.run(together())
    finally:
        server.stop()
    return {
        "alone": alone.row(),
        "beside 3 large": mixed.row(),
        "p99_ratio": round(mixed.at(0.99) / alone.at(0.99), 2),
        "p50_ratio": round(mixed.at(0.5) / alone.at(0.5), 2),
    }


async def _timed(port: int, requests: list[bytes], rounds: int) -> Load:
    from tests.server.load import connect

    load = Load()
    client = await connect(port)
    begun = time.perf_counter()
    for turn in range(rounds):
        asked = time.perf_counter()
        load.add(await client.ask(requests[turn % len(requests)]), asked - begun, time.perf_counter() - asked)
    load.seconds = time.perf_counter() - begun
    return load


def drain(quick: bool) -> dict[str, Any]:
    """SIGTERM in the middle of load: every request that was taken gets its answer."""
    rounds = 1 if quick else 5
    counts: dict[str, int] = {"200": 0, "lost": 0, "never accepted": 0}
    codes = []
    body = {"model": "m", "query": "q", "documents": ["wait 0.2", *["word"] * 10]}
    for _ in range(rounds):
        server = start(*STUB, "--drain-delay", "0.5")
        with ThreadPoolExecutor(32) as pool:
            flying = [pool.submit(_tried, server, body) for _ in range(200)]
            while sum(one.done() for one in flying) < 40:
                time.sleep(0.01)
            server.process.terminate()
            for one in flying:
                counts[one.result()] = counts.get(one.result(), 0) + 1
        codes.append(server.process.wait(30))
    return {"answers": counts, "exit_codes": codes}


def _tried(server: Server, body: Any) -> str:
    """Ask once and return the status; a connection that was refused was never accepted."""
    try:
        return str(server.post("/v2/rerank", body).status)
    except ConnectionRefusedError:
        return "never accepted"
    except (OSError, ValueError):
        return "lost"


def soak(quick: bool) -> dict[str, Any]:
    """Many requests on one server: memory and open files stay where they were."""
    each, rounds = (300, 2) if quick else (4_000, 6)
    requests = rerank_requests(25, 1000)

    def measure(server: Server) -> dict[str, Any]:
        seen = []
        for _ in range(rounds):
            done = 0
            while done < each:
                done += asyncio.run(closed_loop(server.port, requests, connections=32, seconds=1.0)).count(200)
            seen.append((done, rss_mb(server), open_files(server)))
        # The first round warms caches and pools up.
        grown = seen[-1][1] - seen[0][1]
        asked = sum(done for done, _, _ in seen[1:])
        return {
            "requests": sum(done for done, _, _ in seen),
            "rss_mb": [round(rss, 1) for _, rss, _ in seen],
            "mb_per_10000": round(grown / asked * 10_000, 3),
            "open_files": [files for _, _, files in seen],
        }

    return with_stub(measure)


def model(quick: bool) -> dict[str, Any]:
    """The real model: latency at four requests a second, and pairs per second beside the library's."""
    server = real("--any-model", "--embedder", "none", "--no-access-log")
    try:
        paced = asyncio.run(
            open_loop(server.port, rerank_requests(10, 400), per_s=4, seconds=3 if quick else 30, connections=16)
        )
        rounds = [
            (_served(server, 2.0 if quick else 6.0), _direct(2.0 if quick else 6.0)) for _ in range(1 if quick else 5)
        ]
    finally:
        server.stop()
    return {
        "10 pairs at 4 a second": paced.row(),
        "server": [mine for mine, _ in rounds],
        "library": [theirs for _, theirs in rounds],
        "pairs_per_s_ratio": round(
            statistics.median(mine["pairs_per_s"] / theirs["pairs_per_s"] for mine, theirs in rounds), 3
        ),
        # Processor time does not see who else is at work.
        "pairs_per_cpu_s_ratio": round(
            statistics.median(theirs["cpu_ms_per_pair"] / mine["cpu_ms_per_pair"] for mine, theirs in rounds), 3
        ),
    }


def _served(server: Server, seconds: float) -> dict[str, float]:
    used = cpu_s(server)
    load = asyncio.run(closed_loop(server.port, rerank_requests(20, 400), connections=4, seconds=seconds))
    pairs = load.count(200) * 20
    return _rate(pairs, load.seconds, cpu_s(server) - used)


def _direct(seconds: float) -> dict[str, float]:
    import resift

    seed = random.Random(20 * 400)
    pools = [[text_of(400, seed) for _ in range(20)] for _ in range(16)]
    resift.rerank(QUERY, pools[0])
    done, begun, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < seconds:
        resift.rerank(QUERY, pools[done % len(pools)])
        done += 1
    return _rate(done * 20, time.perf_counter() - begun, time.process_time() - used)


def _rate(pairs: int, seconds: float, cpu: float) -> dict[str, float]:
    return {"pairs_per_s": round(pairs / seconds, 1), "cpu_ms_per_pair": round(cpu / max(1, pairs) * 1000, 3)}


def bad(quick: bool) -> dict[str, Any]:
    """Requests that no client should send, to every route of a server with an index and judgements."""
    from tests.hardening.bad_requests import storm

    def measure(server: Server) -> dict[str, Any]:
        before = rss_mb(server)
        found = storm(server.port, 500 if quick else 25_000)
        return {**found, "rss_before_mb": round(before, 1), "rss_after_mb": round(rss_mb(server), 1)}

    with TemporaryDirectory() as folder:
        return with_stub(measure, *_index(Path(folder)))


def schema(quick: bool) -> dict[str, Any]:
    """schemathesis on every route: the description of the API is true."""
    from benchmarks.server_schema import LIMITS, described

    with TemporaryDirectory() as folder:
        server = start("--any-model", "--no-access-log", *LIMITS, *_index(Path(folder)))
        try:
            return described(server, examples=1 if quick else 20)
        finally:
            server.stop()


def _index(folder: Path) -> list[str]:
    """Make an index of a hundred documents and return the options that serve it, with judgements."""
    from resift import SQLiteStore

    async def fill() -> None:
        store = SQLiteStore(folder / "notes.db", create=True)
        await store.add([{"id": str(at), "text": text_of(200, random.Random(at))} for at in range(100)])
        await store.close()

    asyncio.run(fill())
    return ["--store", str(folder / "notes.db"), "--judgements", str(folder / "judged")]


def clients(quick: bool) -> dict[str, Any]:
    """Clients of other projects must get the order of `resift.rerank`."""
    from benchmarks import server_clients

    return server_clients.clients(quick)


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "rates": rates,
    "overload": overload,
    "fairness": fairness,
    "drain": drain,
    "soak": soak,
    "model": model,
    "bad": bad,
    "schema": schema,
    "clients": clients,
}
ALONE = ("schema", "clients")


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("server", __doc__, parts=list(PARTS))
    parser.set_defaults(only=[name for name in PARTS if name not in ALONE])
    args = parser.parse_args(argv)
    for name in args.only:
        part = argparse.Namespace(quick=args.quick, results=f"{args.results}_{name}")
        report(part, {name: PARTS[name](args.quick)}, packages=["starlette", "uvicorn", "httptools"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
