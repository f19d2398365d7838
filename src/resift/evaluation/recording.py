"""Recordings of store results and reranker scores per query. `Replay` ranks them under other settings.

A recording is a JSONL file: a description of the pipeline, then a query per line, without any text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from resift import types
from resift._internal.files import file_lock
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import DataFormatError, InputError, ResiftError
from resift.evaluation.evaluated_systems import VARIABLE, System
from resift.evaluation.readers import Collection, numbered_lines
from resift.evaluation.runner import Progress, drop_partial_line
from resift.pipeline.fan_out import StoreRef, fan_out, store_languages
from resift.pipeline.pipeline import MAX_NEIGHBOR_HITS, Pipeline
from resift.pipeline.pool import Pool
from resift.pipeline.stages import Rerank, Shape
from resift.protocols import declared_name, describe_scorer
from resift.ranking import order_model
from resift.ranking.blend import Neighbors
from resift.ranking.boosts import Boost, Recency
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.fusion.weighted import weighted
from resift.ranking.shape import Blend, Guard, ShapePolicy, shape
from resift.rerankers.rescore import order_by_scores
from resift.types import FusedHits, Hit, JsonObject, Languages, ScorerInfo, StageKind, make_record
from resift.validation import check_arguments

FORMAT: Final = "resift-recording-2"
LIST_DEPTH = 300  # number of hits recorded per store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Description of the recorded pipeline.

    `depth` is the number of fused hits with a reranker score. `configured` is the `stores:` section of an equivalent
    pipeline file. `score_scale` and `languages` describe the reranker; `store_languages` describes the embedders.
    """

    stores: tuple[str, ...]
    reranker: str
    depth: int
    k: int
    data: str = ""
    pipeline: str = ""
    key: str = ""
    retrieval_modes: tuple[str, ...] = ()
    configured: tuple[types.JsonMapping, ...] = ()
    score_scale: types.ScoreScale = "unknown"
    languages: Languages = "any"
    store_languages: tuple[Languages, ...] = ()
    recency: Recency | None = None
    boosts: tuple[Boost, ...] = ()
    format: Literal["resift-recording-2"] = FORMAT

    @property
    def scorer(self) -> ScorerInfo:
        """Description of the reranker whose scores were recorded."""
        return ScorerInfo(name=self.reranker or "recorded", score_scale=self.score_scale, languages=self.languages)

    @property
    def rules(self) -> tuple[Recency | Boost, ...]:
        """The recency rule and the boosts, in the order of `Setting.boosts`."""
        return (*([self.recency] if self.recency else []), *self.boosts)


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query: lists of (id, score), reranker scores, judgments, neighbors, facts, and fields that the boosts use."""

    query: str
    split: str
    lists: Mapping[str, Sequence[tuple[str, float | None]]]
    rerank: Mapping[str, float] = field(default_factory=dict)
    qrels: Mapping[str, int] = field(default_factory=dict)
    neighbors: Neighbors = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, JsonObject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """The header and the queries of a recording file."""

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
    """Write a recording, or resume an interrupted one with the same key. Returns the number of new queries."""
    pipeline = system.open(index if system.needs_corpus else None)
    # Replace the variable in the stores of a pipeline file with the path of the index.
    variable = f"${{{VARIABLE}}}"
    configured = tuple(
        {**store, "path": str(index.absolute())} if index and store.get("path") == variable else store
        for store in system.stores
    )
    stage, policy = _find_stages(pipeline)
    info = describe_scorer(stage.scorer) if stage else ScorerInfo(name="")
    header = Header(
        stores=tuple(ref.name for ref in pipeline.stores),
        reranker=declared_name(stage.scorer) if stage else "",
        depth=depth if stage else 0,
        k=pipeline.k,
        data=collections[0].name,
        pipeline=system.name,
        key=key,
        retrieval_modes=tuple(_retrieval_mode(ref) for ref in pipeline.stores),
        configured=configured,
        score_scale=info.score_scale,
        languages=info.languages,
        store_languages=tuple(store_languages(ref) or "any" for ref in pipeline.stores),
        recency=policy.recency,
        boosts=policy.boosts,
    )
    busy = f"{out} is being written by another process. Wait for it to finish, or choose another file."
    with file_lock(out.with_name(f".{out.name}.lock"), busy=busy):
        done = _start_or_resume(out, header)
        pending = [
            (collection, query)
            for collection in collections
            for query in collection.queries
            if (collection.split, query) not in done
        ]
        run_sync(_record_queries(pipeline, pending, out, depth=header.depth, progress=progress))
    return len(pending)


def _find_stages(pipeline: Pipeline) -> tuple[Rerank | None, ShapePolicy]:
    """Return the rerank stage, and the shape policy with recency or boosts. The guard is a separate stage."""
    policies = [stage.policy for stage in pipeline.stages if isinstance(stage, Shape)]
    policy = next((policy for policy in policies if policy.recency or policy.boosts), ShapePolicy())
    return next((stage for stage in pipeline.stages if isinstance(stage, Rerank)), None), policy


def _start_or_resume(out: Path, header: Header) -> set[tuple[str, str]]:
    """Write the header of a new recording, or return (split, query) for the queries already recorded."""
    if not out.exists() or not out.stat().st_size:
        out.write_text(recording_line(header), encoding="utf-8")
        return set()
    # The index may have moved between runs, so `configured` is not compared. The key identifies the index.
    with out.open(encoding="utf-8") as file:
        recorded = _decode(file.readline(), Header, out, 1)
    if replace(recorded, configured=header.configured) != header:
        raise InputError(f"{out} is a recording of another pipeline. Choose another file, or delete it.")
    drop_partial_line(out)
    if out.read_bytes().count(b"\n") < 2:
        return set()
    return {(query.split, query.query) for query in read_recording(out).queries}


async def _record_queries(
    pipeline: Pipeline, pending: Sequence[tuple[Collection, str]], out: Path, *, depth: int, progress: Progress | None
) -> None:
    try:
        with out.open("a", encoding="utf-8") as file:
            for number, (collection, query) in enumerate(pending, start=1):
                scores = await raw_scores(pipeline, collection.queries[query], depth)
                row = RecordedQuery(query, collection.split, qrels=collection.qrels[query], **scores)
                file.write(recording_line(row))
                file.flush()
                if progress:
                    progress(number, len(pending))
    finally:
        await pipeline.close()


async def raw_scores(pipeline: Pipeline, text: str, depth: int) -> JsonObject:
    """Run the stores and the reranker on a query; return the resulting fields of `RecordedQuery`."""
    branches = await fan_out(pipeline.stores, text, k=LIST_DEPTH)
    failures = {branch.ref.name: branch.failure for branch in branches if branch.failure}
    if failures:
        raise ResiftError(f"Cannot record, because stores failed: {failures}. Run the command again to continue.")
    lists = [branch.hits for branch in branches]
    fused = weighted(
        lists,
        query=text,
        retrieval_modes=[_retrieval_mode(branch.ref) for branch in branches],
        languages=[store_languages(branch.ref) or "any" for branch in branches],
    )
    fields = {
        "lists": {branch.ref.name: [(hit.id, hit.score) for hit in branch.hits] for branch in branches},
        "facts": dict(fused.records[0].evidence),
    }
    stage, policy = _find_stages(pipeline)
    names = [rule.field for rule in (policy.recency, *policy.boosts) if rule]
    fields["metadata"] = {
        hit.id: row for hit in fused if (row := {name: hit.metadata[name] for name in names if name in hit.metadata})
    }
    if stage is None:
        return fields
    pool = {hit.id: hit for hit in fused[:depth]}
    for method in ("rrf", "linear"):  # replays may use any method
        for hit in METHODS[method](lists, k=depth):
            pool.setdefault(hit.id, hit)
    hits = list(pool.values())
    scores = await stage.scorer.score(text, hits, deadline=Deadline.never())
    if scores.degraded:
        raise ResiftError(f"Cannot record: {scores.reason}. Run the command again to continue.")
    rerank = {hit.id: float(value) for hit, value in zip(hits, scores.values, strict=True) if value is not None}
    top = Pool(query=text, k=pipeline.k, hits=tuple(fused[:MAX_NEIGHBOR_HITS]))
    top = await pipeline.add_neighbors(top)
    if top.degraded:
        raise ResiftError(f"Cannot record: {'; '.join(top.reasons)}. Run the command again to continue.")
    return {**fields, "rerank": rerank, "neighbors": top.neighbors}


def _retrieval_mode(store: StoreRef) -> str:
    return types.RETRIEVAL_MODES.get(store.kind, store.kind)


def recording_line(part: Header | RecordedQuery) -> str:
    """Return a header or a query as a line of a recording."""
    return types.to_json(asdict(part)) + "\n"


@check_arguments
def read_recording(path: Path | str) -> Recording:
    """Read a recording. An invalid line raises DataFormatError with file and line."""
    path = Path(path)
    lines = numbered_lines(path, expected="a recording; create one with: resift record")
    header = _decode(lines[0][1], Header, path, 1)
    queries: dict[tuple[str, str], RecordedQuery] = {}
    for number, line in lines[1:]:
        query = _decode(line, RecordedQuery, path, number)
        if not query.lists.keys() >= set(header.stores):
            stores = ", ".join(header.stores)
            message = f"not a recorded query: the list of a store is missing (stores: {stores})"
            raise DataFormatError(message, file=path, line=number)
        if (query.split, query.query) in queries:
            raise DataFormatError(f"query {query.query!r} is recorded twice", file=path, line=number)
        queries[query.split, query.query] = query
    if not queries:
        raise DataFormatError("the recording contains no queries", file=path)
    return Recording(header, tuple(queries.values()))


def _decode(line: str, kind: type[T], path: Path, number: int) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        message = f"not a recorded query: {exc}"
        if kind is Header:
            message = "not a recording of this version; create one with: resift record"
        raise DataFormatError(message, file=path, line=number) from None


_CACHED_FUSIONS = 8  # number of fusion settings whose fused lists are cached. Tuning changes other options more often.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Options that determine how recorded scores are turned into a ranking.

    `depth` 0 disables reranking; after `weighted` fusion, it is a maximum. With `blend=None`, the reranker's order is
    final; `blend_weight=None` selects the fitted weight, to which the shifts are added. `weights` follow the order of
    the stores. If `weights` are empty, all are 1; if `boosts` are empty, the recorded weights are used.
    """

    method: str = "rrf"
    k_param: float = 60.0
    dense_shift: float = 0.0
    reranker_shift: float = 0.0
    weights: tuple[float, ...] = ()
    depth: int = 20
    blend: str | None = Blend().method
    blend_weight: float | None = Blend().weight
    temperature: float = Blend().temperature
    neighbors: float = Blend().neighbors
    guard: bool = False
    boosts: tuple[float, ...] = ()

    @property
    def unused(self) -> set[str]:
        """Names of the options that have no effect."""
        conditions = {
            "k_param": self.method == "rrf",
            "dense_shift": self.method == WEIGHTED,
            "blend": self.depth,
            "guard": self.depth,
            "blend_weight": self.depth and self.blend,
            "neighbors": self.depth and self.blend,
            "temperature": self.depth and self.blend == "promote",
            "reranker_shift": self.depth and self.blend and self.blend_weight is None,
        }
        return {name for name, is_used in conditions.items() if not is_used}

    def plain(self) -> JsonObject:
        """Return the options that have an effect, as plain data. After `weighted` fusion, the depth is adaptive."""
        unused = self.unused | ({"depth"} if self.method == WEIGHTED and self.depth else set())
        data = {name: value for name, value in asdict(self).items() if name not in unused}
        return {name: value for name, value in data.items() if value not in (None, (), False, 0)}


