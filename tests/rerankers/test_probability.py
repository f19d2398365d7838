"""Scores from 0 to 1: the order stays, a calibration gives the numbers, unscored hits have none."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resift
from resift import Hit, Index
from resift.cli.main import main
from resift.errors import DataFormatError, InputError
from resift.models.registry import check_kind
from resift.ranking.calibration import drop_below, shipped_calibrator
from resift.ranking.shape import Isotonic, Platt
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.rerankers.rescore import relevance
from resift.testing import OverlapScorer
from resift.types import Ranking, Scores
from tests.ranking.pools import pipeline_hits

QUERY = "what is the capital of France?"
TEXTS = ["Paris is the capital of France.", "Lyon is famous for its cheese.", "Cells have mitochondria."]


class Numbers:
    """Scores each hit by the number in its text."""

    name = "text"

    async def score(self, query, hits, *, deadline):
        return Scores([float(hit.text) for hit in hits], self.name)


class Broken(Numbers):
    async def score(self, query, hits, *, deadline):
        raise RuntimeError("no model")


@given(st.lists(st.sampled_from([-11.0, -3.0, -3.0, 0.0, 2.5, 9.0]), min_size=1, max_size=8), st.integers(0, 8))
def test_probabilities_keep_the_order_of_the_raw_scores(values, k):
    """Even if a calibration has steps that make different scores equal."""
    documents = [str(value) for value in values]
    steps = Isotonic((-5.0, 1.0), (0.1, 0.1))
    raw = resift.rerank("q", documents, scorer=Numbers(), k=k)
    for calibration in (Platt(0.3, -1.5), steps):
        found = resift.rerank("q", documents, scorer=Numbers(), k=k, scores="probability", calibration=calibration)
        assert (found.ids, [hit.id for hit in found.cut]) == (raw.ids, [hit.id for hit in raw.cut])
        assert found.replay() == found.ids
        for before, after in zip((*raw, *raw.cut), (*found, *found.cut), strict=True):
            assert after.score == calibration.probability(before.score)


def test_an_unscored_hit_has_no_probability():
    """Neither for want of text nor for want of a model, whatever score it came with."""
    documents = [Hit("a", "3.0", score=40.0), Hit("b", "", score=50.0)]
    found = resift.rerank("q", documents, scorer=Numbers(), scores="probability", calibration=Platt(1.0, 0.0))
    assert [(hit.id, hit.score is None) for hit in found] == [("a", False), ("b", True)]
    failed = resift.rerank("q", documents, scorer=Broken(), scores="probability", calibration=Platt(1.0, 0.0))
    assert failed.degraded
    assert [hit.score for hit in failed] == [None, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "percent"}, "'raw' or 'probability'"),
        ({"calibration": Platt(1.0, 0.0)}, "scores='probability'"),
        ({"scores": "probability", "scorer": Numbers()}, "No calibration ships for 'text'.*resift calibrate"),
        ({"scores": "probability", "model": "cross-encoder/ms-marco-MiniLM-L-6-v2"}, "resift calibrate"),
    ],
)
def test_wrong_arguments_are_refused_before_scoring(options, message):
    with pytest.raises(InputError, match=message):
        resift.rerank("q", ["a"], **options)


def test_a_missing_calibration_file_is_named(tmp_path):
    with pytest.raises(DataFormatError, match="resift calibrate"):
        resift.rerank("q", ["a"], scores="probability", calibration=tmp_path / "none.json")


def test_every_bundled_cross_encoder_has_a_calibration():
    """Bound to the digest of the model's file: another file has none."""
    spec = check_kind(DEFAULT_MODEL, "cross-encoder")
    assert spec.package is not None
    shipped = shipped_calibrator(spec.pin(spec.onnx).sha256)
    assert isinstance(shipped, Platt)
    assert shipped.slope > 0
    assert shipped_calibrator("0" * 64) is None


@pytest.mark.real_model
def test_the_shipped_calibration_is_used(tmp_path):
    raw = resift.rerank(QUERY, TEXTS)
    found = asyncio.run(resift.arerank(QUERY, TEXTS, scores="probability"))
    assert found.ids == raw.ids
    assert all(0 < hit.score < 1 for hit in found)
    assert found[0].score > 0.5
    assert found[-1].score < 0.1
    assert raw[0].score > 1, "logits stay the default"
    assert "Probability: 0." in found.why("0")
    Platt(0.0, 0.0).save(tmp_path / "even.json")
    even = resift.rerank(QUERY, TEXTS, scores="probability", calibration=tmp_path / "even.json")
    assert [hit.score for hit in even] == [0.5] * 3


@pytest.mark.real_model
def test_an_index_gives_every_hit_a_probability(tmp_path):
    """Also hits below the depth of the reranker; what is under the threshold is cut, with the reason."""
    with Index(tmp_path / "notes.db", text_only=True) as index:
        index.add([f"{text} Capital of note number {n}." for text in TEXTS for n in range(12)])
        plain = index.search(QUERY, k=30)
        found = index.search(QUERY, k=30, scores="probability")
        assert found.ids == plain.ids
        assert found.replay() == found.ids
        assert len(found) == 30
        assert all(hit.score is not None and 0 < hit.score < 1 for hit in found)
        values = [hit.score for hit in found]
        assert values == sorted(values, reverse=True)
        middle = min(value for value in values if value > values[-1])
        kept = index.search(QUERY, k=30, scores="probability", min_score=middle)
        assert kept.ids == [hit.id for hit in found if hit.score >= middle]
        assert kept.replay() == kept.ids
        lost = next(hit.id for hit in found if hit.score < middle)
        assert f"< {middle:.3g}" in kept.why(lost)
        with pytest.raises(InputError, match="reranker"):
            Index(tmp_path / "notes.db", rerank=False).search(QUERY, scores="probability")
        with pytest.raises(InputError, match="min_score"):
            index.search(QUERY, min_score=float("nan"))


