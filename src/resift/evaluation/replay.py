"""Run the real pipeline on recorded lists and scores: other fusion, depth, floors or blend, no model call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError
from resift.evaluation.recording import Header, Recorded, Recording
from resift.evaluation.running import hits_beyond_k
from resift.pipeline.gating import Gate
from resift.pipeline.over_fetch import OverFetch
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.pool import Pool
from resift.pipeline.shaping import Shape
from resift.pipeline.stages import AdaptiveDepth, Fuse, Rerank
from resift.protocols import Reranker, Scorer
from resift.ranking.adaptive_weights import Trust
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.rerankers import FusionReranker
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.fusion.weighted import WeightedReranker
from resift.ranking.gate import Profile
from resift.ranking.shape import Blend, Guard, ShapePolicy
from resift.ranking.shape.neighbours import Near
from resift.types import Hit, JsonObject, ScorerInfo, Scores


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
    vectors: float = Trust().vectors
    weights: tuple[float, ...] = ()
    depth: int = 20
    blend: str | None = Blend().method
    blend_weight: float | None = Blend().weight
    temperature: float = Blend().temperature
    neighbours: float = Blend().neighbours
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
    return Setting(method=WEIGHTED, depth=min(Trust().most, header.depth), guard=header.depth > 0)


def replay(recording: Recording, setting: Setting) -> dict[str, list[str]]:
    """Return query -> ids in order, as the real pipeline gives them for this setting."""
    return run_sync(_replayed(recording, setting))


def coverage(recording: Recording, setting: Setting) -> float:
    """Return which part of what this setting would rerank has a recorded score."""
    if not setting.depth:
        return 1.0
    asked = known = 0
    fuse = METHODS[setting.method]
    known_facts = {"searched": recording.header.kinds} if setting.method == WEIGHTED else {}
    for one in recording.queries:
        lists = [recorded_hits(ranked, name) for name, ranked in one.lists.items()]
        top = fuse(lists, k=setting.depth, **known_facts, **_fuse_options(setting))
        asked += len(top)
        known += sum(hit.id in one.rerank for hit in top)
    return known / asked if asked else 1.0


async def _replayed(recording: Recording, setting: Setting) -> dict[str, list[str]]:
    header = recording.header
    stores = [_RecordedStore(name, kind) for name, kind in zip(header.stores, header.kinds, strict=True)]
    scorer = _RecordedScorer(recording.header.scorer)
    alike = _RecordedNear()
    weigh = WeightedReranker(trust=trust_of(setting), weights=setting.weights or None)
    pipeline = _pipeline(stores, scorer, alike, weigh, setting, k=header.k)
    run = {}
    for one in recording.queries:
        # Recorded with the lists, as the texts they are read from are not.
        weigh.marks, weigh.letters = one.marks, one.letters
        for store in stores:
            store.ranked = one.lists[store.name]
        scorer.known, alike.near = one.rerank, one.near
        ranking = await pipeline.search(one.query)
        run[one.query] = [hit.id for hit in hits_beyond_k(ranking)]
    return run


def _pipeline(
    stores: Sequence[_RecordedStore],
    scorer: Scorer,
    alike: _RecordedNear,
    weigh: WeightedReranker,
    setting: Setting,
    *,
    k: int,
) -> Pipeline:
    _check(setting, stores)
    stages: JsonObject = {}
    if setting.floor is not None:
        store, least = setting.floor
        stages["gate"] = Gate(Profile(default=least, signal=store))
    if setting.depth:
        adaptive = AdaptiveDepth(trust_of(setting), otherwise=setting.depth)
        stages["rerank"] = Rerank(scorer, depth=adaptive)
        stages["guard"] = alike
        stages["shape"] = Shape(
            ShapePolicy(blend=policy_of(setting), guard=Guard() if setting.guard else None), name="guard"
        )

    def fuse(names: Sequence[str]) -> Reranker:
        if setting.method == WEIGHTED:
            return weigh
        return FusionReranker(setting.method, sources=list(names), **_fuse_options(setting))

    # All that was recorded: the stores' own limits were at work then.
    whole = OverFetch(factor=1, minimum=1_000_000)
    return Pipeline(stores, fuse=Fuse(make=fuse), k=k, fetch=whole, **stages)


def _check(setting: Setting, stores: Sequence[_RecordedStore]) -> None:
    if setting.weights and len(setting.weights) != len(stores):
        raise InputError(f"{len(setting.weights)} weights for {len(stores)} stores; give one each.")
    if setting.floor is not None and setting.floor[0] not in {store.name for store in stores}:
        raise InputError(f"The floor is for {setting.floor[0]!r}, which is no recorded store.")


def policy_of(setting: Setting) -> Blend | None:
    """Return the blend of a setting, None where it has none."""
    if setting.blend is None:
        return None
    return Blend(
        weight=setting.blend_weight,
        method=setting.blend,  # type: ignore[arg-type]
        temperature=setting.temperature,
        neighbours=setting.neighbours,
        trust=trust_of(setting),
    )


def trust_of(setting: Setting) -> Trust:
    """Return the trust of a setting: what it says of vectors and depth, all else as by default."""
    most = max(1, setting.depth)
    return replace(Trust(), vectors=setting.vectors, most=most, least=min(Trust().least, most))


def _fuse_options(setting: Setting) -> JsonObject:
    options: JsonObject = {"weights": list(setting.weights)} if setting.weights else {}
    if setting.method == "rrf":
        options["k_param"] = setting.k_param
    return options


def recorded_hits(ranked: Sequence[tuple[str, float | None]], store: str) -> list[Hit]:
    """Return a store's recorded list as hits."""
    # The id stands in for the text, which a recording does not hold: a hit without text is not reranked.
    return [Hit(id, id, score, store) for id, score in ranked]


class _RecordedStore:
    """Answers what was recorded for the query at hand."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.ranked: Sequence[tuple[str, float | None]] = ()

    async def search(self, query: str, *, k: int, where: object = None) -> list[Hit]:
        return recorded_hits(self.ranked, self.name)[:k]


class _RecordedScorer:
    """Scores what was recorded; a hit without a recorded score has none."""

    def __init__(self, info: ScorerInfo) -> None:
        self.name = info.name
        self.info = info
        self.known: Mapping[str, float] = {}

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        return Scores([self.known.get(hit.id) for hit in hits], self.name)


class _RecordedNear:
    """A stage that says what was recorded to be alike."""

    name = "neighbours"

    def __init__(self) -> None:
        self.near: Near = {}

    async def __call__(self, pool: Pool) -> Pool:
        return replace(pool, near=self.near)


def only(recording: Recording, queries: Sequence[Recorded]) -> Recording:
    """Return the recording of these queries."""
    return Recording(recording.header, tuple(queries))
