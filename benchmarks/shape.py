"""How long gate and shape take on 200 hits; the target is under 2 ms for the whole.

    python -m benchmarks.shape

Pools look like a pipeline's: two lists fused by RRF, the top 20 reranked, 150-word texts, four source types,
five known neighbours each. Finding the neighbours is the stores' side, and is timed apart.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.harness import option_parser, report
from resift.ranking import gate, shape
from resift.ranking.fusion import fuse
from resift.types import Hit, Ranking, StageKind, make_record, with_scores

SIZE, DEPTH, K, ROUNDS = 200, 20, 10, 200
VOCABULARY = [f"word{number}" for number in range(2000)]


def pool(seed: int) -> Ranking:
    """Return 200 fused hits with their trace."""
    source = random.Random(seed)
    names = [f"chunk-{number:03}" for number in range(SIZE)]
    texts = {name: " ".join(source.choices(VOCABULARY, k=150)) for name in names}
    kinds = {name: source.choice(["USER", "EXCEL", "COSTAR", "PDF"]) for name in names}
    lists = {}
    for store, high in (("bm25", 20.0), ("dense", 0.9)):
        order = source.sample(names, SIZE)
        lists[store] = [
            Hit(
                name,
                texts[name],
                high * (1 - place / SIZE),
                store,
                {"source_type": kinds[name], "document": name[:-1], "stage": source.choice("AAAB")},
            )
            for place, name in enumerate(order)
        ]
    return fuse(lists)


def reranked(ranking: Ranking) -> Ranking:
    """Return the hits as a reranker leaves them: the top 20 in another order, the rest unscored behind."""
    top = sorted(ranking[:DEPTH], key=lambda hit: hit.id)
    scores = [*(5.0 - place for place in range(len(top))), *(None for _ in ranking[DEPTH:])]
    hits = with_scores([*top, *ranking[DEPTH:]], scores)
    record = make_record(StageKind.RERANK, "rerank", hits, scored=True, source="cross-encoder")
    record = replace(record, score_scale="logit", languages=("en",))
    return Ranking(tuple(hits), trace=ranking.trace.append(record))


def vectors_of(hits: Sequence[Hit]) -> dict[str, Any]:
    """Return a vector per hit, as a store hands them out."""
    source = np.random.default_rng(1)
    return {hit.id: source.standard_normal(384).astype(np.float32) for hit in hits}


def processor_ms(run: Callable[[], object], rounds: int) -> float:
    """Return the median processor time: nothing here waits, and wall time would measure the neighbours."""
    run()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        times.append((time.process_time() - started) * 1000)
    return round(statistics.median(times), 4)


PROFILE = gate.Profile(name="bench", default=0.05, signal="dense")
WHOLE = shape.ShapePolicy(
    precedence=shape.Precedence(),
    fold=1.0,
    recovery=shape.Recovery(survivors={"s": {"EXCEL": 2}}),
    quotas=(shape.FAIRNESS, shape.DIVERSITY),
)


def main(argv: list[str] | None = None) -> int:
    args = option_parser("shape", __doc__).parse_args(argv)
    rounds = 3 if args.quick else ROUNDS
    fused = pool(1)
    gated = gate.gate(fused, profile=PROFILE, rerank_top_n=K)
    hits = reranked(Ranking(gated.kept, trace=fused.trace.append(gated.record)))

    vectors = vectors_of(fused)
    near = shape.nearest(vectors)

    def whole() -> None:
        """The reranker stands between the two, so each starts from what it would be given."""
        gate.gate(fused, profile=PROFILE, rerank_top_n=K)
        shape.shape(hits, k=K, policy=WHOLE, section="s", near=near)

    subjects = {
        "whole: gate + shape": whole,
        "gate": lambda: gate.gate(fused, profile=PROFILE, rerank_top_n=K),
        "shape, default policy": lambda: shape.shape(hits, k=K, near=near),
        "blend": lambda: shape.blend(hits, near=near),
        "blend without neighbours": lambda: shape.blend(hits),
        "nearest": lambda: shape.nearest(vectors),
        "precede": lambda: shape.precede(hits),
        "guard": lambda: shape.guard(hits),
        "fold": lambda: shape.fold(hits),
        "fold at 0.8": lambda: shape.fold(hits, threshold=0.8),
        "balance": lambda: shape.balance(hits, k=K),
        "recover": lambda: shape.recover(hits, k=K),
        "mmr on words": lambda: shape.mmr(hits, k=K),
    }
    medians = {name: processor_ms(run, rounds) for name, run in subjects.items()}
    report(args, {"hits": SIZE, "k": K, "rounds": rounds, "median_processor_ms": medians, "target_ms": 2.0})
    return 0 if args.quick or medians["whole: gate + shape"] < 2.0 else 1


if __name__ == "__main__":
    sys.exit(main())
