"""Ask a pipeline every judged query, one at a time, and keep what it answered."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from resift._internal.sync import run_sync
from resift.evaluation.beir import Collection
from resift.evaluation.code_digest import code_digest
from resift.evaluation.collection_index import Progress, index_of
from resift.evaluation.measures import Judge, Quality
from resift.evaluation.subjects import Subject
from resift.evaluation.work_file import Answer, Stop, WorkFile, asked_digest, work_key
from resift.explain.reasons import evidence_in_words
from resift.models.embedder import DEFAULT_EMBEDDER
from resift.pipeline.pipeline import Pipeline
from resift.types import Hit, Ranking, StageKind

PERCENTILES = (50, 95, 99)
EXPLAINED = 10
"""Of how many first hits the paths are kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pipeline or run file, measured."""

    name: str
    quality: Quality
    run: Mapping[str, Sequence[str]]
    answers: Mapping[str, Answer]
    reused: int = 0

    @property
    def latency(self) -> dict[str, float]:
        """Percentiles in ms over warm searches; where all were cold, over those."""
        warm = [answer.ms for answer in self.answers.values() if answer.warm]
        return latency(warm or [answer.ms for answer in self.answers.values()])

    @property
    def degraded(self) -> dict[str, str]:
        """Query -> reason, for answers that did less than asked."""
        return {query: answer.reason for query, answer in self.answers.items() if answer.reason}


def index_for(
    subjects: Sequence[Subject], collection: Collection, cache: Path, *, progress: Progress | None = None
) -> Path | None:
    """Return the index that these pipelines search, or None where none of them searches the collection."""
    if not any(subject.needs_corpus for subject in subjects):
        return None
    embedder = DEFAULT_EMBEDDER if any(subject.needs_vectors for subject in subjects) else None
    return index_of(collection, cache, embedder=embedder, progress=progress)


def evaluate(
    subject: Subject,
    collection: Collection,
    judge: Judge,
    *,
    index: Path | None,
    cache: Path,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Answer every judged query and measure the answers; answers of an earlier run are used again."""
    work = WorkFile(cache / "answers" / f"{work_file_key(subject, collection)}.jsonl")
    with work.open(fresh=fresh):
        waiting = [query for query, text in collection.queries.items() if work.find(query, text) is None]
        if waiting:
            # Opened here and not inside the loop: opening may itself wait for that loop.
            pipeline = subject.open(index if subject.needs_corpus else None)
            run_sync(_answer_all(pipeline, collection, waiting, work, progress))
    answers = {query: work.answers[query, asked_digest(text)] for query, text in collection.queries.items()}
    run = {query: answer.ids for query, answer in answers.items()}
    return Outcome(subject.name, judge.quality(run), run, answers, len(collection.queries) - len(waiting))


def work_file_key(subject: Subject, collection: Collection) -> str:
    """Return the key under which this pipeline's answers on this corpus are kept."""
    corpus = collection.corpus_digest() if subject.needs_corpus else ""
    return work_key(code_digest(), subject.identity, corpus)


async def _answer_all(
    pipeline: Pipeline,
    collection: Collection,
    waiting: Sequence[str],
    work: WorkFile,
    progress: Progress | None,
) -> None:
    known = len(collection.queries) - len(waiting)
    try:
        for done, query in enumerate(waiting, start=1):
            text, judged = collection.queries[query], collection.qrels[query]
            # The first search loads models and maps: it is answered like the others, but not timed.
            work.add(await _answer(pipeline, query, text, judged, warm=done > 1))
            if progress:
                progress(known + done, len(collection.queries))
    finally:
        await pipeline.close()


async def _answer(
    pipeline: Pipeline, query: str, text: str, judged: Mapping[str, int], *, warm: bool
) -> Answer:
    started = time.perf_counter()
    ranking = await pipeline.search(text)
    ms = (time.perf_counter() - started) * 1000
    hits = answer_of(ranking)
    explained = [hit for place, hit in enumerate(hits) if place < EXPLAINED or judged.get(hit.id, 0) > 0]
    return Answer(
        query=query,
        asked=asked_digest(text),
        ids=tuple(hit.id for hit in hits),
        ms=round(ms, 3),
        warm=warm,
        k=pipeline.k,
        paths={hit.id: _path(ranking, hit.id) for hit in explained},
        reason=ranking.reason if ranking.degraded else None,
        timings={stage: round(value, 3) for stage, value in ranking.timings.items()},
    )


def _path(ranking: Ranking, id: str) -> list[Stop]:
    return [
        Stop(
            step.kind.value,
            step.source if step.kind is StageKind.RETRIEVE else step.name,
            step.rank,
            evidence_in_words(step),
        )
        for step in ranking.path(id)
        if not step.cut
    ]


def answer_of(ranking: Ranking) -> list[Hit]:
    """Return the hits, and behind them what only k left out, so that recall@100 can be told at k=10.

    What a gate, a fold or a quota threw out stays out.
    """
    left = {hit.id: hit for hit in reversed(ranking.cut)}
    behind = [left[id] for record in ranking.trace.of(StageKind.CUT) for id in record.left_out if id in left]
    seen: dict[str, Hit] = {}
    for hit in (*ranking.hits, *behind):
        seen.setdefault(hit.id, hit)
    return list(seen.values())


def percentile(times_ms: Sequence[float], percent: float) -> float:
    """Return the smallest measured time that at least `percent` % of the times do not exceed."""
    # By the nearest rank, without interpolation: each percentile is a time that was measured.
    ordered = sorted(times_ms)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def latency(times_ms: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 in milliseconds; nothing for no times."""
    if not times_ms:
        return {}
    return {f"p{percent}": round(percentile(times_ms, percent), 3) for percent in PERCENTILES}
