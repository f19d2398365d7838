"""Recordings: store lists and reranker scores of every query, so that other settings need no model call.

A recording is JSONL. The first line describes the pipeline, each further line is one query. It contains no
text of queries or documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from resift._internal.files import file_lock
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import DataFormatError, InputError, ResiftError
from resift.evaluation.evaluated_systems import VARIABLE, System
from resift.evaluation.readers import Collection, json_rows
from resift.evaluation.runner import Progress, drop_partial_line
from resift.pipeline.fan_out import StoreRef, fan_out
from resift.pipeline.pipeline import MAX_NEIGHBOR_HITS, Pipeline
from resift.pipeline.pool import Pool
from resift.pipeline.stages import Rerank
from resift.protocols import declared_name, describe_scorer
from resift.ranking.adaptive_weights import CODE_DENSITY, MEAN_WORD_LENGTH
from resift.ranking.blend import Neighbors
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.weighted import weighted
from resift.types import (
    RETRIEVAL_MODES,
    JsonMapping,
    JsonObject,
    Languages,
    ScorerInfo,
    ScoreScale,
    check_languages,
    to_json,
)
from resift.validation import check_arguments

FORMAT = "resift-recording-2"
_FORMATS = ("resift-recording-1", FORMAT)
LIST_DEPTH = 300
"""RecordedQuery depth of the list of each store."""

_SCALES_IN_0_2: Mapping[str, ScoreScale] = {"cross-encoder": "logit", "zero-shot": "probability"}
_ENGLISH_IN_0_2 = ("cross-encoder", "late-interaction", "zero-shot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Description of the recorded pipeline; `depth` is the number of fused hits with a reranker score.

    `retrieval_modes` are lexical, dense or another mode, per store; they may be missing in old files.
    `configured` is the `stores:` of an equivalent pipeline file. `score_scale` and `languages` describe the
    reranker.
    """

    stores: tuple[str, ...]
    reranker: str
    depth: int
    k: int
    data: str = ""
    pipeline: str = ""
    key: str = ""
    retrieval_modes: tuple[str, ...] = ()
    configured: tuple[JsonMapping, ...] = ()
    score_scale: ScoreScale = "unknown"
    languages: Languages = "any"
    format: str = FORMAT

    @property
    def scorer(self) -> ScorerInfo:
        """Description of the reranker whose scores were recorded."""
        return ScorerInfo(
            name=self.reranker or "recorded", score_scale=self.score_scale, languages=self.languages
        )


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """One query: lists of (id, score), reranker scores, judgments, nearest neighbors and text properties."""

    query: str
    split: str
    lists: Mapping[str, Sequence[tuple[str, float | None]]]
    rerank: Mapping[str, float] = field(default_factory=dict)
    qrels: Mapping[str, int] = field(default_factory=dict)
    neighbors: Neighbors = field(default_factory=dict)
    code_density: float | None = None
    mean_word_length: float | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """The header and the queries of a file."""

    header: Header
    queries: tuple[RecordedQuery, ...]

    @property
    def splits(self) -> tuple[str, ...]:
        """The recorded splits, in order."""
        return tuple(dict.fromkeys(query.split for query in self.queries))

    def qrels(self) -> dict[str, dict[str, int]]:
        """Return the judgments of all queries."""
        return {query.query: dict(query.qrels) for query in self.queries}


def record(
    system: System,
    collections: Sequence[Collection],
    out: Path,
    *,
    index: Path | None,
    key: str,
    depth: int,
    progress: Progress | None = None,
) -> int:
    """Write a recording, or continue an interrupted one with the same key; return the number of new queries.

    The reranker scores the union of the best `depth` hits by weighted scores, by RRF and by min-max, so that
    replays with other fusion methods find most of the scores they need.
    """
    pipeline = system.open(index if system.needs_corpus else None)
    # In the stores of a pipeline file, the variable is replaced by the path of the index.
    configured = tuple(
        {**store, "path": str(index.absolute())}
        if index is not None and store.get("path") == f"${{{VARIABLE}}}"
        else store
        for store in system.stores
    )
    header = make_header(pipeline, system, key=key, depth=depth)
    header = replace(header, data=collections[0].name, configured=configured)
    busy = f"{out} is being written by another process. Wait for it, or choose another file."
    with file_lock(out.with_name(f".{out.name}.lock"), busy=busy):
        done = _start_or_resume(out, header)
        waiting = [
            (collection, query)
            for collection in collections
            for query in collection.queries
            if (collection.split, query) not in done
        ]
        run_sync(_record_queries(pipeline, waiting, out, depth=header.depth, progress=progress))
    return len(waiting)


