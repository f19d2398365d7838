"""Hit, Scores, Ranking and the trace: frozen, exact, able to say why."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import math
import pickle
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resift
from resift import Hit, Ranking
from resift.errors import InputError, InvalidHitError
from resift.explain.reasons import ordinal
from resift.types import (
    FusedHits,
    Scores,
    StageKind,
    StageRecord,
    Trace,
    cut_record,
    get_trace,
    make_record,
    sort_key,
    to_json,
    with_scores,
)
from resift.types.hit import lazy_hits


def test_a_hit_is_frozen_and_slotted():
    """Nobody can change a hit, nor hang something on it."""
    hit = Hit("a", "text", 1.0, "bm25")
    with pytest.raises(AttributeError):
        hit.score = 2.0
    with pytest.raises((AttributeError, TypeError)):
        hit.other = 1
    assert not hasattr(hit, "__dict__")


def test_a_hit_has_the_names_of_citations():
    """doc_id and source_store are other names of id and source, read and given."""
    hit = Hit(doc_id="a", source_store="bm25")
    assert hit == Hit("a", source="bm25")
    assert (hit.doc_id, hit.source_store) == ("a", "bm25")
    with pytest.raises((AttributeError, TypeError)):
        hit.doc_id = "b"
    with pytest.raises(InvalidHitError, match="same field"):
        Hit("a", doc_id="b")
    assert Hit("a", doc_id="a").id == "a"


def test_content_that_is_loaded_later_makes_the_same_hit():
    """Copies, pickles and comparisons load it; copies share what was loaded."""

    class Content:
        def load(self, ids):
            return {id: ("text", {"lang": "en"}) for id in ids}

    [hit] = lazy_hits(["a"], [1.0], Content(), source="bm25")
    [copied] = with_scores([hit], [1.0])
    [scored] = with_scores([hit], [2.0], provider="stub")
    assert (scored.text, scored.metadata) == ("text", {"lang": "en", "rerank_provider": "stub"})
    plain = Hit("a", "text", 1.0, "bm25", {"lang": "en"})
    assert pickle.loads(pickle.dumps(hit)) == copy.copy(hit) == copied == hit == plain
    assert (copied.text, copied.metadata) == ("text", {"lang": "en"})


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, "high", True, [1]])
def test_scores_are_finite_numbers_or_none(score):
    """Anything else is refused with the value and what to do."""
    with pytest.raises(InvalidHitError, match="finite number"):
        Hit("a", score=score)
    assert Hit("a").score is None
    assert Hit("a", score=3).score == 3.0
    assert type(Hit("a", score=3).score) is float


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
    one, two = (Hit("a", "t", 1.0, "s", {"k": [1]}) for _ in range(2))
    assert one == two
    assert len({one, two}) == 1
    assert one != dataclasses.replace(two, score=2.0)
    assert one != "a"


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda hit: pickle.loads(pickle.dumps(hit))])
def test_values_survive_copying(clone):
    """Hits and whole rankings can be copied and pickled."""
    ranking = resift.fuse({"s1": ["a", "b"], "s2": ["b"]}, k=1)
    assert clone(ranking) == ranking
    assert clone(ranking[0]) == ranking[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Tagged(Hit):
    """A hit with one more field."""

    language: str = ""


def test_a_new_field_is_carried_by_the_one_place_that_copies():
    """Rescoring, metadata and plain data keep a field that Resift does not know."""
    hit = Tagged("a", "t", 1.0, "s", {}, "fi")
    (copied,) = with_scores([hit], [2.0])
    assert (copied.language, copied.score) == ("fi", 2.0)
    assert hit.with_metadata(page=1).language == "fi"
    assert Tagged.from_dict(hit.to_dict()) == hit


def test_the_rerank_provider_is_read_from_metadata():
    """The provider that ran is on the hit."""
    assert Hit("a").rerank_provider is None
    assert Hit("a").with_metadata(rerank_provider="voyage").rerank_provider == "voyage"


def test_what_nobody_judged_sorts_last():
    """The one order of hits is (-score, id); None is below every number."""
    hits = [Hit("d"), Hit("b", score=-5.0), Hit("c", score=1.0), Hit("a", score=1.0), Hit("e")]
    assert [hit.id for hit in sorted(hits, key=sort_key)] == ["a", "c", "b", "d", "e"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
scores = st.none() | st.floats(allow_nan=False, allow_infinity=False)
names = st.text(min_size=1, max_size=5)
hits = st.builds(
    Hit,
    id=names,
    text=st.text(max_size=10),
    score=scores,
    source=st.text(max_size=4),
    metadata=st.dictionaries(st.text(max_size=4), json_values, max_size=3),
)


@st.composite
def records(draw):
    rows = draw(st.lists(st.tuples(names, scores), max_size=4))
    ids = tuple(id for id, _ in rows)
    part = {id: score for id, score in rows if score is not None}
    return StageRecord(
        kind=draw(st.sampled_from(StageKind)),
        name=draw(names),
        source=draw(st.text(max_size=3)),
        ids=ids,
        scores=draw(st.sampled_from([(), tuple(score for _, score in rows)])),
        kept=draw(st.none() | st.integers(0, len(ids))),
        parts=draw(st.sampled_from([{}, {"part": part}])),
        note=draw(st.text(max_size=3)),
        notes=draw(st.dictionaries(names, names, max_size=2)),
        merged=draw(st.dictionaries(names, names, max_size=2)),
    )


@given(
    kept=st.lists(hits, max_size=4),
    cut=st.lists(hits, max_size=2),
    trace=st.lists(records(), max_size=3),
    degraded=st.booleans(),
)
def test_json_round_trips(kept, cut, trace, degraded):
    """A ranking comes back from its JSON equal to itself, and writes the same bytes again."""
    ranking = Ranking(
        tuple(kept),
        degraded=degraded,
        reason="why" if degraded else None,
        tier="voyage",
        unscored=tuple(hit.id for hit in kept[:1]),
        failures={"pg": "down"},
        timings={"fuse": 0.5},
        cut=tuple(cut),
        trace=Trace(tuple(trace)),
    )
    text = ranking.to_json()
    assert Ranking.from_json(text) == ranking
    assert Ranking.from_json(text).to_json() == text
    assert Ranking.from_json(ranking.to_json(timings=True)).timings == {"fuse": 0.5}


def test_json_says_null_where_nobody_judged():
    """An unjudged hit has no number that could be compared."""
    assert json.loads(Ranking((Hit("a"),)).to_json())["hits"][0]["score"] is None


def test_json_is_the_same_whatever_the_order_of_metadata():
    """Same values, same bytes."""
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
    assert to_json(types.MappingProxyType({"a": 1})) == '{"a": 1}'


@pytest.mark.parametrize("value", [object(), math.nan, b"x"])
def test_what_json_cannot_hold_is_refused(value):
    """Never silent: an object in metadata is an error with the next step."""
    with pytest.raises(InputError, match="Not JSON"):
        to_json({"value": value})


def fused() -> Ranking:
    return resift.fuse({"bm25": [{"id": "a", "score": 3}, "b", "c"], "dense": ["b", "d"]}, k=2)


def test_a_ranking_is_a_sequence():
    """Length, items, slices, iteration and membership by id or hit."""
    ranking = fused()
    assert (len(ranking), ranking[0].id, [hit.id for hit in ranking[:1]]) == (2, "b", ["b"])
    assert ranking.ids == [hit.id for hit in ranking] == ["b", "a"]
    assert "b" in ranking
    assert ranking[0] in ranking
    assert "c" not in ranking
    assert next(reversed(ranking)).id == "a"


def test_a_trace_is_a_sequence_of_records():
    """Length, items, slices, and records by kind."""
    trace = fused().trace
    assert [record.kind for record in trace] == ["retrieve", "retrieve", "fuse", "cut"]
    assert len(trace) == 4
    assert trace[:1] == (trace[0],)
    assert [record.source for record in trace.by_kind(StageKind.RETRIEVE)] == ["bm25", "dense"]


def test_a_path_has_a_step_per_stage():
    """Ranks, scores, parts and the cut of one hit; a cut that it survived is no step."""
    ranking = fused()
    found, total = ranking.path("a")
    assert (found.kind, found.source, found.rank, found.score) == ("retrieve", "bm25", 1, 3.0)
    assert (total.name, total.rank, total.parts) == ("rrf", 2, (("bm25", 1 / 61),))
    last = ranking.path("c")[-1]
    assert (last.kind, last.cut, last.rank, last.note) == ("cut", True, 4, "k=2")
    assert ranking.path("zebra") == ()


def test_a_merged_id_lends_its_places():
    """Where two ids are the same text, the path of the one that stayed has both lists."""
    lists = {"x": [Hit("a", "same")], "y": [Hit("b", "same")]}
    ranking = resift.fuse(lists, identity="content")
    assert [(step.source, step.rank) for step in ranking.path("a")] == [("x", 1), ("y", 1), ("", 1)]
    assert ranking.why("b") == "'b' is a duplicate of 'a', which represents both."


def test_why_of_a_present_hit():
    """The final rank, then the rank in every list and after the fusion."""
    assert fused().why("b") == ("Ranked 1st of 2 (4 candidates). bm25: 2nd. dense: 1st. Fused: 1st (rrf).")


def test_why_of_a_cut_hit():
    """How far it came and what cut it."""
    assert fused().why("c") == (
        "'c' is not among the 2 hits: it was 4th of 4 candidates and was cut: k=2. bm25: 3rd. Fused: 4th (rrf)."
    )


def test_why_of_an_unknown_id():
    """It was never there; failures of stores are named as a likely cause."""
    assert "was not among the 4 candidates" in fused().why("zebra")
    failed = dataclasses.replace(fused(), failures={"pg": "timed out"})
    assert "These stores failed: pg (timed out)." in failed.why("zebra")


def test_why_of_an_unscored_hit():
    """A hit that no scorer judged says so."""
    record = StageRecord(
        kind=StageKind.RERANK, name="rerank", source="ce", ids=("a",), scores=(None,), note="out of time"
    )
    told = Ranking((Hit("a"),), unscored=("a",), trace=Trace((record,))).why("a")
    assert "not scored (out of time)" in told
    assert "No reranker" in told


def test_why_of_a_stage_that_only_places():
    """A record without scores and source tells the place alone."""
    hits = (Hit("b"), Hit("a"))
    ranking = Ranking(hits, trace=Trace((make_record(StageKind.GUARD, "guard", hits),)))
    assert ranking.why("a").endswith(" Guard: 2nd.")


def test_why_without_a_trace():
    """A ranking made by hand can be asked too."""
    assert Ranking((Hit("a"),)).why("a") == "Ranked 1st of 1 (1 candidate)."
    assert Ranking(cut=(Hit("a"),)).why("a") == "'a' is not among the 0 hits; the trace contains no reason."


def test_public_shows_no_scores_and_no_internals():
    """Scores are not for end users, wherever they hide; what nobody judged is shown like the others."""
    hit = Hit("a", "t", 9.0, "bm25", {"page": 3, "ce_score": 9.0, "rerank_provider": "x", "_vector": [1]})
    assert Ranking((hit,)).public() == [{"id": "a", "text": "t", "source": "bm25", "metadata": {"page": 3}}]
    assert "9.0" not in json.dumps(Ranking((hit,)).public())
    assert Ranking((Hit("b"),)).public() == [{"id": "b", "text": "", "source": "", "metadata": {}}]


def test_citations_carry_id_score_store_and_metadata():
    """Hits round-trip to citations."""
    hit = Hit("a", score=1.0, source="s", metadata={"p": 1})
    (citation,) = Ranking((hit,)).citations()
    assert citation == ("a", 1.0, "s", {"p": 1})
    assert Hit.from_citation(citation) == hit
    assert Hit.from_citation(citation, text="t").text == "t"


def test_replay_is_the_order_of_the_last_record():
    """One list is an order, several lists are none, and every later record is."""
    one = StageRecord(kind=StageKind.RETRIEVE, name="retrieve", ids=("b", "a"))
    assert Ranking((Hit("b"), Hit("a")), trace=Trace((one,))).replay() == ["b", "a"]
    assert Trace((one, one)).order() == ()
    assert Trace((one, *cut_record(("b", "a"), 1))).order() == ("b",)
    assert Trace().order() == ()


def test_a_cut_keeps_what_it_leaves_out():
    """Nothing is lost: the record has everybody, and how many went on."""
    (record,) = cut_record(("a", "b"), 1)
    assert (record.order, record.dropped, record.note) == (("a",), ("b",), "k=1")
    assert cut_record(("a", "b"), 2) == ()
    assert cut_record(("a",), 0, note="floor 0.2")[0].note == "floor 0.2"


def test_a_traced_list_brings_its_trace():
    """Rankings and fused lists know how they came about; plain lists do not."""
    record = StageRecord(kind=StageKind.FUSE, name="rrf", ids=("a",))
    assert get_trace(FusedHits([Hit("a")], record)) == Trace((record,))
    assert get_trace(Ranking((Hit("a"),), trace=Trace((record,)))) == Trace((record,))
    assert get_trace([Hit("a")]) == Trace()
    assert FusedHits([Hit("a")], record) == [Hit("a")]


def test_partial_means_some_but_not_all():
    """Scores and rankings tell partial answers from whole and empty ones."""
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
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_ordinals(number, expected):
    """Ranks read as people say them."""
    assert ordinal(number) == expected


def test_a_ranking_shows_ids_and_scores_in_five_lines_and_snippets_of_its_question():
    """What notebooks and logs show holds no document; a snippet is asked for."""
    hits = tuple(Hit(f"d{n}", f"Rotate key number {n}. Then rest.", float(9 - n)) for n in range(5))
    ranking = Ranking(hits, tier="cross-encoder", query="which key rotates?")
    assert repr(ranking).splitlines() == [
        "<Ranking of 5 from 5, by cross-encoder>",
        "  1         9  'd0'",
        "  2         8  'd1'",
        "  3         7  'd2'",
        "     … and 2 more",
    ]
    assert "Rotate" not in repr(ranking)
    assert ranking.snippet("d1").marked().startswith("**Rotate** **key** number 1.")
    assert Ranking.from_json(ranking.to_json()).query == "which key rotates?"
    assert "<svg" in ranking._repr_html_()
    with pytest.raises(InputError, match="use the id"):
        ranking.snippet("nobody")


def test_every_field_of_a_record_survives_json():
    """A field that is written is read again: a saved ranking replays and explains as the first one did."""
    record = StageRecord(
        kind=StageKind.FUSE,
        name="weighted",
        ids=("a", "b"),
        scores=(1.5, None),
        source="notes",
        kept=1,
        parts={"words": {"a": 1.0}},
        note="all",
        notes={"b": "late"},
        merged={"c": "a"},
        retrieval_mode="vector",
        weights={"words": 0.2},
        evidence={"marks": 0.1},
        score_scale="logit",
        languages=("en", "de"),
    )
    assert all(getattr(record, one.name) not in ("", {}, (), None) for one in dataclasses.fields(record))
    assert StageRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
