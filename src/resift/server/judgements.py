"""Ratings that are never lost: a log that only grows, and the BEIR folder that is made from it.

Every session and every rating is one line of `log.jsonl`, on the disk before it is confirmed. One lock lets
one process write at a time, so several workers may share the folder. What `resift eval`, `compare` and `tune`
read (corpus.jsonl, queries.jsonl, qrels/test.tsv) is written anew from the log, each file whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resift._internal.atomic_files import O_BINARY, atomic_write
from resift._internal.file_lock import locked
from resift.errors import InputError
from resift.server.failures import RequestFailed
from resift.server.interleaving import Team
from resift.types import JsonMapping, JsonValue

LOG, LOCK = "log.jsonl", ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A question with the rankings of two settings, as they were shown."""

    id: str
    query: str
    settings: JsonMapping
    lists: Mapping[str, Sequence[str]]
    shown: Sequence[tuple[str, Team]]
    documents: Mapping[str, str]
    blind: bool = False


@dataclass(slots=True)
class Judged:
    """What the log says: sessions by id, and the last grade by question and document."""

    sessions: dict[str, Session] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    ratings: int = 0

    def add(self, entry: JsonMapping) -> None:
        """Take in one line of the log."""
        if entry["kind"] == "session":
            values = {name: entry[name] for name in Session.__slots__}
            values["shown"] = [(id, team) for id, team in entry["shown"]]
            session = Session(**values)
            self.sessions[session.id] = session
            return
        session = self.sessions[entry["session"]]
        self.grades.setdefault(session.query, {})[entry["id"]] = entry["grade"]
        self.documents.update(session.documents)
        self.ratings += 1


class Judgements:
    """A folder of judgements. Safe to use from several processes; not from several threads of one."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; name a folder for the judgements.")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._read_to = 0
        self._judged = Judged()

    def judged(self) -> Judged:
        """Return everything that was judged so far, also by other processes."""
        file = self.folder / LOG
        if not file.exists():
            return self._judged
        with file.open("rb") as log:
            log.seek(self._read_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # another process is writing, or was cut off while it did
                self._read_to += len(line)
                self._judged.add(json.loads(line))
        return self._judged

    def begin(self, session: Session) -> None:
        """Keep a session; it shows in the BEIR folder once something in it is rated."""
        data = {name: getattr(session, name) for name in Session.__slots__}
        self._append({"kind": "session", **data})

    def rate(self, session_id: str, id: str, grade: int) -> Judged:
        """Keep a rating, and bring the BEIR folder up to date."""
        session = self.judged().sessions.get(session_id)
        if session is None:
            raise RequestFailed("not_found", "There is no such session; ask the question again")
        if id not in session.documents:
            raise RequestFailed("not_found", "This document was not shown in this session")
        self._append({"kind": "rating", "session": session_id, "id": id, "grade": grade})
        return self._judged

    def _append(self, entry: JsonMapping) -> None:
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with locked(self.folder / LOCK):
            flags = os.O_RDWR | os.O_CREAT | O_BINARY
            log = os.open(self.folder / LOG, flags, 0o600)
            try:
                os.lseek(log, _end_of_whole_lines(log), os.SEEK_SET)
                os.write(log, line)
                os.ftruncate(log, os.lseek(log, 0, os.SEEK_CUR))
                os.fsync(log)
            finally:
                os.close(log)
            judged = self.judged()
            if entry["kind"] == "rating":
                _write_beir(self.folder, judged)


def _end_of_whole_lines(log: int) -> int:
    """Return where the log's last whole line ends: a crash may have left half a line behind it."""
    size = os.lseek(log, 0, os.SEEK_END)
    at = size
    while at > 0:
        start = max(0, at - 65536)
        os.lseek(log, start, os.SEEK_SET)
        found = os.read(log, at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


def _write_beir(folder: Path, judged: Judged) -> None:
    numbers = {query: f"q{number}" for number, query in enumerate(judged.grades, start=1)}
    (folder / "qrels").mkdir(exist_ok=True)
    atomic_write(
        folder / "corpus.jsonl", _lines({"_id": id, "text": text} for id, text in judged.documents.items())
    )
    atomic_write(
        folder / "queries.jsonl", _lines({"_id": id, "text": query} for query, id in numbers.items())
    )
    rows = ["query-id\tcorpus-id\tscore"]
    rows += [
        f"{numbers[query]}\t{id}\t{grade}"
        for query, grades in judged.grades.items()
        for id, grade in grades.items()
    ]
    atomic_write(folder / "qrels" / "test.tsv", "\n".join(rows) + "\n")


def _lines(rows: JsonValue) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
