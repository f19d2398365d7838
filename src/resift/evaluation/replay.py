"""Replay recorded lists and scores under another setting, with the functions of the pipeline and no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from resift.errors import InputError
from resift.evaluation.recording import Header, RecordedQuery, Recording
from resift.ranking.adaptive_weights import CODE_DENSITY, AdaptiveWeights, rerank_depth
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.gate import Profile, gate
from resift.ranking.shape import Blend, Guard, ShapePolicy, shape
from resift.rerankers.rescore import order_by_scores
from resift.types import FusedHits, Hit, JsonObject, Scores, StageKind, StageRecord, Trace, make_record

_CACHED_FUSIONS = 8
"""Fusion settings whose fused lists are kept; tuning changes other options more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Options that turn recorded scores into an order.

    With `depth` 0 there is no reranking; after `weighted` fusion it is the maximum depth. Without `blend` the
    order of the reranker is final. `blend_weight` None means adaptive. `weights` are in the order of the
    recorded stores, all 1 if empty. `dense_weight` applies to `weighted`. `floor` is (store, score), a
    threshold of the gate.
    """

    method: str = "rrf"
    k_param: float = 60.0
    dense_weight: float = AdaptiveWeights().dense_weight
    weights: tuple[float, ...] = ()
    depth: int = 20
    blend: str | None = Blend().method
    blend_weight: float | None = Blend().weight
    temperature: float = Blend().temperature
    neighbors: float = Blend().neighbors
    floor: tuple[str, float] | None = None
    guard: bool = False

    def plain(self) -> JsonObject:
        """Return the options with effect, as data; after `weighted` fusion the depth is adaptive."""
        data = asdict(self)
        if self.method != "rrf":
            del data["k_param"]
        if self.method != WEIGHTED:
            del data["dense_weight"]
        if self.method == WEIGHTED and self.depth:
            del data["depth"]
        if not self.depth:
            del data["blend"], data["guard"]
        if not self.depth or self.blend is None:
            del data["blend_weight"], data["temperature"], data["neighbors"]
        elif self.blend != "promote":
            del data["temperature"]
        return {name: value for name, value in data.items() if value not in (None, (), False)}


def default_setting(header: Header) -> Setting:
    """Return the setting of the default pipeline on this recording."""
    return Setting(
        method=WEIGHTED, depth=min(AdaptiveWeights().max_depth, header.depth), guard=header.depth > 0
    )


class Replay:
    """Ranks the queries of a recording under many settings; settings with the same fusion share it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        stores, modes = recording.header.stores, recording.header.retrieval_modes
        self._modes = modes or ("",) * len(stores)
        self._lists = [
            [recorded_hits(query.lists[name], name) for name in stores] for query in recording.queries
        ]
        self._retrieved = [
            [
                replace(
                    make_record(StageKind.RETRIEVE, "retrieve", hits, scored=True, source=name),
                    retrieval_mode=mode,
                )
                for hits, name, mode in zip(lists, stores, self._modes, strict=True)
            ]
            for lists in self._lists
        ]
        self._fused: dict[object, list[FusedHits]] = {}

    def run(self, setting: Setting, *, max_hits: int | None = None) -> dict[str, list[str]]:
        """Return query -> ids in order, at most `max_hits` each, as the pipeline ranks them."""
        stores = self.recording.header.stores
        if setting.weights and len(setting.weights) != len(stores):
            raise InputError(f"{len(setting.weights)} weights for {len(stores)} stores; give one each.")
        if setting.floor is not None and setting.floor[0] not in stores:
            raise InputError(f"The floor is for {setting.floor[0]!r}, which is not a recorded store.")
        policy = ShapePolicy(blend=blend_policy(setting), guard=Guard() if setting.guard else None)
        ranked = {}
        for i, (query, fused) in enumerate(zip(self.recording.queries, self._fuse(setting), strict=True)):
            ranked[query.query] = self._rank(i, query, fused, setting, policy)[:max_hits]
        return ranked

    def _fuse(self, setting: Setting) -> list[FusedHits]:
        """Return the fused lists of each query."""
        key = (setting.method, setting.k_param, setting.dense_weight, setting.weights)
        if key in self._fused:
            return self._fused[key]
        if len(self._fused) >= _CACHED_FUSIONS:
            self._fused.pop(next(iter(self._fused)))
        options: JsonObject = {"weights": list(setting.weights)} if setting.weights else {}
        if setting.method == "rrf":
            options["k_param"] = setting.k_param
        if setting.method == WEIGHTED:
            options |= {"retrieval_modes": self._modes, "adaptive_weights": adaptive_weights(setting)}
        else:
            options["sources"] = list(self.recording.header.stores)
        fused = []
        for query, lists in zip(self.recording.queries, self._lists, strict=True):
            if setting.method == WEIGHTED:
                # The text properties were recorded, because the texts were not.
                options |= {"code_density": query.code_density, "mean_word_length": query.mean_word_length}
            fused.append(METHODS[setting.method](lists, **options))
        self._fused[key] = fused
        return fused

    def _rank(
        self, i: int, query: RecordedQuery, fused: FusedHits, setting: Setting, policy: ShapePolicy
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
        result = shape(hits, k=k, trace=Trace(records), policy=policy, neighbors=query.neighbors)
        dropped = [id for record in result.records if record.kind is StageKind.CUT for id in record.dropped]
        return [*result.ids, *dropped]


def replay(recording: Recording, setting: Setting) -> dict[str, list[str]]:
    """Return query -> ids in order, as the pipeline ranks them under this setting."""
    return Replay(recording).run(setting)


def blend_policy(setting: Setting) -> Blend | None:
    """Return the blend of a setting, None without one."""
    if setting.blend is None:
        return None
    return Blend(
        weight=setting.blend_weight,
        method=setting.blend,  # type: ignore[arg-type]
        temperature=setting.temperature,
        neighbors=setting.neighbors,
        adaptive_weights=adaptive_weights(setting),
    )


def adaptive_weights(setting: Setting) -> AdaptiveWeights:
    """Return the default weights with the dense weight and the rerank depth of a setting."""
    depth = max(1, setting.depth)
    min_depth = min(AdaptiveWeights().min_depth, depth)
    return AdaptiveWeights(dense_weight=setting.dense_weight, max_depth=depth, min_depth=min_depth)


def recorded_hits(ranked: Sequence[tuple[str, float | None]], store: str) -> list[Hit]:
    """Return the recorded list of a store as hits."""
    # The id replaces the text, which a recording does not have: a hit without text is not reranked.
    return [Hit(id, id, score, store) for id, score in ranked]
