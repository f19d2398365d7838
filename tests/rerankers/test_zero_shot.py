"""Zero-shot scoring by entailment, on a small real NLI graph that the test builds and allows."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from resift.deadline import Deadline
from resift.errors import InputError, ModelError
from resift.models.local_models import allow_local
from resift.models.registry import disallow_local
from resift.protocols import Reranker, Scorer
from resift.rerankers.zero_shot import ZeroShotReranker
from resift.types import Hit
from tests.models.onnx_writer import Node, write_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "this", "text", "is", "about", "rain", "storm", "cheese", "."]
CONTRADICTION, ENTAILMENT, NEUTRAL = 0, 1, 2


def tokenizer():
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


def graph():
    """Each token of the premise votes: rain and storm for entailment, cheese against. Hypotheses are mute."""
    votes = np.zeros((len(WORDS), 3), dtype="float32")
    votes[WORDS.index("rain")] = votes[WORDS.index("storm")] = (-1, 2, 0)
    votes[WORDS.index("cheese")] = (2, -1, 0)
    mute = np.array([[1.0], [0.0]], dtype="float32")
    weights = {"votes": votes, "mute": mute, "axis": np.array([1], dtype="int64")}
    nodes = [
        Node("Gather", ["votes", "input_ids"], ["voted"], name="vote"),
        Node("Gather", ["mute", "token_type_ids"], ["heard"], name="hear"),
        Node("Mul", ["voted", "heard"], ["counted"], name="count"),
        Node("ReduceSum", ["counted", "axis"], ["logits"], name="sum", attributes={"keepdims": 0}),
    ]
    both = ["batch", "tokens"]
    inputs = {"input_ids": both, "token_type_ids": both}
    return write_model(nodes, weights, inputs=inputs, outputs={"logits": ["batch", 3]})


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "nli"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(graph())
    tokenizer().save(str(folder / "tokenizer.json"))
    spec = allow_local(folder, id="test/nli", kind="nli", entailment_index=ENTAILMENT, max_length=32)
    yield spec.id
    disallow_local(spec.id)


HITS = [Hit("cheese", "cheese"), Hit("rain", "rain and storm"), Hit("none", "nothing known"), Hit("dry", "rain")]


def test_hits_are_scored_by_the_probability_of_entailment(model):
    reranker = ZeroShotReranker(model)
    scores = asyncio.run(reranker.score("rain", HITS, deadline=Deadline.never())).values
    assert scores[1] > scores[3] > scores[2] > scores[0]
    assert scores[2] == pytest.approx(1 / 3)
    assert scores[3] == pytest.approx(np.exp(2) / (np.exp(-1) + np.exp(2) + 1))


def test_the_document_is_the_premise_and_the_query_only_in_the_hypothesis(model):
    reranker = ZeroShotReranker(model)
    (score,) = asyncio.run(reranker.score("cheese", [Hit("a", "rain")], deadline=Deadline.never())).values
    assert score > 0.5


def test_a_long_premise_is_read_in_windows(model):
    long = Hit("long", "text " * 100 + "rain")
    (score,) = asyncio.run(ZeroShotReranker(model).score("rain", [long], deadline=Deadline.never())).values
    assert score > 0.5


def test_it_is_a_scorer_and_a_reranker(model):
    reranker = ZeroShotReranker(model)
    assert isinstance(reranker, Scorer)
    assert isinstance(reranker, Reranker)
    fused = asyncio.run(reranker.fuse([HITS[:2], HITS[2:]], k=2, query="rain"))
    assert [hit.id for hit in fused] == ["rain", "dry"]


def test_a_hypothesis_without_a_place_for_the_query_is_refused(model):
    with pytest.raises(InputError, match="hypothesis"):
        ZeroShotReranker(model, hypothesis="This is about weather.")


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="nli"):
        ZeroShotReranker("BAAI/bge-small-en-v1.5")


def test_a_model_without_an_entailment_label_is_refused(tmp_path):
    folder = tmp_path / "unlabelled"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(graph())
    tokenizer().save(str(folder / "tokenizer.json"))
    spec = allow_local(folder, id="test/unlabelled", kind="nli")
    try:
        with pytest.raises(ModelError, match="entailment"):
            asyncio.run(ZeroShotReranker(spec.id).score("q", HITS, deadline=Deadline.never()))
    finally:
        disallow_local(spec.id)
