"""Replay recorded lists and scores under another setting, with the functions of the pipeline and no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from resift.errors import InputError
from resift.evaluation.recording import Header, Recorded, Recording
from resift.ranking.adaptive_weights import CODE_DENSITY, AdaptiveWeights, rerank_depth
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.gate import Profile, gate
from resift.ranking.shape import Blend, Guard, ShapePolicy, shape
from resift.rerankers.rescore import order_by_scores
from resift.types import (
    RETRIEVAL_MODES,
    FusedHits,
    Hit,
    JsonObject,
    Scores,
    StageKind,
    StageRecord,
    Trace,
    make_record,
)

_CACHED_FUSIONS = 8
"""Fusion settings whose fused lists are kept; tuning changes other options more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to turn recorded scores into an order.

    `depth` 0 leaves the reranker out; after `weighted` fusion it is the most that is read. `blend` None lets
    the reranker's order stand, `blend_weight` None follows the evidence. `weights` are per store in recorded
    order, 1 each where empty; `vectors` is the part of lists found by vectors, for `weighted`. `floor` is
    (store, score): the gate's floor on that store's scores.
    """

    method: str = "rrf"
    k_param: float = 60.0
    vectors: float = AdaptiveWeights().dense_weight
    weights: tuple[float, ...] = ()
    depth: int = 20
    blend: str | None = Blend().method
    blend_weight: float | None = Blend().weight
    temperature: float = Blend().temperature
    neighbours: float = Blend().neighbors
    floor: tuple[str, float] | None = None
    guard: bool = False

    def plain(self) -> JsonObject:
        """Return the options with effect, as data; after `weighted` fusion the depth follows the scores."""
        data = asdict(self)
        if self.method != "rrf":
            del data["k_param"]
        if self.method != WEIGHTED:
            del data["vectors"]
        if self.method == WEIGHTED and self.depth:
            del data["depth"]
        if not self.depth:
            del data["blend"], data["guard"]
        if not self.depth or self.blend is None:
            del data["blend_weight"], data["temperature"], data["neighbours"]
        elif self.blend != "promote":
            del data["temperature"]
        return {name: value for name, value in data.items() if value not in (None, (), False)}


def default_setting(header: Header) -> Setting:
    """Return the setting that stands for the default pipeline on this recording."""
    return Setting(
        method=WEIGHTED, depth=min(AdaptiveWeights().max_depth, header.depth), guard=header.depth > 0
    )


class Replay:
    """Ranks the queries of a recording under many settings; settings with the same fusion share it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        header = recording.header
        modes = [RETRIEVAL_MODES.get(kind, kind) for kind in header.kinds]
        self._modes = modes
        self._lists = [
            [recorded_hits(query.lists[name], name) for name in header.stores] for query in recording.queries
        ]
        self._retrieved = [
            [
                replace(
                    make_record(StageKind.RETRIEVE, "retrieve", hits, scored=True, source=name),
                    retrieval_mode=mode,
                )
                for hits, name, mode in zip(lists, header.stores, modes, strict=True)
            ]
            for lists in self._lists
        ]
        self._fused: dict[object, list[FusedHits]] = {}

    def run(self, setting: Setting, *, max_hits: int | None = None) -> dict[str, list[str]]:
        """Return query -> ids in order, at most `max_hits` each, as the pipeline ranks them."""
        _check_setting(setting, self.recording.header.stores)
        blend = blend_policy(setting)
        policy = ShapePolicy(blend=blend, guard=Guard() if setting.guard else None)
        ranked = {}
        for i, (query, fused) in enumerate(zip(self.recording.queries, self._fuse(setting), strict=True)):
            ranked[query.query] = self._rank(i, query, fused, setting, policy)[:max_hits]
        return ranked

    def _fuse(self, setting: Setting) -> list[FusedHits]:
        key = (setting.method, setting.k_param, setting.vectors, setting.weights)
        if key not in self._fused:
            if len(self._fused) >= _CACHED_FUSIONS:
                self._fused.pop(next(iter(self._fused)))
            self._fused[key] = [
                fuse_recorded(query, lists, setting, self._modes, self.recording.header.stores)
                for query, lists in zip(self.recording.queries, self._lists, strict=True)
            ]
        return self._fused[key]

    def _rank(
        self, i: int, query: Recorded, fused: FusedHits, setting: Setting, policy: ShapePolicy
    ) -> list[str]:
        """Gate, rerank and shape one query, and return its ids."""
        k = self.recording.header.k
        records: list[StageRecord] = [*self._retrieved[i], *fused.records]
        hits: Sequence[Hit] = fused
        if setting.floor is not None:
            store, threshold = setting.floor
            profile = Profile(default=threshold, signal=store)
            gated = gate(hits, trace=Trace(records), profile=profile, rerank_top_n=k)
            hits = gated.kept
            records.append(gated.record)
        if not setting.depth or not hits:
            return [hit.id for hit in hits]
        depth = setting.depth
        if fused.records[0].weights:
            rules = adaptive_weights(setting)
            density = fused.records[0].evidence.get(CODE_DENSITY, 0.0)
            depth = rerank_depth([hit.score or 0.0 for hit in hits], rules, code_density=density)
        if depth:
            info = self.recording.header.scorer
            values = [query.rerank.get(hit.id) for hit in hits[:depth]]
            scores = Scores(values, info.name)
            hits, record = order_by_scores(hits[:depth], values, scores, info, rest=hits[depth:])
            records.append(record)
        result = shape(hits, k=k, trace=Trace(records), policy=policy, neighbors=query.near)
        order = [*result.ids]
        for record in result.records:
            if record.kind is StageKind.CUT:
                order += record.dropped
        return order


