"""Fusion methods as implementations of the Reranker protocol, for nodes, pipelines and entry points."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, Unpack, cast

from resift import events
from resift.events import Sink
from resift.ranking.fusion.dialects import DBSF_DIALECTS, DIALECTS, RELATIVE_SCORE_DIALECTS, DialectName, dialect_name
from resift.ranking.fusion.lists import ListOptions
from resift.ranking.fusion.methods import METHODS, FuseOptions, method_options, method_with_options
from resift.ranking.fusion.score_based import NORMALIZATIONS
from resift.ranking.fusion.weighted import WeightedReranker
from resift.types import FusedHits, Hit
from resift.validation import Options, check_k, option

_DIALECTS: Mapping[str, Mapping[str, object]] = {
    "rrf": DIALECTS, "dbsf": DBSF_DIALECTS, "relative-score": RELATIVE_SCORE_DIALECTS
}  # fmt: skip


def _file_options(method: str) -> type[Options]:
    """Return the options of a method in pipeline files: those parameters of its function that files can set."""
    dialects, methods = sorted(_DIALECTS.get(method, ())), sorted(NORMALIZATIONS)
    identity_help = "How hits are identified; by default by id, or by the dialect's rule."
    dialect_help = f"Compute {'RRF' if method == 'rrf' else 'it'} exactly as this engine does."
    normalize_help = "Normalization of each list's scores; by default none, min-max for `linear`."
    phi_help = "Patience of the reader: with values near 1, hits far down the lists count more."
    fields = {
        "identity": (Literal["id", "content", "id-source"] | None, option(identity_help, default=None)),
        "k_param": (float | None, option("RRF's constant; by default 60, or the dialect's.", default=None, gt=0)),
        "dialect": (str | None, option(dialect_help, default=None, choices=dialects)),
        "normalize": (str | None, option(normalize_help, default=None, choices=methods)),
        "phi": (float, option(phi_help, default=0.8, gt=0, max=1)),
    }
    names = method_options(METHODS[method])
    return dataclasses.make_dataclass(
        f"{method.title().replace('-', '')}Options",
        [(name, kind, declaration) for name, (kind, declaration) in fields.items() if name in names],
        bases=(Options,),
        frozen=True,
        kw_only=True,
    )


class FusionReranker:
    """A fusion method as a reranker: `FusionReranker("comb-mnz", normalize="min-max")`."""

    requires: tuple[str, ...] = ()

    def __init__(self, method: str, *, sink: Sink | None = None, **options: Unpack[FuseOptions]) -> None:
        self._fuse = method_with_options(method, options)
        self.name = method.replace("_", "-")
        self.options = options
        self._sink = sink
        # Invalid options raise here and not at the first query. Weights can only be checked against lists, so
        # an empty mapping replaces them here; dialects without weights reject it.
        weights: FuseOptions = {"weights": {}} if options.get("weights") is not None else {}
        self._fuse([], k=0, **{**options, **weights})

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({self.name!r}{options})"

    async def fuse(self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None) -> FusedHits:
        """Return the best k hits of the fused lists; the query is not used."""
        fused = self._fuse(per_store, k=check_k(k), **self.options)
        if self._sink is not None:
            # Counting takes two passes over all hits, so it is done only for a sink.
            distinct = [{hit.id for hit in hits} for hits in per_store]
            event = events.Fused(
                method=self.name,
                lists=len(per_store),
                candidates=len(set().union(*distinct)),
                duplicates=sum(map(len, per_store)) - sum(map(len, distinct)),
                kept=len(fused),
            )
            events.emit(self._sink, event)
        return fused


class RRFReranker(FusionReranker):
    """Reciprocal rank fusion, the default: no model, no API key, and the same scores for any order of lists.

    `sources` lists sources by precedence: if several sources have a hit, the first one's text and metadata are kept.
    """

    Options = _file_options("rrf")

    def __init__(
        self,
        k_param: float | None = None,
        *,
        dialect: DialectName | None = None,
        sink: Sink | None = None,
        **options: Unpack[ListOptions],
    ) -> None:
        fuse_options = cast("FuseOptions", {**options})
        if k_param is not None:
            fuse_options["k_param"] = k_param
        if dialect:
            fuse_options["dialect"] = dialect_name(dialect)
        super().__init__("rrf", sink=sink, **fuse_options)
        engine = self.options.get("dialect")
        self.k_param = k_param if k_param is not None else DIALECTS[engine].k_param if engine else 60

    def __repr__(self) -> str:
        engine = self.options.get("dialect")
        return f"RRFReranker(k_param={self.k_param}{f', dialect={engine!r}' if engine else ''})"


BUILT_IN_FUSION = (WeightedReranker, FusionReranker, RRFReranker)
"""Types of rerankers that use one of `METHODS`, or a method from another package."""


class Method:
    """The entry point of a fusion method: a factory for its reranker."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.Options = _file_options(method)

    def __call__(self, **options: Unpack[FuseOptions]) -> FusionReranker:
        """Return the method as a reranker."""
        return FusionReranker(self.method, **options)


borda, dbsf, isr, linear, log_odds, rbc, relative_score = map(
    Method, ("borda", "dbsf", "isr", "linear", "log-odds", "rbc", "relative-score")
)
comb_anz, comb_max, comb_min, comb_mnz, comb_sum = map(
    Method, ("comb-anz", "comb-max", "comb-min", "comb-mnz", "comb-sum")
)
