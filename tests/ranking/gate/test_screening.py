"""The gate: floors, relax, tighten, invariants, telemetry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.events import ListSink
from resift.ranking.gate import MEMOSA, NEUTRAL, Profile, Relax, apply_rates, gate, load_profile
from resift.types import Hit, StageKind, StageRecord, Trace


def pool(*scores, types=()):
    kinds = dict(enumerate(types))
    return [
        Hit(f"h{at:02}", score=score, source="s", metadata={"source_type": kinds.get(at, "PDF")})
        for at, score in enumerate(scores)
    ]


class Breaker:
    """Answers from a script and counts the calls."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    def __call__(self):
        self.asked += 1
        return self.answers.pop(0)


STRONG = (0.90, 0.88, 0.86, 0.84, 0.50, 0.45)


@pytest.mark.parametrize(
    ("section", "floor"),
    [
        ("sponsor_background", 0.10),
        ("exit_strategy", 0.10),
        ("financial_analysis", 0.12),
        ("risk_market", 0.14),
        ("comparables_analysis", 0.15),
        ("executive_summary", 0.18),
        (None, 0.18),
    ],
)
def test_seed_table_of_floors(section, floor):
    """The memosa profile has these floors, 0.18 for sections it does not list."""
    assert load_profile("memosa").floor_for(section) == floor


def test_neutral_profile_keeps_everything():
    """Without measured floors nothing is dropped, not even negative scores, and nothing tightens."""
    gated = gate(pool(0.9, 0.1, -3.0), rerank_top_n=1)
    assert [hit.id for hit in gated.kept] == ["h00", "h01", "h02"]
    assert gated.result.tighten_skip_reason in ("missing_inputs", "grade_not_a_or_b")


def test_tighten_drops_the_tail_past_the_cliff():
    """An A retrieval with a cliff behind its core of three keeps the four above it."""
    sink = ListSink()
    gated = gate(pool(*STRONG), profile=MEMOSA, rerank_top_n=3, sink=sink)
    (event,) = sink.named("vector_search_tool_result")
    assert gated.grade.letter == "A"
    assert [hit.id for hit in gated.kept] == ["h00", "h01", "h02", "h03"]
    assert (event.tighten_applied, event.tighten_effective_floor) == (True, 0.84)
    assert (event.tighten_cliff_position, event.tighten_dropped_count) == (4, 2)
    assert event.tighten_skip_reason is None
    assert "below the cliff" in gated.record.notes[gated.cut[0].id]


def test_last_chunk_of_a_source_type_stops_the_tighten():
    """The only CoStar chunk sits in the tail, so the tail stays."""
    gated = gate(pool(*STRONG, types=("PDF",) * 5 + ("COSTAR",)), profile=MEMOSA, rerank_top_n=3)
    assert gated.result.tighten_skip_reason == "source_diversity_loss"
    assert (gated.result.tighten_applied, len(gated.kept)) == (False, 6)


def test_breaker_not_closed_means_no_tighten():
    """A breaker that is open when the hint is computed is read once, and nothing is tightened."""
    breaker = Breaker(False)
    gated = gate(pool(*STRONG), profile=MEMOSA, rerank_top_n=3, breaker_closed=breaker)
    assert (gated.result.tighten_skip_reason, len(gated.kept), breaker.asked) == ("breaker_not_closed", 6, 1)


def test_breaker_that_opens_before_apply_means_no_tighten():
    """Closed for the hint, not closed any more when it is applied."""
    breaker = Breaker(True, False)
    gated = gate(pool(*STRONG), profile=MEMOSA, rerank_top_n=3, breaker_closed=breaker)
    assert gated.result.tighten_skip_reason == "breaker_not_closed_at_apply"
    assert (len(gated.kept), breaker.asked) == (6, 2)


def test_decisions_are_never_cached():
    """The same pool under another breaker state is decided again each time."""
    hits = pool(*STRONG)
    breaker = Breaker(True, True, False, True, True)
    applied = [
        gate(hits, profile=MEMOSA, rerank_top_n=3, breaker_closed=breaker).result.tighten_applied for _ in range(3)
    ]
    assert applied == [True, False, True]


def test_weak_retrieval_relaxes_floor_and_top_k():
    """A D gets a floor of 0.65 × 0.18 and half as many hits more."""
    gated = gate(pool(0.20, 0.19, 0.185, 0.181, 0.15, 0.12, 0.11), profile=MEMOSA, rerank_top_n=5, top_k=4)
    assert gated.grade.letter == "D"
    assert gated.result.relaxed
    assert gated.result.effective_floor == pytest.approx(0.117)
    assert gated.result.top_k == 6
    assert [hit.id for hit in gated.kept] == ["h00", "h01", "h02", "h03", "h04", "h05"]
    assert gated.result.tighten_skip_reason == "grade_not_a_or_b"