def default_setting(header: Header) -> Setting:
    """Return the setting that corresponds to the default pipeline for this recording."""
    return Setting(method=WEIGHTED, depth=min(order_model.MAX_DEPTH, header.depth), guard=header.depth > 0)


class Replay:
    """Ranks the queries of a recording under many settings. Fused lists are reused between settings."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        stores, modes = recording.header.stores, recording.header.retrieval_modes
        self._modes = modes or ("",) * len(stores)
        self._lists = [
            [recorded_hits(query.lists[name], name, query.metadata) for name in stores] for query in recording.queries
        ]
        self._retrieved = [
            [
                replace(
                    make_record(StageKind.RETRIEVE, "retrieve", hits, scored=True, source=name), retrieval_mode=mode
                )
                for hits, name, mode in zip(lists, stores, self._modes, strict=True)
            ]
            for lists in self._lists
        ]
        self._fused: dict[object, list[FusedHits]] = {}

    def run(self, setting: Setting, *, max_hits: int | None = None) -> dict[str, list[str]]:
        """Return query -> ids as ranked by the pipeline, best first, at most `max_hits` per query."""
        stores = self.recording.header.stores
        if setting.weights and len(setting.weights) != len(stores):
            raise InputError(f"{len(setting.weights)} weights for {len(stores)} stores; pass one per store.")
        rules = weigh_rules(self.recording.header, setting)
        policy = ShapePolicy(
            blend=blend_policy(setting) if setting.depth else None,
            guard=Guard() if setting.guard and setting.depth else None,
            recency=next((rule for rule in rules if isinstance(rule, Recency)), None),
            boosts=tuple(rule for rule in rules if isinstance(rule, Boost)),
        )
        fused = self._fuse(setting)
        return {
            query.query: self._rank(i, query, fused[i], setting, policy)[:max_hits]
            for i, query in enumerate(self.recording.queries)
        }

    def _fuse(self, setting: Setting) -> list[FusedHits]:
        """Return the fused lists of each query."""
        key = (setting.method, setting.k_param, setting.dense_shift, setting.weights)
        if key in self._fused:
            return self._fused[key]
        if len(self._fused) >= _CACHED_FUSIONS:
            self._fused.pop(next(iter(self._fused)))
        options: JsonObject = {"weights": list(setting.weights)} if setting.weights else {}
        if setting.method == "rrf":
            options["k_param"] = setting.k_param
        if setting.method == WEIGHTED:
            options |= {
                "retrieval_modes": self._modes,
                "languages": self.recording.header.store_languages or ("any",) * len(self._modes),
                "model": order_model.default_model().shifted(dense=setting.dense_shift),
            }
        else:
            options["sources"] = list(self.recording.header.stores)
        fused = []
        for query, lists in zip(self.recording.queries, self._lists, strict=True):
            if setting.method == WEIGHTED:
                options["facts"] = query.facts  # recorded, because they cannot be computed without the texts
            fused.append(METHODS[setting.method](lists, **options))
        self._fused[key] = fused
        return fused

    def _rank(self, i: int, query: RecordedQuery, fused: FusedHits, setting: Setting, policy: ShapePolicy) -> list[str]:
        """Rerank and shape the hits of one query; return their ids."""
        header = self.recording.header
        records: list[types.StageRecord] = [*self._retrieved[i], *fused.records]
        hits: Sequence[Hit] = fused
        if not hits or not (setting.depth or policy.recency or policy.boosts):
            return [hit.id for hit in hits]
        depth = setting.depth
        if depth and fused.records[0].weights:
            depth = order_model.rerank_depth([hit.score or 0.0 for hit in hits], max_depth=setting.depth)
        if depth:
            info = header.scorer
            values = [query.rerank.get(hit.id) for hit in hits[:depth]]
            scores = types.Scores(values, info.name)
            hits, record = order_by_scores(hits[:depth], values, scores, info, rest=hits[depth:])
            records.append(record)
        result = shape(hits, k=header.k, trace=types.Trace(records), policy=policy, neighbors=query.neighbors)
        dropped = [id for record in result.records if record.kind is StageKind.CUT for id in record.dropped]
        return [*result.ids, *dropped]


def replay(recording: Recording, setting: Setting) -> dict[str, list[str]]:
    """Return query -> ids, best first, as the pipeline ranks them under this setting."""
    return Replay(recording).run(setting)


def blend_policy(setting: Setting) -> Blend | None:
    """Return the blend of a setting, or None if it does not blend."""
    if setting.blend is None:
        return None
    return Blend(
        weight=setting.blend_weight,
        method=setting.blend,  # type: ignore[arg-type]
        temperature=setting.temperature,
        neighbors=setting.neighbors,
        reranker_shift=setting.reranker_shift,
    )


def weigh_rules(header: Header, setting: Setting) -> list[Recency | Boost]:
    """Return the recency rule and boosts of the recorded pipeline, with the weights of a setting."""
    weights = setting.boosts or [rule.weight for rule in header.rules]
    return [replace(rule, weight=weight) for rule, weight in zip(header.rules, weights, strict=True)]


def recorded_hits(
    ranked: Sequence[tuple[str, float | None]], store: str, metadata: Mapping[str, JsonObject] | None = None
) -> list[Hit]:
    """Return the recorded list of a store as hits."""
    # A recording contains no texts. The id stands in for the text, because hits without text are not reranked.
    return [Hit(id, id, score, store, (metadata or {}).get(id, {})) for id, score in ranked]
