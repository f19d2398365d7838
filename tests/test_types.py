"""Hit, Ledger, Scores and Ranking: frozen, exact, able to say why (V1–V5)."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resift
from resift import Hit, Ranking, fusion
from resift.errors import InputError, InvalidHitError
from resift.types import Ledger, Scores, Step, cut_to, to_json

STEPS = (Step("retrieve", "bm25", 3, 12.5), Step("rerank", "cross-encoder", 1, 9.1, "windowed"))


def test_a_hit_is_frozen_and_slotted():
    """V1: nobody can change a hit, nor hang something on it."""
    hit = Hit("a", "text", 1.0, "bm25")
    with pytest.raises(AttributeError):
        hit.score = 2.0
    with pytest.raises((AttributeError, TypeError)):
        hit.other = 1
    assert not hasattr(hit, "__dict__")


def test_a_hit_has_the_names_of_citations():
    """V1, N8: doc_id and source_store are read-only aliases."""
    hit = Hit("a", source="bm25")
    assert (hit.doc_id, hit.source_store) == ("a", "bm25")
    with pytest.raises(AttributeError):
        hit.doc_id = "b"


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, "high", None, True, [1]])
def test_scores_are_finite_numbers(score):
    """V3: anything else is refused with the value and what to do."""
    with pytest.raises(InvalidHitError, match="finite number"):
        Hit("a", score=score)


@pytest.mark.parametrize("id", ["", None, 7])
def test_a_hit_needs_an_id(id):
    """Bad input: hits without id."""
    with pytest.raises(InvalidHitError, match="non-empty string"):
        Hit(id)


def test_text_must_be_text():
    """Bad input: text that is no string."""
    with pytest.raises(InvalidHitError, match="must be a string"):
        Hit("a", text=b"bytes")


def test_hits_are_equal_by_value_and_can_be_hashed():
    """Two hits of the same values are one in a set, though metadata is a dict."""
    one, two = (Hit("a", "t", 1.0, "s", {"k": [1]}, Ledger(STEPS)) for _ in range(2))
    assert one == two
    assert len({one, two}) == 1
    assert one != dataclasses.replace(two, score=2.0)
    assert one != "a"


def test_a_step_adds_to_the_ledger_and_takes_the_score():
    """V1: going through a stage gives a new hit; without a score the old one stays."""
    hit = (
        Hit("a", score=1.0)
        .step("rrf", "", rank=1, score=0.5)
        .step("rerank", "ce", rank=2, score=None, note="late")
    )
    assert hit.score == 0.5
    assert hit.ledger.steps == (Step("rrf", "", 1, 0.5), Step("rerank", "ce", 2, None, "late"))


def test_the_rerank_provider_is_read_from_metadata():
    """T1: the provider that ran is on the hit."""
    assert Hit("a").rerank_provider is None
    assert Hit("a").with_metadata(rerank_provider="voyage").rerank_provider == "voyage"


def test_a_ledger_behaves_like_a_tuple_of_steps():
    """Length, items, slices, equality, hash and repr."""
    ledger = Ledger(STEPS)
    assert len(ledger) == 2
    assert ledger[0] == STEPS[0]
    assert ledger[1:] == STEPS[1:]
    assert list(ledger) == list(STEPS)
    assert ledger == STEPS
    assert ledger == Ledger(STEPS)
    assert ledger != "steps"
    assert hash(ledger) == hash(Ledger(STEPS))
    assert "windowed" in repr(ledger)
    assert not Ledger()


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda hit: pickle.loads(pickle.dumps(hit))])
def test_a_fused_hit_survives_copying(clone):
    """The ledger that is written late is written when a hit is copied or pickled."""
    fused = fusion.rrf([[Hit("a", "x", source="s1")], [Hit("a", "x", source="s2")]])[0]
    other = clone(fused)
    assert other == fused
    assert [step.source for step in other.ledger] == ["s1", "s2", "s1", "s2", ""]


def test_replace_keeps_a_late_ledger():
    """dataclasses.replace works on fused hits."""
    fused = fusion.rrf([[Hit("a", "x", source="s1")]])[0]
    assert dataclasses.replace(fused, score=2.0).ledger == fused.ledger


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
hits = st.builds(
    Hit,
    id=st.text(min_size=1, max_size=5),
    text=st.text(max_size=10),
    score=st.floats(allow_nan=False, allow_infinity=False),
    source=st.text(max_size=4),
    metadata=st.dictionaries(st.text(max_size=4), json_values, max_size=3),
    ledger=st.just(Ledger(STEPS)),
)


@given(kept=st.lists(hits, max_size=4), cut=st.lists(hits, max_size=2), degraded=st.booleans())
def test_json_round_trips(kept, cut, degraded):
    """V2: a ranking comes back from its JSON equal to itself, and writes the same bytes again."""
    ranking = Ranking(
        tuple(kept),
        degraded=degraded,
        reason="why" if degraded else None,
        tier="voyage",
        unscored=tuple(hit.id for hit in kept[:1]),
        failures={"pg": "down"},
        timings={"fuse": 0.5},
        cut=tuple(cut),
    )
    text = ranking.to_json()
    assert Ranking.from_json(text) == ranking
    assert Ranking.from_json(text).to_json() == text
    assert Ranking.from_json(ranking.to_json(timings=True)).timings == {"fuse": 0.5}


def test_json_is_the_same_whatever_the_order_of_metadata():
    """F4: same values, same bytes."""
    one = Ranking((Hit("a", metadata={"x": 1, "y": 2}),))
    two = Ranking((Hit("a", metadata={"y": 2, "x": 1}),))
    assert one.to_json() == two.to_json()


def test_json_of_dates_arrays_and_sets():
    """Metadata of stores often holds dates and array scalars; they become plain values."""

    class Array:
        def tolist(self):
            return [1, 2]

    data = {"day": datetime.date(2026, 1, 2), "array": Array(), "set": {2, 1}, "map": Hit("a").metadata}
    assert json.loads(to_json(data)) == {"day": "2026-01-02", "array": [1, 2], "set": [1, 2], "map": {}}
    import types

    assert to_json(types.MappingProxyType({"a": 1})) == '{"a": 1}'


@pytest.mark.parametrize("value", [object(), math.nan, b"x"])
def test_what_json_cannot_hold_is_refused(value):
    """Never silent: an object in metadata is an error with the next step."""
    with pytest.raises(InputError, match="Not JSON"):
        to_json({"value": value})


def fused() -> Ranking:
    return resift.fuse({"bm25": [{"id": "a", "score": 3}, "b", "c"], "dense": ["b", "d"]}, k=2)


def test_a_ranking_is_a_sequence():
    """V2: length, items, slices, iteration and membership by id or hit."""
    ranking = fused()
    assert (len(ranking), ranking[0].id, [hit.id for hit in ranking[:1]]) == (2, "b", ["b"])
    assert ranking.ids == [hit.id for hit in ranking] == ["b", "a"]
    assert "b" in ranking
    assert ranking[0] in ranking
    assert "c" not in ranking
    assert next(reversed(ranking)).id == "a"


def test_why_of_a_present_hit():
    """V2: every list, what it added, the total and the place."""
    assert fused().why("b") == (
        "'b' is 1st of 2, chosen from 4. Found: bm25 had it 2nd, dense had it 1st. "
        "rrf: 0.01613 from bm25 + 0.01639 from dense = 0.03252, 1st."
    )
    assert "bm25 had it 1st (3)" in fused().why("a")


def test_why_of_a_cut_hit():
    """V2: how far it came and what cut it."""
    assert fused().why("c") == (
        "'c' is not among the 2: it was 4th of 4 and was cut: k=2. Found: bm25 had it 3rd. "
        "rrf: 0.01587 from bm25 = 0.01587, 4th."
    )


def test_why_of_an_unknown_id():
    """V2: it was never there; failures of stores are named as a likely cause."""
    assert "was not among the 4 candidates" in fused().why("zebra")
    failed = dataclasses.replace(fused(), failures={"pg": "timed out"})
    assert "These stores gave nothing: pg (timed out)." in failed.why("zebra")


def test_why_of_an_unscored_hit():
    """V2: a hit that no scorer judged says so."""
    hit = Hit("a").step("rerank", "ce", rank=1, score=None, note="out of time")
    told = Ranking((hit,), unscored=("a",)).why("a")
    assert "no score by ce, 1st (out of time)" in told
    assert "No scorer judged it" in told


def test_why_of_a_stage_that_only_places():
    """A step without score and source tells the place alone."""
    hit = Hit("a").step("guard", "", rank=2, score=None)
    assert Ranking((hit,)).why("a").endswith(" guard: 2nd.")


def test_public_shows_no_scores_and_no_internals():
    """V2: scores are not for end users, wherever they hide."""
    hit = Hit("a", "t", 9.0, "bm25", {"page": 3, "ce_score": 9.0, "rerank_provider": "x", "_vector": [1]})
    assert Ranking((hit,)).public() == [{"id": "a", "text": "t", "source": "bm25", "metadata": {"page": 3}}]
    assert "9.0" not in json.dumps(Ranking((hit,)).public())


def test_citations_carry_id_score_store_and_metadata():
    """N8: hits round-trip to citations."""
    assert Ranking((Hit("a", score=1.0, source="s", metadata={"p": 1}),)).citations() == [
        ("a", 1.0, "s", {"p": 1})
    ]


def test_replay_of_plain_hits_keeps_ids_apart():
    """V5: hits without any step replay by id."""
    assert Ranking((Hit("b"), Hit("a"))).replay() == ["a", "b"]


def test_cut_to_keeps_what_it_leaves_out():
    """Nothing is lost: the rest gets a step that says why."""
    kept, cut = cut_to([Hit("a"), Hit("b")], 1)
    assert [hit.id for hit in kept] == ["a"]
    assert cut[0].ledger[-1] == Step("cut", "", 2, None, "k=1")
    assert cut_to([Hit("a")], 0, note="floor 0.2")[1][0].ledger[-1].note == "floor 0.2"
    with pytest.raises(InputError, match="k is -1"):
        cut_to([], -1)


def test_partial_means_some_but_not_all():
    """T4: scores and rankings tell partial answers from whole and empty ones."""
    assert Scores([1.0, None], "x").partial
    assert not Scores([1.0], "x").partial
    assert not Scores([None], "x").partial
    assert Ranking((Hit("a"), Hit("b")), unscored=("b",)).partial
    assert not Ranking((Hit("a"),), unscored=("a",)).partial


def test_lists_given_to_a_ranking_become_tuples():
    """A ranking is frozen whatever sequence it was given."""
    ranking = Ranking([Hit("a")], unscored=["a"], cut=[Hit("b")])
    assert (type(ranking.hits), type(ranking.unscored), type(ranking.cut)) == (tuple, tuple, tuple)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (113, "113th"),
    ],
)
def test_ordinals(number, expected):
    """Ranks read as people say them."""
    from resift.wording import ordinal

    assert ordinal(number) == expected
