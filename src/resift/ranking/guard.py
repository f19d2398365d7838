"""Rules that protect or prefer hits: strong first-stage hits, protected metadata, trusted source types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from resift.errors import InputError
from resift.events import Sink
from resift.ranking.blend import ShapeResult, shape_result
from resift.ranking.evidence import evidence
from resift.types import Hit, StageKind, StageRecord, Trace, get_trace
from resift.validation import DEFAULT_K, check_k, check_options, option

STAGE = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Criteria for a strong first-stage hit: it ranks first in at least `firsts` lists, or leads by `margin`.

    The margin is the lead over the second hit in the fused list, as a share of the range of fused scores. A
    hit scored by more than `opinions` rerankers is not guarded.
    """

    firsts: int = option("A hit is strong if it ranks first in at least this many lists.", default=2, min=1)
    margin: float = option(
        "A hit is strong if it leads the fused list by this share of the score range.", default=0.5, min=0
    )
    opinions: int = option("Hits scored by more rerankers than this are not guarded.", default=1, min=1)

    def __post_init__(self) -> None:
        check_options(self)


def guard(
    hits: Sequence[Hit],
    *,
    n: int = DEFAULT_K,
    trace: Trace | None = None,
    policy: Guard | None = None,
    strong: Mapping[str, str] | None = None,
    sink: Sink | None = None,
) -> ShapeResult:
    """Move strong first-stage hits that fell below position n back into the top n; other hits move down.

    `strong` is the result of `Evidence.strong_hits`; by default it is computed from the trace.
    """
    check_k(n, name="n", min=1)
    if strong is None:
        known = evidence(get_trace(hits) if trace is None else trace, [hit.id for hit in hits])
        rules = policy or Guard()
        strong = known.strong_hits(firsts=rules.firsts, margin=rules.margin, opinions=rules.opinions)
    demoted = [hit for hit in hits[n:] if hit.id in strong] if strong else []
    demoted_ids = {hit.id for hit in demoted}
    rest = [hit for hit in hits if hit.id not in demoted_ids]
    # Strong hits that are already in the top n keep their positions.
    free = max(0, n - len(demoted))
    top = [hit for hit in rest[:n] if hit.id in strong]
    others = [hit for hit in rest[:n] if hit.id not in strong][: max(0, free - len(top))]
    leading = {hit.id for hit in (*top, *others)}
    order = [h for h in rest if h.id in leading] + demoted + [h for h in rest if h.id not in leading]
    return shape_result(
        STAGE,
        hits,
        order if demoted else hits,
        kind=StageKind.GUARD,
        hit_notes={hit.id: f"guarded: {strong[hit.id]}, so it stays in the top {n}" for hit in demoted},
        protected=frozenset(strong),
        sink=sink,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """Source types in order of preference, and the margin within which scores count as equal.

    The i-th of n types (counted from 0) gets a boost of scale × margin × (n − 1 − i) / n, so boosts differ by
    less than the margin. Other types get no boost. `scales` reduces margin and boosts for providers whose
    scores are closer together.
    """

    order: tuple[str, ...] = option("Source types, most trusted first.", default=("USER", "EXCEL", "COSTAR", "PDF"))
    margin: float = option("Hits whose scores differ by at least this much are never reordered.", default=0.01, min=0)
    key: str = option("Metadata key of the source type.", default="source_type")
    scales: Mapping[str, float] = option(
        "Factor for the margin per provider.", default_factory=lambda: MappingProxyType({"semantic-bm25": 0.5}), min=0
    )

    def __post_init__(self) -> None:
        check_options(self)
        if len(set(self.order)) != len(self.order):
            raise InputError(f"Precedence order contains a type twice: {', '.join(self.order)}.")

    def margin_for(self, provider: str | None) -> float:
        """Return the smallest significant difference between scores of this provider."""
        return self.margin * self.scales.get(provider or "", 1.0)

    def boost(self, source_type: str, provider: str | None) -> float:
        """Return the boost for a hit with this source type and provider."""
        size = len(self.order)
        position = self.order.index(source_type) if source_type in self.order else size - 1
        return self.margin_for(provider) * (size - 1 - position) / size if size else 0.0

    def rank(self, source_type: str) -> int:
        """Return the position of a source type; unknown types come last."""
        return self.order.index(source_type) if source_type in self.order else len(self.order)


def precede(hits: Sequence[Hit], *, policy: Precedence | None = None, sink: Sink | None = None) -> ShapeResult:
    """Order by score plus boost, so that hits with nearly equal scores follow the order of source types.

    `Hit.score` does not change, so a second run changes nothing; the boosted score is in the record. Unscored
    hits follow the others in their previous order.
    """
    rules = policy or Precedence()
    boosts: dict[tuple[str, str | None], tuple[float, int]] = {}
    rows = []
    notes: dict[str, str] = {}
    for i, hit in enumerate(hits):
        if hit.score is None:
            rows.append((True, 0.0, 0.0, 0, "", i))
            continue
        kind, provider = str(hit.metadata.get(rules.key, "")), hit.metadata.get("rerank_provider")
        if (kind, provider) not in boosts:
            boosts[kind, provider] = rules.boost(kind, provider), rules.rank(kind)
        boost, rank = boosts[kind, provider]
        if boost:
            notes[hit.id] = f"{kind} +{boost:.4g}"
        # The plain score comes second: boosts vanish in the rounding of huge scores, but a real gap still decides.
        # The old position comes last: hits that are otherwise equal keep their order.
        rows.append((False, -(hit.score + boost), -hit.score, rank, hit.id, i))
    rows.sort()
    kept = [hits[row[-1]] for row in rows]
    record = StageRecord(
        kind=StageKind.SHAPE,
        name="precedence",
        ids=tuple([hit.id for hit in kept]),
        scores=tuple([None if unscored else -boosted for unscored, boosted, *_ in rows]),
        notes=notes,
    )
    return shape_result("precedence", hits, kept, record=record, sink=sink)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Rules for recovering hits below the cut, and their maximum number.

    A hit is protected if metadata[`key`] is one of `values`. `survivors` maps a section to the number of hits
    that the result needs per source type: {"financial_analysis": {"EXCEL": 2}}.
    """

    limit: int = option("Maximum number of hits that are recovered.", default=8, min=0)
    key: str = option("Metadata key that marks protected hits.", default="stage")
    values: tuple[str, ...] = option("Values of the key that protect a hit.", default=("B",))
    survivors: Mapping[str, Mapping[str, int]] = option(
        "Number of hits per source type that a section needs: {financial_analysis: {EXCEL: 2}}.",
        default_factory=lambda: MappingProxyType({}),
    )
    source_type: str = option("Metadata key of the source type.", default="source_type")

    def __post_init__(self) -> None:
        check_options(self)


def recoverable(hits: Sequence[Hit], *, k: int, policy: Recovery, section: str | None = None) -> dict[str, str]:
    """Return the ids that a cut to k must keep, each with the reason."""
    reasons: dict[str, str] = {}
    for hit in hits[k:]:
        if len(reasons) < policy.limit and str(hit.metadata.get(policy.key, "")) in policy.values:
            reasons[hit.id] = f"recovered: protected by {policy.key}={hit.metadata[policy.key]}"
    # Includes survivors within k, so that a later cut does not drop them.
    for kind, number in policy.survivors.get(section or "", {}).items():
        of_kind = [hit for hit in hits if str(hit.metadata.get(policy.source_type) or hit.source) == kind]
        for hit in of_kind[:number]:
            reasons.setdefault(hit.id, f"survivor: {section} needs {number} of {kind}")
    return reasons


def recover(
    hits: Sequence[Hit], *, k: int, policy: Recovery | None = None, section: str | None = None, sink: Sink | None = None
) -> ShapeResult:
    """Keep the top k, followed by the recovered hits; the result may be longer than k.

    Pass all reranked hits. `protected` of the result contains the recovered ids, so that a later cut can keep them.
    """
    check_k(k)
    recovered = recoverable(hits, k=k, policy=policy or Recovery(), section=section)
    kept = [hit for i, hit in enumerate(hits) if i < k or hit.id in recovered]
    cut = [hit for hit in hits[k:] if hit.id not in recovered]
    notes = {hit.id: recovered[hit.id] for hit in kept[k:]} | {hit.id: f"k={k}" for hit in cut}
    return shape_result("recover", hits, kept, cut, hit_notes=notes, protected=frozenset(recovered), sink=sink)
