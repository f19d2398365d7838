"""The embedder: unit vectors, the model's own query prefix, long texts, many callers."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from resift.errors import InputError, ModelNotAllowedError
from resift.models.embedder import Embedder
from resift.models.loading import load
from resift.protocols import Embedder as EmbedderRole

pytestmark = pytest.mark.real_model

TEXTS = ["Paris is the capital of France.", "Lyon is famous for cheese.", "", "🌱 שלום \ud800", "rain " * 900]


@pytest.fixture(scope="module")
def embedder():
    return Embedder()


def test_vectors_are_float32_unit_rows_one_per_text(embedder):
    vectors = asyncio.run(embedder.embed(TEXTS, kind="document"))
    assert vectors.shape == (len(TEXTS), embedder.dimension) == (5, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_sync_and_async_agree_and_no_texts_give_no_rows(embedder):
    assert np.array_equal(
        embedder.embed_sync(TEXTS, kind="document"), asyncio.run(embedder.embed(TEXTS, kind="document"))
    )
    assert embedder.embed_sync([], kind="query").shape == (0, 384)


def test_a_query_carries_the_prefix_that_the_model_was_trained_with(embedder):
    prefixed = "Represent this sentence for searching relevant passages: rain"
    query = embedder.embed_sync(["rain"], kind="query")
    assert np.array_equal(query, embedder.embed_sync([prefixed], kind="document"))
    assert not np.array_equal(query, embedder.embed_sync(["rain"], kind="document"))


def test_the_vector_is_the_first_tokens_state(embedder):
    model = load("BAAI/bge-small-en-v1.5", kind="bi-encoder")
    states = model.forward(*model.tokenizer.template.single(model.tokenizer.ids("rain")))
    assert np.allclose(embedder.embed_sync(["rain"], kind="document")[0], states[0] / np.linalg.norm(states[0]))


def test_meaning_is_near(embedder):
    query = embedder.embed_sync(["which city is the French capital?"], kind="query")
    documents = embedder.embed_sync(TEXTS[:2], kind="document")
    near, far = (query @ documents.T)[0]
    assert near > far


def test_mistakes_are_told(embedder):
    with pytest.raises(InputError, match="list of texts"):
        embedder.embed_sync("one text", kind="query")
    with pytest.raises(InputError, match="kind"):
        embedder.embed_sync(["a"], kind="passage")
    with pytest.raises(ModelNotAllowedError):
        Embedder("cross-encoder/ms-marco-MiniLM-L-12-v2").embed_sync(["a"], kind="query")


def test_it_plays_the_embedder_role(embedder):
    assert isinstance(embedder, EmbedderRole)
