"""Run a pipeline on every judged query and keep its answers.

Answers are cached on disk, a line per query as soon as it is answered, under a key of code, pipeline and
corpus. An evaluation that was interrupted continues with the next query.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple, TextIO

from resift._internal.files import file_lock
from resift._internal.sync import run_sync
from resift.errors import DataFormatError
from resift.evaluation.evaluated_systems import System
from resift.evaluation.measures import Judge, Quality
from resift.evaluation.readers import Collection
from resift.explain.flow import hit_title
from resift.explain.reasons import describe_parts
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.pipeline import Pipeline
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, Ranking, StageKind, to_json

PERCENTILES = (50, 95, 99)
EXPLAINED = 10
"""Number of first hits whose paths are kept."""

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

_BATCH = 256
_IGNORED_FOLDERS = {"cli", "testing", "__pycache__"}


class PathStep(NamedTuple):
    """A step on the path of a document: kind of stage, name of store or stage, rank and evidence."""

    kind: str
    where: str
    rank: int
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a pipeline to one query.

    After the first k, `ids` continue with the hits that only the cut to k dropped. `paths` has the first ten
    and all relevant documents, `titles` the titles of those that have one. `reason` is set if the answer is
    degraded.
    """

    query: str
    digest: str
    ids: tuple[str, ...]
    ms: float
    warm: bool = True
    k: int = 0
    paths: Mapping[str, Sequence[PathStep]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measured quality of a pipeline or run file, with its answers."""

    name: str
    quality: Quality
    run: Mapping[str, Sequence[str]]
    answers: Mapping[str, Answer]
    reused: int = 0

    @property
    def latency(self) -> dict[str, float]:
        """Percentiles in ms over warm searches, or over all if none was warm."""
        warm = [answer.ms for answer in self.answers.values() if answer.warm]
        return latency(warm or [answer.ms for answer in self.answers.values()])

    @property
    def degraded(self) -> dict[str, str]:
        """Query -> reason, for degraded answers."""
        return {query: answer.reason for query, answer in self.answers.items() if answer.reason}


def evaluate(
    system: System,
    collection: Collection,
    judge: Judge,
    *,
    index: Path | None,
    cache: Path,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Answer every judged query and measure the answers. Cached answers are reused unless `fresh`."""
    cached = AnswerCache(cache / "answers" / f"{answer_cache_key(system, collection)}.jsonl")
    with cached.open(fresh=fresh):
        waiting = [query for query, text in collection.queries.items() if cached.find(query, text) is None]
        if waiting:
            # Opened outside of the event loop, because opening may itself wait for that loop.
            pipeline = system.open(index if system.needs_corpus else None)
            run_sync(_answer_queries(pipeline, collection, waiting, cached, progress))
    texts = collection.queries
    answers = {query: cached.answers[query, query_digest(text)] for query, text in texts.items()}
    run = {query: answer.ids for query, answer in answers.items()}
    return Outcome(system.name, judge.quality(run), run, answers, len(collection.queries) - len(waiting))


async def _answer_queries(
    pipeline: Pipeline,
    collection: Collection,
    waiting: Sequence[str],
    answers: AnswerCache,
    progress: Progress | None,
) -> None:
    cached = len(collection.queries) - len(waiting)
    try:
        for done, query in enumerate(waiting, start=1):
            text, grades = collection.queries[query], collection.qrels[query]
            started = time.perf_counter()
            ranking = await pipeline.search(text)
            ms = (time.perf_counter() - started) * 1000
            # The first search loads the models, so its time does not count.
            answers.add(_make_answer(query, text, ranking, grades, ms=ms, warm=done > 1, k=pipeline.k))
            if progress:
                progress(cached + done, len(collection.queries))
    finally:
        await pipeline.close()


def _make_answer(
    query: str, text: str, ranking: Ranking, grades: Mapping[str, int], *, ms: float, warm: bool, k: int
) -> Answer:
    hits = hits_beyond_k(ranking)
    explained = [hit for i, hit in enumerate(hits) if i < EXPLAINED or grades.get(hit.id, 0) > 0]
    paths = {
        hit.id: [
            PathStep(
                step.kind.value,
                step.source if step.kind is StageKind.RETRIEVE else step.name,
                step.rank,
                describe_parts(step),
            )
            for step in ranking.path(hit.id)
            if not step.cut
        ]
        for hit in explained
    }
    return Answer(
        query=query,
        digest=query_digest(text),
        ids=tuple(hit.id for hit in hits),
        ms=round(ms, 3),
        warm=warm,
        k=k,
        paths=paths,
        titles={hit.id: title for hit in explained if (title := hit_title(hit)) != hit.id},
        reason=ranking.reason if ranking.degraded else None,
        timings={stage: round(value, 3) for stage, value in ranking.timings.items()},
    )


def hits_beyond_k(ranking: Ranking) -> list[Hit]:
    """Return the hits and, after them, those that only the cut to k dropped, for recall@100 at k=10.

    Hits that a gate, a fold or a quota dropped are not included.
    """
    cut = {hit.id: hit for hit in reversed(ranking.cut)}
    records = ranking.trace.by_kind(StageKind.CUT)
    dropped = [cut[id] for record in records for id in record.dropped if id in cut]
    unique: dict[str, Hit] = {}
    for hit in (*ranking.hits, *dropped):
        unique.setdefault(hit.id, hit)
    return list(unique.values())


def percentile(times_ms: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile, which is always a measured time."""
    ordered = sorted(times_ms)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def latency(times_ms: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 in milliseconds, or nothing without times."""
    if not times_ms:
        return {}
    return {f"p{percent}": round(percentile(times_ms, percent), 3) for percent in PERCENTILES}


def index_for(
    systems: Sequence[System], collection: Collection, cache: Path, *, progress: Progress | None = None
) -> Path | None:
    """Return the index that these systems search, or None if none of them searches the collection."""
    if not any(system.needs_corpus for system in systems):
        return None
    embedder = DEFAULT_EMBEDDER if any(system.needs_vectors for system in systems) else None
    return build_index(collection, cache, embedder=embedder, progress=progress)


def build_index(
    collection: Collection,
    cache: Path,
    *,
    embedder: str | None = DEFAULT_EMBEDDER,
    progress: Progress | None = None,
) -> Path:
    """Return the cached index of a collection; build it, or finish an interrupted build, first.

    Without an embedder the index has no vectors.
    """
    if not collection.corpus_file.exists():
        raise DataFormatError(
            "no such file. The built-in pipelines and ${RESIFT_COLLECTION} search this corpus; "
            "without one, evaluate a pipeline file that names its own stores",
            file=str(collection.corpus_file),
        )
    model = (embedder or "words").replace("/", "--")
    path = cache / "indexes" / f"{collection.corpus_digest()[:24]}-{model}.db"
    done = path.with_suffix(".done")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not done.exists():
        with file_lock(path.with_suffix(".lock")):
            if not done.exists():
                run_sync(_add_documents(path, collection, embedder, progress))
                done.touch()
    return path


async def _add_documents(
    path: Path, collection: Collection, embedder: str | None, progress: Progress | None
) -> None:
    documents = list(collection.documents())
    store = SQLiteStore(path, embedder=Embedder(embedder) if embedder else None, create=True)
    try:
        for start in range(0, len(documents), _BATCH):
            # Documents of an interrupted build are not embedded again.
            await store.add(documents[start : start + _BATCH])
            if progress:
                progress(min(start + _BATCH, len(documents)), len(documents))
    finally:
        await store.close()


class AnswerCache:
    """The answers of one pipeline on one corpus, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[tuple[str, str], Answer] = {}

    @contextmanager
    def open(self, *, fresh: bool = False) -> Iterator[AnswerCache]:
        """Lock the file and read earlier answers; `fresh` deletes them."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(self.path.with_suffix(".lock")):
            if fresh:
                self.path.unlink(missing_ok=True)
            self._read()
            with self.path.open("a", encoding="utf-8") as file:
                self._file: TextIO = file
                yield self

    def add(self, answer: Answer) -> None:
        """Store an answer. It is in the file when this returns."""
        self._file.write(to_json(asdict(answer)) + "\n")
        self._file.flush()
        self.answers[answer.query, answer.digest] = answer

    def find(self, query: str, text: str) -> Answer | None:
        """Return the answer to a query, unless it is degraded."""
        answer = self.answers.get((query, query_digest(text)))
        return answer if answer is not None and answer.reason is None else None

    def _read(self) -> None:
        import msgspec

        if not self.path.exists():
            return
        drop_partial_line(self.path)
        for line in self.path.read_bytes().splitlines():
            try:
                answer = msgspec.json.decode(line, type=Answer)
            except (msgspec.DecodeError, RecursionError):
                continue  # a damaged line; its query is answered again
            self.answers[answer.query, answer.digest] = answer


def drop_partial_line(path: Path) -> None:
    """Remove a last line without a line end, which a killed process left behind."""
    raw = path.read_bytes()
    complete = raw.rfind(b"\n") + 1
    if complete < len(raw):
        with path.open("r+b") as file:
            file.truncate(complete)


def query_digest(text: str) -> str:
    """Return a short digest of the text of a query, so that an edited query is answered again."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def answer_cache_key(system: System, collection: Collection) -> str:
    """Return the cache key of this pipeline's answers on this corpus."""
    corpus = collection.corpus_digest() if system.needs_corpus else ""
    return cache_key(code_digest(), system.identity, corpus)


def cache_key(*parts: object) -> str:
    """Return a digest of parts that can be written as JSON."""
    return hashlib.sha256(to_json(list(parts)).encode()).hexdigest()[:32]


@cache
def code_digest() -> str:
    """Return a digest of all modules of Resift that can change an answer."""
    digest = hashlib.sha256()
    for name, content in sorted(_read_modules(files("resift"), "")):
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _read_modules(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            if entry.name not in _IGNORED_FOLDERS:
                yield from _read_modules(entry, name)
        elif entry.name.endswith((".py", ".c", ".h")):
            yield name, entry.read_bytes()
