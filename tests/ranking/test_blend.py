"""Blend: reranker and first stage on one scale, exact at both ends."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.events import ListSink
from resift.ranking.blend import reranker_boosts, to_logits
from resift.ranking.evidence import RerankScores, mean_and_deviation
from resift.ranking.order_model import CODE_CONFIDENCE, CODE_DENSITY, MEAN_WORD_LENGTH, OTHER_LANGUAGE, default_model
from resift.ranking.shape import Blend, blend
from resift.types import Hit, Ranking, StageKind, Trace
from tests.ranking.pools import column, everything, pipeline_hits, replays

LISTS = {
    "bm25": [("a", 9.0), ("b", 8.0), ("c", 3.0), ("d", 2.0), ("e", 1.0)],
    "dense": [("a", 0.9), ("c", 0.8), ("b", 0.75), ("e", 0.6), ("d", 0.5)],
}
LOGITS = {"a": -4.0, "b": 1.0, "c": 0.5, "d": 8.0, "e": None}


def ids(policy, lists=LISTS, logits=LOGITS):
    return blend(pipeline_hits(lists, logits), policy=policy).ids


def test_weight_1_is_exactly_the_rerankers_order():
    """The reranker's order and scores, what it did not score behind, in the old order."""
    shaped = blend(pipeline_hits(LISTS, LOGITS), policy=Blend(weight=1))
    assert shaped.ids == ["d", "b", "c", "a", "e"]
    assert [hit.score for hit in shaped.kept[:4]] == [8.0, 1.0, 0.5, -4.0]


def test_weight_0_is_exactly_the_fused_order():
    """The order that fusion gave, with its scores."""
    fused = pipeline_hits(LISTS)
    shaped = blend(pipeline_hits(LISTS, LOGITS), policy=Blend(weight=0))
    assert shaped.ids == [hit.id for hit in fused]
    assert [hit.score for hit in shaped.kept] == [hit.score for hit in fused]


def test_promotion_lifts_and_never_sinks():
    """The reranker's worst is still second by its first-stage evidence; its best is lifted above 'e'."""
    order = ids(Blend(weight=0.5))
    assert order.index("a") <= 1
    assert order.index("d") < order.index("e")


def test_worked_example():
    """Two hits, one store: z = ±1; logits 0 and 4 spread by 2, at temperature 2 odds of e^-2 to 1."""
    hits = pipeline_hits({"s": [("x", 2.0), ("y", 1.0)]}, {"x": 0.0, "y": 4.0})
    shaped = blend(hits, policy=Blend(weight=0.8, temperature=2.0))
    share = 1 / (1 + math.exp(-2))
    assert shaped.ids == ["y", "x"]
    assert shaped.kept[0].score == pytest.approx(0.2 * -1 + 0.8 * (2 * share + 0.2 * 2) / 2.8)
    assert shaped.kept[1].score == pytest.approx(0.2 * 1 + 0.8 * 2 * (1 - share) / 2.8)
    blended = Ranking(shaped.kept, trace=hits.trace.append(*shaped.records))
    step = blended.path("y")[-1]
    assert [name for name, _ in step.parts] == ["first stage", "cross-encoder"]
    assert sum(value for _, value in step.parts) == step.score
    assert "higher cross-encoder score" in blended.why("y")


def test_a_flat_reranker_changes_nothing():
    """Logits that hardly differ lift all hits alike, so the first stage decides."""
    flat = {name: 0.01 * at for at, name in enumerate("abcde")}
    assert ids(Blend(), logits=flat) == ids(Blend(weight=0.01))


def test_a_sure_reranker_is_followed():
    """One hit with high odds goes first, although the first stage has it last."""
    assert ids(Blend(), logits={"a": -8.0, "b": -7.0, "c": -9.0, "d": 6.0, "e": -8.0})[0] == "d"