def test_a_pipeline_with_another_scorer_needs_a_calibration(tmp_path):
    from resift import Pipeline

    with Index(tmp_path / "notes.db", text_only=True) as index:
        index.add(TEXTS)
        pipeline = Pipeline(index.store, rerank=OverlapScorer())
        with pytest.raises(InputError, match="resift calibrate"):
            index.search(QUERY, pipeline=pipeline, scores="probability")
        found = index.search(QUERY, pipeline=pipeline, scores="probability", calibration=Platt(1.0, 0.0))
        assert all(0 < hit.score < 1 for hit in found)


@pytest.mark.real_model
def test_the_commands_write_probabilities(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("\n".join(TEXTS))
    (tmp_path / "judged.jsonl").write_text(
        "".join(json.dumps({"score": score, "label": score > 0}) + "\n" for score in range(-9, 9))
    )
    assert main(["calibrate", "judged.jsonl", "-o", "mine.json"]) == 0
    assert main(["index", "notes.txt", "--store", "notes.db", "--text-only"]) == 0
    capsys.readouterr()
    for words in (
        ["rerank", QUERY, "notes.txt", "--scores", "probability", "--json"],
        ["rerank", QUERY, "notes.txt", "--calibration", "mine.json", "--json"],
        ["search", "capital", "of", "France", "--store", "notes.db", "--scores", "probability", "--json"],
        ["search", "capital", "of", "France", "--store", "notes.db", "--calibration", "mine.json", "--json"],
    ):
        assert main(words) == 0
        scores = [hit["score"] for hit in json.loads(capsys.readouterr().out)["hits"]]
        assert all(0 < score < 1 for score in scores)
    assert main([*words[:-1], "--min-score", "0.9999"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("resift: no hit has a score of 0.9999 or more; the best score is 0.")


@given(st.data())
def test_relevance_is_between_0_and_1_and_falls_with_the_rank(data):
    """Whatever the final order, and whichever hits the reranker scored."""
    logit = st.sampled_from([None, -11.0, -3.0, -3.0, 0.0, 2.5, 9.0])
    logits = {f"d{at}": data.draw(logit) for at in range(data.draw(st.integers(1, 8)))}
    ranked = pipeline_hits({"s": [(id, 1.0) for id in logits]}, logits)
    ranking = replace(ranked, hits=tuple(data.draw(st.permutations(ranked.hits))), query="text of d1")
    for calibrator in (None, Platt(0.24, -1.7)):
        shown = relevance(ranking, calibrator)
        assert len(shown) == len(ranking)
        assert list(shown) == sorted(shown, reverse=True)
        assert all(0 <= value <= 1 for value in shown)
        least = data.draw(st.sampled_from([0.0, 0.05, 0.3, *shown]))
        kept = drop_below(ranking, least, shown=shown)
        assert kept.ids == ranking.ids[: len(kept)]
        assert len(kept) == sum(value >= least for value in shown)


def test_relevance_keeps_the_mean_of_the_reranker_probabilities():
    """Probabilities count as they are, logits do not, by the scale in the record."""
    said = {"a": 0.1, "b": 0.7, "c": 0.2}
    for provider, expected in (("voyage", (0.4, 0.4, 0.2)), ("cross-encoder", (0.597, 0.597, 0.55))):
        ranking = pipeline_hits({"s": [("a", 1.0), ("b", 1.0), ("c", 1.0)]}, said, provider=provider)
        ranking = replace(ranking, hits=tuple(sorted(ranking.hits, key=lambda hit: hit.id)))
        assert relevance(ranking) == pytest.approx(expected, abs=1e-3)


def test_relevance_without_a_reranker_is_the_share_of_words():
    hits = (Hit("a", "The pump of the well."), Hit("b", "A pump."), Hit("c", "Cheese."))
    assert relevance(Ranking(hits, query="well pumps")) == (1.0, 0.5, 0.0)
    assert relevance(Ranking(hits, query="")) == (0.0, 0.0, 0.0)


def test_min_score_never_drops_a_hit_above_one_that_stays():
    """Raw scores need not fall with the rank: a later stage may have changed the order."""
    scores = (0.1, None, 0.5, 0.2, None)
    ranking = Ranking(tuple(Hit(f"d{at}", score=score) for at, score in enumerate(scores)))
    assert drop_below(ranking, 0.3).ids == ["d0", "d1", "d2"]
    assert drop_below(ranking, 0.9).ids == []
    unscored = Ranking((Hit("a"), Hit("b")))
    assert drop_below(unscored, 0.9).ids == ["a", "b"]


@pytest.mark.real_model
def test_a_search_shows_decreasing_scores_and_nothing_for_nonsense(tmp_path, capsys, monkeypatch):
    """By default the command line shows relevance: high for an answer, low for everything else."""
    monkeypatch.chdir(tmp_path)
    with Index("n.db", text_only=True) as index:
        index.add([f"{text} Note {n} on zorble." for text in TEXTS for n in range(4)])

    def show_scores(*words):
        assert main(["search", *words, "--store", "n.db"]) == 0
        return [float(line.split("\t")[1]) for line in capsys.readouterr().out.splitlines()]

    answers = show_scores(QUERY)
    assert answers == sorted(answers, reverse=True)
    assert answers[0] > 0.4
    assert max(show_scores("frampt quix zorble")) < 0.2
    least = answers[1] - 1e-5  # the output has six digits
    assert show_scores(QUERY, "--min-score", str(least)) == [value for value in answers if value >= least]
    raw = show_scores(QUERY, "--scores", "raw")
    assert raw == sorted(raw, reverse=True)
    assert raw != answers
