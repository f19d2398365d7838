"""Calibration: Platt, isotonic, temperature; judged pairs, score history, JSON; one threshold for all."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import DataFormatError, InputError
from resift.ranking.calibration import sigmoid
from resift.ranking.shape import Isotonic, Platt, Temperature, above, calibrate, load_calibrator
from resift.types import Ranking, StageKind, Trace
from tests.ranking.pools import column, hit, note


def drawn(slope, intercept, size=4000):
    """Scores and judgements that follow a known logistic curve."""
    source = random.Random(7)
    scores = [source.uniform(-6, 6) for _ in range(size)]
    return scores, [source.random() < sigmoid(slope * score + intercept) for score in scores]


def test_platt_finds_the_curve_that_made_the_data():
    """Slope 0.8 and intercept −1 come back within sampling error."""
    fitted = Platt.fit(*drawn(0.8, -1.0))
    assert fitted.slope == pytest.approx(0.8, abs=0.06)
    assert fitted.intercept == pytest.approx(-1.0, abs=0.12)


def test_temperature_finds_the_heat_that_made_the_data():
    """Logits that are twice too confident get a temperature of 2."""
    assert Temperature.fit(*drawn(0.5, 0.0)).temperature == pytest.approx(2.0, rel=0.08)


def test_isotonic_pools_violators():
    """0, 1, 0, 1 at rising scores: the two in the middle share one half (worked out by hand)."""
    fitted = Isotonic.fit([1, 2, 3, 4], [False, True, False, True])
    assert (fitted.scores, fitted.probabilities) == ((1, 2, 3, 4), (0.0, 0.5, 0.5, 1.0))
    assert fitted.probability(1.5) == 0.25
    assert (fitted.probability(-9), fitted.probability(9)) == (0.0, 1.0)


def test_separable_data_stay_finite():
    """Perfectly separated judgements do not send the slope to infinity."""
    fitted = Platt.fit([-2, -1, 1, 2], [False, False, True, True])
    assert math.isfinite(fitted.slope)
    assert fitted.probability(-2) < 0.5 < fitted.probability(2)


def test_a_scorer_that_is_wrong_is_not_turned_round():
    """Where higher scores are less relevant, the best rising curve is flat at the base rate."""
    fitted = Platt.fit([1, 2, 3, 4], [True, True, False, False])
    assert fitted.slope == 0.0
    assert fitted.probability(1) == fitted.probability(4) == pytest.approx(0.5)


@pytest.mark.parametrize("kind", [Platt, Isotonic, Temperature])
def test_one_kind_of_judgement_is_not_enough(kind):
    """All relevant, or none, says nothing about where the border lies."""
    with pytest.raises(InputError, match="at least one of each"):
        kind.fit([1.0, 2.0], [True, True])
    with pytest.raises(InputError, match="one judgment per score"):
        kind.fit([1.0], [])


def test_history_gives_two_providers_one_scale():
    """Scores of 0.6–0.95 and of −8–8 from the same quality of hits agree within a few points."""
    source = random.Random(3)
    quality = [source.gauss(0, 1) for _ in range(2000)]
    voyage = [0.8 + 0.05 * value for value in quality]
    logits = [4 * value - 1 for value in quality]
    for kind in (Platt, Isotonic):
        one, other = kind.from_history(voyage), kind.from_history(logits)
        assert one.probability(0.85) == pytest.approx(other.probability(3.0), abs=0.01)
    with pytest.raises(InputError):
        Platt.from_history([1.0, 1.0])


def test_history_with_a_base_rate():
    """If one hit in ten is relevant, the 90 % quantile gets a probability of one half."""
    fitted = Platt.from_history(list(range(101)), base_rate=0.1)
    assert fitted.probability(90) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "fitted", [Platt(0.5, -1.0), Temperature(2.5), Isotonic((0.1, 0.4), (0.2, 0.9))], ids=lambda one: one.kind
)
def test_save_and_load(fitted, tmp_path):
    """A calibrator written to JSON comes back equal."""
    fitted.save(tmp_path / "c.json")
    assert load_calibrator(tmp_path / "c.json") == fitted


@pytest.mark.parametrize("text", ["nonsense", '{"kind": "plat"}', '{"kind": "platt"}', "[]"])
def test_a_wrong_file_is_named(text, tmp_path):
    """What cannot be a calibrator says which file."""
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(DataFormatError, match=r"c\.json"):
        load_calibrator(tmp_path / "c.json")


def test_one_threshold_across_providers():
    """Hits of two providers are cut by one probability; a hit nobody scored is kept and told."""
    calibrators = {"voyage": Platt(40.0, -32.0), "cross-encoder": Temperature(1.0)}
    voyage = [("v-good", 0.9), ("v-bad", 0.7), ("none", None)]
    local = [("c-good", 2.0), ("c-bad", -2.0)]
    trace = Trace(
        (
            column(StageKind.RERANK, "rerank", voyage, source="voyage"),
            column(StageKind.RERANK, "rerank", local, source="cross-encoder"),
            column(StageKind.GUARD, "blend", [("c-good", 0.1)]),
        )
    )
    hits = [hit(id, None) for id in ("v-good", "v-bad", "c-good", "c-bad", "none")]
    shaped = above(calibrate(hits, calibrators, trace=trace), 0.5)
    assert shaped.ids == ["v-good", "c-good", "none"]
    assert shaped.notes == ("1 hits have no probability and were kept",)
    assert note(shaped, shaped.cut[0].id) == "probability 0.018 < 0.5"
    ranking = Ranking(shaped.kept)
    assert Ranking.from_json(ranking.to_json()) == ranking
    assert "probability" not in ranking.public()[0]["metadata"]


@given(
    st.lists(st.tuples(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0]), st.booleans()), min_size=2, max_size=30),
    st.floats(-9, 9),
    st.floats(-9, 9),
)
def test_a_higher_score_never_gets_a_lower_probability(pairs, one, other):
    """Every kind rises, whatever it was fitted to."""
    scores, relevant = [score for score, _ in pairs], [yes for _, yes in pairs]
    low, high = sorted((one, other))
    for kind in (Platt, Isotonic, Temperature):
        if len(set(relevant)) == 2:
            fitted = kind.fit(scores, relevant)
            assert 0 <= fitted.probability(low) <= fitted.probability(high) + 1e-12 <= 1 + 1e-12
        if len(set(scores)) > 1:
            fitted = kind.from_history(scores)
            assert 0 <= fitted.probability(low) <= fitted.probability(high) + 1e-12 <= 1 + 1e-12