def test_what_stands_above_the_pool_is_lifted_beside_the_surest():
    """'c' has hardly a share beside 'd', yet stands far above the mean: it passes 'a', which does not."""
    logits = {"a": -9.0, "b": -9.0, "c": 3.0, "d": 8.0, "e": -9.0}
    order = ids(Blend(), logits=logits)
    assert order[:2] == ["d", "c"]
    assert order.index("a") < order.index("b")


def test_logits_that_spread_further_count_more():
    """The same order of opinions: close together the first stage decides, far apart the reranker."""
    near = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.3, "e": 0.0}
    assert ids(Blend(), logits=near)[0] == "a"
    assert ids(Blend(), logits={name: 30 * value for name, value in near.items()})[0] == "d"


def test_a_single_score_has_nothing_to_compare_with():
    """A deadline left one hit with a score: the first stage places it."""
    assert ids(Blend(), logits={**dict.fromkeys("abce"), "d": 8.0}) == ids(Blend(weight=0.01))


def test_a_list_without_scores_is_read_by_rank():
    """Rows of a graph store all score 0; their order is the evidence."""
    hits = pipeline_hits({"graph": [("x", 0.0), ("y", 0.0), ("z", 0.0)]}, dict.fromkeys("xyz", 1.0))
    assert blend(hits).ids == ["x", "y", "z"]


def test_nothing_to_blend_leaves_the_order():
    """No reranker score (it failed), or no first stage (plain candidates): the order stays, and says so."""
    failed = pipeline_hits(LISTS, dict.fromkeys("abcde"))
    assert blend(failed).ids == [hit.id for hit in failed]
    said = column(StageKind.RERANK, "rerank", [("b", -1.0), ("a", -2.0)], source="m")
    shaped = blend([Hit("b"), Hit("a")], trace=Trace((said,)))
    assert shaped.ids == ["b", "a"]
    assert shaped.records[0].note == "nothing to blend"
    assert blend([]).kept == ()


def test_scale_of_other_providers_does_not_matter():
    """Scores of a provider that is not known to give logits blend alike on any scale."""
    squeezed = {name: None if v is None else 0.5 + v / 100 for name, v in LOGITS.items()}
    orders = [blend(pipeline_hits(LISTS, values, provider="voyage")).ids for values in (LOGITS, squeezed)]
    assert orders[0] == orders[1]


@pytest.mark.parametrize(("factor", "shift"), [(40.0, 5000.0), (2.0, -300.0), (0.001, 7.0)])
def test_scores_of_an_unknown_scale_count_in_any_unit(factor, shift):
    """Neither logits nor probabilities: thousands and thousandths lift as far as logits usually do."""
    moved = {name: None if v is None else factor * v + shift for name, v in LOGITS.items()}
    plain, other = (blend(pipeline_hits(LISTS, said, provider="voyage")) for said in (LOGITS, moved))
    assert other.ids == plain.ids
    assert [hit.score for hit in other.kept] == pytest.approx([hit.score for hit in plain.kept])


def test_a_list_that_ended_early_found_all_that_matches():
    """A short word list beside a long vector list: what it did not return matches no word at all."""
    long = [(name, 0.9 - at / 100) for at, name in enumerate("abcdefgh")]
    hits = pipeline_hits({"bm25": [("h", 3.0), ("g", 2.9)], "dense": long}, dict.fromkeys("abcdefgh", 0.0))
    order = blend(hits).ids
    assert order.index("g") < order.index("c")


@pytest.mark.parametrize(
    "wrong", [{"weight": 1.1}, {"weight": -0.1}, {"temperature": 0}, {"method": "promot"}, {"neighbors": 1.1}]
)
def test_wrong_policies_are_refused(wrong):
    """A policy outside its range says what is allowed."""
    with pytest.raises(InputError, match=r"Blend|Did you mean 'promote'"):
        Blend(**wrong)


TIED = st.sampled_from([-1e300, -3.0, 0.0, 0.0, 0.5, 2.0, 2.0, 1e300])
NAMES = "abcdefgh"


