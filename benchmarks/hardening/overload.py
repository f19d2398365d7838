"""Sixteen threads on two cores, each with a deadline too short for its work: answers come on time."""

from __future__ import annotations

import random
import threading
import time

from benchmarks.hardening.outcome import Outcome

THREADS, DOCUMENTS, TOKENS = 16, 30, 120
P99_MS = 50.0
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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over_ms.sort()
    p99 = over_ms[int(0.99 * (len(over_ms) - 1))]
    outcome.figures = {
        "over_ms_p50": round(over_ms[len(over_ms) // 2], 1),
        "over_ms_p99": round(p99, 1),
        "over_ms_max": round(over_ms[-1], 1),
    }
    outcome.check(p99 <= P99_MS, f"p99 is {p99:.0f} ms over the deadline, allowed are {P99_MS:.0f}")
    return outcome