def make_header(pipeline: Pipeline, system: System, *, key: str, depth: int) -> Header:
    """Return the header of a recording of this pipeline."""
    stage = _rerank_stage(pipeline)
    info = describe_scorer(stage.scorer) if stage else ScorerInfo(name="")
    return Header(
        stores=tuple(ref.name for ref in pipeline.stores),
        reranker=declared_name(stage.scorer) if stage else "",
        depth=depth if stage else 0,
        k=pipeline.k,
        pipeline=system.name,
        key=key,
        retrieval_modes=tuple(_retrieval_mode(ref) for ref in pipeline.stores),
        configured=system.stores,
        score_scale=info.score_scale,
        languages=info.languages,
    )


def _rerank_stage(pipeline: Pipeline) -> Rerank | None:
    return next((stage for stage in pipeline.stages if isinstance(stage, Rerank)), None)


def _start_or_resume(out: Path, header: Header) -> set[tuple[str, str]]:
    """Write the header of a new recording, or return (split, query) of the recorded queries."""
    if not out.exists() or not out.stat().st_size:
        out.write_text(header_line(header), encoding="utf-8")
        return set()
    # The index may have moved between two runs; the key shows whether it is the same.
    if replace(_read_header(out), configured=header.configured) != header:
        raise InputError(f"{out} is a recording of another pipeline. Choose another file, or remove it.")
    drop_partial_line(out)
    if out.read_bytes().count(b"\n") < 2:
        return set()
    return {(query.split, query.query) for query in read_recording(out).queries}


