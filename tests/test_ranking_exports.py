"""What a ranking hands out: positions, scores, original objects, dicts and data frames."""

from __future__ import annotations

import subprocess
import sys

import pytest

import resift
from resift import Hit, Ranking
from resift.errors import InputError, MissingExtraError
from resift.testing import FakeStore, OverlapScorer

NOTES = [
    {"n": 1, "text": "The pump is blue."},
    {"n": 2, "text": "Oil the pump twice a year."},
    {"n": 3, "text": ""},
    {"n": 4, "text": "Cheese."},
]
QUERY = "how often to oil the pump"


def reranked(documents=NOTES, **options):
    return resift.rerank(QUERY, documents, scorer=OverlapScorer(), **options)


def test_positions_scores_and_originals():
    """In the order of the ranking; a document without text has a position and no score."""
    ranking = reranked()
    assert ranking.indices() == [1, 0, 3, 2]
    assert ranking.scores() == [3.0, 2.0, 0.0, None]
    assert all(ranking.original(hit) is NOTES[at] for hit, at in zip(ranking, ranking.indices(), strict=True))
    assert ranking.original("2") is NOTES[2]


@pytest.mark.parametrize("kind", ["ids", "strings", "hits", "generator"])
def test_positions_are_those_in_the_callers_list(kind):
    """Whatever the documents are and whatever their ids say."""
    texts = [note["text"] for note in NOTES]
    given = {
        "ids": [{"id": f"{9 - at}", "text": text} for at, text in enumerate(texts)],
        "strings": texts,
        "hits": [Hit(f"x{at}", text) for at, text in enumerate(texts)],
        "generator": texts,
    }[kind]
    ranking = reranked(iter(given) if kind == "generator" else given, k=2)
    assert ranking.indices() == [1, 0]
    assert ranking.original(ranking[0]) is given[1]
    assert ranking.original(ranking.cut[0]) is given[3]


def test_positions_after_reranking_a_ranking():
    """They count in the list that was reranked last, here a ranking; also once stored."""
    first = reranked(k=3)
    second = reranked(first)
    assert second.indices() == [0, 1, 2]
    assert second.original(second[0]) is first[0]
    assert Ranking.from_json(second.to_json()).indices() == [0, 1, 2]
    assert Ranking.from_json(first.to_json()).indices() == [1, 0, 3]


def test_a_scorer_that_fails_leaves_positions_and_no_scores():
    """The scores that the hits came with are not the scorer's."""
    given = [Hit("a", "x", 5.0), Hit("b", "y", 1.0)]
    ranking = resift.rerank(QUERY, given, scorer=OverlapScorer(fails=True))
    assert (ranking.indices(), ranking.scores()) == ([0, 1], [None, None])


def test_what_was_not_reranked_from_a_list_has_no_positions():
    """Results of a search come from stores; an empty ranking has nothing to say."""
    pipeline = resift.Pipeline(FakeStore([{"id": "a", "text": "the pump"}]), rerank=OverlapScorer())
    ranking = pipeline.rank("pump")
    assert ranking.ids == ["a"]
    for call in (ranking.indices, lambda: ranking.original("a")):
        with pytest.raises(InputError, match="rerank"):
            call()
    assert Ranking().indices() == []
    with pytest.raises(InputError, match="original"):
        Ranking.from_json(reranked().to_json()).original("0")
    with pytest.raises(InputError, match="original"):
        reranked().original("unknown")


def test_originals_are_no_part_of_what_makes_rankings_equal():
    """A stored ranking equals the one it was made of, and its JSON has no original objects."""
    ranking = reranked()
    assert Ranking.from_json(ranking.to_json()) == ranking
    assert "inputs" not in ranking.to_dict()


def test_dicts_have_rank_score_and_metadata():
    rows = reranked(k=2).to_dicts()
    assert [(row["rank"], row["id"], row["score"]) for row in rows] == [(1, "1", 3.0), (2, "0", 2.0)]
    assert list(rows[0]) == ["rank", "id", "score", "text", "source", "metadata"]
    assert rows[0]["metadata"]["n"] == 2


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_have_a_row_per_hit_and_a_column_per_metadata_key(library):
    """A key that is missing somewhere is empty there; one that is called like a column is renamed."""
    pytest.importorskip(library)
    given = [
        Hit("a", "the pump", metadata={"page": 1, "rank": "first"}),
        Hit("b", "cheese", metadata={"tags": ["x"], "page": "two"}),
    ]
    frame = reranked(given).to_frame(library)
    assert list(frame.columns)[:5] == ["rank", "id", "score", "text", "source"]
    assert {"page", "tags", "metadata.rank"} <= set(frame.columns)
    assert list(frame["id"]) == ["a", "b"]
    assert list(frame["rank"]) == [1, 2]
    assert len(Ranking().to_frame(library)) == 0


def test_an_unknown_or_missing_library_is_named():
    """The message has the command that installs it; nothing is imported before it is wanted."""
    with pytest.raises(InputError, match="pandas"):
        reranked().to_frame("numpy")
    code = (
        "import sys; sys.modules.update(pandas=None, polars=None)\n"
        "import resift\n"
        "from resift.errors import MissingExtraError\n"
        "try: resift.Ranking().to_frame('polars')\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install polars" in done.stdout
    assert issubclass(MissingExtraError, ImportError)
