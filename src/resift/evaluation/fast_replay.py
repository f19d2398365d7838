"""Hundreds of settings on a recording in seconds: fusion, depth and blend as arrays over all queries at once.

Gives what `replay` gives with the guard off, for RRF, min-max and weighted scores without floors; a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from resift._internal.arrays import Array, np
from resift.errors import require
from resift.evaluation.recording import Recording
from resift.evaluation.replay import Setting, policy_of, recorded_hits, trust_of
from resift.ranking.adaptive_weights import reading_depth, reranker_weight, sinking_part
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.fusion.weighted import weighted
from resift.ranking.scaling import min_max
from resift.ranking.shape.blending import Blend, lifts
from resift.ranking.shape.evidence import Column, Evidence, Judged
from resift.ranking.shape.first_stage import first_stage_values
from resift.ranking.shape.neighbours import NEIGHBOURS, Near
from resift.types import is_english_only

METHODS = ("rrf", "linear", WEIGHTED)

_REMEMBERED = 32  # fused orders; 300 queries × 200 candidates are 1 MB each


def is_fast(setting: Setting) -> bool:
    """Whether this setting can be computed here."""
    blended = not setting.depth or setting.blend is None or setting.blend_weight not in (0, 1)
    weighted = all(weight > 0 for weight in setting.weights)
    return setting.method in METHODS and setting.floor is None and blended and weighted


class FastReplay:
    """A recording as arrays: queries × candidates, the candidates of each query sorted by id."""

    def __init__(self, recording: Recording) -> None:
        require("numpy", extra="eval")
        self._orders: dict[object, tuple[Array, Array]] = {}
        self._scores: dict[object, Array] = {}
        self._recording = recording
        self._scorer = recording.header.scorer
        self.queries = [one.query for one in recording.queries]
        self.ids: list[list[str]] = []
        for one in recording.queries:
            self.ids.append(sorted({id for ranked in one.lists.values() for id, _ in ranked}))
        shape = (len(self.ids), max(1, *(len(ids) for ids in self.ids), 1))
        stores = recording.header.stores
        # Infinitely far down where a list does not have a candidate: 1 / (k + ∞) adds nothing.
        self.ranks = np.full((len(stores), *shape), np.inf)
        self.scaled = np.zeros((len(stores), *shape))
        self.first = np.zeros(shape)
        self.rerank = np.full(shape, np.nan)
        # Queries have different numbers of candidates; what fills up a row is not real.
        self.real = np.zeros(shape, dtype=bool)
        self.near = np.zeros((NEIGHBOURS, *shape), dtype=int)
        self.cosines = np.zeros((NEIGHBOURS, *shape))
        for row, one in enumerate(recording.queries):
            at = {id: column for column, id in enumerate(self.ids[row])}
            self.real[row, : len(at)] = True
            found: dict[str, Column] = {}
            for store, name in enumerate(stores):
                scales = min_max([score or 0.0 for _, score in one.lists[name]])
                ranks: list[int | None] = [None] * len(at)
                scores: list[float | None] = [None] * len(at)
                found[name] = Column(ranks, scores)
                for rank, (id, score) in enumerate(one.lists[name], start=1):
                    self.ranks[store, row, at[id]] = rank
                    self.scaled[store, row, at[id]] = scales[rank - 1]
                    ranks[at[id]], scores[at[id]] = rank, score
            self.first[row, : len(at)] = first_stage_values(
                Evidence(found, Column([None] * len(at), [None] * len(at)), ())
            )
            self._remember(row, at, one.near)
            for id, score in one.rerank.items():
                if id in at:
                    self.rerank[row, at[id]] = score

    def _remember(self, row: int, at: Mapping[str, int], near: Near) -> None:
        for id, column in at.items():
            known = [(at[other], cosine) for other, cosine in near.get(id, ()) if other in at and cosine > 0]
            for place, (other, cosine) in enumerate(known[:NEIGHBOURS]):
                self.near[place, row, column] = other
                self.cosines[place, row, column] = cosine

    def run(self, setting: Setting, *, most: int | None = None) -> dict[str, list[str]]:
        """Return query -> the ids of the best `most`."""
        order = self._order(setting)
        run = {}
        for row, query in enumerate(self.queries):
            ids = self.ids[row]
            kept = order[row, : len(ids) if most is None else min(most, len(ids))]
            run[query] = [ids[column] for column in kept]
        return run

    def _order(self, setting: Setting) -> Array:
        fused, place = self._fused_order(setting)
        if not setting.depth:
            return fused
        depth = self._depths(setting)
        scores = np.where((place < depth) & self.real, self.rerank, np.nan)
        policy = policy_of(setting)
        if policy is None:
            return self._reranked(scores, place, depth)
        first = self._fused(setting) if setting.method == WEIGHTED else self.first
        weight = self._weights(policy, weighed=setting.method == WEIGHTED)
        total = (1 - weight) * first + weight * self._lift(scores, policy)
        total = total + policy.neighbours * self._pull(
            total, self._sinking(policy, weighed=setting.method == WEIGHTED)
        )
        # As `replay` does: a query whose candidates nobody judged keeps its fused order.
        nothing = np.isnan(scores).all(axis=1, keepdims=True)
        return np.where(nothing, fused, self._sorted(total))

    def _depths(self, setting: Setting) -> Array:
        """Return per query how many of its fused hits are read, as a column."""
        if setting.method != WEIGHTED:
            return np.full((len(self.ids), 1), setting.depth)
        rules, fused = trust_of(setting), self._fused(setting)
        rows = zip(self._recording.queries, fused, self.real, strict=True)
        depths = [
            reading_depth(sorted(values[real].tolist(), reverse=True), rules, marks=one.marks or 0.0)
            for one, values, real in rows
        ]
        return np.array(depths)[:, None]

    def _weights(self, policy: Blend, *, weighed: bool) -> float | Array:
        """Return per query how much the reranker counts, as a column."""
        if policy.weight is not None:
            return policy.weight
        # Only weighted fusion looks at the texts.
        known = [((one.marks, one.letters) if weighed else (0.0, None)) for one in self._recording.queries]
        english_only = is_english_only(self._scorer.languages)
        weights = [
            reranker_weight(policy.trust, marks=marks or 0.0, letters=letters, english_only=english_only)
            for marks, letters in known
        ]
        return np.array(weights)[:, None]

    def _sinking(self, policy: Blend, *, weighed: bool) -> Array:
        """Return per query how far hits sink for weak neighbours, as a column."""
        told = weighed and policy.weight is None
        letters = [one.letters if told else None for one in self._recording.queries]
        return np.array([sinking_part(policy.trust, letters=known) for known in letters])[:, None]

    def _fused_order(self, setting: Setting) -> tuple[Array, Array]:
        """Return the fused order and each candidate's place in it; settings often share both."""
        key = (setting.method, setting.k_param, setting.weights, setting.vectors)
        if key not in self._orders:
            fused = self._sorted(self._fused(setting))
            place = np.empty_like(fused)
            np.put_along_axis(place, fused, np.arange(fused.shape[1])[None, :], axis=1)
            if len(self._orders) >= _REMEMBERED:
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = (fused, place)
        return self._orders[key]

    def _fused(self, setting: Setting) -> Array:
        if setting.method == WEIGHTED:
            return self._weighted(setting)
        weights = np.array(setting.weights or (1.0,) * len(self.ranks))[:, None, None]
        if setting.method == "rrf":
            parts = weights / (setting.k_param + self.ranks)
        else:
            parts = weights / weights.sum() * self.scaled
        fused: Array = parts.sum(axis=0)
        return fused

    def _weighted(self, setting: Setting) -> Array:
        """Return the scores of weighted fusion, which settings often share."""
        key = (setting.weights, setting.vectors)
        if key not in self._scores:
            header, fused = self._recording.header, np.zeros(self.real.shape)
            for row, one in enumerate(self._recording.queries):
                lists = [recorded_hits(one.lists[name], name) for name in header.stores]
                hits = weighted(
                    lists,
                    searched=header.kinds,
                    weights=setting.weights or None,
                    trust=trust_of(setting),
                    marks=one.marks or 0.0,
                    letters=one.letters,
                )
                found = {hit.id: hit.score for hit in hits}
                fused[row, : len(found)] = [found[id] for id in self.ids[row]]
            if len(self._scores) >= _REMEMBERED:
                self._scores.pop(next(iter(self._scores)))
            self._scores[key] = fused
        return self._scores[key]

    def _sorted(self, values: Array) -> Array:
        # Stable, and candidates stand by id: equal values keep the order of their ids.
        return np.argsort(np.where(self.real, -values, np.inf), axis=1, kind="stable")

    def _reranked(self, scores: Array, place: Array, depth: Array) -> Array:
        """Order by score; then what the reranker left without a score, then what is below the depth."""
        group = np.where(~np.isnan(scores), 0, np.where(place < depth, 1, 2)) + 3 * ~self.real
        within = np.where(group == 0, -np.nan_to_num(scores), place)
        return np.lexsort((within, group), axis=1)

    def _pull(self, total: Array, sinking: Array) -> Array:
        """Do what `shape.neighbours.pulls` does, sums in the same order."""
        pulled, weights = np.zeros_like(total), np.zeros_like(total)
        for others, cosines in zip(self.near, self.cosines, strict=True):
            pulled += cosines * (np.take_along_axis(total, others, axis=1) - total)
            weights += cosines
        return np.where(pulled > 0, 1.0, sinking) * (pulled / np.where(weights > 0, weights, 1.0))

    def _lift(self, scores: Array, policy: Blend) -> Array:
        lift = np.zeros_like(scores)
        for row, values in enumerate(scores):
            known = np.flatnonzero(~np.isnan(values))
            if len(known):
                judged = Judged(self._scorer.name, values[known].tolist(), self._scorer.score_scale)
                lift[row, known] = lifts([judged], policy, size=len(known))[1]
        return lift
