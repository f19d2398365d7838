"""Record once what a pipeline's stores and reranker say, so that all else can be tried without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from resift._internal.file_lock import locked
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError
from resift.evaluation.beir import Collection
from resift.evaluation.collection_index import Progress
from resift.evaluation.record_file import (
    Header,
    Recorded,
    drop_half_line,
    header_line,
    query_line,
    read_header,
    read_recording,
)
from resift.evaluation.subjects import VARIABLE, Subject
from resift.pipeline.fan_out import failures_of, fan_out
from resift.pipeline.neighbours import MOST, with_neighbours
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.pool import Pool
from resift.pipeline.stages import Rerank
from resift.protocols import describe_scorer, own_name
from resift.ranking.adaptive_weights import CODE_DENSITY, MEAN_WORD_LENGTH
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.weighted import weighted
from resift.ranking.shape.neighbours import Near
from resift.types import Hit, JsonMapping, JsonObject, ScorerInfo

LIST_DEPTH = 300
"""How deep each store's list is recorded."""


def record(
    subject: Subject,
    collections: Sequence[Collection],
    out: Path,
    *,
    index: Path | None,
    key: str,
    depth: int,
    progress: Progress | None = None,
) -> int:
    """Write the recording, going on where an earlier one of the same key stopped; return how many are new.

    The reranker scores the union of the best `depth` by weighted scores, by RRF and by min-max, so that
    replays with other fusions find most of what they would rerank.
    """
    pipeline = subject.open(index if subject.needs_corpus else None)
    header = replace(
        header_of(pipeline, subject, key=key, depth=depth),
        data=collections[0].name,
        configured=_configured(subject, index),
    )
    busy = f"{out} is being written by another process. Wait for it, or choose another file."
    with locked(out.with_name(f".{out.name}.lock"), busy=busy):
        done = _begun(out, header)
        waiting = [
            (collection, query)
            for collection in collections
            for query in collection.queries
            if (collection.split, query) not in done
        ]
        run_sync(_record_all(pipeline, waiting, out, depth=header.depth, progress=progress))
    return len(waiting)


def header_of(pipeline: Pipeline, subject: Subject, *, key: str, depth: int) -> Header:
    """Return what a recording of this pipeline says of itself."""
    stage = _rerank_stage(pipeline)
    info = describe_scorer(stage.scorer) if stage else ScorerInfo(name="")
    return Header(
        stores=tuple(ref.name for ref in pipeline.stores),
        reranker=own_name(stage.scorer) if stage else "",
        depth=depth if stage else 0,
        k=pipeline.k,
        pipeline=subject.name,
        key=key,
        searched=tuple(ref.kind for ref in pipeline.stores),
        configured=subject.stores,
        score_scale=info.score_scale,
        languages=info.languages,
    )


def _rerank_stage(pipeline: Pipeline) -> Rerank | None:
    return next((stage for stage in pipeline.stages if isinstance(stage, Rerank)), None)


def _configured(subject: Subject, index: Path | None) -> tuple[JsonMapping, ...]:
    """Return the `stores:` of a pipeline file, with the index where the collection's place was kept open."""
    place = f"${{{VARIABLE}}}"
    return tuple(
        {**store, "path": str(index.absolute())}
        if index is not None and store.get("path") == place
        else store
        for store in subject.stores
    )


def _begun(out: Path, header: Header) -> set[tuple[str, str]]:
    if not out.exists() or not out.stat().st_size:
        out.write_text(header_line(header), encoding="utf-8")
        return set()
    # An index may have moved between two runs: the key tells whether it is the same.
    if replace(read_header(out), configured=header.configured) != header:
        raise InputError(f"{out} holds a recording of something else. Choose another file, or remove it.")
    drop_half_line(out)
    if out.read_bytes().count(b"\n") < 2:
        return set()
    return {(one.split, one.query) for one in read_recording(out).queries}


async def _record_all(
    pipeline: Pipeline,
    waiting: Sequence[tuple[Collection, str]],
    out: Path,
    *,
    depth: int,
    progress: Progress | None,
) -> None:
    try:
        with out.open("a", encoding="utf-8") as file:
            for number, (collection, query) in enumerate(waiting, start=1):
                text = collection.queries[query]
                said = await raw_scores(pipeline, text, depth)
                one = Recorded(query=query, split=collection.split, qrels=collection.qrels[query], **said)
                file.write(query_line(one))
                file.flush()
                if progress:
                    progress(number, len(waiting))
    finally:
        await pipeline.close()


async def raw_scores(pipeline: Pipeline, text: str, depth: int) -> JsonObject:
    """Return the lists, scores, neighbours, marks and letters per word of a recorded query."""
    stage = _rerank_stage(pipeline)
    branches = await fan_out(pipeline.stores, text, k=LIST_DEPTH)
    failures = failures_of(branches)
    if failures:
        raise ResiftError(f"Cannot record while stores fail: {failures}. Start again to go on from here.")
    lists = [branch.hits for branch in branches]
    fused = weighted(lists, searched=[branch.ref.kind for branch in branches])
    said = {
        "lists": {branch.ref.name: [(hit.id, hit.score) for hit in branch.hits] for branch in branches},
        "marks": fused.records[0].evidence[CODE_DENSITY],
        "letters": fused.records[0].evidence.get(MEAN_WORD_LENGTH),
    }
    if stage is None:
        return said
    pool = _pool(lists, fused, depth)
    scores = await stage.scorer.score(text, pool, deadline=Deadline.never())
    if scores.degraded:
        raise ResiftError(f"Cannot record: {scores.reason}. Start again to go on from here.")
    known = zip(pool, scores.values, strict=True)
    rerank = {hit.id: float(value) for hit, value in known if value is not None}
    return {**said, "rerank": rerank, "near": await _near(pipeline, text, fused[:MOST])}


async def _near(pipeline: Pipeline, text: str, hits: Sequence[Hit]) -> Near:
    asked = await with_neighbours(pipeline.stores, Pool(query=text, k=pipeline.k, hits=tuple(hits)))
    if asked.degraded:
        raise ResiftError(f"Cannot record: {'; '.join(asked.reasons)}. Start again to go on from here.")
    return asked.near


def _pool(lists: Sequence[Sequence[Hit]], fused: Sequence[Hit], depth: int) -> list[Hit]:
    chosen = {hit.id: hit for hit in fused[:depth]}
    for method in ("rrf", "linear"):
        for hit in METHODS[method](lists, k=depth):
            chosen.setdefault(hit.id, hit)
    return list(chosen.values())
