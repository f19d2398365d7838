"""Source precedence: near-equal scores follow the order, real gaps never flip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.events import ListSink
from resift.ranking.shape import Precedence, precede
from resift.types import Trace
from tests.ranking.pools import TYPES, everything, hit, pools, replays

POLICY = Precedence()


def order(*hits, policy=POLICY):
    return [one.id for one in precede(hits, policy=policy).kept]


def test_085_excel_never_beats_095_pdf():
    """Relevance wins over precedence."""
    assert order(hit("excel", 0.85, "EXCEL"), hit("pdf", 0.95, "PDF")) == ["pdf", "excel"]


def test_0851_excel_beats_0850_pdf():
    """The better score of the preferred type stays first."""
    assert order(hit("pdf", 0.850, "PDF"), hit("excel", 0.851, "EXCEL")) == ["excel", "pdf"]


def test_a_gap_under_the_margin_follows_precedence():
    """0.850 EXCEL and 0.851 PDF are as good as equal, so EXCEL goes first."""
    assert order(hit("pdf", 0.851, "PDF"), hit("excel", 0.850, "EXCEL")) == ["excel", "pdf"]


def test_equal_scores_follow_the_canonical_order():
    """USER > EXCEL > COSTAR > PDF, then types nobody ranked, then ids."""
    hits = [hit(f"{kind}-{n}", 0.5, kind) for n in (2, 1) for kind in reversed(TYPES)]
    assert order(*hits) == [f"{kind}-{n}" for kind in TYPES for n in (1, 2)]


def test_bm25_tier_boosts_are_half():
    """The boosts of the BM25 tier are half of those of the primary tier."""
    for kind in TYPES:
        assert POLICY.boost(kind, "semantic-bm25") == POLICY.boost(kind, "voyage") / 2
    assert POLICY.margin_for("semantic-bm25") == POLICY.margin_for("voyage") / 2


def test_a_bm25_gap_of_half_the_margin_is_real():
    """A gap of 0.006 flips under a cross-encoder and holds in the BM25 tier."""
    for provider, first in (("voyage", "user"), ("semantic-bm25", "pdf")):
        assert (
            order(hit("pdf", 0.256, "PDF", provider=provider), hit("user", 0.250, "USER", provider=provider))[0]
            == first
        )


def test_score_stays_and_the_record_tells():
    """The relevance is untouched; the record has the boosted value and says why."""
    sink = ListSink()
    shaped = precede([hit("a", 0.5, "USER")], sink=sink)
    (step,) = Trace(shaped.records).path("a")
    assert shaped.kept[0].score == 0.5
    assert step.score == pytest.approx(0.5075)
    assert step.note == "USER +0.0075"
    assert sink.events[0].stage == "precedence"


def test_precedence_is_data():
    """Another house, another order."""
    policy = Precedence(order=("NEWS", "BLOG"), margin=0.1, key="source_type")
    hits = [hit("b", 0.5, kind="BLOG"), hit("n", 0.5, kind="NEWS")]
    assert order(*hits, policy=policy) == ["n", "b"]
    with pytest.raises(InputError):
        Precedence(order=("A", "A"))


@given(pools(), st.sampled_from([None, "voyage", "semantic-bm25"]), st.sampled_from([0.0, 0.01, 0.05]))
def test_no_boost_flips_a_gap_of_the_margin(hits, provider, margin):
    """Over random pools: real gaps hold, equal scores follow precedence, nothing is lost, twice is once."""
    policy = Precedence(margin=margin)
    hits = [one.with_metadata(rerank_provider=provider) for one in hits]
    once = precede(hits, policy=policy)
    least = policy.margin_for(provider)
    for at, upper in enumerate(once.kept):
        for lower in once.kept[at + 1 :]:
            assert lower.score - upper.score < least or lower.score == upper.score
            if lower.score == upper.score:
                left, right = (policy.rank(one.metadata["source_type"]) for one in (upper, lower))
                assert (left, upper.id) <= (right, lower.id)
    assert everything(once) == sorted(one.id for one in hits)
    assert replays(once)
    assert precede(once.kept, policy=policy).ids == once.ids


@given(st.floats(1e10, 1e17), st.floats(0.01, 100))
def test_real_gaps_hold_where_scores_swallow_boosts(score, gap):
    """With scores so large that adding a boost changes nothing or rounds, a real gap still decides."""
    better = hit("pdf", score + gap, "PDF")
    if better.score - score >= POLICY.margin:
        assert order(hit("user", score, "USER"), better)[0] == "pdf"
