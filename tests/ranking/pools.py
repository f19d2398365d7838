"""Pools of hits for shaping tests: small, tied on purpose, with traces as a pipeline writes them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from resift.types import Hit, Ranking, StageKind, StageRecord, Trace

TYPES = ("USER", "EXCEL", "COSTAR", "PDF", "OTHER")
TIED = st.sampled_from([0.0, 0.1, 0.2, 0.2, 0.849, 0.85, 0.851, 0.9, 0.95])
TEXTS = st.sampled_from(["", "same words here", "Same  words HERE", "other text", "yet another text", "x y z"])


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


def pipeline_hits(lists, logits=None, *, k_param=60, provider="cross-encoder", stage="rerank"):
    """Return the ranking after fusion by RRF and reranking; lists map a store to (id, score) pairs.

    The default provider gives logits and knows English only; others do not describe themselves.
    """
    totals, records = {}, []
    for store, ranked in lists.items():
        records.append(column(StageKind.RETRIEVE, "retrieve", ranked, source=store))
        for rank, (name, _) in enumerate(ranked, start=1):
            totals[name] = totals.get(name, 0.0) + 1 / (k_param + rank)
    fused = sorted(totals, key=lambda name: (-totals[name], name))
    hits = {name: Hit(name, f"text {name}", totals[name], "bm25") for name in fused}
    records.append(column(StageKind.FUSE, "rrf", [(name, totals[name]) for name in fused]))
    if logits is None:
        return Ranking(tuple(hits.values()), trace=Trace(tuple(records)))
    scored = sorted((name for name in fused if logits.get(name) is not None), key=lambda n: (-logits[n], n))
    order = [*scored, *(name for name in fused if logits.get(name) is None)]
    said = [(name, logits.get(name)) for name in order]
    english = {"score_scale": "logit", "languages": ("en",)} if provider == "cross-encoder" else {}
    records.append(replace(column(StageKind.RERANK, stage, said, source=provider), **english))
    return Ranking(tuple(replace(hits[name], score=score) for name, score in said), trace=Trace(tuple(records)))


def column(kind, name, pairs, *, source=""):
    """Return a record of (id, score) pairs."""
    ids, scores = tuple(id for id, _ in pairs), tuple(score for _, score in pairs)
    return StageRecord(kind=kind, name=name, source=source, ids=ids, scores=scores)


def everything(shaped):
    return sorted(one.id for one in (*shaped.kept, *shaped.cut))


def replays(shaped):
    return Trace(shaped.records).order() == tuple(shaped.ids)


def note(shaped, id):
    """Return what the last record that mentions the id says of it."""
    return Trace(shaped.records).path(id)[-1].note
