"""Sixteen threads on two cores, each with a deadline too short for its work: answers come on time."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from tests.hardening.report import Outcome

THREADS, DOCUMENTS, TOKENS = 16, 30, 120
P99_MS = 50.0
ENOUGH = 300
"""How many calls make a p99."""

WORDS = [
    "quantum",
    "mechanics",
    "governs",
    "particles",
    "energy",
    "state",
    "wave",
    "function",
    "paris",
    "capital",
    "france",
    "fruit",
]


def attack(seed: int, count: int) -> Outcome:
    """Rerank `count` times with deadlines of 50 to 400 ms."""
    import resift

    outcome = Outcome("reranks under deadlines, 16 threads at once")
    if resift.rerank("warm up", ["a b c"]).degraded:
        outcome.absent = "no local model"
        return outcome
    over_ms: list[float] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        draw = random.Random(seed * 100 + number)
        texts = [" ".join(draw.choices(WORDS, k=TOKENS)) for _ in range(DOCUMENTS)]
        for _ in range(-(-count // THREADS)):
            deadline_s = draw.choice([0.05, 0.1, 0.2, 0.4])
            started = time.perf_counter()
            ranking = resift.rerank("what governs particles", texts, deadline_s=deadline_s)
            took_s = time.perf_counter() - started
            with lock:
                outcome.tried += 1
                over_ms.append((took_s - deadline_s) * 1000)
                outcome.check(len(ranking) == DOCUMENTS, "a candidate was lost")
                complete = not ranking.degraded
                outcome.check(complete or bool(ranking.reason), "degraded without a reason")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    with late_wakeups() as machine_ms:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    over_ms.sort()
    p99 = over_ms[int(0.99 * (len(over_ms) - 1))]
    machine = sorted(machine_ms)[int(0.99 * (len(machine_ms) - 1))] if machine_ms else 0.0
    outcome.figures = {
        "over_ms_p50": round(over_ms[len(over_ms) // 2], 1),
        "over_ms_p99": round(p99, 1),
        "over_ms_max": round(over_ms[-1], 1),
        "machine_ms_p99": round(machine, 1),
    }
    # Two threads wake up one after the other: what the machine itself is late by counts twice.
    allowed = P99_MS + 2 * machine
    # Of a few calls the p99 is the worst of them, which says more of the machine than of us.
    judged = p99 if len(over_ms) >= ENOUGH else over_ms[len(over_ms) // 2]
    outcome.check(judged <= allowed, f"{judged:.0f} ms over the deadline, allowed are {allowed:.0f}")
    return outcome


@contextlib.contextmanager
def late_wakeups() -> Iterator[list[float]]:
    """Note meanwhile how late a process that only sleeps wakes up: how busy others keep the machine."""
    code = (
        "import sys, time\n"
        "while True:\n"
        "    started = time.perf_counter(); time.sleep(0.02)\n"
        "    print((time.perf_counter() - started - 0.02) * 1000, flush=True)\n"
    )
    late: list[float] = []
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        yield late
        process.kill()
        late += [float(line) for line in process.stdout or () if line.endswith("\n")]
