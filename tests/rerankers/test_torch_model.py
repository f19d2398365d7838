"""Models through transformers: scores equal its own, no pickle, no remote code, clear refusals."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shutil
import sys

import pytest

import resift
from resift._internal.sync import run_sync
from resift.cli.main import main
from resift.deadline import Deadline
from resift.errors import (
    InputError,
    MissingExtraError,
    ModelError,
    ModelFileError,
    ModelLoadError,
    ModelProbeError,
    install_command,
)
from resift.models.known_models import decoder_prompts
from resift.models.locate import resolve
from resift.models.pinning import add_model, probe_model
from resift.rerankers.cross_encoder import TorchReranker
from resift.types import Hit

WORDS = [
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "yes",
    "no",
    "1",
    "0",
    "Yes",
    "<|im_start|>",
    "<|im_end|>",
    *(f"w{n}" for n in range(40)),
]


def write_config(folder, **values):
    (folder / "config.json").write_text(json.dumps({"vocab_size": 9, **values}), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
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
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}
    with pytest.raises(ModelFileError, match="2 labels"):
        TorchReranker(write_config(tmp_path, **config))
    folder = write_config(tmp_path, **config, id2label={"0": "LABEL_0"})
    with pytest.raises(InputError, match="instruction"):
        TorchReranker(folder, instruction="find code")


def fill(model_type, query, document, instruction=None):
    """Return the whole prompt of a pair."""
    prompt = decoder_prompts()[model_type]
    before, between, after = prompt.fixed_parts(instruction)
    return before + prompt.query.replace("{}", query) + between + prompt.document.replace("{}", document) + after


def test_prompts_are_those_of_the_model_cards():
    assert fill("qwen3", "q {}", "d {y}") == (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: q {}\n<Document>: d {y}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert "user\nquery: q\ndocument: d\nYou are a search relevance expert" in fill("qwen2", "q", "d")
    assert "user\ninstruction: code\nquery: q\ndocument: d\nYou are" in fill("qwen2", "q", "d", "code")
    assert fill("gemma", "q", "d").startswith("<bos>A: q\nB: d\nGiven a query A and a passage B")


def write_words(folder):
    """Write a tokenizer of whole words, with pairs."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.save(str(folder / "tokenizer.json"))


