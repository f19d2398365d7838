"""Values read back from plain data: each field must be what it is declared as."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from resift import Hit, Ranking
from resift.errors import InputError, InvalidHitError
from resift.types import FusedHits, StageKind, StageRecord, Trace, make_record

HIT = {"id": "a", "text": "t", "score": 0.5, "source": "s", "metadata": {"page": 1}}
STAGE = {"kind": "fuse", "name": "rrf", "ids": ["a"], "scores": [0.5]}
RANKING = {"hits": [HIT], "trace": [STAGE]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 3}, "id of a hit is an int; it must be text."),
        ({"text": None}, "text of a hit is a NoneType; it must be text."),
        ({"score": "high"}, "score of a hit is a str; it must be a finite number."),
        ({"score": True}, "score of a hit is a bool; it must be a finite number."),
        ({"score": float("nan")}, "score of a hit is a float; it must be a finite number."),
        ({"score": 10**400}, "score of a hit is an int; it must be a finite number."),
        ({"metadata": [1]}, "metadata of a hit is a list; it must be a mapping."),
        ({"metadata": {1: 2}}, "metadata.1 of a hit is an int; it must be text."),
    ],
)
def test_a_field_of_a_hit_that_is_something_else(change, message):
    """The type is named, never the value: it may be a document."""
    with pytest.raises(InputError) as caught:
        Hit.from_dict({**HIT, **change})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "guess"}, "kind of a stage of the trace is unknown; it must be one of retrieve, fuse, "),
        ({"kind": 3}, "kind of a stage of the trace is an int; it must be one of retrieve, fuse, "),
        ({"ids": "abc"}, "ids of a stage of the trace is a str; it must be a list."),
        ({"ids": [1]}, "ids[0] of a stage of the trace is an int; it must be text."),
        ({"scores": [0.5, 1.0]}, "A stage of the trace has 2 scores for 1 ids; pass one score per id, or none."),
        ({"kept": -1}, "kept of a stage of the trace is an int; it must be an integer ≥ 0."),
        ({"kept": True}, "kept of a stage of the trace is a bool; it must be an integer ≥ 0."),
        ({"parts": {"words": [1]}}, "parts.words of a stage of the trace is a list; it must be a mapping."),
    ],
)
def test_a_field_of_a_record_that_is_something_else(change, message):
    """A trace from a file cannot make `path`, `why` or `replay` stumble later."""
    with pytest.raises(InputError) as caught:
        StageRecord.from_dict({**STAGE, **change})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("missing", ["kind", "name", "ids"])
def test_a_record_without_what_it_needs(missing):
    """Three fields are needed; the first that is not there is named."""
    with pytest.raises(InputError, match=f"{missing} of a stage of the trace is missing"):
        StageRecord.from_dict({key: value for key, value in STAGE.items() if key != missing})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a ranking is a list; it must be a mapping."),
        ({**RANKING, "hits": {}}, "hits of a ranking is a dict; it must be a list."),
        ({**RANKING, "hits": ["a"]}, "hits[0] of a ranking is a str; it must be a mapping."),
        ({**RANKING, "degraded": 1}, "degraded of a ranking is an int; it must be true or false."),
        ({**RANKING, "failures": {"s": 1}}, "failures.s of a ranking is an int; it must be text."),
        ({**RANKING, "trace": "none"}, "trace of a ranking is a str; it must be a list."),
    ],
)
def test_a_field_of_a_ranking_that_is_something_else(data, message):
    """Whatever a file holds, it is a ranking or one sentence."""
    with pytest.raises(InputError) as caught:
        Ranking.from_dict(data)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "", None])
def test_text_that_is_no_json(text):
    """The sentence quotes nothing of the text."""
    with pytest.raises(InputError, match="Not a ranking in JSON format"):
        Ranking.from_json(text)


def test_what_is_not_there_has_its_default_and_what_is_not_known_is_passed_over():
    """Files of other versions are read."""
    assert Hit.from_dict({"id": "a", "colour": "red"}) == Hit("a")
    data = {**RANKING, "timings": {"total": 3}, "reason": None, "mood": "good", "warnings": ["No such key."]}
    ranking = Ranking.from_dict(data)
    assert (ranking.ids, ranking.timings, ranking.trace.order()) == (["a"], {"total": 3.0}, ("a",))
    assert ranking.warnings == ("No such key.",)
    assert Ranking.from_dict(json.loads(ranking.to_json(timings=True))) == ranking


@dataclass(frozen=True, slots=True)
class Coloured(Hit):
    """A hit with a field whose type only its author knows."""

    shade: complex = 0j
    tags: tuple[str, ...] = ()
    extra: Any = None


def test_a_subclass_of_hit_reads_its_own_fields():
    hit = Coloured.from_dict({"id": "a", "shade": 2j, "tags": ("x",), "extra": [1]})
    assert (hit.shade, hit.tags, hit.extra) == (2j, ("x",), [1])


def test_what_a_hit_refuses():
    """A source is a string and metadata a mapping, or nothing at all."""
    for wrong in ({"source": 3}, {"metadata": [1]}):
        with pytest.raises(InvalidHitError, match="needs a string as its source and a dict"):
            Hit("a", **wrong)


def test_a_short_ranking_shows_all_it_has():
    """Nothing is said of more where there is no more."""
    assert repr(Ranking((Hit("a"),), degraded=True, reason="late")) == (
        "<Ranking of 1 from 1, degraded: late>\n  1         –  'a'"
    )


def test_the_better_place_of_an_id_that_is_listed_twice_counts():
    """Places start at 0; lists of strangers may repeat an id."""
    record = StageRecord(kind=StageKind.RETRIEVE, name="retrieve", ids=("a", "b", "a"))
    assert record.positions() == {"a": 0, "b": 1}


def test_what_is_cut_before_any_order_keeps_the_place_of_its_list():
    """One list is an order; of several lists none is."""
    lists = [make_record(StageKind.RETRIEVE, "retrieve", [Hit("b"), Hit("a")], source=name) for name in "xy"]
    gate = StageRecord(kind=StageKind.GATE, name="gate", ids=("b", "a"), kept=1)
    assert [step.rank for step in Trace((lists[0], gate)).path("a")] == [2, 2]
    late = StageRecord(kind=StageKind.GATE, name="gate", ids=("c", "a"), kept=0)
    assert [(step.rank, step.cut) for step in Trace((*lists, late)).path("a")] == [(2, False), (2, False), (2, True)]
    assert Trace(lists).order() == ()
    assert FusedHits([Hit("a")]).records == ()
    longer = Trace(lists).append(gate)
    assert longer.order() == ("b",)
    ranking = Ranking((Hit("b"),), trace=longer)
    assert ranking.why_all() == {"b": ranking.why("b")}
