"""Strings, dicts and hits become hits alike."""

from __future__ import annotations

import math

import pytest

from resift import Hit
from resift.errors import DuplicateIdError, InputError, InvalidHitError
from resift.external.candidates import first_text, read_hits


def test_strings_are_numbered_texts():
    """A list of strings: the texts, with their places as ids."""
    assert read_hits(["x", "y"]) == [Hit("0", "x"), Hit("1", "y")]


def test_numbers_avoid_the_ids_of_other_candidates():
    mixed = ["first", {"id": "0", "text": "second"}, {"id": 2, "text": "third"}, "fourth", Hit("3", "fifth")]
    assert [hit.id for hit in read_hits(mixed)] == ["0#2", "0", "2", "3#2", "3"]


def test_strings_may_be_ids():
    """Fusion takes lists of ids."""
    assert read_hits(["x"], strings_are="id", source="s") == [Hit("x", source="s")]


def test_dicts_keep_their_other_columns_as_metadata():
    """Ids, text, score and source are taken; the rest is metadata, nested or not."""
    row = {"id": 7, "content": "c", "title": "t", "score": 2, "source": "s", "page": 3, "metadata": {"lang": "en"}}
    assert read_hits([row]) == [Hit("7", "t\n\nc", 2.0, "s", {"lang": "en", "title": "t", "page": 3})]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"text": "a", "content": "b"}, "a"),
        ({"text": "  ", "content": "b"}, "b"),
        ({"text": None, "title": "c"}, "c"),
        ({"text": 5}, ""),
        ({}, ""),
    ],
)
def test_the_first_text_is_the_first_that_is_not_empty(row, text):
    """For callers with a rule of their own, such as `CrossEncoderReranker.rerank`."""
    assert first_text(row, ("text", "content", "title")) == text


def test_text_keys_can_be_chosen():
    """The keys are configurable."""
    assert read_hits([{"body": "b", "text": "t"}], text_keys=["body"])[0].text == "b"


@pytest.mark.parametrize(("policy", "text"), [("last", ""), ("empty", ""), ("id", "a")])
def test_missing_text_policies(policy, text):
    """What to do without text is an option."""
    assert read_hits([{"id": "a"}], missing_text=policy)[0].text == text


def test_missing_text_can_be_an_error():
    """Raise names the candidate; an unknown policy is refused."""
    with pytest.raises(InvalidHitError, match="'a' has no text"):
        read_hits([{"id": "a"}], missing_text="raise")
    with pytest.raises(InputError, match="missing_text is 'never'"):
        read_hits([{"id": "a"}], missing_text="never")


def test_hits_pass_through_unchanged():
    """A hit is already one."""
    hit = Hit("a", "t", 1.0, "s")
    assert read_hits([hit])[0] is hit


@pytest.mark.parametrize("score", [math.nan, math.inf, "x", True])
def test_a_score_that_is_not_a_number_is_flagged(score):
    """The hit keeps its place without a score, and the flags say what came."""
    flags = {}
    hit = read_hits([{"id": "a", "score": score}], flags=flags)[0]
    assert hit.score is None
    assert "not a finite number" in flags["a"]


def test_a_score_that_is_not_a_number_can_be_refused():
    """Fusion by score cannot work with it."""
    with pytest.raises(InvalidHitError, match="Candidate 0 has score nan"):
        read_hits([{"id": "a", "score": math.nan}])


def test_duplicate_ids_are_refused_with_both_places():
    """One clear error."""
    with pytest.raises(DuplicateIdError, match="Candidates 0 and 2 share the id 'a'"):
        read_hits([{"id": "a"}, {"id": "b"}, {"id": "a"}])
    assert len(read_hits([{"id": "a"}, {"id": "a"}], unique=False)) == 2


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ("text", "one str"),
        ({"id": "a"}, "one dict"),
        ([7], "Candidate 0 is an int"),
        ([{"id": 1.5}], "id is 1.5"),
        ([{"id": ""}], "id is empty"),
        ([{"id": "a", "metadata": [1]}], "metadata is a list"),
    ],
)
def test_unusable_candidates_say_what_to_pass(candidates, message):
    """A caller's mistake gets one clear error."""
    with pytest.raises(InputError, match=message):
        read_hits(candidates)


def test_a_hit_as_a_dict_comes_back():
    """What `to_dict` wrote can go in again."""
    hit = Hit("a", "t", 2.0, "s", {"page": 3})
    assert read_hits([hit.to_dict()]) == [hit]


def test_texts_are_found_in_metadata_too():
    """Many stores keep the text beside their other columns."""
    row = {"id": "a", "metadata": {"content": "words", "page": 3}}
    assert read_hits([row])[0].text == "words"


@pytest.mark.parametrize("extra", [{"objectID": "1"}, {"id": "1", "_rankingScore": 0.5}])
def test_a_key_that_is_not_a_string_is_metadata(extra):
    [hit] = read_hits({"hits": [{**extra, 5: "x", "body": "The harbour lies north of the town."}]})
    assert (hit.id, hit.text, hit.metadata[5]) == ("1", "The harbour lies north of the town.", "x")