async def _record_queries(
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
                scores = await raw_scores(pipeline, collection.queries[query], depth)
                row = RecordedQuery(query, collection.split, qrels=collection.qrels[query], **scores)
                file.write(query_line(row))
                file.flush()
                if progress:
                    progress(number, len(waiting))
    finally:
        await pipeline.close()


async def raw_scores(pipeline: Pipeline, text: str, depth: int) -> JsonObject:
    """Return the fields of `RecordedQuery` that a query gets from stores and reranker."""
    branches = await fan_out(pipeline.stores, text, k=LIST_DEPTH)
    failures = {branch.ref.name: branch.failure for branch in branches if branch.failure}
    if failures:
        raise ResiftError(f"Cannot record while stores fail: {failures}. Run the command again to continue.")
    lists = [branch.hits for branch in branches]
    fused = weighted(lists, retrieval_modes=[_retrieval_mode(branch.ref) for branch in branches])
    fields = {
        "lists": {branch.ref.name: [(hit.id, hit.score) for hit in branch.hits] for branch in branches},
        "code_density": fused.records[0].evidence[CODE_DENSITY],
        "mean_word_length": fused.records[0].evidence.get(MEAN_WORD_LENGTH),
    }
    stage = _rerank_stage(pipeline)
    if stage is None:
        return fields
    pool = {hit.id: hit for hit in fused[:depth]}
    for method in ("rrf", "linear"):
        for hit in METHODS[method](lists, k=depth):
            pool.setdefault(hit.id, hit)
    hits = list(pool.values())
    scores = await stage.scorer.score(text, hits, deadline=Deadline.never())
    if scores.degraded:
        raise ResiftError(f"Cannot record: {scores.reason}. Run the command again to continue.")
    rerank = {
        hit.id: float(value) for hit, value in zip(hits, scores.values, strict=True) if value is not None
    }
    top = Pool(query=text, k=pipeline.k, hits=tuple(fused[:MAX_NEIGHBOR_HITS]))
    top = await pipeline.add_neighbors(top)
    if top.degraded:
        raise ResiftError(f"Cannot record: {'; '.join(top.reasons)}. Run the command again to continue.")
    return {**fields, "rerank": rerank, "neighbors": top.neighbors}


def _retrieval_mode(store: StoreRef) -> str:
    return RETRIEVAL_MODES.get(store.kind, store.kind)


def header_line(header: Header) -> str:
    """Return the first line of a recording."""
    return to_json(asdict(header)) + "\n"


def query_line(recorded: RecordedQuery) -> str:
    """Return the line of a query."""
    return to_json(asdict(recorded)) + "\n"


@check_arguments
def read_recording(path: Path | str) -> Recording:
    """Read a recording; raises DataFormatError with file and line."""
    path = Path(path)
    rows = json_rows(path, expected="a recording; make one with: resift record")
    line, first = next(rows)
    header = _parse_header(first, path, line)
    queries: dict[tuple[str, str], RecordedQuery] = {}
    for line, row in rows:
        query = _parse_query(row, path, line, header)
        if (query.split, query.query) in queries:
            raise DataFormatError(f"query {query.query!r} is recorded twice", file=str(path), line=line)
        queries[query.split, query.query] = query
    if not queries:
        raise DataFormatError("no query is recorded", file=str(path))
    return Recording(header, tuple(queries.values()))


def _read_header(path: Path) -> Header:
    with path.open(encoding="utf-8") as file:
        try:
            row = json.loads(file.readline())
        except ValueError:
            row = None
    if not isinstance(row, dict):
        raise DataFormatError("not a recording; choose another file", file=str(path), line=1)
    return _parse_header(row, path, 1)


def _parse_header(row: JsonMapping, path: Path, line: int) -> Header:
    if row.get("format") not in _FORMATS:
        message = "not a recording of this version; make one with: resift record"
        raise DataFormatError(message, file=str(path), line=line)
    try:
        fields: JsonObject = {**row, "stores": tuple(map(str, row["stores"])), "format": FORMAT}
        modes = map(str, fields.pop("searched", ()) or fields.get("retrieval_modes", ()))
        fields["retrieval_modes"] = tuple(RETRIEVAL_MODES.get(mode, mode) for mode in modes)
        fields["configured"] = tuple(dict(store) for store in row.get("configured", ()))
        if "score_scale" in row:
            fields["languages"] = check_languages(row["languages"])
        else:
            # Files of 0.2 have only the name of the reranker.
            fields["score_scale"] = _SCALES_IN_0_2.get(row["reranker"], "unknown")
            fields["languages"] = ("en",) if row["reranker"] in _ENGLISH_IN_0_2 else "any"
        return Header(**fields)
    except (TypeError, KeyError, ValueError):
        raise DataFormatError("the header has unknown or wrong fields", file=str(path), line=line) from None


def _parse_query(row: JsonMapping, path: Path, line: int, header: Header) -> RecordedQuery:
    try:
        lists = {
            str(store): tuple(
                (str(id), None if score is None else float(score)) for id, score in row["lists"][store]
            )
            for store in header.stores
        }
        rerank = {str(id): float(score) for id, score in row["rerank"].items()}
        qrels = {str(id): int(grade) for id, grade in row["qrels"].items()}
        # Files of 0.2 have other names, or lack neighbors and text properties.
        neighbors = {
            str(id): tuple((str(other), float(cosine)) for other, cosine in others)
            for id, others in (row.get("neighbors") or row.get("near") or {}).items()
        }
        density = row.get("code_density", row.get("marks"))
        length = row.get("mean_word_length", row.get("letters"))
        query = RecordedQuery(
            str(row["query"]),
            str(row["split"]),
            lists,
            rerank,
            qrels,
            neighbors,
            None if density is None else float(density),
            None if length is None else float(length),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        message = "not a recorded query: needs query, split, lists, rerank, qrels"
        raise DataFormatError(message, file=str(path), line=line) from None
    scores = [score for ranked in lists.values() for _, score in ranked if score is not None]
    scores += [*rerank.values(), *(cosine for others in neighbors.values() for _, cosine in others)]
    if not all(math.isfinite(score) for score in scores):
        raise DataFormatError("a score is not a finite number", file=str(path), line=line)
    return query