def test_without_torch_the_error_has_the_line_that_installs_it(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("RESIFT_MODELS_LOCK", str(tmp_path / "models.lock"))
    folder = tmp_path / "model"
    folder.mkdir()
    write_config(
        folder, architectures=["DebertaV2ForSequenceClassification"], model_type="deberta-v2", id2label={"0": "x"}
    )
    write_words(folder)
    line = re.escape(install_command("torch"))
    with pytest.raises(MissingExtraError, match=line):
        TorchReranker(folder)
    with pytest.raises(MissingExtraError, match=line):
        add_model(folder, name="mine/x")
    added = add_model(folder, name="mine/x", probe=False)
    assert (added.model.engine, added.model.precision) == ("torch", "fp32")
    with pytest.raises(MissingExtraError, match=line):
        resift.rerank("w1", ["w2", "w3"], model="mine/x")
    with pytest.raises(MissingExtraError, match=line):
        resift.Index(tmp_path / "docs.db", reranker="mine/x")
    assert main(["rerank", "w1", "w2", "--model", "mine/x"]) != 0


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny random models: a BERT and a DeBERTa cross-encoder, and a Qwen3 decoder."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(3)
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("torch")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
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
    deberta = transformers.DebertaV2ForSequenceClassification(
        transformers.DebertaV2Config(**size, intermediate_size=32, num_labels=1, relative_attention=True)
    )
    deberta.save_pretrained(root / "deberta")
    paired.save_pretrained(root / "deberta")
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
    model = transformers.AutoModelForCausalLM.from_pretrained(folders / "decoder").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "decoder")
    ids = tokenizer(fill("qwen3", "w1", "w2 w3", "w9"), add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
    expected = float(logits[WORDS.index("yes")] - logits[WORDS.index("no")])
    assert reranker.predict("w1", ["w2 w3"])[0] == pytest.approx(expected, abs=1e-5)
    per_call = TorchReranker(folders / "decoder", probe=False).with_instruction("w9")
    assert per_call.predict("w1", ["w2 w3"]) == reranker.predict("w1", ["w2 w3"])
    assert per_call.revision == reranker.revision


@pytest.mark.parametrize("name", ["deberta", "decoder"])
def test_a_pinned_model_works_by_name(folders, tmp_path, monkeypatch, name):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from resift.cli.main import build_parser
    from resift.cli.serve import server_options
    from resift.server.app import serve_app

    monkeypatch.setenv("RESIFT_MODELS_LOCK", str(tmp_path / "models.lock"))
    model, texts = f"mine/{name}", ["w2 w3", "w4 w5", "w6"]
    assert main(["models", "add", str(folders / name), "--name", model, "--no-probe", "--languages", "any"]) == 0
    expected = dict(zip(texts, TorchReranker(folders / name, probe=False).predict("w1", texts), strict=True))
    ranking = resift.rerank("w1", texts, model=model)
    assert not ranking.degraded
    assert {hit.text: hit.score for hit in ranking} == pytest.approx(expected, abs=1e-6)
    instructed = resift.rerank("w1", texts, model=model, instruction="w9 w8")
    assert bool(instructed.warnings) == (name == "deberta")
    assert (instructed.scores() == ranking.scores()) == (name == "deberta")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "stores:\n  - kind: sqlite\n    name: docs\n    path: docs.db\n"
        f"rerank:\n  kind: cross-encoder\n  model: {model}\n"
    )
    with resift.Index(tmp_path / "docs.db", text_only=True) as index:
        index.add([f"w1 {text}" for text in texts])
    assert not run_sync(resift.Pipeline.from_yaml(file).search("w1", k=2)).degraded
    options = server_options(build_parser("serve").parse_args(["serve", "--model", model]))
    with TestClient(serve_app(options)) as client:
        answer = client.post("/v2/rerank", json={"query": "w1", "documents": texts, "model": model})
        assert answer.status_code == 200, answer.text
    assert [texts[row["index"]] for row in answer.json()["results"]] == [hit.text for hit in ranking]
    assert main(["models", "bench", model, "--pairs", "1", "--rounds", "1"]) == 0
    assert main(["models", "verify"]) == 0
    with pytest.raises(ModelProbeError):  # the weights are random
        probe_model(resolve(model)).require_passed(model)


def test_a_file_that_is_not_pinned_is_not_read(folders, tmp_path, monkeypatch):
    """transformers would load an adapter or other weights next to the pinned ones."""
    monkeypatch.setenv("RESIFT_MODELS_LOCK", str(tmp_path / "models.lock"))
    shutil.copytree(folders / "deberta", tmp_path / "model")
    add_model(tmp_path / "model", name="mine/x", probe=False, languages="any")
    before = resift.rerank("w1", ["w2", "w3 w4"], model="mine/x")
    (tmp_path / "model" / "adapter_config.json").write_text("{not json")
    assert resift.rerank("w1", ["w2", "w3 w4"], model="mine/x").scores() == before.scores()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match="pin"):
        resolve("mine/x")


def test_a_prompt_that_leaves_no_room_is_refused(folders):
    with pytest.raises(ModelLoadError, match="max_length 40"):
        TorchReranker(folders / "decoder", probe=False, max_length=40)


def test_a_model_without_its_head_is_refused(folders, tmp_path):
    """transformers would fill the missing weights with random numbers."""
    import safetensors.numpy

    folder = tmp_path / "headless"
    shutil.copytree(folders / "encoder", folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    del tensors["classifier.weight"]
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=re.escape("classifier.weight")):
        TorchReranker(folder, probe=False)


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
    import torch

    folder = tmp_path / "pickled"
    shutil.copytree(folders / "encoder", folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError):
        TorchReranker(folder, probe=False)