def replay(recording: Recording, setting: Setting) -> dict[str, list[str]]:
    """Return query -> ids in order, as the pipeline ranks them under this setting."""
    return Replay(recording).run(setting)


def coverage(recording: Recording, setting: Setting) -> float:
    """Return the share of the hits that this setting would rerank which have a recorded score."""
    if not setting.depth:
        return 1.0
    header = recording.header
    modes = [RETRIEVAL_MODES.get(kind, kind) for kind in header.kinds]
    reranked = known = 0
    for query in recording.queries:
        lists = [recorded_hits(query.lists[name], name) for name in header.stores]
        top = fuse_recorded(query, lists, setting, modes, header.stores)[: setting.depth]
        reranked += len(top)
        known += sum(hit.id in query.rerank for hit in top)
    return known / reranked if reranked else 1.0


def fuse_recorded(
    query: Recorded,
    lists: Sequence[Sequence[Hit]],
    setting: Setting,
    modes: Sequence[str],
    stores: Sequence[str],
) -> FusedHits:
    """Return the fused lists of one query."""
    options: JsonObject = {"weights": list(setting.weights)} if setting.weights else {}
    if setting.method == "rrf":
        options["k_param"] = setting.k_param
    if setting.method == WEIGHTED:
        # The text properties were recorded, because the texts were not.
        options |= {
            "retrieval_modes": modes,
            "adaptive_weights": adaptive_weights(setting),
            "code_density": query.marks,
            "mean_word_length": query.letters,
        }
    else:
        options["sources"] = list(stores)
    fused: FusedHits = METHODS[setting.method](lists, **options)
    return fused


def _check_setting(setting: Setting, stores: Sequence[str]) -> None:
    if setting.weights and len(setting.weights) != len(stores):
        raise InputError(f"{len(setting.weights)} weights for {len(stores)} stores; give one each.")
    if setting.floor is not None and setting.floor[0] not in stores:
        raise InputError(f"The floor is for {setting.floor[0]!r}, which is not a recorded store.")


def blend_policy(setting: Setting) -> Blend | None:
    """Return the blend of a setting, None without one."""
    if setting.blend is None:
        return None
    return Blend(
        weight=setting.blend_weight,
        method=setting.blend,  # type: ignore[arg-type]
        temperature=setting.temperature,
        neighbors=setting.neighbours,
        adaptive_weights=adaptive_weights(setting),
    )


def adaptive_weights(setting: Setting) -> AdaptiveWeights:
    """Return the default weights with the dense weight and the rerank depth of a setting."""
    depth = max(1, setting.depth)
    min_depth = min(AdaptiveWeights().min_depth, depth)
    return AdaptiveWeights(dense_weight=setting.vectors, max_depth=depth, min_depth=min_depth)


def recorded_hits(ranked: Sequence[tuple[str, float | None]], store: str) -> list[Hit]:
    """Return the recorded list of a store as hits."""
    # The id replaces the text, which a recording does not have: a hit without text is not reranked.
    return [Hit(id, id, score, store) for id, score in ranked]


def only(recording: Recording, queries: Sequence[Recorded]) -> Recording:
    """Return the recording of these queries."""
    return Recording(recording.header, tuple(queries))
