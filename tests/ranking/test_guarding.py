"""Do no harm: a strong first-stage hit stays in the top n."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.shape import Blend, Guard, blend, guard
from resift.types import StageKind
from tests.ranking.pools import column, everything, note, pipeline_hits, replays
from tests.ranking.test_blend import reranked

NAMES = [f"d{n}" for n in range(8)]
BOTH = {"bm25": [(n, 10 - at) for at, n in enumerate(NAMES)], "dense": [("d0", 0.9), ("d5", 0.8)]}
AGAINST = {name: float(at) for at, name in enumerate(NAMES)}


def test_first_in_two_lists_stays_in_the_top_n():
    """The reranker puts the hit that leads both lists last; the guard holds it at place 3."""
    reranked = pipeline_hits(BOTH, AGAINST)
    hits = blend(reranked, policy=Blend(weight=1)).kept
    assert hits[-1].id == "d0"
    shaped = guard(hits, n=3, trace=reranked.trace)
    assert shaped.ids == ["d7", "d6", "d0", "d5", "d4", "d3", "d2", "d1"]
    assert note(shaped, shaped.kept[2].id) == "guarded: first in 2 lists, so it stays in the top 3"
    assert shaped.protected == {"d0"}


def test_two_rerankers_that_agree_are_followed():
    """Two opinions are not one reranker's opinion."""
    hits = pipeline_hits(BOTH, AGAINST)
    again = column(StageKind.RERANK, "second look", [(hit.id, hit.score) for hit in hits], source="other")
    assert guard(hits, n=3).ids != hits.ids
    assert guard(hits, n=3, trace=hits.trace.append(again)).ids == hits.ids


def test_a_wide_margin_of_the_fused_score_is_strong():
    """One list only, no two firsts: the fused leader is guarded if it leads by half the range."""
    near = pipeline_hits({"bm25": [(n, 10 - at) for at, n in enumerate(NAMES)]}, AGAINST)
    assert guard(near, n=2, policy=Guard(margin=0.5)).ids == [hit.id for hit in near]
    assert "d0" in guard(near, n=2, policy=Guard(margin=0.1)).ids[:2]


def test_wrong_numbers_are_refused():
    """There is no top 0 to guard."""
    with pytest.raises(InputError):
        guard([], n=0)
    with pytest.raises(InputError):
        Guard(firsts=0)


@given(reranked(), st.integers(1, 8), st.sampled_from([1, 2]))
def test_guarded_hits_are_in_the_top_n(hits, n, firsts):
    """While there is room every strong hit is in the top n; nothing is lost; twice is once."""
    once = guard(hits, n=n, policy=Guard(firsts=firsts))
    assert everything(once) == sorted(hit.id for hit in hits)
    assert replays(once)
    assert len(once.protected & set(once.ids[:n])) == min(n, len(once.protected))
    assert guard(once.kept, n=n, trace=hits.trace, policy=Guard(firsts=firsts)).ids == once.ids
