"""Run pipelines on every judged query, cache each answer at once, so that runs can resume, and compare the outcomes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TextIO

import msgspec

from resift._internal.arrays import np
from resift._internal.files import file_lock
from resift._internal.sync import run_sync
from resift.errors import DataFormatError
from resift.evaluation.evaluated_systems import System
from resift.evaluation.measures import Judge, Quality, bootstrap_interval, holm, randomization_p
from resift.evaluation.readers import Collection
from resift.explain.flow import hit_title
from resift.explain.reasons import describe_parts
from resift.external.candidates import content_id
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.pipeline.pipeline import Pipeline
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, Ranking, StageKind, to_json

PERCENTILES = (50, 95, 99)
EXPLAINED = 10  # number of top hits whose paths are stored
Progress = Callable[[int, int], None]  # called with (done, total)

_BATCH = 256
_IGNORED_FOLDERS = {"cli", "testing", "__pycache__"}


class PathStep(NamedTuple):
    """A step on the path of a document: stage kind, name of the store or stage, rank and evidence."""

    kind: str
    where: str
    rank: int
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a pipeline to one query.

    `ids` are the top k and those dropped only by the cut to k. `paths` covers the top ten and all relevant documents.
    `reason` is set if the answer is degraded.
    """

    query: str
    digest: str
    ids: tuple[str, ...]
    ms: float
    warm: bool = True
    paths: Mapping[str, Sequence[PathStep]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


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
        """Latency percentiles in ms over warm searches, or over all searches if none was warm."""
        warm = [answer.ms for answer in self.answers.values() if answer.warm]
        times_ms = warm or [answer.ms for answer in self.answers.values()]
        if not times_ms:
            return {}
        # Nearest-rank percentiles, so that every value is a measured time.
        values = np.percentile(times_ms, PERCENTILES, method="inverted_cdf")
        return {f"p{percent}": round(float(value), 3) for percent, value in zip(PERCENTILES, values, strict=True)}

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
    """Answer every judged query and measure the answers. Cached answers are reused unless `fresh` is set."""
    cached = AnswerCache(cache / "answers" / f"{answer_cache_key(system, collection)}.jsonl")
    with cached.open(fresh=fresh):
        pending = [query for query, text in collection.queries.items() if cached.find(query, text) is None]
        if pending:
            # Open the pipeline outside the event loop, because opening it may itself wait for that loop.
            pipeline = system.open(index if system.needs_corpus else None)
            run_sync(_answer_queries(pipeline, collection, pending, cached, progress))
    answers = {query: cached.answers[query, content_id(text)] for query, text in collection.queries.items()}
    run = {query: answer.ids for query, answer in answers.items()}
    return Outcome(system.name, judge.quality(run), run, answers, len(collection.queries) - len(pending))


async def _answer_queries(
    pipeline: Pipeline, collection: Collection, pending: Sequence[str], answers: AnswerCache, progress: Progress | None
) -> None:
    cached = len(collection.queries) - len(pending)
    try:
        for done, query in enumerate(pending, start=1):
            text, grades = collection.queries[query], collection.qrels[query]
            started = time.perf_counter()
            ranking = await pipeline.search(text)
            ms = (time.perf_counter() - started) * 1000
            # The first search loads the models, so its time is not counted.
            answers.add(_make_answer(query, text, ranking, grades, ms=ms, warm=done > 1))
            if progress:
                progress(cached + done, len(collection.queries))
    finally:
        await pipeline.close()


def _make_answer(
    query: str, text: str, ranking: Ranking, grades: Mapping[str, int], *, ms: float, warm: bool
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
        digest=content_id(text),
        ids=tuple(hit.id for hit in hits),
        ms=round(ms, 3),
        warm=warm,
        paths=paths,
        titles={hit.id: title for hit in explained if (title := hit_title(hit)) != hit.id},
        reason=ranking.reason if ranking.degraded else None,
    )


def hits_beyond_k(ranking: Ranking) -> list[Hit]:
    """Return the hits and those dropped only by the cut to k (not by a gate, fold or quota), for recall@100 at k=10."""
    cut = {hit.id: hit for hit in reversed(ranking.cut)}
    dropped = [cut[id] for record in ranking.trace.by_kind(StageKind.CUT) for id in record.dropped if id in cut]
    unique: dict[str, Hit] = {}
    for hit in (*ranking.hits, *dropped):
        unique.setdefault(hit.id, hit)
    return list(unique.values())


def index_for(
    systems: Sequence[System], collection: Collection, cache: Path, *, progress: Progress | None = None
) -> Path | None:
    """Return the index for these systems, or None if none of them searches the collection."""
    if not any(system.needs_corpus for system in systems):
        return None
    embedder = DEFAULT_EMBEDDER if any(system.needs_vectors for system in systems) else None
    return build_index(collection, cache, embedder=embedder, progress=progress)


def build_index(
    collection: Collection, cache: Path, *, embedder: str | None = DEFAULT_EMBEDDER, progress: Progress | None = None
) -> Path:
    """Return the index of a collection, built on first use; without an embedder, it contains no vectors."""
    if not collection.corpus_file.exists():
        raise DataFormatError(
            "no such file. The built-in pipelines and ${RESIFT_COLLECTION} search this corpus; "
            "without it, evaluate a pipeline file with its own stores",
            file=collection.corpus_file,
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


async def _add_documents(path: Path, collection: Collection, embedder: str | None, progress: Progress | None) -> None:
    documents = list(collection.documents())
    store = SQLiteStore(path, embedder=Embedder(embedder) if embedder else None, create=True)
    try:
        for start in range(0, len(documents), _BATCH):
            # The store does not embed documents from an interrupted build again.
            await store.add(documents[start : start + _BATCH])
            if progress:
                progress(min(start + _BATCH, len(documents)), len(documents))
    finally:
        await store.close()


class AnswerCache:
    """A file with the answers of one pipeline on one corpus."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[tuple[str, str], Answer] = {}

    @contextmanager
    def open(self, *, fresh: bool = False) -> Iterator[AnswerCache]:
        """Lock the file and read earlier answers. `fresh` deletes them instead."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(self.path.with_suffix(".lock")):
            if fresh:
                self.path.unlink(missing_ok=True)
            if self.path.exists():
                drop_partial_line(self.path)
                self._read()
            with self.path.open("a", encoding="utf-8") as file:
                self._file: TextIO = file
                yield self

    def add(self, answer: Answer) -> None:
        """Append an answer to the file and flush it."""
        self._file.write(to_json(asdict(answer)) + "\n")
        self._file.flush()
        self.answers[answer.query, answer.digest] = answer

    def find(self, query: str, text: str) -> Answer | None:
        """Return the cached answer to a query, or None if it is missing or degraded."""
        answer = self.answers.get((query, content_id(text)))
        return answer if answer is not None and answer.reason is None else None

    def _read(self) -> None:
        for line in self.path.read_bytes().splitlines():
            try:
                answer = msgspec.json.decode(line, type=Answer)
            except (msgspec.DecodeError, RecursionError):
                continue  # the line is damaged, so its query is answered again
            self.answers[answer.query, answer.digest] = answer


def drop_partial_line(path: Path) -> None:
    """Remove an incomplete last line left behind by a killed process."""
    raw = path.read_bytes()
    complete = raw.rfind(b"\n") + 1
    if complete < len(raw):
        with path.open("r+b") as file:
            file.truncate(complete)


def answer_cache_key(system: System, collection: Collection) -> str:
    """Return the cache key of this pipeline's answers on this corpus."""
    return cache_key(code_digest(), system.identity, collection.corpus_digest() if system.needs_corpus else "")


def cache_key(*parts: object) -> str:
    """Return a digest of JSON-serializable values."""
    return hashlib.sha256(to_json(list(parts)).encode()).hexdigest()[:32]


@cache
def code_digest() -> str:
    """Return a digest of all Resift modules and data files that can affect an answer."""
    digest = hashlib.sha256()
    root = Path(str(files("resift")))
    for path in sorted(root.rglob("*")):
        ignored = _IGNORED_FOLDERS.intersection(path.relative_to(root).parts)
        if path.suffix in (".py", ".c", ".h", ".json", ".toml") and not ignored:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


TIE = 1e-9  # differences up to this size are treated as rounding errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between `other` and `base` on one measure, over the queries answered by both."""

    measure: str
    base: str
    other: str
    queries: int
    base_mean: float
    other_mean: float
    low: float
    high: float
    p: float
    p_holm: float
    wins: int
    ties: int
    losses: int

    @property
    def mean(self) -> float:
        """The mean difference; positive if `other` is better."""
        return self.other_mean - self.base_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDocument:
    """A relevant document whose rank changed; None means absent."""

    id: str
    grade: int
    before: int | None
    after: int | None
    why: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedQuery:
    """A query whose value changed, with the relevant documents that moved."""

    query: str
    before: float
    after: float
    documents: tuple[MovedDocument, ...]


def differences(outcomes: Sequence[Outcome], measures: Sequence[str]) -> list[Difference]:
    """Compare every outcome with the first one on every measure. `p_holm` is corrected for all these tests."""
    rows = [_difference(outcomes[0], other, measure) for other in outcomes[1:] for measure in measures]
    return [replace(row, p_holm=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def moved_queries(
    base: Outcome, other: Outcome, measure: str, qrels: Mapping[str, Mapping[str, int]], *, limit: int = 5
) -> list[MovedQuery]:
    """Return the queries whose value changed most, largest change first."""
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    changed = [query for query in before if query in after and abs(after[query] - before[query]) > TIE]
    changed.sort(key=lambda query: (-abs(after[query] - before[query]), query))
    return [
        MovedQuery(
            query=query,
            before=before[query],
            after=after[query],
            documents=_moved_documents(base, other, query, qrels[query]),
        )
        for query in changed[:limit]
    ]


def _difference(base: Outcome, other: Outcome, measure: str) -> Difference:
    before, after = base.quality.per_query[measure], other.quality.per_query[measure]
    queries = [query for query in before if query in after]
    deltas = [after[query] - before[query] for query in queries]
    # Otherwise, the tests would count rounding errors as wins.
    deltas = [0.0 if abs(delta) <= TIE else delta for delta in deltas]
    means = [fmean(values[query] for query in queries) if queries else 0.0 for values in (before, after)]
    low, high = bootstrap_interval(deltas)
    return Difference(
        measure=measure,
        base=base.name,
        other=other.name,
        queries=len(queries),
        base_mean=means[0],
        other_mean=means[1],
        low=low,
        high=high,
        p=randomization_p(deltas),
        p_holm=1.0,
        wins=sum(delta > 0 for delta in deltas),
        ties=sum(delta == 0 for delta in deltas),
        losses=sum(delta < 0 for delta in deltas),
    )


def _moved_documents(base: Outcome, other: Outcome, query: str, grades: Mapping[str, int]) -> tuple[MovedDocument, ...]:
    before, after = ({id: rank for rank, id in enumerate(outcome.run[query], start=1)} for outcome in (base, other))
    answers = [outcome.answers[query] for outcome in (base, other) if query in outcome.answers]
    titles = {id: title for answer in answers for id, title in answer.titles.items()}
    rows = [
        MovedDocument(
            id=id,
            grade=grade,
            before=before.get(id),
            after=after.get(id),
            why=_explain_move(other.answers.get(query), id),
            title=titles.get(id, ""),
        )
        for id, grade in grades.items()
        if grade > 0 and before.get(id) != after.get(id)
    ]
    # Sort by the better of the two ranks. A missing rank counts as very low.
    rows.sort(key=lambda row: (min(row.before or 10**6, row.after or 10**6), row.id))
    return tuple(rows[:5])


def _explain_move(answer: Answer | None, id: str) -> str:
    """Describe the stage that moved the document most, with its evidence. Returns "" for run files."""
    if answer is None:
        return ""
    if id not in answer.paths:
        return "not found by any store, or dropped by a stage"
    path = answer.paths[id]
    ranks = ", ".join(f"{step.where} {step.rank}" for step in path)
    # Collect the steps after retrieval. A reranker and the guard that follows it count as one step.
    stages: list[PathStep] = []
    for previous, step in zip([None, *path], path, strict=False):
        if previous and previous.kind == StageKind.RERANK and step.kind == StageKind.GUARD:
            stages[-1] = step._replace(where=f"{stages[-1].where} and {step.where}")
        elif step.kind != StageKind.RETRIEVE:
            stages.append(step)
    moves = [(step.rank - before.rank, step) for before, step in pairwise(stages) if step.rank != before.rank]
    if moves:
        change, stage = max(moves, key=lambda move: abs(move[0]))
        text = f"{ranks}; moved {'down' if change > 0 else 'up'} most by {stage.where}"
        return f"{text}: {stage.evidence}" if stage.evidence else text
    # No stage moved the document after fusion, so the fusion evidence explains its rank.
    return f"{ranks}; {stages[-1].evidence}" if stages and stages[-1].evidence else ranks
