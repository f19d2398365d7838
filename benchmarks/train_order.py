"""Train the model of the default order on recordings and test it on collections that were left out.

    python -m benchmarks.order_recordings RECORDINGS --data FOLDER …     makes the recordings
    python -m benchmarks.train_order RECORDINGS [--write]                trains, tests, writes the results

The model has two weights per query, of vector search and of the reranker. Each is a base plus terms that are
linear in one fact about the candidates. They are trained together, by gradient descent from a fixed start on
a smooth nDCG: a candidate's rank is 1 plus the sum of sigmoids of its distances to the others. Only the
simulated scorers are random, with the seed SEED. Every collection counts the same. A penalty keeps
each coefficient near the start.

Each query is seen with three scorers: the recorded one, one that knows nothing (its scores are shuffled) and
a better one (relevant candidates get more). So the weights do not depend on the habits of one model.

--write replaces `src/resift/ranking/default_order.json`. Results: benchmarks/results/train_order.json.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.harness import HERE, option_parser, report
from benchmarks.order_recordings import BLIND, TRAIN
from resift.evaluation.evaluated_systems import RERANK_DEPTH
from resift.evaluation.measures import Judge, bootstrap_interval
from resift.evaluation.recording import Recording, Replay, Setting, default_setting, read_recording
from resift.ranking import order_model
from resift.ranking.blend import Blend, reranker_boosts
from resift.ranking.evidence import RerankScores, list_z_scores
from resift.ranking.order_model import OrderModel, read_model

SEED = 20261118
MAX_LOSS = 0.005
"""Learned weights are kept only if no collection left out loses more against the earlier weights."""
MEASURE = "nDCG@10"
MODEL_FILE = HERE.parent / "src" / "resift" / "ranking" / "default_order.json"
MAX_CANDIDATES, MAX_RELEVANT = 40, 4
PENALTY, STEPS, RATE, SMOOTH = 0.2, 36, 0.03, 0.15

# Fact -> neutral value, scale, lowest and highest value that counts.
RANGES: Mapping[str, tuple[float, float, float, float]] = {
    "code_density": (0.11, 0.055, 0.11, 0.165),
    "mean_word_length": (5.0, 1.0, 4.2, 6.0),
    "other_language": (0.0, 1.0, 0.0, 1.0),
    "code_agreement": (0.0, 0.3, -0.2, 0.2),
    "chunk_share": (0.0, 1.0, 0.0, 1.0),
    "code_confidence": (0.6, 0.4, 0.6, 1.0),
}
DENSE = ("code_density", "code_agreement", "chunk_share")
RERANKER = ("mean_word_length", "other_language", "code_density", "chunk_share", "code_confidence")
DEMOTION = ("mean_word_length",)
START = {
    "dense": {"base": 0.55, "code_density": 0.125, "code_agreement": 0.3375, "chunk_share": -0.125},
    "reranker": {
        "base": 0.75,
        "mean_word_length": -0.25,
        "other_language": -0.25,
        "code_density": -0.65,
        "chunk_share": 0.45,
        "code_confidence": 0.5,
    },
    "demotion": {"base": 0.222, "mean_word_length": 0.278},
    "neighbors": {"base": 0.5},
}
"""The weights of version 0.2 for prose, and those chosen by hand for code; a penalty holds on to them."""

CODE_NOTE = (
    "The terms of code were chosen by hand on code collections. Those of chunk_share were tested on two more "
    "(research/default_order_code.md), and code_confidence on others (research/default_order_collections.md)."
)

SCORERS: Mapping[str, tuple[float, float, float]] = {  # weight in training, noise, bonus of relevant hits
    "recorded": (1.0, 0.0, 0.0),
    "random": (0.25, math.inf, 0.0),
    "better": (0.25, 0.3, 1.5),
}


class Pools:
    """The candidates of many queries as arrays: one row per query and simulated scorer."""

    def __init__(self, recordings: Mapping[str, Recording], scorers: Sequence[str] = tuple(SCORERS)) -> None:
        rows, weights = [], []
        self.collections: list[str] = []
        self.scorers: list[str] = []
        for name, recording in recordings.items():
            random = np.random.default_rng([SEED, *name.encode()])
            for query in recording.queries:
                base = read_pool(query, recording)
                if base is None:
                    continue
                for scorer in scorers:
                    row = simulate_scorer(base, scorer, random)
                    if row is not None:
                        rows.append(row)
                        self.collections.append(name)
                        weights.append(SCORERS[scorer][0])
                        self.scorers.append(scorer)
        self.names = np.array(self.collections)
        for key in (
            "lexical",
            "dense",
            "boost",
            "scored",
            "neighbors",
            "cosines",
            "relevant",
            "gains",
            "mask",
            "grades",
        ):
            values = np.stack([row[key] for row in rows])
            setattr(self, key, values.astype(np.float32) if values.dtype == float else values)
        self.facts = {name: np.array([row["facts"].get(name, np.nan) for row in rows]) for name in RANGES}
        self.fits = np.array([row["fits"] for row in rows])
        self.weights = np.array(weights)
        for name in set(self.collections):
            self.weights[self.names == name] /= self.weights[self.names == name].sum()

    def terms(self, facts: Sequence[str]) -> np.ndarray:
        """Return a column per fact, scaled, 0 if it is not known, after a column of ones."""
        columns = [np.ones(len(self.names))]
        for fact in facts:
            center, scale, low, high = RANGES[fact]
            columns.append(np.nan_to_num((np.clip(self.facts[fact], low, high) - center) / scale))
        return np.stack(columns, axis=1)


def read_pool(query: Any, recording: Recording) -> dict[str, Any] | None:
    """Return the arrays of one recorded query, None without a relevant candidate."""
    lists = [dict(query.lists[store]) for store in recording.header.stores]
    ids = list(dict.fromkeys(id for ranked in lists for id in ranked))
    fits = [order_model.language_fit(each, query.facts) for each in recording.header.store_languages]
    columns = []
    longest = max(map(len, lists))
    for ranked, mode in zip(lists, recording.header.retrieval_modes, strict=True):
        ranks = {id: rank for rank, id in enumerate(ranked, start=1)}
        ended = mode == "lexical" and len(ranked) < longest
        values = list_z_scores([ranks.get(id) for id in ids], [ranked.get(id) for id in ids], ended=ended)
        columns.append(np.array(values) - min(values))
    lexical, dense = columns
    logits = np.array([query.rerank.get(id, np.nan) for id in ids])
    first = np.where(np.isnan(logits), 0, 1e3) + lexical + dense
    keep = np.sort(np.argsort(-first, kind="stable")[:MAX_CANDIDATES])
    grades = np.array([max(0, query.qrels.get(id, 0)) for id in ids], float)[keep]
    if not grades.sum():
        return None
    position = {ids[i]: n for n, i in enumerate(keep)}
    neighbors = np.tile(np.arange(MAX_CANDIDATES)[:, None], (1, 3))
    cosines = np.zeros((MAX_CANDIDATES, 3))
    for id, others in query.neighbors.items():
        near = [(position[other], cosine) for other, cosine in others if other in position][:3]
        if id in position and near:
            for i, (other, cosine) in enumerate(near):
                neighbors[position[id], i] = other
                cosines[position[id], i] = cosine / sum(value for _, value in near)
    relevant = np.argsort(-grades, kind="stable")[:MAX_RELEVANT]
    gains = np.where(grades[relevant] > 0, grades[relevant], 0)
    gains = gains / (np.sort(gains)[::-1] / np.log2(np.arange(2, len(gains) + 2))).sum()
    facts = dict(query.facts)
    facts |= order_model.list_facts(lexical.tolist(), dense.tolist(), facts)
    return {
        "lexical": _pad(lexical[keep]),
        "dense": _pad(dense[keep]),
        "logits": logits[keep],
        "facts": facts,
        "grades": _pad(grades),
        "neighbors": neighbors,
        "cosines": cosines,
        "relevant": np.pad(relevant, (0, MAX_RELEVANT - len(relevant))),
        "gains": np.pad(gains, (0, MAX_RELEVANT - len(gains))),
        "mask": _pad(np.ones(len(keep))) > 0,
        "fits": (*fits, order_model.language_fit(recording.header.languages, query.facts)),
    }


def _pad(values: np.ndarray) -> np.ndarray:
    return np.pad(values, (0, MAX_CANDIDATES - len(values)))


def simulate_scorer(pool: dict[str, Any], scorer: str, random: np.random.Generator) -> dict[str, Any] | None:
    """Return the pool with the scores of a simulated scorer and the facts about them."""
    logits = pool["logits"].copy()
    scored = ~np.isnan(logits)
    _, noise, bonus = SCORERS[scorer]
    if scorer != "recorded":
        if scored.sum() < 4:
            return None
        values = logits[scored]
        spread = values.std()
        if math.isinf(noise):
            values = random.permutation(values)
        else:
            values = values + random.normal(0, noise * spread, len(values))
        values = values + bonus * spread * (pool["grades"][: len(logits)][scored] > 0)
        logits[scored] = values
    boost = np.zeros(len(logits))
    facts = dict(pool["facts"])
    if scored.any():
        scores = RerankScores("simulated", logits[scored].tolist(), "logit")
        boost[scored] = reranker_boosts([scores], Blend(), size=int(scored.sum()))[1]
        first = 0.45 * pool["lexical"][: len(logits)][scored] + 0.55 * pool["dense"][: len(logits)][scored]
        facts |= order_model.scorer_facts(logits[scored].tolist(), first.tolist(), facts)
    fits = (*pool["fits"][:2], pool["fits"][2] * facts.get(order_model.SCORER_FIT, 1.0))
    return {**pool, "fits": fits, "boost": _pad(boost), "scored": _pad(scored.astype(float)), "facts": facts}


class Trainer:
    """Fits bases and coefficients of the three weights by gradient descent."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self.parts = [pools.terms(facts) for facts in (DENSE, RERANKER, DEMOTION)]
        self.sizes = [part.shape[1] for part in self.parts]
        facts = {"dense": DENSE, "reranker": RERANKER, "demotion": DEMOTION, "neighbors": ()}
        names = [(name, fact) for name in facts for fact in ("base", *facts[name])]
        self.start = np.array([START[name].get(fact, 0.0) for name, fact in names])

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, np.cumsum(self.sizes))

    def loss(self, values: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative smooth nDCG with the penalty, and its gradient."""
        p = self.pools
        *coefficients, (neighbors,) = self.split(values)
        raw = [part @ own for part, own in zip(self.parts, coefficients, strict=True)]
        dense, reranker, demotion = (np.clip(value, 0, 1) for value in raw)
        keyword_share, dense_share = (1 - dense) * p.fits[:, 0], dense * p.fits[:, 1]
        total = np.maximum(keyword_share + dense_share, 1e-9)
        d = dense_share / total
        r = reranker * p.fits[:, 2] * (p.scored.sum(axis=1) > 0)
        first = (1 - d)[:, None] * p.lexical + d[:, None] * p.dense
        own = (1 - r)[:, None] * first + r[:, None] * p.boost
        rows = np.arange(len(own))
        near = own[rows[:, None, None], p.neighbors]
        moves = (p.cosines * (near - own[:, :, None])).sum(axis=2)
        factor = np.where(moves > 0, 1.0, demotion[:, None]) * neighbors
        scores = own + factor * moves
        # The smooth rank of each relevant candidate.
        best = scores[rows[:, None], p.relevant]
        above = (scores[:, None, :] - best[:, :, None]) / SMOOTH
        above = 1 / (1 + np.exp(-np.clip(above, -30, 30))) * p.mask[:, None, :]
        rank = 0.5 + above.sum(axis=2)  # a candidate is half above itself
        logs = np.log2(1 + rank)
        value = -(weights * (p.gains / logs).sum(axis=1)).sum()
        # Gradients, from the ranks back to the coefficients.
        by_rank = weights[:, None] * p.gains / (logs**2 * (1 + rank) * math.log(2))
        slope = by_rank[:, :, None] * above * (1 - above) / SMOOTH
        by_score = slope.sum(axis=1)
        np.add.at(by_score, (rows[:, None], p.relevant), -slope.sum(axis=2))
        by_near = ((by_score * factor)[:, :, None] * p.cosines).ravel()
        flat = (rows[:, None, None] * own.shape[1] + p.neighbors).ravel()
        by_own = by_score - (by_score * factor) * p.cosines.sum(axis=2)
        by_own += np.bincount(flat, weights=by_near, minlength=own.size).reshape(own.shape)
        by_dense = (by_own * (p.dense - p.lexical)).sum(axis=1) * (1 - r)
        by_dense *= p.fits[:, 0] * p.fits[:, 1] / total**2
        by_reranker = (by_own * (p.boost - first)).sum(axis=1) * p.fits[:, 2]
        by_demotion = (by_score * np.where(moves > 0, 0, moves)).sum(axis=1) * neighbors
        pieces = []
        for part, one, weight in zip(self.parts, (by_dense, by_reranker, by_demotion), raw, strict=True):
            # Outside of 0 to 1 only a step back counts.
            blocked = ((weight <= 0) & (one > 0)) | ((weight >= 1) & (one < 0))
            pieces.append(part.T @ np.where(blocked, 0, one))
        pieces.append([(by_score * np.where(moves > 0, moves, demotion[:, None] * moves)).sum()])
        away = values - self.start
        return value + PENALTY * (away**2).sum(), np.concatenate(pieces) + 2 * PENALTY * away

    def fit(self, without: str = "") -> np.ndarray:
        """Return the coefficients, trained without one collection (Adam)."""
        weights = np.where(self.pools.names == without, 0, self.pools.weights)
        weights = weights / weights.sum()
        values, mean, square = self.start.copy(), np.zeros_like(self.start), np.zeros_like(self.start)
        for step in range(1, STEPS + 1):
            _, gradient = self.loss(values, weights)
            mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
            rate = RATE * min(1.0, 2 * (1 - step / STEPS) + 0.02)
            values = values - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
            values[-1] = min(1.0, max(0.0, values[-1]))
        return values

    def model_data(self, values: np.ndarray) -> dict[str, Any]:
        """Return the coefficients as in `default_order.json`."""
        data: dict[str, Any] = {}
        parts = zip(("dense", "reranker", "demotion"), (DENSE, RERANKER, DEMOTION), self.split(values), strict=False)
        for name, facts, (base, *own) in parts:
            terms = {fact: [round(float(c), 3), *RANGES[fact]] for fact, c in zip(facts, own, strict=True)}
            data[name] = {"base": round(float(base), 3), "terms": terms}
        return {**data, "neighbors": round(float(values[-1]), 3)}


def stage_values(recording: Recording, model: OrderModel | None) -> dict[str, list[float]]:
    """Return nDCG@10 per query of the default order with this model, and of each single stage."""
    header = recording.header
    replay = Replay(recording)
    if model is not None:
        with patch.object(order_model, "default_model", lambda: model):
            runs = {"default": replay.run(default_setting(header))}
    else:
        runs = {name: replay.run(Setting(method=name, depth=0)) for name in ("rrf", "linear")}
        for store, name in zip(header.stores, ("bm25", "dense"), strict=True):
            runs[name] = {query.query: [id for id, _ in query.lists[store]] for query in recording.queries}
        if header.depth:
            setting = Setting(method="rrf", depth=min(RERANK_DEPTH, header.depth), blend=None)
            runs["cross-encoder"] = replay.run(setting)
    judge = Judge(recording.qrels(), [MEASURE])
    return {name: _per_query(judge, run, recording) for name, run in runs.items()}


def _per_query(judge: Judge, run: Mapping[str, Sequence[str]], recording: Recording) -> list[float]:
    values = judge.quality(run).per_query[MEASURE]
    return [values.get(query.query, 0.0) for query in recording.queries]


def leave_one_out(recordings: Mapping[str, Recording], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row per collection: the model trained without it, its single stages, and version 0.2."""
    trainer = Trainer(Pools(recordings))
    start = read_model(trainer.model_data(trainer.start))
    table = {}
    for name, recording in recordings.items():
        model = read_model(trainer.model_data(trainer.fit(without=name)))
        table[name] = compare(recording, model, earlier.get(name))
        table[name]["start"] = _mean(stage_values(recording, start)["default"])
        print(name, json.dumps(table[name]), flush=True)
    return table


def compare(recording: Recording, model: OrderModel, earlier: Sequence[float] | None) -> dict[str, Any]:
    """Return the figures of one collection with this model, with intervals against its best stage."""
    own = stage_values(recording, model)["default"]
    stages = stage_values(recording, None)
    best = max(stages, key=lambda name: sum(stages[name]))
    row: dict[str, Any] = {"queries": len(own), "default": _mean(own)}
    row |= {name: _mean(values) for name, values in stages.items()}
    low, high = bootstrap_interval([a - b for a, b in zip(own, stages[best], strict=True)])
    row["best stage"], row["against best"] = best, [round(low, 4), round(high, 4)]
    if earlier is not None:
        row["0.2"] = _mean(earlier)
        low, high = bootstrap_interval([a - b for a, b in zip(own, earlier, strict=True)])
        row["against 0.2"] = [round(low, 4), round(high, 4)]
    return row


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def other_scorers(recordings: Mapping[str, Recording], folder: Path, model: OrderModel) -> dict[str, Any]:
    """Return the default order with better, worse and rescaled scorers, next to scorer and first stage."""
    random = np.random.default_rng(SEED)

    def changed(change: Callable[[np.ndarray, np.ndarray], np.ndarray], scale: str = "logit") -> list[Recording]:
        result = []
        for recording in recordings.values():
            queries = []
            for query in recording.queries:
                values = np.array(list(query.rerank.values()))
                relevant = np.array([query.qrels.get(id, 0) > 0 for id in query.rerank])
                scores = change(values, relevant) if len(values) else values
                queries.append(replace(query, rerank=dict(zip(query.rerank, map(float, scores), strict=True))))
            header = replace(recording.header, score_scale=scale)  # type: ignore[arg-type]
            result.append(Recording(header, tuple(queries)))
        return result

    variants = {
        "recorded": changed(lambda v, _: v),
        "logits × 10 + 3": changed(lambda v, _: 10 * v + 3),
        "probabilities": changed(lambda v, _: 1 / (1 + np.exp(-v)), "probability"),
        "unknown scale, × 0.01": changed(lambda v, _: 0.01 * v, "unknown"),
        "noise of half its spread": changed(lambda v, _: v + random.normal(0, 0.5 * v.std(), len(v))),
        "noise of its spread": changed(lambda v, _: v + random.normal(0, v.std(), len(v))),
        "noise of twice its spread": changed(lambda v, _: v + random.normal(0, 2 * v.std(), len(v))),
        "random": changed(lambda v, _: random.permutation(v)),
        "better: relevant + 1 spread": changed(lambda v, relevant: v + v.std() * relevant),
        "oracle": changed(lambda v, relevant: v + 4 * v.std() * relevant),
    }
    for path in sorted(folder.glob("*/*.jsonl")):
        if path.parent.name != "work" and path.stem in recordings:
            variants.setdefault(path.parent.name, []).append(read_recording(path))
    table = {}
    for name, group in variants.items():
        own, scorer, first = [], [], []
        for recording in group:
            own += stage_values(recording, model)["default"]
            judge = Judge(recording.qrels(), [MEASURE])
            with patch.object(order_model, "default_model", lambda: model):
                replay = Replay(recording)
            scorer += _per_query(
                judge, replay.run(Setting(method="rrf", depth=recording.header.depth, blend=None)), recording
            )
            first += _per_query(judge, replay.run(Setting(method="weighted", depth=0)), recording)
        table[name] = {
            "queries": len(own), "default": _mean(own), "scorer alone": _mean(scorer),
            "first stage alone": _mean(first),
        }  # fmt: skip
        print(name, json.dumps(table[name]), flush=True)
    return table


def levers(recordings: Mapping[str, Recording]) -> dict[str, Any]:
    """Return gain and cost of ways to spend the rerank budget: which of the recorded scores are used."""
    per_query: dict[str, list[float]] = {}
    pairs: dict[str, list[int]] = {}
    for recording in recordings.values():
        judge = Judge(recording.qrels(), [MEASURE])
        fused = Replay(recording).run(Setting(method="weighted", depth=0))
        for name, choose in LEVERS.items():
            queries = []
            for query in recording.queries:
                order = [id for id in fused[query.query] if id in query.rerank]
                chosen = choose(order, query)
                pairs.setdefault(name, []).append(len(chosen))
                queries.append(replace(query, rerank={id: query.rerank[id] for id in chosen}))
            changed = Recording(recording.header, tuple(queries))
            run = Replay(changed).run(default_setting(recording.header))
            per_query.setdefault(name, []).extend(_per_query(judge, run, recording))
    table = {}
    for name, values in per_query.items():
        low, high = bootstrap_interval([a - b for a, b in zip(values, per_query["first 8"], strict=True)])
        table[name] = {
            "nDCG@10": _mean(values),
            "against first 8": [round(low, 4), round(high, 4)],
            "pairs per query": _mean(pairs[name]),
        }
        print(name, json.dumps(table[name]), flush=True)
    return table


def _with_neighbors(order: Sequence[str], query: Any) -> list[str]:
    """Return the first 5, and 3 neighbors of the two of them that scored best."""
    chosen = list(order[:5])
    best = sorted(chosen, key=lambda id: -query.rerank[id])[:2]
    near = [other for id in best for other, _ in query.neighbors.get(id, ())]
    near = [id for id in dict.fromkeys([*near, *order[5:]]) if id in query.rerank and id not in chosen]
    return [*chosen, *near[:3]]


def _until_confident(order: Sequence[str], query: Any) -> list[str]:
    """Return the first 4, or the first 10 unless one of the 4 is probably relevant."""
    return list(order[: 4 if max([query.rerank[id] for id in order[:4]], default=0) > 0 else 10])


LEVERS: Mapping[str, Callable[[Sequence[str], Any], list[str]]] = {
    "first 8": lambda order, _: list(order[:8]),
    "first 4": lambda order, _: list(order[:4]),
    "first 10": lambda order, _: list(order[:10]),
    "first 5 and 3 neighbors of the best": _with_neighbors,
    "first 4, 10 unless one is probably relevant": _until_confident,
}


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("train_order", __doc__)
    parser.add_argument("recordings", type=Path, help="folder made by benchmarks.order_recordings")
    parser.add_argument("--write", action="store_true", help="write default_order.json")
    parser.add_argument("--earlier", type=Path, help="JSON: collection -> values per query of version 0.2")
    args = parser.parse_args(argv)
    paths = {name: args.recordings / f"{name}.jsonl" for name in (*TRAIN, *BLIND)}
    known = {name: read_recording(path) for name, path in paths.items() if path.exists()}
    train = {name: recording for name, recording in known.items() if name in TRAIN}
    if args.quick:
        train = dict(list(train.items())[:2])
    earlier = json.loads(args.earlier.read_text()) if args.earlier else {}
    left_out = leave_one_out(train, earlier)
    trainer = Trainer(Pools(train))
    means = {key: _mean([row[key] for row in left_out.values()]) for key in ("default", "start", "rrf")}
    worse = [
        name
        for name, row in left_out.items()
        if row["default"] < min(row["start"], row.get("0.2", math.inf)) - MAX_LOSS
    ]
    learned = means["default"] > means["start"] and not worse
    data = trainer.model_data(trainer.fit() if learned else trainer.start)
    trained = {
        "script": f"benchmarks/train_order.py, sha256 {_digest(Path(__file__))}",
        "seed": SEED,
        "kept": "the learned weights"
        if learned
        else f"the start: left out, learned weights lose more than {MAX_LOSS} on {', '.join(worse)}"
        if worse
        else "the start: learning did not beat it on collections left out",
        "mean nDCG@10, each collection left out": means,
        "collections": {name: _digest(paths[name]) for name in train},
        "code": CODE_NOTE,
    }
    model = read_model(data)
    blind = {name: compare(recording, model, earlier.get(name)) for name, recording in known.items() if name in BLIND}
    prose = {name: train[name] for name in ("scifact", "squad2-dev-passages", "cranfield") if name in train}
    scorers = other_scorers(prose, args.recordings, model)
    spent = levers(train)
    if args.write:
        about = "Weights of the default order. A term is fact: [coefficient, center, scale, low, high]."
        text = json.dumps({"about": about, **data, "trained": trained}, indent=1)
        MODEL_FILE.write_text(text + "\n", encoding="utf-8")
    report(
        args,
        {"model": data, "trained": trained, "left out": left_out, "blind": blind, "scorers": scorers, "levers": spent},
    )
    return 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
