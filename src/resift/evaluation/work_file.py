"""Answers on disk, a line per query as soon as it is answered: a killed evaluation loses one at most."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from resift._internal.file_lock import locked
from resift.types import to_json


class Stop(NamedTuple):
    """One place on a document's path: kind of stage, store or stage, rank, what the score is made of."""

    kind: str
    where: str
    rank: int
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a pipeline gave for one query.

    `ids` go on behind the pipeline's k with what k alone left out; `paths` are those of the first ten
    and of judged documents, stop by stop; `reason` says why an answer is degraded.
    """

    query: str
    asked: str
    ids: tuple[str, ...]
    ms: float
    warm: bool = True
    k: int = 0
    paths: Mapping[str, Sequence[Stop]] = field(default_factory=dict)
    reason: str | None = None
    timings: Mapping[str, float] = field(default_factory=dict)


def asked_digest(text: str) -> str:
    """Return a short digest of a query's text, so that an edited query is asked again."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def work_key(*parts: object) -> str:
    """Return the name of the work file for these parts of an evaluation."""
    return hashlib.sha256(to_json(list(parts)).encode()).hexdigest()[:32]


class WorkFile:
    """The answers of one pipeline on one corpus."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[tuple[str, str], Answer] = {}

    @contextmanager
    def open(self, *, fresh: bool = False) -> Iterator[WorkFile]:
        """Hold the file alone, with the answers of earlier runs read; `fresh` forgets them."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            if fresh:
                self.path.unlink(missing_ok=True)
            self._read()
            with self.path.open("a", encoding="utf-8") as file:
                self._file: TextIO = file
                yield self

    def add(self, answer: Answer) -> None:
        """Remember an answer; it is in the file when this returns."""
        self._file.write(to_json(asdict(answer)) + "\n")
        self._file.flush()
        self.answers[answer.query, answer.asked] = answer

    def find(self, query: str, text: str) -> Answer | None:
        """Return the answer to this query, unless it was degraded: that one is asked for again."""
        answer = self.answers.get((query, asked_digest(text)))
        return answer if answer is not None and answer.reason is None else None

    def _read(self) -> None:
        if not self.path.exists():
            return
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            # The line that was being written when the process died.
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        for line in whole.splitlines():
            answer = _answer(line)
            if answer is not None:
                self.answers[answer.query, answer.asked] = answer


def _answer(line: bytes) -> Answer | None:
    """Return a line's answer; None for a damaged line, whose query is then asked again."""
    import msgspec

    try:
        return msgspec.json.decode(line, type=Answer)
    except (msgspec.DecodeError, RecursionError):
        return None