def test_relaxing_never_raises_a_floor_below_zero():
    """Half of a negative floor would be higher than the floor itself."""
    assert Relax().floor_for("F", -4.0) == -4.0


def test_signal_reads_one_stores_scores():
    """After fusion the floor still applies to the cosine of the named store; unscored hits stay."""
    hits = [Hit("a", score=0.03), Hit("b", score=0.02), Hit("c", score=0.01)]
    lists = {"dense": (("a", "b"), (0.9, 0.1)), "words": (("c",), (12.0,))}
    records = [
        StageRecord(kind=StageKind.RETRIEVE, name="retrieve", source=name, ids=ids, scores=scores)
        for name, (ids, scores) in lists.items()
    ]
    profile = Profile(default=0.5, signal="dense")
    gated = gate(hits, trace=Trace(tuple(records)), profile=profile, rerank_top_n=1)
    assert [hit.id for hit in gated.kept] == ["a", "c"]


def test_wrong_numbers_are_refused():
    """A keep-count of zero is a mistake, not a gate."""
    with pytest.raises(InputError, match="rerank_top_n is 0"):
        gate([], rerank_top_n=0)
    with pytest.raises(InputError, match="Did you mean 'memosa'"):
        load_profile("memossa")


def test_apply_rate_report_per_section():
    """One line per section with its rate, its skip reasons, and whether it lies in 2–40 %."""
    sink = ListSink()
    for section, answer in [("exit_strategy", True)] + [("exit_strategy", False)] * 3 + [("risk_market", True)]:
        gate(
            pool(*STRONG),
            profile=MEMOSA,
            section=section,
            rerank_top_n=3,
            breaker_closed=lambda answer=answer: answer,
            sink=sink,
        )
    first, second = apply_rates(sink.events)
    assert (first.section, first.rate, first.in_band) == ("exit_strategy", 0.25, True)
    assert first.skip_reasons == {"breaker_not_closed": 3}
    assert (second.section, second.rate, second.in_band, second.dropped) == ("risk_market", 1.0, False, 2)


TIED = st.sampled_from([0.05, 0.1, 0.12, 0.18, 0.3, 0.3, 0.5, 0.55, 0.8, 0.85, 0.9])
POOLS = st.lists(st.tuples(TIED, st.sampled_from(["PDF", "EXCEL", "COSTAR"])), max_size=40)


@given(POOLS, st.integers(1, 12), st.sampled_from([None, 3, 30]), st.booleans(), st.booleans())
def test_invariants_over_random_pools(rows, top_n, top_k, first, second):
    """Nothing is lost or invented, order stays, tightening spares core and source types, records replay."""
    hits = [Hit(f"h{at:02}", score=score, metadata={"source_type": kind}) for at, (score, kind) in enumerate(rows)]
    answers = iter([first, second])
    gated = gate(hits, profile=MEMOSA, rerank_top_n=top_n, top_k=top_k, breaker_closed=lambda: next(answers))
    result = gated.result
    assert sorted(hit.id for hit in (*gated.kept, *gated.cut)) == [hit.id for hit in hits]
    assert [hit.id for hit in gated.kept] == sorted(hit.id for hit in gated.kept)
    assert [hit.score for hit in gated.kept] == [
        hit.score for hit in hits if hit.id in {kept.id for kept in gated.kept}
    ]
    assert list(gated.record.order) == [hit.id for hit in gated.kept]
    assert all(gated.record.notes[hit.id] for hit in gated.cut)
    if top_k is not None:
        assert len(gated.kept) <= (result.top_k or 0)
    if result.tighten_applied:
        assert result.grade in "AB"
        assert first
        assert second
        passing = [hit for hit in hits if hit.score >= result.tighten_effective_floor]
        assert len(passing) >= top_n
        assert result.tighten_effective_floor > 0.18
        assert {h.metadata["source_type"] for h in hits if h.score >= 0.18} == {
            h.metadata["source_type"] for h in passing
        }


@given(POOLS, st.integers(1, 12))
def test_gating_twice_is_gating_once(rows, top_n):
    """Without relax or top-k the kept hits pass the same static floor again."""
    hits = [Hit(f"h{at:02}", score=score) for at, (score, _) in enumerate(rows)]
    flat = Profile(default=0.18, relax=Relax(floor={}, top_k={}))
    once = gate(hits, profile=flat, breaker_closed=lambda: False, rerank_top_n=top_n)
    twice = gate(once.kept, profile=flat, breaker_closed=lambda: False, rerank_top_n=top_n)
    assert [hit.id for hit in twice.kept] == [hit.id for hit in once.kept]


def test_neutral_is_the_default():
    """A gate without a profile is the neutral one."""
    assert gate(pool(0.5)).result.profile == NEUTRAL.name
