"""A recording on disk: per query every store's list, every reranker score, what is alike, and the judgements.

JSONL. The first line says what was recorded; each further line is one query. No text of queries or documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from resift.errors import DataFormatError
from resift.evaluation.text_files import json_rows
from resift.ranking.shape.neighbours import Near
from resift.types import (
    JsonMapping,
    JsonObject,
    JsonValue,
    Languages,
    ScorerInfo,
    ScoreScale,
    check_languages,
    to_json,
)
from resift.validation import check_arguments

FORMAT = "resift-recording-1"

_SCALES_IN_0_2: Mapping[str, ScoreScale] = {"cross-encoder": "logit", "zero-shot": "probability"}
_ENGLISH_IN_0_2 = ("cross-encoder", "late-interaction", "zero-shot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was recorded: `depth` is how many of the fused hits have a reranker score.

    `searched` says how each store looked: doc (words), vector, or anything else. `configured` is the
    `stores:` of a pipeline file that searches the same; older recordings have none. `score_scale` and
    `languages` describe the reranker.
    """

    stores: tuple[str, ...]
    reranker: str
    depth: int
    k: int
    data: str = ""
    pipeline: str = ""
    key: str = ""
    searched: tuple[str, ...] = ()
    configured: tuple[JsonMapping, ...] = ()
    score_scale: ScoreScale = "unknown"
    languages: Languages = "any"
    format: str = FORMAT

    @property
    def kinds(self) -> tuple[str, ...]:
        """How each store looked, "" where an older recording does not say."""
        return self.searched or ("",) * len(self.stores)

    @property
    def scorer(self) -> ScorerInfo:
        """Description of the reranker whose scores were recorded."""
        return ScorerInfo(
            name=self.reranker or "recorded", score_scale=self.score_scale, languages=self.languages
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """One query: lists as (id, score) pairs, best first; `near` as `resift.ranking.shape.nearest` gives it.

    `marks` and `letters` are those per word of the texts that were found.
    """

    query: str
    split: str
    lists: Mapping[str, Sequence[tuple[str, float | None]]]
    rerank: Mapping[str, float] = field(default_factory=dict)
    qrels: Mapping[str, int] = field(default_factory=dict)
    near: Near = field(default_factory=dict)
    marks: float | None = None
    letters: float | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole file."""

    header: Header
    queries: tuple[Recorded, ...]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were recorded, in order."""
        return tuple(dict.fromkeys(one.split for one in self.queries))

    def qrels(self) -> dict[str, dict[str, int]]:
        """Return the judgements of all queries."""
        return {one.query: dict(one.qrels) for one in self.queries}


def header_line(header: Header) -> str:
    """Return the first line of a recording."""
    return to_json(asdict(header)) + "\n"


def query_line(recorded: Recorded) -> str:
    """Return one query's line."""
    return to_json(asdict(recorded)) + "\n"


@check_arguments
def read_recording(path: Path | str) -> Recording:
    """Read a recording; raises DataFormatError with file and line."""
    path = Path(path)
    rows = json_rows(path, expected="a recording; make one with: resift record")
    line, first = next(rows)
    header = _header(first, path, line)
    found: dict[tuple[str, str], Recorded] = {}
    for line, row in rows:
        one = _recorded(row, path, line, header)
        if (one.split, one.query) in found:
            raise DataFormatError(f"query {one.query!r} is recorded twice", file=str(path), line=line)
        found[one.split, one.query] = one
    if not found:
        raise DataFormatError("no query is recorded", file=str(path))
    return Recording(header, tuple(found.values()))


def drop_half_line(path: Path) -> None:
    """Remove the line that was being written when a process died."""
    raw = path.read_bytes()
    whole = raw.rfind(b"\n") + 1
    if whole < len(raw):
        with path.open("r+b") as file:
            file.truncate(whole)


def _header(row: JsonMapping, path: Path, line: int) -> Header:
    if row.get("format") != FORMAT:
        message = "no recording of this version; make one with: resift record"
        raise DataFormatError(message, file=str(path), line=line)
    try:
        names = {key: tuple(map(str, row.get(key, ()))) for key in ("stores", "searched")}
        configured = tuple(dict(store) for store in row.get("configured", ()))
        reranker = _described_reranker(row)
        return Header(**{**row, **names, **reranker, "configured": configured})
    except (TypeError, KeyError, ValueError):
        raise DataFormatError("a header with other fields", file=str(path), line=line) from None


def _described_reranker(row: JsonMapping) -> JsonObject:
    if "score_scale" in row:
        return {"languages": check_languages(row["languages"])}
    # Files of 0.2 have only the reranker's name; these were the names that decided.
    name = row["reranker"]
    languages: Languages = ("en",) if name in _ENGLISH_IN_0_2 else "any"
    return {"score_scale": _SCALES_IN_0_2.get(name, "unknown"), "languages": languages}


def _recorded(row: JsonMapping, path: Path, line: int, header: Header) -> Recorded:
    try:
        lists = {
            str(store): tuple(
                (str(id), None if score is None else float(score)) for id, score in row["lists"][store]
            )
            for store in header.stores
        }
        rerank = {str(id): float(score) for id, score in row["rerank"].items()}
        qrels = {str(id): int(grade) for id, grade in row["qrels"].items()}
        # Recordings made before neighbours were asked for have none.
        near = {
            str(id): tuple((str(other), float(cosine)) for other, cosine in others)
            for id, others in row.get("near", {}).items()
        }
        per_word = [None if row.get(name) is None else float(row[name]) for name in ("marks", "letters")]
        one = Recorded(str(row["query"]), str(row["split"]), lists, rerank, qrels, near, *per_word)
    except (KeyError, TypeError, ValueError, AttributeError):
        message = "not a recorded query: needs query, split, lists, rerank, qrels"
        raise DataFormatError(message, file=str(path), line=line) from None
    scores = [score for ranked in lists.values() for _, score in ranked if score is not None] + list(
        rerank.values()
    )
    scores += [cosine for others in near.values() for _, cosine in others]
    if not all(math.isfinite(score) for score in scores):
        raise DataFormatError("a score that is no finite number", file=str(path), line=line)
    return one


def _score(given: JsonValue) -> float | None:
    return None if given is None else float(given)


def read_header(path: Path) -> Header:
    """Return only what was recorded."""
    with path.open(encoding="utf-8") as file:
        try:
            row = json.loads(file.readline())
        except ValueError:
            row = None
    if not isinstance(row, dict):
        raise DataFormatError("not a recording; choose another file", file=str(path), line=1)
    return _header(row, path, 1)
