"""The log of ratings: many clients and processes, damaged lines, a full disk, ids like table rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.hardening.report import ROOT, Outcome
from tests.server.rating_sessions import session as make_session

CLIENTS = 9
SERVER_CLIENTS = 16
FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from resift.server.ratings import RatingsLog
from resift.server.schema import RequestFailed
from tests.server.rating_sessions import session as make_session
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = RatingsLog(Path(sys.argv[1]))
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for number in range(200):
    try:
        log.add_session(make_session(number))
    except RequestFailed:
        continue
    print(number)
"""
WRITER = """
import sys
from pathlib import Path
from resift.server.ratings import RatingsLog
from tests.server.rating_sessions import session as make_session
log = RatingsLog(Path(sys.argv[1]))
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    log.add_session(make_session(number))
    log.add_rating(f"s{number}", "d1", number % 4)
"""


def attack(seed: int, count: int) -> Outcome:
    """Write `count` sessions from threads and processes, change `count` bytes, fill a disk."""
    outcome = Outcome("ratings by many clients, in a damaged log, and on a full disk")
    draw = random.Random(seed)
    for attack_folder in (_many_clients, _clients_of_a_server, _two_processes, _damage, _full_disk, _forged_rows):
        with tempfile.TemporaryDirectory() as folder:
            attack_folder(outcome, Path(folder), draw, count)
    return outcome


def _many_clients(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    from resift.server.ratings import RatingsLog

    log = RatingsLog(folder)

    def rate(number: int) -> None:
        log.add_session(make_session(number))
        log.add_rating(f"s{number}", "d0", number % 4)
        outcome.check(f"s{number}" in log.read().sessions, "a confirmed session is not found")

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(rate, range(count)))
    outcome.tried += count
    fresh = RatingsLog(folder).read()
    outcome.check((len(fresh.sessions), fresh.count) == (count, count), "a confirmed rating is not in the log")


def _clients_of_a_server(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    from tests.server.process import start

    server = start("--any-model", "--judgements", str(folder))
    try:
        sessions = max(SERVER_CLIENTS, 2 * count)
        failures = rate_with_many_clients(server, folder, sessions=sessions, kb=draw.randint(20, 200))
    finally:
        outcome.check(server.stop() == 0, "the server did not exit with 0")
    outcome.tried += 3 * sessions
    for failure in failures:
        outcome.fail(failure)


def rate_with_many_clients(server: Any, folder: Path, *, sessions: int, kb: int) -> list[str]:
    """Start sessions, rate, and ask for the score, with 16 clients at once; return what went wrong.

    The documents of a session have `kb` kilobytes, so that reading a line of the log takes a while.
    """
    text = "the red fox " * (kb * 1000 // 12 // 8)

    def rate(number: int) -> list[str]:
        settings: dict[str, Any] = {"a": {}, "b": {"reranker": "none"}}
        documents = [f"{number} {i} {text}" for i in range(8)]
        body = {"query": f"red fox {number}", "documents": documents, "settings": settings, "k": 5}
        begun = server.post("/v1/judge/sessions", body)
        if begun.status != 200:
            return [f"a new session got {begun.status}: {begun.body[:100]!r}"]
        session = begun.json()
        rating = {"session": session["session"], "id": session["hits"][0]["id"], "grade": number % 4}
        answers = {"a rating": server.post("/v1/judge/ratings", rating)}
        if number % 8 == 0:
            answers["the score"] = server.get("/v1/judge/score")
        return [f"{name} got {a.status}: {a.body[:100]!r}" for name, a in answers.items() if a.status != 200]

    with ThreadPoolExecutor(SERVER_CLIENTS) as pool:
        failures = [failure for failures in pool.map(rate, range(sessions)) for failure in failures]
    kinds = [json.loads(line)["kind"] for line in (folder / "log.jsonl").read_bytes().splitlines()]
    if (kinds.count("session"), kinds.count("rating")) != (sessions, sessions):
        failures.append(f"{kinds.count('session')} sessions and {kinds.count('rating')} ratings are in the log")
    score = server.get("/v1/judge/score")
    if score.status != 200 or score.json()["ratings"] != sessions:
        failures.append(f"the server counts {score.body[:100]!r} instead of {sessions} ratings")
    return failures


def _two_processes(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    from resift.server.ratings import RatingsLog

    half = max(1, count // 2)
    ranges = ((0, half), (half, 2 * half))
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [subprocess.Popen([*command, *map(str, numbers)], cwd=ROOT) for numbers in ranges]
    outcome.check([writer.wait(300) for writer in writers] == [0, 0], "a writer failed next to another")
    outcome.tried += 2 * half
    ratings = RatingsLog(folder).read()
    outcome.check((len(ratings.sessions), ratings.count) == (2 * half, 2 * half), "two writers lost a rating")


def _damage(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    from resift.server.ratings import LOG_FILE, RatingsLog
    from resift.server.schema import RequestFailed

    log = RatingsLog(folder)
    for number in range(5):
        log.add_session(make_session(number))
        log.add_rating(f"s{number}", "d1", 2)
    file = folder / LOG_FILE
    whole = file.read_bytes()
    for _ in range(count):
        outcome.tried += 1
        damaged = bytearray(whole)
        start = draw.randrange(len(whole) - 1)
        if draw.random() < 0.7:
            damaged[start] ^= 1 << draw.randrange(8)
        else:
            end = min(len(whole), start + draw.randint(1, 300))
            damaged[start:end] = bytes(end - start)
        if damaged == whole:
            continue
        file.write_bytes(damaged)
        for _ in range(2):  # the second request must not pass over what the first one reported
            try:
                RatingsLog(folder).read()
                outcome.fail(f"byte {start} of the log: nothing said")
            except RequestFailed as exc:
                outcome.check(LOG_FILE in str(exc), f"byte {start}: the file is not named")
            except Exception as exc:
                outcome.fail(f"byte {start}: raw {type(exc).__name__}")


def _full_disk(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    from resift.server.ratings import RatingsLog

    command = [sys.executable, "-c", FULL_DISK, str(folder), str(draw.randint(3_000, 30_000))]
    confirmed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    outcome.tried += 200
    log = RatingsLog(folder)
    expected = [f"s{number}" for number in confirmed]
    outcome.check(list(log.read().sessions) == expected, "a confirmed session is not in the log")
    log.add_session(make_session(999))
    outcome.check("s999" in RatingsLog(folder).read().sessions, "nothing is saved after there is room again")


def _forged_rows(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    from resift.server.ratings import RatingSession, RatingsLog

    ids = [f"x{mark}3{mark}q1\tforged" for mark in ("\t", "\n", "\r", "\x0b", "\x1c", "\u2028", "\x85", "\0")]
    log = RatingsLog(folder / "judged")
    for i, id in enumerate(ids):
        outcome.tried += 1
        lists = {"a": [id], "b": [id]}
        session = RatingSession(
            id=f"s{i}", query=f"q{i}\tx\n", settings={}, lists=lists, shown=[(id, "a")], documents={id: "t"}
        )
        log.add_session(session)
        log.add_rating(f"s{i}", id, 1)
    rows = (folder / "judged" / "qrels" / "test.tsv").read_text(encoding="utf-8").split("\n")
    outcome.check(len(rows) == len(ids) + 2, f"{len(rows)} rows for {len(ids)} ratings")
    outcome.check(all(row.count("\t") == 2 for row in rows if row), "a row has more columns")
    if os.name == "posix":
        outcome.check((folder / "judged").stat().st_mode & 0o077 == 0, "others can read the folder")
