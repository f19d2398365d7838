"""A model has no say about a language it was not made for; its own tokenizer tells."""

from __future__ import annotations

import asyncio

import pytest

import resift
from resift.deadline import Deadline
from resift.errors import UnsupportedLanguageError
from resift.models.embedder import Embedder
from resift.pipeline.pipeline import Pipeline
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.rescore import rescore
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.resilience.tiered import Tiered
from resift.stores.sqlite import SQLiteStore
from resift.text.languages import is_supported
from resift.types import Hit
from tests.text.multilingual import PASSAGES, QUESTIONS

FOREIGN = {"ru", "ja", "zh", "ko", "th", "ar", "hi"}


def spelling(text: str) -> list[int]:
    """Split like a tokenizer that knows no word: a piece per letter."""
    return [ord(letter) for letter in text if not letter.isspace()]


def whole_words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def test_pieces_and_unknown_pieces_decide():
    """Letters for words, or unknown pieces, are foreign; a foreign name in a sentence is not."""
    assert not is_supported("Столица России", spelling)
    assert is_supported("Столица России", whole_words)
    assert not is_supported("Столица России", lambda text: [7] * len(text.split()), unknown=7)
    assert is_supported("", spelling)
    assert is_supported("XR-2000/b 42", spelling)
    # One piece per ideograph is how models of Chinese read.
    assert is_supported("北京的地铁每天运送数百万人", spelling)
    assert not is_supported("กรุงเทพมหานครเป็นเมืองหลวง", spelling)


@pytest.fixture(scope="module")
def model() -> CrossEncoderReranker:
    for package in ("numpy", "tokenizers"):
        pytest.importorskip(package)
    made = CrossEncoderReranker()
    if made.failure:
        pytest.skip(made.failure)
    return made


@pytest.mark.real_model
def test_the_english_model_supports_latin_letters_only(model):
    """Every passage and question of the sample; English of all kinds, rare words and code."""
    supports_language = model._model.model.tokenizer.supports_language
    for id, text in [*PASSAGES.items(), *((id, question) for question, id in QUESTIONS)]:
        assert supports_language(text) == (id[:2] not in FOREIGN), (id, text)
    for text in (
        "What governs subatomic particles?",
        "pembrolizumab",
        "xylitol rhubarb",
        "kubectl get pods -n kube-system",
        "CRISPR/Cas9-mediated knock-out of TP53",
        "TNF-α and β-carotene",
        "what does 水 mean?",
    ):
        assert supports_language(text), text


@pytest.mark.real_model
def test_an_unsupported_query_keeps_its_order_with_a_reason(model):
    """`resift.rerank` keeps the order, and the reason names the page that helps."""
    texts = [PASSAGES["ja-panda"], PASSAGES["ja-capital"]]
    ranking = resift.rerank("スイスの首都はどこですか？", texts)
    assert [hit.text for hit in ranking] == texts
    assert ranking.degraded
    assert "does not support the language of this query" in ranking.reason
    assert "docs/guides/rank/model-files.md" in ranking.reason


@pytest.mark.real_model
def test_the_next_tier_scores_and_the_breaker_stays_closed(model):
    """An unsupported query goes to BM25; ten of them do not open the breaker for an English one."""
    tiers = Tiered(model, SemanticBM25Reranker())

    async def first(query: str, *texts: str) -> tuple[str, str | None]:
        ranking = await rescore(tiers, query, [Hit(text[:20], text) for text in texts], k=2)
        return ranking[0].text, ranking.tier

    for _ in range(10):
        result = asyncio.run(first("瑞士的首都是哪里？", PASSAGES["zh-panda"], PASSAGES["zh-capital"]))
        assert result == (PASSAGES["zh-capital"], "semantic-bm25")
    result = asyncio.run(first("capital of Switzerland", "Pandas eat bamboo.", "Bern is the capital."))
    assert result == ("Bern is the capital.", "cross-encoder")


@pytest.mark.real_model
def test_unsupported_texts_are_not_scored(model):
    hits = [Hit(id, text) for id, text in PASSAGES.items() if id.startswith("ja")]
    with pytest.raises(UnsupportedLanguageError, match="these texts"):
        asyncio.run(model.score("capital of Switzerland", hits, deadline=Deadline.never()))


@pytest.mark.real_model
def test_29_questions_in_8_languages_find_their_passage(tmp_path, model):
    """The default pipeline over all 45 passages: 25 or more right, and unsupported queries are degraded."""

    async def firsts() -> tuple[int, int]:
        store = SQLiteStore(tmp_path / "all.db", embedder=Embedder(), create=True)
        await store.add([{"id": id, "text": text} for id, text in PASSAGES.items()])
        pipeline = Pipeline.default(store)
        right = flagged = 0
        for question, id in QUESTIONS:
            ranking = await pipeline.search(question, k=3)
            right += bool(ranking.hits) and ranking[0].id == id
            flagged += ranking.degraded and "does not support the language" in (ranking.reason or "")
        await pipeline.close()
        return right, flagged

    right, flagged = asyncio.run(firsts())
    assert right >= 25
    assert flagged == sum(id[:2] in FOREIGN for _, id in QUESTIONS)