@st.composite
def reranked(draw):
    lists = {}
    for store in draw(st.sampled_from([["one"], ["one", "two"], ["one", "two", "three"]])):
        names = draw(st.permutations(NAMES))[: draw(st.integers(0, len(NAMES)))]
        scores = sorted(draw(st.lists(TIED, min_size=len(names), max_size=len(names))), reverse=True)
        lists[store] = list(zip(names, scores, strict=True))
    logits = {name: draw(st.none() | TIED) for name in NAMES}
    return pipeline_hits(lists, logits)


@given(reranked(), st.sampled_from([0.0, 0.3, 2 / 3, 1.0]), st.sampled_from(["promote", "z-score", "rank"]))
def test_blend_over_random_pools(hits, weight, method):
    """Nothing is lost, scores are finite and sorted (ties by id), records replay, events tell."""
    sink = ListSink()
    shaped = blend(hits, policy=Blend(weight=weight, method=method), sink=sink)
    assert everything(shaped) == sorted(hit.id for hit in hits)
    assert replays(shaped)
    assert all(hit.score is None or math.isfinite(hit.score) for hit in shaped.kept)
    if 0 < weight < 1 and shaped.records[0].note != "nothing to blend":
        keys = [(-hit.score, hit.id) for hit in shaped.kept]
        assert keys == sorted(keys)
    assert len(sink.named("shape")) == 1


@given(st.lists(TIED, min_size=1))
def test_promotion_keeps_the_rerankers_order_and_sinks_nothing(values):
    """A higher score never gets a smaller lift, and no lift is below that of an unscored hit."""
    judged = RerankScores("cross-encoder", [*sorted(values), None], "logit")
    _, lifted = reranker_boosts([judged], Blend(), size=len(values) + 1)
    assert lifted[-1] == 0
    assert lifted[:-1] == sorted(lifted[:-1])
    assert min(lifted) == 0


@given(reranked(), st.sampled_from([0.2, 2 / 3, 0.9]))
def test_blending_twice_is_blending_once(hits, weight):
    """The evidence is in the trace, so a second blend finds the same."""
    once = blend(hits, policy=Blend(weight=weight))
    assert blend(once.kept, trace=hits.trace, policy=Blend(weight=weight)).ids == once.ids


@given(reranked())
def test_the_end_points_are_exact(hits):
    """Weight 1 sorts by the reranker's scores; weight 0 by the fused ranks."""
    (said,), (rrf,) = hits.trace.by_kind(StageKind.RERANK), hits.trace.by_kind(StageKind.FUSE)
    reranker = {id: score for id, score in zip(said.ids, said.scores, strict=True) if score is not None}
    fused = rrf.positions()
    if reranker and hits:
        ordered = blend(hits, policy=Blend(weight=1)).ids
        assert ordered[: len(reranker)] == sorted(reranker, key=lambda name: (-reranker[name], name))
        assert blend(hits, policy=Blend(weight=0)).ids == sorted(fused, key=fused.__getitem__)


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def with_evidence(hits, evidence):
    """Return the trace as weighted fusion writes it on texts like these."""
    records = [
        replace(record, weights={"bm25": 0.1, "dense": 0.9}, evidence=evidence)
        if record.kind is StageKind.FUSE
        else record
        for record in hits.trace
    ]
    return Trace(tuple(records))


def test_without_a_weight_it_follows_the_words_of_the_texts():
    """The record has both weights, and the main reason in words."""
    hits = pipeline_hits(LISTS, LOGITS)
    plain, usual = (blend(hits, trace=with_evidence(hits, facts)) for facts in ({MEAN_WORD_LENGTH: 4.0}, {}))
    weights = [dict(done.records[0].weights) for done in (plain, usual)]
    own = default_model().reranker
    expected = [own({MEAN_WORD_LENGTH: 4.0}), own.base]
    assert [row["cross-encoder"] for row in weights] == pytest.approx(expected)
    assert all(sum(row.values()) == pytest.approx(1) for row in weights)
    assert plain.records[0].note == f"cross-encoder weight {expected[0]:.2g}: more because of mean word length 4"
    assert usual.records[0].note == f"cross-encoder weight {own.base:.2g}"


