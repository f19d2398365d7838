"""The research behind `shape.blend`: which way of blending helps on collections it was not tuned on.

    python research/recording.py RECORDED      once: BM25, dense and cross-encoder scores
    python -m research.blending RECORDED

Every number is nDCG@10. Pools are the top 20 of RRF over BM25 and dense lists of 100 (50 on the demo sample).
Families of blends are tuned on all collections but one and tested on that one, among SciFact, NFCorpus and
Cranfield and among all five; the shipped default is run through `resift.shape.blend` on hits with real
traces; the stress part adds noise to one side or takes one store away.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.harness import write_results
from resift.fusion import fuse
from resift.shape import Blend, ShapePolicy, blend, shape
from resift.ranking.blend import ABOVE, USUAL_SPREAD
from resift.ranking.evidence import evidence
from resift.ranking.evidence import first_stage_values
from resift.ranking.blend import pulls
from resift.types import Hit, Ranking, StageKind, make_record, rescored

TUNED = ("scifact.test", "nfcorpus.test", "cranfield.test")
OTHERS = ("chunkeval-multisource.test", "demo.test")
DEPTH, K = 20, 10
WEIGHT = 0.75
"""The fixed weight that this benchmark studies; the default order sets it question by question."""

RATIOS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
STEEPNESS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3)
COUNTS, SHARES = (1, 2, 3, 5), (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
GAINS = 1 / np.log2(np.arange(2, K + 2))


class Collection:
    """One collection's pools as matrices (queries × 20), and the same pools as hits."""

    def __init__(self, path: Path) -> None:
        rows = json.loads(path.read_text(encoding="utf-8"))["queries"].values()
        self.rows = [row for row in rows if any(grade > 0 for grade in row["qrels"].values())]
        self.hits = [fused(row) for row in self.rows]
        self.ideal = np.array([ideal(row["qrels"]) for row in self.rows])
        pools = [hits[:DEPTH] for hits in self.hits]
        self.present = table([[1.0] * len(pool) for pool in pools])
        self.grade = table([[max(0, r["qrels"].get(h.id, 0)) for h in p] for r, p in self.zipped(pools)])
        self.logit = table([[r["ce"][h.id] for h in p] for r, p in self.zipped(pools)])
        self.rrf = table([[h.score for h in p] for p in pools])
        self.min_max = table([min_max_sum(r, p) for r, p in self.zipped(pools)])
        self.first = table([first_stage_values(evidence(one.trace, one.ids))[:DEPTH] for one in self.hits])

    def zipped(self, pools):
        return zip(self.rows, pools, strict=True)

    def ndcg(self, scores: np.ndarray) -> np.ndarray:
        order = np.argsort(-np.where(self.present > 0, scores, -np.inf), axis=1, kind="stable")[:, :K]
        return (np.take_along_axis(self.grade, order, 1) * GAINS).sum(1) / self.ideal

    def ndcg_of_lists(self, name: str) -> np.ndarray:
        return np.array([ndcg([doc for doc, _ in row[name]], row["qrels"]) for row in self.rows])


def table(rows) -> np.ndarray:
    return np.array([[*row, *([0.0] * (DEPTH - len(row)))][:DEPTH] for row in rows])


def fused(row) -> Ranking:
    stores = [store for store in ("bm25", "dense") if row[store]]
    lists = {store: [Hit(doc, score=score, source=store) for doc, score in row[store]] for store in stores}
    return fuse(lists)


def reranked(row, ranking: Ranking) -> Ranking:
    top = sorted(ranking[:DEPTH], key=lambda hit: (-row["ce"][hit.id], hit.id))
    scores = [*(row["ce"][hit.id] for hit in top), *(None for _ in ranking[DEPTH:])]
    hits = rescored([*top, *ranking[DEPTH:]], scores)
    record = make_record(StageKind.RERANK, "rerank", hits, scored=True, source="cross-encoder")
    return Ranking(tuple(hits), trace=ranking.trace.then(record))


def min_max_sum(row, pool) -> list[float]:
    total = {hit.id: 0.0 for hit in pool}
    for store in ("bm25", "dense"):
        scores = [score for _, score in row[store]]
        for doc, score in row[store]:
            if doc in total and max(scores) > min(scores):
                total[doc] += (score - min(scores)) / (max(scores) - min(scores)) / 2
    return [total[hit.id] for hit in pool]


def ndcg(order, qrels) -> float:
    gains = [max(0, qrels.get(doc, 0)) / math.log2(place + 2) for place, doc in enumerate(order[:K])]
    return sum(gains) / ideal(qrels)


def ideal(qrels) -> float:
    grades = sorted((grade for grade in qrels.values() if grade > 0), reverse=True)[:K]
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades))


