"""The log of ratings and the BEIR folder that is generated from it.

Every session and every rating is one line of `log.jsonl`, with a checksum, and is on disk before it is confirmed.
Damaged lines are reported, never skipped. Several processes may share the folder. The input files of `resift eval`,
`compare` and `tune` (corpus.jsonl, queries.jsonl, qrels/test.tsv) are rewritten after each rating.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import threading
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from resift._internal.files import O_BINARY, atomic_write, file_lock
from resift.errors import InputError
from resift.server.endpoint import encode_json
from resift.server.schema import RequestFailed
from resift.types import JsonObject

Team = Literal["a", "b"]

LOG_FILE, LOCK_FILE = "log.jsonl", ".lock"
_CHECKSUM = b',"crc32":'

log = logging.getLogger("resift.server")


class RatingSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="session"):
    """A query with the displayed rankings of two settings."""

    id: str
    query: str
    settings: JsonObject
    lists: dict[str, list[str]]
    shown: list[tuple[str, Team]]
    documents: dict[str, str]
    blind: bool = False


class Rating(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="rating"):
    """The grade of a document in a session."""

    session: str
    id: str
    grade: int


_dump = functools.partial(json.dumps, ensure_ascii=False)
_decoder: msgspec.json.Decoder[RatingSession | Rating] = msgspec.json.Decoder(RatingSession | Rating)


@dataclass(slots=True)
class Ratings:
    """Content of the log: sessions by id, and the last grade per query and document."""

    sessions: dict[str, RatingSession] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def add(self, entry: RatingSession | Rating) -> None:
        """Add one line of the log."""
        if isinstance(entry, RatingSession):
            self.sessions[entry.id] = entry
            return
        session = self.sessions[entry.session]
        self.grades.setdefault(session.query, {})[entry.id] = entry.grade
        self.documents.update(session.documents)
        self.count += 1

    def copy(self) -> Ratings:
        """Return a copy that later lines do not change."""
        grades = {query: dict(grades) for query, grades in self.grades.items()}
        return Ratings(dict(self.sessions), grades, dict(self.documents), self.count)


class RatingsLog:
    """A folder of ratings. Safe to use from several threads and processes."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; pass a folder for the judgments.")
        # The folder contains document texts, which other users of this machine must not read.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._lock = threading.Lock()
        self._position = 0
        self._lines = 0
        self._ratings = Ratings()

    def read(self) -> Ratings:
        """Return all ratings so far, including those of other processes."""
        with self._lock:
            return self._read().copy()

    def add_session(self, session: RatingSession) -> dict[str, int]:
        """Save a session and return the existing grades of its query."""
        with self._lock:
            self._append(session)
            return dict(self._ratings.grades.get(session.query, {}))

    def add_rating(self, session_id: str, id: str, grade: int) -> int:
        """Save a rating, update the BEIR folder, and return the number of ratings."""
        with self._lock:
            session = self._read().sessions.get(session_id)
            if session is None:
                raise RequestFailed("not_found", "This session does not exist; start a new one")
            if id not in session.documents:
                raise RequestFailed("not_found", "This document was not shown in this session")
            self._append(Rating(session=session_id, id=id, grade=grade))
            return self._ratings.count

    def _read(self) -> Ratings:
        file = self.folder / LOG_FILE
        if not file.exists():
            return self._ratings
        if file.stat().st_size < self._position:
            # The file was restored or truncated.
            self._position, self._lines, self._ratings = 0, 0, Ratings()
        with file.open("rb") as lines:
            lines.seek(self._position)
            for line in lines:
                if not line.endswith(b"\n"):
                    # A crash or a concurrent writer leaves an incomplete line. A complete line without its line
                    # break, or a line with zero bytes, is damage.
                    if b"\0" in line or (line.strip() and (_parse_line(line[:-1]) or _parse_line(line))):
                        raise self._damage()
                    break
                entry = _parse_line(line)
                if entry is None or (isinstance(entry, Rating) and entry.session not in self._ratings.sessions):
                    raise self._damage()
                self._ratings.add(entry)
                # Advance only after success, so the next request reports a damaged line again.
                self._position += len(line)
                self._lines += 1
        return self._ratings

    def _damage(self) -> RequestFailed:
        problem = f"{self.folder / LOG_FILE}, line {self._lines + 1} is damaged; ratings cannot be read or saved"
        return RequestFailed("internal", f"{problem}. Restore the file from a backup, or delete the line")

    def _append(self, entry: RatingSession | Rating) -> None:
        data = encode_json(entry)
        line = b"%s%s%d}\n" % (data.removesuffix(b"}"), _CHECKSUM, zlib.crc32(data))
        with file_lock(self.folder / LOCK_FILE):
            # Read first, so that damage is found before anything is appended.
            self._read()
            descriptor = os.open(self.folder / LOG_FILE, os.O_RDWR | os.O_CREAT | O_BINARY, 0o600)
            try:
                # A crash may have left an incomplete line at the end. It is overwritten.
                end = self._position
                os.lseek(descriptor, end, os.SEEK_SET)
                try:
                    remaining = memoryview(line)
                    while remaining:
                        remaining = remaining[os.write(descriptor, remaining) :]
                    os.ftruncate(descriptor, end + len(line))
                    os.fsync(descriptor)
                except OSError as exc:
                    os.ftruncate(descriptor, end)
                    raise RequestFailed("internal", f"Nothing was saved: {exc.strerror or exc}") from exc
            finally:
                os.close(descriptor)
            ratings = self._read()
            if isinstance(entry, Rating):
                try:
                    _write_beir_folder(self.folder, ratings)
                except OSError as exc:
                    # The rating is safe in the log. The next rating writes these files again.
                    log.warning("%s: the BEIR files were not updated: %s", self.folder, exc)


def _parse_line(line: bytes) -> RatingSession | Rating | None:
    """Return an entry of the log, or None if the line is damaged. Lines of 0.2 have no checksum."""
    data, mark, checksum = line.rpartition(_CHECKSUM)
    if mark and checksum.rstrip(b"\n") != b"%d}" % zlib.crc32(data + b"}"):
        return None
    try:
        # If the name of the checksum field is damaged, it is rejected as an unknown field.
        return _decoder.decode(data + b"}" if mark else line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _write_beir_folder(folder: Path, ratings: Ratings) -> None:
    query_ids = {query: f"q{number}" for number, query in enumerate(ratings.grades, start=1)}
    rows = ["query-id\tcorpus-id\tscore"]
    for query, grades in ratings.grades.items():
        rows += [f"{query_ids[query]}\t{_printable_id(id)}\t{grade}" for id, grade in grades.items()]
    files = {
        "corpus.jsonl": [_dump({"_id": _printable_id(id), "text": text}) for id, text in ratings.documents.items()],
        "queries.jsonl": [_dump({"_id": id, "text": query}) for query, id in query_ids.items()],
        "qrels/test.tsv": rows,
    }
    (folder / "qrels").mkdir(exist_ok=True)
    for name, lines in files.items():
        # Only this user may read the files, because an existing folder may be open to others.
        atomic_write(folder / name, "".join(f"{line}\n" for line in lines), mode=0o600)


def _printable_id(id: str) -> str:
    # A tab or a line break in an id would inject a row into the table.
    return id if id.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in id)
