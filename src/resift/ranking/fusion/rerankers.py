"""Fusion behind the Reranker protocol: for nodes, pipelines and plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resift import events
from resift.events import Sink
from resift.ranking.fusion.dialects import DIALECTS, DialectName, dialect_named
from resift.ranking.fusion.fusion_options import (
    DBSFOptions,
    FusionOptions,
    RBCOptions,
    RelativeScoreOptions,
    RRFOptions,
    ScoreOptions,
)
from resift.ranking.fusion.lists import Identity, Weights
from resift.ranking.fusion.methods import METHODS, method_with_options
from resift.ranking.fusion.weighted import WeightedReranker
from resift.types import Fused, Hit, JsonObject
from resift.validation import check_k


class FusionReranker:
    """Any fusion method as a reranker: `FusionReranker("comb-mnz", normalize="min-max")`."""

    requires: tuple[str, ...] = ()

    def __init__(self, method: str, *, sink: Sink | None = None, **options: Any) -> None:
        self._fuse = method_with_options(method, options)
        self.name = method.replace("_", "-")
        self.options = options
        self._sink = sink
        # Wrong options are refused here, not at the first query; weights need lists to be checked with,
        # so none of them stands for all: whether they are taken at all is known now.
        weights: JsonObject = {"weights": {}} if options.get("weights") is not None else {}
        self._fuse([], k=0, **{**options, **weights})

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({self.name!r}{options})"

    async def fuse(self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None) -> Fused:
        """Return the best k of the fused lists; the query is not needed."""
        fused = self._fuse(per_store, k=check_k(k), **self.options)
        if self._sink is not None:
            self._report(per_store, kept=len(fused))
        return fused

    def _report(self, per_store: Sequence[Sequence[Hit]], *, kept: int) -> None:
        # Counted only where somebody listens: it goes over every hit twice.
        repeated = sum(len(hits) - len({hit.id for hit in hits}) for hits in per_store)
        pool = len({hit.id for hits in per_store for hit in hits})
        events.emit(
            self._sink,
            events.Fused(
                method=self.name, lists=len(per_store), candidates=pool, duplicates=repeated, kept=kept
            ),
        )


def is_built_in_fusion(reranker: object) -> bool:
    """Whether a reranker is a fusion method of Resift itself, and not of another package."""
    if type(reranker) is WeightedReranker:
        return True
    return type(reranker) in (FusionReranker, RRFReranker) and getattr(reranker, "name", "") in METHODS


class RRFReranker(FusionReranker):
    """Reciprocal rank fusion, the default: no model, no key, same scores for any order of lists.

    `sources` declares the order in which sources lend their metadata to a hit that several of them have.
    """

    Options = RRFOptions

    def __init__(
        self,
        k_param: float | None = None,
        *,
        weights: Weights | None = None,
        sources: Sequence[str] | None = None,
        identity: Identity | None = None,
        dialect: DialectName | None = None,
        sink: Sink | None = None,
    ) -> None:
        given = {
            "k_param": k_param,
            "weights": weights,
            "sources": sources,
            "identity": identity,
            "dialect": dialect and dialect_named(dialect),
        }
        super().__init__(
            "rrf", sink=sink, **{key: value for key, value in given.items() if value is not None}
        )
        engine = self.options.get("dialect")
        self.k_param = k_param if k_param is not None else DIALECTS[engine].k_param if engine else 60

    def __repr__(self) -> str:
        engine = self.options.get("dialect")
        return f"RRFReranker(k_param={self.k_param}{f', dialect={engine!r}' if engine else ''})"


class Method:
    """What the entry point of a fusion method names: builds its reranker."""

    def __init__(self, method: str, options: type[FusionOptions] = FusionOptions) -> None:
        self.method = method
        self.Options = options

    def __call__(self, **options: Any) -> FusionReranker:
        """Return the method as a reranker."""
        return FusionReranker(self.method, **options)


comb_anz = Method("comb-anz", ScoreOptions)
comb_max = Method("comb-max", ScoreOptions)
comb_min = Method("comb-min", ScoreOptions)
comb_mnz = Method("comb-mnz", ScoreOptions)
comb_sum = Method("comb-sum", ScoreOptions)
borda = Method("borda")
dbsf = Method("dbsf", DBSFOptions)
isr = Method("isr")
linear = Method("linear", ScoreOptions)
log_odds = Method("log-odds")
rbc = Method("rbc", RBCOptions)
relative_score = Method("relative-score", RelativeScoreOptions)