def z(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-9)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def share(x: np.ndarray) -> np.ndarray:
    odds = np.exp(x - x.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def ranks(x: np.ndarray) -> np.ndarray:
    return 1 + np.argsort(np.argsort(-x, axis=1, kind="stable"), axis=1)


def unit(x: np.ndarray) -> np.ndarray:
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    return (x - low) / (high - low + 1e-9)


def spread(x: np.ndarray) -> np.ndarray:
    return x.std(1, keepdims=True) / USUAL_SPREAD


def promoted(x: np.ndarray, t: float, above: float = ABOVE) -> np.ndarray:
    """The shipped form, for whole matrices."""
    return spread(x) * (share(x / t) + above * np.maximum(z(x), 0))


# Each family: the first stage, the reranker's form by its own parameter, and that parameter's values.
FAMILIES = {
    "min-max + sigmoid(logit / t)": ("min_max", lambda x, t: sigmoid(x / t), (0.5, 1.0, 2.0, 4.0)),
    "min-max + min-max logit": ("min_max", lambda x, _: unit(x), (1.0,)),
    "RRF + 1 / (t + rank)": ("rrf", lambda x, t: 1 / (t + ranks(x)) / 15, (2.0, 10.0, 60.0)),
    "z + z": ("first", lambda x, _: z(x), (1.0,)),
    "z + logit / 8": ("first", lambda x, _: x / 8, (1.0,)),
    "z + sigmoid(logit / t)": ("first", lambda x, t: sigmoid(x / t), (0.5, 1.0, 2.0, 4.0)),
    "z + 1 / (t + rank)": ("first", lambda x, t: 1 / (t + ranks(x)), (1.0, 2.0, 3.0)),
    "z + share of exp(z / t)": ("first", lambda x, t: share(z(x) / t), (0.5, 0.75, 1.0)),
    "z + share of exp(logit / t)": ("first", lambda x, t: share(x / t), (1.0, 2.0, 3.0)),
    "share, by the highest logit": (
        "first",
        lambda x, t: share(x) * sigmoid(x.max(1, keepdims=True) - t),
        (0, 2, 4),
    ),
    "share, by the spread": ("first", lambda x, t: spread(x) * share(x / t), (1.0, 2.0, 3.0)),
    "share + t × z": ("first", lambda x, t: share(x) + t * z(x), STEEPNESS),
    "share + t × z, by the spread": ("first", lambda x, t: spread(x) * (share(x) + t * z(x)), STEEPNESS),
    "share + t × above (promote)": ("first", lambda x, t: promoted(x, 1.0, t), STEEPNESS),
}


def baselines(sets) -> dict:
    rows = {
        "BM25": [c.ndcg_of_lists("bm25") for c in sets.values()],
        "dense": [c.ndcg_of_lists("dense") for c in sets.values()],
        "RRF": [c.ndcg(c.rrf) for c in sets.values()],
        "min-max sum": [c.ndcg(c.min_max) for c in sets.values()],
        "mean z of the pool": [c.ndcg(c.first) for c in sets.values()],
        "cross-encoder alone": [c.ndcg(c.logit) for c in sets.values()],
    }
    return {
        name: dict(zip(sets, (float(v.mean()) for v in values), strict=True)) for name, values in rows.items()
    }


def family_table(sets, family: str) -> dict:
    """nDCG per (parameter, ratio) and collection."""
    base, form, parameters = FAMILIES[family]
    return {
        (t, w): {n: float(c.ndcg(getattr(c, base) + w * form(c.logit, t)).mean()) for n, c in sets.items()}
        for t in parameters
        for w in RATIOS
    }


def cross_validated(sets) -> dict:
    """Tune each family on all collections but one and test on that one: among the three, and among all."""
    found = {}
    for family in FAMILIES:
        scores = family_table(sets, family)
        found[family] = {"of three": held_out(scores, TUNED), "of all": held_out(scores, tuple(sets))}
    return found


def held_out(scores: dict, names: tuple[str, ...]) -> dict:
    def best_on(those) -> tuple:
        return max(scores, key=lambda key: (sum(scores[key][name] for name in those), -key[1]))

    tested = {}
    for left_out in names:
        chosen = best_on([name for name in names if name != left_out])
        tested[left_out] = {"t": chosen[0], "ratio": chosen[1], "ndcg": scores[chosen][left_out]}
    mean = float(np.mean([row["ndcg"] for row in tested.values()]))
    chosen = best_on(names)
    return {"left_out": tested, "mean": mean, "t_ratio_on_all": chosen, "with_it": scores[chosen]}


def shipped(sets) -> dict:
    """The library's own default on real traces, blend alone and the whole default shape."""
    result, ratio = {}, WEIGHT / (1 - WEIGHT)
    for name, collection in sets.items():
        pools = [reranked(row, hits) for row, hits in collection.zipped(collection.hits)]
        rules = {
            "blend": lambda p, near: blend(p, near=near).ids,
            "shape": lambda p, near: shape(p, k=K, policy=ShapePolicy(), near=near).ids,
            "without neighbours": lambda p, _: blend(p).ids,
        }
        scores = {
            rule: np.array([ndcg(run(p, row["near"]), row["qrels"]) for row, p in collection.zipped(pools)])
            for rule, run in rules.items()
        }
        against = {
            "RRF": collection.ndcg(collection.rrf),
            "cross-encoder": collection.ndcg(collection.logit),
            "plain share": collection.ndcg(collection.first + ratio * share(collection.logit)),
            "without neighbours": scores["without neighbours"],
        }
        result[name] = {rule: float(values.mean()) for rule, values in scores.items()}
        result[name] |= {
            f"interval against {side}": interval(scores["blend"] - v) for side, v in against.items()
        }
    return result


def neighbours(sets, *, sinking: bool = False) -> dict:
    """The default blend with other numbers of neighbours and other shares, held out as the families are.

    `sinking` averages instead: what has weaker neighbours sinks as what has stronger ones rises.
    """
    scores = {(count, share): {} for count in COUNTS for share in SHARES}
    for name, c in sets.items():
        found = {key: [] for key in scores}
        for row, hits in c.zipped(c.hits):
            kept = blend(reranked(row, hits)).kept
            ids, own = [hit.id for hit in kept], np.array([hit.score for hit in kept])
            for count in COUNTS:
                pulled = np.array(pulls(ids, own.tolist(), row["near"], count=count))
                if sinking:
                    pulled -= np.array(pulls(ids, (-own).tolist(), row["near"], count=count))
                for share in SHARES:
                    best = np.argsort(-(own + share * pulled), kind="stable")[:K]
                    found[count, share].append(ndcg([ids[at] for at in best], row["qrels"]))
        for key, values in found.items():
            scores[key][name] = float(np.mean(values))
    return {
        "grid": {f"{count} nearest, share {share:g}": row for (count, share), row in scores.items()},
        "of three": held_out(scores, TUNED),
        "of all": held_out(scores, tuple(sets)),
    }


def by_source(sets) -> dict:
    """chunkeval's five sources one by one; document ids begin with their source."""
    found: dict = {}
    c = sets["chunkeval-multisource.test"]
    sources = np.array([next(iter(row["qrels"])).rpartition("-")[0] for row in c.rows])
    blended = [blend(reranked(row, hits), near=row["near"]).ids for row, hits in c.zipped(c.hits)]
    values = np.array([ndcg(ids, row["qrels"]) for row, ids in c.zipped(blended)])
    for way, scores in {
        "cross-encoder alone": c.ndcg(c.logit),
        "RRF": c.ndcg(c.rrf),
        "blend": values,
    }.items():
        found[way] = {str(s): round(float(scores[sources == s].mean()), 4) for s in np.unique(sources)}
    return found


def interval(differences: np.ndarray) -> list[float]:
    """95 % bootstrap interval of a mean difference over queries."""
    draws = np.random.default_rng(1).choice(differences, (2000, len(differences))).mean(1)
    return [round(float(value), 4) for value in np.quantile(draws, [0.025, 0.975])]


def stressed(sets) -> dict:
    """Noise on one side, scaled back so that the noisy evidence looks as sure as before."""
    policy, source, found = Blend(weight=WEIGHT), np.random.default_rng(0), {}
    ratio = policy.weight / (1 - policy.weight)
    for side in ("none", "first", "reranker"):
        for size in (1.0, 2.0, 4.0) if side != "none" else (0.0,):
            rows = []
            for name in TUNED:
                c = sets[name]
                first = noisy(c.first, size, source) if side == "first" else c.first
                logit = noisy(c.logit, size, source) if side == "reranker" else c.logit
                lift = promoted(logit, policy.temperature)
                orders = (first, logit, first + ratio * lift, first + 19 * lift)
                rows.append([c.ndcg(scores).mean() for scores in orders])
            means = [round(float(value), 4) for value in np.mean(rows, axis=0)]
            names = ("first", "reranker", "blend", "blend at weight 0.95")
            found[f"{side} +{size:g}"] = dict(zip(names, means, strict=True))
    return found


def one_store_alone(sets) -> dict:
    """The same pools with the first-stage evidence of one store only: a first stage that misleads more."""
    ratio, found = WEIGHT / (1 - WEIGHT), {}
    for store in ("bm25", "dense"):
        for name, c in sets.items():
            first = table([one_store(hits, store) for hits in c.hits])
            orders = {
                "first": first,
                "reranker": c.logit,
                "share alone": first + ratio * share(c.logit),
                "blend": first + ratio * promoted(c.logit, 1.0),
            }
            found[f"{store} {name}"] = {way: round(float(c.ndcg(x).mean()), 4) for way, x in orders.items()}
    return found


def noisy(x: np.ndarray, size: float, source: np.random.Generator) -> np.ndarray:
    deviation = x.std(1, keepdims=True)
    return z(x + size * deviation * source.standard_normal(x.shape)) * deviation + x.mean(1, keepdims=True)


def weights(sets) -> dict:
    """The default form at other weights, to see how flat the hill is."""
    found = {}
    for weight in (0.0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98):
        for t in (1.0, 2.0, 3.0):
            ratio = weight / (1 - weight)
            values = {
                n: float(c.ndcg(c.first + ratio * promoted(c.logit, t)).mean()) for n, c in sets.items()
            }
            found[f"weight {weight}, temperature {t:g}"] = values
    return found


def damped(sets) -> dict:
    """First stages whose outliers are cut or damped, store by store, without any reranker."""
    ways = {
        "as it is": lambda x: x,
        "cut at 2": lambda x: np.minimum(x, 2),
        "cut at 3": lambda x: np.minimum(x, 3),
        "cut at 4": lambda x: np.minimum(x, 4),
        "tanh(z / 3)": lambda x: np.tanh(x / 3),
        "sign × log(1 + |z|)": lambda x: np.sign(x) * np.log1p(np.abs(x)),
    }
    found = {}
    for name in TUNED:
        c = sets[name]
        columns = [table([one_store(hits, store) for hits in c.hits]) for store in ("bm25", "dense")]
        for way, change in ways.items():
            found.setdefault(way, {})[name] = float(c.ndcg(sum(map(change, columns))).mean())
    return found


def one_store(ranking: Ranking, store: str) -> list[float]:
    found = evidence(ranking.trace, ranking.ids)
    other = {"bm25": "dense", "dense": "bm25"}[store]
    # The other list stays for its length; the difference of both means is this store's part.
    both = first_stage_values(found)
    without = first_stage_values(replace(found, lists={k: v for k, v in found.lists.items() if k == other}))
    return [len(found.lists) * total - rest for total, rest in zip(both, without, strict=True)][:DEPTH]


def signs(sets) -> dict:
    """What goes along with the reranker being better than the first stage, query by query (correlation)."""
    found = {}
    for name, c in sets.items():
        gain = c.ndcg(c.logit) - c.ndcg(c.first)
        tops = [[{doc for doc, _ in row[store][:K]} for store in ("bm25", "dense")] for row in c.rows]
        facts = {
            "spread of the logits": c.logit.std(1),
            "highest logit": c.logit.max(1),
            "overlap of the top 10": np.array([len(one & other) for one, other in tops]),
            "rank correlation with the first stage": (z(ranks(c.logit)) * z(ranks(c.first))).mean(1),
        }
        found[name] = {fact: round(float(np.corrcoef(v, gain)[0, 1]), 3) for fact, v in facts.items()}
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    sets = {n: Collection(folder / f"{n}.json") for n in (*TUNED, *OTHERS) if (folder / f"{n}.json").exists()}
    data = {"baselines": baselines(sets), "shipped": shipped(sets), "weights": weights(sets)}
    found = cross_validated(sets)
    data |= {"cross_validated": found, "stress": stressed(sets), "one_store": one_store_alone(sets)}
    data["by_source"] = by_source(sets)
    data["neighbours"], data["averaging"] = neighbours(sets), neighbours(sets, sinking=True)
    data |= {"damped": damped(sets), "signs": signs(sets)}
    data["spread"] = {n: float(np.median(c.logit.std(1))) for n, c in sets.items()}
    data["highest"] = {n: float(np.median(c.logit.max(1))) for n, c in sets.items()}
    rows, rules = dict(data["baselines"]), ("without neighbours", "blend", "shape")
    rows |= {f"shipped {r}": {n: v[r] for n, v in data["shipped"].items()} for r in rules}
    for name, row in rows.items():
        mean = np.mean([row[n] for n in TUNED])
        print(f"{name:24}", *(f"{row[n]:.4f}" for n in sets), f"mean of 3 {mean:.4f}")
    for family, ways in found.items():
        for way, row in ways.items():
            tested = " ".join(f"{one['ndcg']:.4f}" for one in row["left_out"].values())
            print(f"{family:32} {way:9} {tested} mean {row['mean']:.4f}", row["t_ratio_on_all"])
    for form, way in product(("neighbours", "averaging"), ("of three", "of all")):
        row = data[form][way]
        tested = " ".join(f"{one['ndcg']:.4f}" for one in row["left_out"].values())
        print(f"{form:32} {way:9} {tested} mean {row['mean']:.4f}", row["t_ratio_on_all"])
    for part in ("shipped", "stress", "one_store", "by_source", "damped", "signs", "weights"):
        for name, row in data[part].items():
            print(part, name, row)
    write_results("blending", data)


if __name__ == "__main__":
    main()
