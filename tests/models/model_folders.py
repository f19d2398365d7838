"""Small model folders in the layout of the hub: random networks with a tokenizer, and a static embedder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from resift.models.pinning import ENGLISH

NETWORKS = Path(__file__).parent / "networks"
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
WORDS = [
    word
    for line in (
        "the of and to in is it you that he was for on are with as his they be at one have this from or had",
        "by hot but some what there we can out other were all your when up use word how said an each she",
        "which do their time if",
    )
    for word in line.split()
]


def write_tokenizer(path: Path, words: list[str]) -> None:
    """Write a tokenizer of whole words with the template of BERT."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(path))


def network_folder(folder: Path, name: str = "bert", **config: object) -> Path:
    """Copy a random network of tests/models/networks and give it a tokenizer and a model card."""
    folder.mkdir(parents=True)
    shutil.copy(NETWORKS / name / "model.safetensors", folder)
    values = json.loads((NETWORKS / name / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    write_tokenizer(folder / "tokenizer.json", WORDS[: 60 - len(SPECIAL)])
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A small random model\n")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle that nobody opens")
    return folder


def static_folder(folder: Path, *, width: int = 256) -> Path:
    """Write a static embedder (model2vec) that knows the words of the probe, so that it passes it."""
    folder.mkdir(parents=True)
    text = " ".join([*ENGLISH, *(document for documents in ENGLISH.values() for document in documents)])
    words = sorted(set(re.findall(r"\w+", text.lower())))
    table = np.random.default_rng(5).standard_normal((len(SPECIAL) + len(words), width)).astype(np.float32)
    table[: len(SPECIAL)] = 0
    table[[len(SPECIAL) + words.index(word) for word in ("the", "of", "in", "is", "a", "and", "to")]] *= 0.1
    save_file({"embeddings": table}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    write_tokenizer(folder / "tokenizer.json", words)
    return folder


def module_folder(folder: Path, modules: list[tuple[str, dict[str, object], dict[str, np.ndarray]]], **base):
    """Add sentence-transformers modules (type, config, tensors) after the transformer of a network folder."""
    network_folder(folder, **base)
    rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, config, tensors) in enumerate(modules, start=1):
        path = folder / f"{i}_{kind}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        if tensors:
            save_file(tensors, path / "model.safetensors")
        module = f"sentence_transformers.models.{kind}"
        rows.append({"idx": i, "name": str(i), "path": path.name, "type": module})
    (folder / "modules.json").write_text(json.dumps(rows))
    return folder


def read_weights(name: str) -> dict[str, np.ndarray]:
    """Return the tensors of a network."""
    return load_file(NETWORKS / name / "model.safetensors")
