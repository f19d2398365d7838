"""The cross-encoder: its own facade, the pipeline protocol, and texts of every kind."""

from __future__ import annotations

import asyncio
import copy
import logging
import re

import pytest

from resift.deadline import Deadline
from resift.errors import InputError, ModelError
from resift.protocols import Reranker, Scorer
from resift.rerankers.cross_encoder import ALLOWED_MODELS, DEFAULT_MODEL, CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.types import Hit

pytestmark = pytest.mark.real_model

CAPITAL = "what is the capital of France?"
PARIS = "Paris is the capital and largest city of France."
LYON = "Lyon, a city in France, is famous for its cheese."
CELLS = "The mitochondria is the powerhouse of the cell."


@pytest.fixture(scope="module")
def reranker():
    return CrossEncoderReranker()


@pytest.fixture
def broken(tmp_path):
    return CrossEncoderReranker(folder=tmp_path)


def rows(*texts):
    return [{"id": str(number), "content": text} for number, text in enumerate(texts)]


def test_c1_reorders_by_score_and_adds_ce_score_as_a_float(reranker):
    ranked = reranker.rerank(CAPITAL, rows(CELLS, LYON, PARIS))
    assert [row["content"] for row in ranked] == [PARIS, LYON, CELLS]
    assert all(type(row["ce_score"]) is float for row in ranked)
    assert ranked[0]["ce_score"] > ranked[1]["ce_score"] > ranked[2]["ce_score"]


def test_scores_include_the_number_of_tokens(reranker):
    """The query counts once per text; a text that comes twice counts twice, as its caller would count."""
    hits = [Hit("a", "Paris"), Hit("b", "the cell"), Hit("c", "Paris")]
    scores = asyncio.run(reranker.score("capital city", hits, deadline=Deadline.never()))
    assert scores.tokens == 3 * 2 + 1 + 2 + 1


def test_c1_top_k_defaults_to_five_and_cuts(reranker):
    many = rows(*[f"Sentence number {number}." for number in range(7)])
    assert len(reranker.rerank(CAPITAL, many)) == 5
    assert len(reranker.rerank(CAPITAL, many, top_k=2)) == 2
    assert reranker.rerank(CAPITAL, [], top_k=2) == []


def test_c1_copies_are_shallow_and_inputs_are_unchanged(reranker):
    given = [{"content": PARIS, "tags": ["a"]}, {"title": LYON}]
    before = copy.deepcopy(given)
    ranked = reranker.rerank(CAPITAL, given)
    assert given == before
    assert ranked[0] is not given[0]
    assert ranked[0]["tags"] is given[0]["tags"]


def test_c1_text_is_content_then_title_then_empty(reranker):
    both, title, neither, only = reranker.rerank(
        CAPITAL,
        [
            {"n": 0, "content": PARIS, "title": CELLS},
            {"n": 1, "content": "", "title": PARIS},
            {"n": 2},
            {"n": 3, "content": PARIS},
        ],
        top_k=4,
    )
    scores = {row["n"]: row["ce_score"] for row in (both, title, neither, only)}
    assert scores[0] == scores[1] == scores[3] > scores[2]


def test_equal_scores_keep_the_order_of_the_input(reranker):
    ranked = reranker.rerank(CAPITAL, rows(PARIS, PARIS, PARIS))
    assert [row["id"] for row in ranked] == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["other/model", "../x", "/etc/passwd", "https://host/model", "a\0b", ""])
def test_c2_a_name_that_is_not_allowed_is_a_value_error_before_any_load(name, caplog):
    with pytest.raises(ValueError, match="allow"):
        CrossEncoderReranker(name)
    assert not caplog.records


def test_c2_a_model_of_another_kind_is_not_a_cross_encoder():
    with pytest.raises(ValueError, match="bi-encoder"):
        CrossEncoderReranker("BAAI/bge-small-en-v1.5")
    assert DEFAULT_MODEL in ALLOWED_MODELS


def test_c3_a_failed_load_logs_the_specified_warning_and_returns_the_input(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        broken = CrossEncoderReranker(folder=tmp_path)
    assert broken._model is None
    assert f"CrossEncoderReranker failed to load model '{DEFAULT_MODEL}': " in caplog.text
    given = rows(*["text"] * 10)
    passed = broken.rerank(CAPITAL, given, top_k=2)
    assert passed == given
    assert passed is not given


def test_c3_in_a_pipeline_a_failed_load_degrades_visibly(broken):
    hits = [Hit(str(number), "text") for number in range(4)]
    with pytest.raises(ModelError):
        asyncio.run(broken.score(CAPITAL, hits, deadline=Deadline.never()))
    ranking = asyncio.run(rescore(broken, CAPITAL, hits, k=2))
    assert ranking.ids == ["0", "1"]
    assert ranking.degraded
    assert "cross-encoder failed" in ranking.reason


def test_errors_of_predict_reach_the_caller(reranker, monkeypatch):
    def explode(pairs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(reranker._model, "predict", explode)
    with pytest.raises(RuntimeError, match="out of memory"):
        reranker.rerank(CAPITAL, rows(PARIS))


def test_it_is_a_scorer_and_a_reranker(reranker):
    assert isinstance(reranker, Scorer)
    assert isinstance(reranker, Reranker)
    assert reranker.name == "cross-encoder"


def test_f1_fuse_merges_the_lists_and_orders_them_by_the_model(reranker):
    lists = [[Hit("c", CELLS), Hit("l", LYON)], [Hit("c", CELLS), Hit("p", PARIS)]]
    fused = asyncio.run(reranker.fuse(lists, k=2, query=CAPITAL))
    assert [hit.id for hit in fused] == ["p", "l"]
    assert fused.records[1].source == "cross-encoder"
    with pytest.raises(InputError, match="query"):
        asyncio.run(reranker.fuse(lists, k=2))


def test_facade_and_pipeline_agree(reranker):
    texts = [CELLS, LYON, PARIS, ""]
    scores = asyncio.run(
        reranker.score(CAPITAL, [Hit(str(n), text) for n, text in enumerate(texts)], deadline=Deadline.never())
    )
    told = {row["content"]: row["ce_score"] for row in reranker.rerank(CAPITAL, rows(*texts))}
    assert list(scores.values) == [told[text] for text in texts]
    assert not scores.degraded


def test_the_windows_of_a_long_text_with_query_words_are_scored_and_noted():
    """The answer is at the end of a long text: the best windows include it, and the record lists them."""
    filler = "The canteen serves lunch from noon until two o'clock on every working day. " * 60
    hits = [Hit("long", f"{filler}{PARIS} {filler}"), Hit("hopeless", filler * 2), Hit("short", CELLS)]
    skimming = CrossEncoderReranker(max_windows=3, first_pass_windows=1)
    ranking = asyncio.run(rescore(skimming, CAPITAL, hits, k=3))
    assert ranking.ids[0] == "long"
    notes = ranking.trace[0].notes
    assert re.fullmatch(r"scored only its most promising windows: \d+, \d+, \d+ of \d+", notes["long"])
    # One window leaves no hope: the others are not read.
    assert notes["hopeless"].startswith("scored only its most promising windows: 1 of ")
    assert notes["long"] in ranking.why("long")
    assert "short" not in notes
    assert asyncio.run(rescore(skimming, CAPITAL, hits, k=3)) == ranking
