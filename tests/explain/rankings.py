"""Rankings with known traces, made by the real stages."""

from __future__ import annotations

import asyncio

from resift.deadline import Deadline
from resift.pipeline import Pipeline
from resift.pipeline.stages import Shape
from resift.ranking.fusion import fuse
from resift.rerankers.rescore import rescore
from resift.testing import FakeStore
from resift.types import Hit, Ranking, Scores, StageKind, Trace, make_record


class Wise:
    """A scorer that knows the answer: a hit's score is in its metadata."""

    name = "wise"

    async def score(self, query: str, hits: list[Hit], *, deadline: Deadline) -> Scores:
        return Scores([hit.metadata["worth"] for hit in hits], provider=self.name)


def fused_and_reranked(*, k: int = 3) -> Ranking:
    """Return a ranking of six hits from two lists: `f` rises from last to first, `a` falls out."""
    worth = {"a": -5.0, "b": 2.0, "c": 1.0, "d": 0.0, "e": -1.0, "f": 9.0}
    rows = {id: {"id": id, "text": f"text of {id}", "worth": score} for id, score in worth.items()}
    lists = {"db.text": [rows[id] for id in "abcde"], "db.vectors": [rows[id] for id in "abcf"]}
    return reranked(fuse(lists), k=k)


def reranked(ranking: Ranking, *, k: int) -> Ranking:
    return asyncio.run(rescore(Wise(), "q", ranking, k=k, deadline=Deadline.after(None)))


def blended(*, k: int = 6) -> Ranking:
    """Return the answer of a whole pipeline: two lists, RRF, the scorer above and the blend."""
    worth = {"a": 1.0, "b": 4.0, "c": 3.0, "d": -2.0, "e": -3.0, "f": 5.0}
    hits = {id: Hit(id, f"text of {id}", metadata={"worth": score}) for id, score in worth.items()}
    stores = [
        FakeStore([hits[id] for id in "abcde"], name="text"),
        FakeStore([hits[id] for id in "abcf"], name="vectors"),
    ]
    return Pipeline(stores, rerank=Wise(), guard=Shape(name="guard"), k=k).rank("text")


HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)> ' & &lt;",
    "\u202egnp.exe\u202c עברית العربية",
    "line\none\x1b[31mred\x07\x00\ud800\uffff",
    "]]><!-- --> <![CDATA[",
    "𝕏" * 300,
)


def hostile() -> Ranking:
    """Return a ranking whose ids, texts, sources and notes try to break out of markup."""
    hits = [Hit(bad, bad, 1.0 / (at + 1), bad) for at, bad in enumerate(HOSTILE)]
    records = [
        make_record(StageKind.RETRIEVE, bad, hits, scored=True, source=bad, notes=dict.fromkeys(HOSTILE, bad))
        for bad in HOSTILE
    ]
    return Ranking(
        tuple(hits[:4]),
        cut=tuple(hits[4:]),
        degraded=True,
        reason=HOSTILE[0],
        failures={HOSTILE[1]: HOSTILE[2]},
        trace=Trace((*records, make_record(StageKind.SHAPE, HOSTILE[0], hits[:4], hits[4:], note=HOSTILE[1]))),
    )
