"""Pools of hits for shaping tests: small, tied on purpose, with ledgers as a pipeline writes them."""

from __future__ import annotations

from hypothesis import strategies as st

from resift.types import Hit, Ledger, Ranking, Step

TYPES = ("USER", "EXCEL", "COSTAR", "PDF", "OTHER")
TIED = st.sampled_from([0.0, 0.1, 0.2, 0.2, 0.849, 0.85, 0.851, 0.9, 0.95])
TEXTS = st.sampled_from(
    ["", "same words here", "Same  words HERE", "other text", "yet another text", "x y z"]
)


def hit(id, score=0.0, kind="PDF", *, text="", provider=None, **metadata):
    extra = {"rerank_provider": provider} if provider else {}
    return Hit(id, text, score, "store", {"source_type": kind, **metadata, **extra})


@st.composite
def pools(draw, max_size=14):
    """Hits sorted by score, with documents, source types, stages and texts from small sets."""
    rows = draw(
        st.lists(
            st.tuples(TIED, st.sampled_from(TYPES), st.sampled_from("abc"), st.sampled_from("ABC"), TEXTS),
            max_size=max_size,
        )
    )
    hits = [
        hit(f"h{at:02}", score, kind, text=text, document=document, stage=stage)
        for at, (score, kind, document, stage, text) in enumerate(rows)
    ]
    return sorted(hits, key=lambda one: (-one.score, one.id))


def pipeline_hits(lists, logits=None, *, k_param=60, provider="cross-encoder"):
    """Return hits with the ledger of fusion by RRF and reranking; lists map a store to (id, score) pairs."""
    totals, steps = {}, {}
    for store, ranked in lists.items():
        for rank, (name, score) in enumerate(ranked, start=1):
            steps.setdefault(name, []).append(Step("retrieve", store, rank, score))
            totals[name] = totals.get(name, 0.0) + 1 / (k_param + rank)
    fused = sorted(totals, key=lambda name: (-totals[name], name))
    hits = {
        name: Hit(
            name, f"text {name}", totals[name], "bm25", {},
            Ledger([*steps[name], Step("rrf", "", rank, totals[name])]),
        )
        for rank, name in enumerate(fused, start=1)
    }  # fmt: skip
    if logits is None:
        return list(hits.values())
    scored = sorted((name for name in fused if logits.get(name) is not None), key=lambda n: (-logits[n], n))
    rest = [name for name in fused if logits.get(name) is None]
    return [
        hits[name].step("rerank", provider, rank=rank, score=logits.get(name))
        for rank, name in enumerate([*scored, *rest], start=1)
    ]


def everything(shaped):
    return sorted(one.id for one in (*shaped.kept, *shaped.cut))


def replays(shaped):
    return Ranking(shaped.kept).replay() == [one.id for one in shaped.kept]