def test_an_english_reranker_counts_less_for_other_languages():
    """By the languages in the record, whatever the scorer is called."""
    hits = pipeline_hits(LISTS, LOGITS)
    own = default_model().reranker
    german = f"{own({OTHER_LANGUAGE: 1.0}):.2g}"
    for facts, weight in (({OTHER_LANGUAGE: 1.0}, german), ({"script cyrillic": 1.0}, "0")):
        foreign = with_evidence(hits, facts)
        assert blend(hits, trace=foreign).records[0].note.startswith(f"cross-encoder weight {weight}: ")
        for languages in ("any", ("en", "de", "ru")):
            trace = Trace(
                tuple(
                    replace(record, languages=languages) if record.kind is StageKind.RERANK else record
                    for record in foreign
                )
            )
            assert blend(hits, trace=trace).records[0].note == f"cross-encoder weight {own.base:.2g}"


def test_a_reranker_of_an_unknown_script_moves_nothing():
    hits = pipeline_hits(LISTS, LOGITS)
    done = blend(hits, trace=with_evidence(hits, {"script han": 0.9, "script latin": 0.1}))
    assert dict(done.records[0].weights) == {"first stage": 1.0, "cross-encoder": 0.0}
    assert done.ids == blend(hits, policy=Blend(weight=0)).ids


def test_a_reranker_counts_less_among_functions():
    """The evidence is the fused record's: nothing is read twice."""
    hits = pipeline_hits(LISTS, LOGITS)
    done = blend(hits, trace=with_evidence(hits, {CODE_DENSITY: 0.9, MEAN_WORD_LENGTH: 5.0}))
    share = 1 / sum(math.exp(logit - 8.0) for logit in LOGITS.values() if logit is not None)
    weight = default_model().reranker({CODE_DENSITY: 0.9, CODE_CONFIDENCE: share})
    assert done.records[0].weights["cross-encoder"] == pytest.approx(weight)
    assert done.records[0].note == f"cross-encoder weight {weight:.2g}: less because of code density 0.9"


def test_probabilities_count_like_the_logits_they_come_from():
    """A hosted reranker that says sigmoid(logit) gives the order that the logits give."""
    logits = {"a": -4.0, "b": 1.0, "c": 0.5, "d": 8.0, "e": -6.0}
    own = to_logits(list(logits.values()), "logit")
    hosted = to_logits([sigmoid(value) for value in logits.values()], "probability")
    assert hosted == pytest.approx(own)
    assert to_logits([0.0, 1.0, 0.5], "probability") == pytest.approx([-13.8155, 13.8155, 0], abs=1e-3)


def test_probabilities_close_together_are_stretched_like_any_other_scale():
    """Relevance from 0.4 to 0.6 is another scale, not doubt."""
    stretched = to_logits([0.4, 0.5, 0.6], "probability")
    assert mean_and_deviation(stretched)[1] == pytest.approx(2.8)
    assert list(to_logits([0.7, 0.7], "probability")) == [0.0, 0.0]


def test_logits_far_apart_are_another_scale():
    """Ten times the logits are shrunk to the usual spread."""
    logits = (-4.0, 1.0, 0.5, 8.0, -6.0)
    assert to_logits(logits, "logit") == logits
    shrunk = to_logits([10 * value + 3 for value in logits], "logit")
    assert mean_and_deviation(shrunk)[1] == pytest.approx(2.8)


def test_scores_outside_a_declared_range_and_cosines_are_stretched():
    """Log-odds need a probability: anything else keeps its order and gets the usual spread."""
    for scale, scores in (("probability", [-3.0, 0.5, 4.0]), ("cosine", [0.2, 0.3, 0.9])):
        stretched = to_logits(scores, scale)
        assert mean_and_deviation(stretched)[1] == pytest.approx(2.8)
        assert list(stretched) == sorted(stretched)
