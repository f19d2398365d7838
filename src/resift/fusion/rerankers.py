"""Fusion behind the Reranker protocol (F1): for nodes, pipelines and plugins."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from resift.errors import InputError, did_you_mean
from resift.events import Fused, Sink, emit
from resift.fusion.dialects import DialectName, dialect_named
from resift.fusion.lists import Identity, Weights, checked_k
from resift.fusion.methods import fusion_method
from resift.fusion.rank_based import rrf
from resift.types import Hit


class FusionReranker:
    """Any fusion method as a reranker: `FusionReranker("comb-mnz", normalize="min-max")`."""

    requires: tuple[str, ...] = ()

    def __init__(self, method: str, *, sink: Sink | None = None, **options: Any) -> None:
        self._fuse = fusion_method(method)
        self.name = method.replace("_", "-")
        allowed = set(inspect.signature(self._fuse).parameters) - {"rankings", "k"}
        for option in options:
            if option not in allowed:
                raise InputError(f"{self.name} has no option {option!r}. {did_you_mean(option, allowed)}")
        self.options = options
        self._sink = sink
        # Wrong options are refused here, not at the first query; weights need lists to be checked with.
        self._fuse([], k=0, **{key: value for key, value in options.items() if key != "weights"})

    def __repr__(self) -> str:
        told = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({self.name!r}{told})"

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Return the best k of the fused lists; the query is not needed."""
        if checked_k(k) is None:
            raise InputError("k is None; pass a whole number ≥ 0.")
        fused = self._fuse(per_store, k=k, **self.options)
        if self._sink is not None:
            self._tell(per_store, kept=len(fused))
        return fused

    def _tell(self, per_store: Sequence[Sequence[Hit]], *, kept: int) -> None:
        repeated = sum(len(hits) - len({hit.id for hit in hits}) for hits in per_store)
        pool = len({hit.id for hits in per_store for hit in hits})
        emit(
            self._sink,
            Fused(method=self.name, lists=len(per_store), candidates=pool, duplicates=repeated, kept=kept),
        )


class RRFReranker(FusionReranker):
    """Reciprocal rank fusion, the default: no model, no key, same bytes for any order of lists (F2).

    `sources` declares the order in which sources lend their metadata to a hit that several of them have.
    """

    def __init__(
        self,
        k_param: float = 60,
        *,
        weights: Weights | None = None,
        sources: Sequence[str] | None = None,
        identity: Identity = "id",
        dialect: DialectName | None = None,
        sink: Sink | None = None,
    ) -> None:
        # Checked by hand: weights cannot be tried on no lists.
        rrf([], k_param=k_param, identity=identity)
        self._fuse = rrf
        self.name = "rrf"
        self.k_param = k_param
        self.options = {
            "k_param": k_param,
            "weights": weights,
            "sources": sources,
            "identity": identity,
            "dialect": dialect and dialect_named(dialect),
        }
        self._sink = sink

    def __repr__(self) -> str:
        return f"RRFReranker(k_param={self.k_param})"


comb_anz = partial(FusionReranker, "comb-anz")
comb_max = partial(FusionReranker, "comb-max")
comb_min = partial(FusionReranker, "comb-min")
comb_mnz = partial(FusionReranker, "comb-mnz")
comb_sum = partial(FusionReranker, "comb-sum")
borda = partial(FusionReranker, "borda")
dbsf = partial(FusionReranker, "dbsf")
isr = partial(FusionReranker, "isr")
linear = partial(FusionReranker, "linear")
log_odds = partial(FusionReranker, "log-odds")
rbc = partial(FusionReranker, "rbc")
relative_score = partial(FusionReranker, "relative-score")
