"""Models through transformers: scores equal its own, no pickle, no remote code, clear refusals."""

from __future__ import annotations

import asyncio
import json

import pytest

from resift.deadline import Deadline
from resift.errors import InputError, MissingExtraError, ModelError, ModelFileError, ModelProbeError
from resift.rerankers.torch_model import TEMPLATES, TorchReranker
from resift.types import Hit

WORDS = ["[UNK]", "[CLS]", "[SEP]", "yes", "no", "1", "0", "Yes", *(f"w{n}" for n in range(40))]


def write_config(folder, **values):
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_a_folder_that_is_not_a_reranker_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        TorchReranker(tmp_path / "missing")
    with pytest.raises(ModelFileError, match="lacks"):
        TorchReranker(tmp_path)
    with pytest.raises(ModelFileError, match="BertModel"):
        TorchReranker(write_config(tmp_path, architectures=["BertModel"], model_type="bert"))
    with pytest.raises(ModelFileError, match="qwen3"):
        TorchReranker(write_config(tmp_path, architectures=["LlamaForCausalLM"], model_type="llama"))
    folder = write_config(tmp_path, architectures=["BertForSequenceClassification"], model_type="bert")
    with pytest.raises(InputError, match="instruction"):
        TorchReranker(folder, instruction="find code")


def test_templates_place_the_texts():
    filled = TEMPLATES["qwen3"].fill("q {x}", "d {y}", None)
    assert filled == (
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: q {x}\n<Document>: d {y}"
    )
    assert TEMPLATES["qwen2"].fill("q", "d", None) == "query: q\ndocument: d"
    assert TEMPLATES["qwen2"].fill("q", "d", "code") == "instruction: code\nquery: q\ndocument: d"


def test_without_torch_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    folder = write_config(tmp_path, architectures=["BertForSequenceClassification"], model_type="bert")
    with pytest.raises(MissingExtraError, match="torch"):
        TorchReranker(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny random models: a BERT cross-encoder and a Qwen3 decoder."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(3)
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("torch")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    size = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    decoder = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**size, intermediate_size=32, num_key_value_heads=1, head_dim=8)
    )
    decoder.save_pretrained(root / "decoder")
    plain.save_pretrained(root / "decoder")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    paired = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    encoder = transformers.BertForSequenceClassification(
        transformers.BertConfig(**size, intermediate_size=32, num_labels=1)
    )
    encoder.save_pretrained(root / "encoder")
    paired.save_pretrained(root / "encoder")
    return root


def test_scores_of_a_cross_encoder_are_its_logits(folders):
    import torch
    import transformers

    reranker = TorchReranker(folders / "encoder", probe=False)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folders / "encoder").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "encoder")
    with torch.inference_mode():
        expected = [
            float(model(**tokenizer("w1 w2", text, return_tensors="pt")).logits[0, 0]) for text in ("w3 w4", "w5")
        ]
    assert reranker.predict("w1 w2", ["w3 w4", "w5", "w3 w4"]) == [*expected, expected[0]]
    assert reranker.info.pointwise
    assert len(reranker.info.model_digest) == 64


def test_scores_of_a_decoder_are_yes_minus_no(folders):
    import torch
    import transformers

    reranker = TorchReranker(folders / "decoder", probe=False, instruction="w9")
    template = reranker.template
    model = transformers.AutoModelForCausalLM.from_pretrained(folders / "decoder").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "decoder")
    parts = (template.prefix, template.fill("w1", "w2 w3", "w9"), template.suffix)
    ids = [id for part in parts for id in tokenizer(part, add_special_tokens=False)["input_ids"]]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
    expected = float(logits[WORDS.index("yes")] - logits[WORDS.index("no")])
    assert reranker.predict("w1", ["w2 w3"])[0] == pytest.approx(expected, abs=1e-5)


def test_the_deadline_leaves_scores_out(folders):
    reranker = TorchReranker(folders / "encoder", probe=False)
    hits = [Hit(id=str(i), text=f"w{i}") for i in range(3)]
    scores = asyncio.run(reranker.score("w1", hits, deadline=Deadline.after(0)))
    assert list(scores.values) == [None] * 3
    assert scores.degraded
    assert asyncio.run(reranker.score("w1", [], deadline=Deadline.never())).values == []


def test_random_weights_do_not_pass_the_probe(folders):
    with pytest.raises(ModelProbeError):
        TorchReranker(folders / "encoder")


def test_weights_that_are_not_safetensors_are_refused(folders, tmp_path):
    import shutil

    import torch

    folder = tmp_path / "pickled"
    shutil.copytree(folders / "encoder", folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError):
        TorchReranker(folder, probe=False)
