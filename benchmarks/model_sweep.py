"""Random model folders of odd sizes, as the hub delivers them, against sentence-transformers.

    python -m benchmarks.model_sweep --models 200      # needs torch and sentence-transformers

Each folder has a family, sizes, activation, float type and tokenizer drawn at random: heads of 4 to 128,
feed-forward layers of any width, shards, and files in other formats. It is pinned as a user would do it
(`resift models add --no-probe`) and run by name. Reported: the largest difference of fp32 from the reference,
relative to the spread of the scores, the smallest Kendall tau of int8, and every failure.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import option_parser, report
from benchmarks.model_parity import kendall_tau, rename_to_flash

SENTENCE = (
    "the of and to in is it you that he was for on are with as his they be at one have this from or had by "
    "hot but some what there we can out other were all your when up use word how said an each she which do "
    "their time if will way about many then them would write like so these her long make thing see him two"
)
WORDS = SENTENCE.split()
BERT_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_TOKENS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
FAMILIES = (
    "bert", "distilbert", "electra", "roberta", "xlm-roberta", "flash", "modernbert", "ettin", "static",
)  # fmt: skip
TEXTS, MAX_DIFFERENCE, MIN_TAU = 40, 1e-4, 0.9


def build_tokenizer(draw: random.Random, roles: dict[str, str]) -> Any:
    """Return a WordPiece, BPE or Unigram tokenizer with the pair template of its family."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    corpus = [" ".join(draw.choices(WORDS, k=12)) for _ in range(200)]
    options: dict[str, Any] = {"special_tokens": list(roles.values()), "show_progress": False}
    kind, size = draw.choice(("wordpiece", "bpe", "unigram")), draw.randrange(120, 400)
    trainer: Any
    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=roles["unk"]))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=draw.random() < 0.7)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=size, **options)
    elif kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=draw.random() < 0.5)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300 + size, initial_alphabet=alphabet, **options)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=size, unk_token=roles["unk"], **options)
    tokenizer.train_from_iterator(corpus, trainer)
    first, last = roles["cls"], roles["sep"]
    pair = f"{first} $A {last} {last} $B {last}"
    if roles is BERT_TOKENS:
        pair = f"{first} $A {last} $B:1 {last}:1"
    ids = [(name, tokenizer.token_to_id(name)) for name in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", pair=pair, special_tokens=ids)
    return tokenizer


def build_model(draw: random.Random, family: str, vocabulary: int, pad: int, *, head: bool) -> Any:
    """Return a random transformer of that family."""
    import transformers as t

    heads, layers = draw.randint(1, 6), draw.randint(1, 3)
    width = draw.choice((4, 6, 8, 12, 16, 20, 24, 25, 32, 40, 48, 64, 80, 96, 128))
    if family in ("modernbert", "ettin"):
        width += width % 2
    hidden, ffn = heads * width, draw.randint(3, 600)
    deviation = draw.choice((0.02, 0.6 / hidden**0.5))
    activation = draw.choice(("gelu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu"))
    epsilon = draw.choice((1e-12, 1e-7, 1e-5))
    options: dict[str, Any] = {
        "vocab_size": vocabulary, "num_labels": 1, "initializer_range": deviation, "pad_token_id": pad,
    }  # fmt: skip
    if family == "distilbert":
        options |= {"dim": hidden, "n_heads": heads, "n_layers": layers, "hidden_dim": ffn}
        options |= {"max_position_embeddings": 300, "activation": draw.choice(("gelu", "relu"))}
        kind = "DistilBert"
    else:
        options |= {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
        options |= {"intermediate_size": ffn}
    if family in ("bert", "electra", "roberta", "xlm-roberta", "flash"):
        kind = {"bert": "Bert", "electra": "Electra", "roberta": "Roberta"}.get(family, "XLMRoberta")
        options |= {"hidden_act": activation, "layer_norm_eps": epsilon, "max_position_embeddings": 300}
        options["type_vocab_size"] = draw.choice((2, 3)) if family in ("bert", "electra") else 1
        if family == "electra":
            options["embedding_size"] = draw.choice((hidden, draw.randint(5, 100)))
    elif family in ("modernbert", "ettin"):
        kind = "ModernBert"
        biases = {f"{part}_bias": draw.random() < 0.3 for part in ("norm", "attention", "mlp", "classifier")}
        options |= biases | {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
        options |= {
            "hidden_activation": activation, "norm_eps": epsilon, "attn_implementation": "sdpa",
            "classifier_pooling": draw.choice(("cls", "mean")), "local_attention": draw.choice((8, 30, 128)),
            "max_position_embeddings": draw.choice((300, 8192)),
            "classifier_activation": draw.choice(("gelu", "relu", "tanh")),
        }  # fmt: skip
    config = getattr(t, f"{kind}Config")(**options)
    model = getattr(t, f"{kind}ForSequenceClassification" if head else f"{kind}Model")(config)
    for parameter in model.parameters():  # norms and biases are 1 and 0 otherwise
        if parameter.ndim == 1:
            parameter.data += deviation * parameter.data.new_empty(parameter.shape).normal_()
    return model.eval()


def write_static(draw: random.Random, folder: Path, tokenizer: Any) -> None:
    """Write a static embedder of sentence-transformers, or of model2vec."""
    import torch
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, StaticEmbedding

    table = torch.randn(tokenizer.get_vocab_size(), draw.randint(3, 300))
    embedding = StaticEmbedding(tokenizer, embedding_weights=table)
    SentenceTransformer(modules=[embedding, Normalize()], device="cpu").save(str(folder))
    if draw.random() < 0.6:
        tensors = {"embeddings": table}
        if draw.random() < 0.5:
            tensors["embeddings"] = torch.randn(50, table.shape[1])
            tensors |= {"mapping": torch.randint(0, 50, (len(table),)), "weights": torch.rand(len(table))}
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
        rows = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps([{**rows[0], "path": "."}, *rows[1:]]))


def write_modules(draw: random.Random, folder: Path, family: str, width: int) -> None:
    """Turn a folder with a bare encoder into one of sentence-transformers with pooling and a head."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, LayerNorm, Normalize, Pooling, Transformer

    steps: list[Any] = [Pooling(width, pooling_mode=draw.choice(("cls", "mean", "lasttoken")))]
    middle = width
    if family == "ettin" or draw.random() < 0.3:
        middle = draw.choice((width, draw.randint(3, 200)))
        function = draw.choice((torch.nn.GELU(), torch.nn.Tanh(), torch.nn.ReLU(), torch.nn.Identity()))
        bias = draw.random() < 0.5
        steps += [Dense(width, middle, bias=bias, activation_function=function), LayerNorm(middle)]
    if family == "ettin":
        steps.append(Dense(middle, 1, activation_function=torch.nn.Identity()))
    elif draw.random() < 0.7:
        steps.append(Normalize())
    model = SentenceTransformer(modules=[Transformer(str(folder)), *steps], device="cpu")
    shutil.rmtree(folder)
    model.save(str(folder), create_model_card=False)


def write_folder(draw: random.Random, folder: Path, family: str) -> str:
    """Write a random model as the hub delivers it and return its kind."""
    import torch
    import transformers as t
    from safetensors.torch import load_file, save_file

    roles = ROBERTA_TOKENS if family in ("roberta", "xlm-roberta", "flash") else BERT_TOKENS
    inner = build_tokenizer(draw, roles)
    if family == "static":
        write_static(draw, folder, inner)
        return "bi-encoder"
    names = {} if family in ("bert", "electra") else {"model_input_names": ["input_ids", "attention_mask"]}
    tokenizer = t.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=draw.choice((256, 280, 10**30)), **names,
        **{f"{role}_token": name for role, name in roles.items()},
    )  # fmt: skip
    embedder = family == "ettin" or draw.random() < 0.35
    vocabulary = inner.get_vocab_size() + draw.choice((0, 0, 7))
    model = build_model(draw, family, vocabulary, inner.token_to_id(roles["pad"]), head=not embedder)
    model = model.to(draw.choice((torch.float32, torch.float32, torch.float16, torch.bfloat16)))
    shards = {"max_shard_size": "60KB"} if family != "flash" and draw.random() < 0.25 else {}
    model.save_pretrained(folder, **shards)
    tokenizer.save_pretrained(folder)
    if embedder:
        write_modules(draw, folder, family, model.config.hidden_size)
    if family == "flash":
        weights = rename_to_flash(load_file(folder / "model.safetensors"))
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "flash.tensors")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02a pickle that nobody opens")
    for other in ("onnx", "openvino"):
        (folder / other).mkdir()
        (folder / other / "model.onnx").write_bytes(b"not a graph")
    return "cross-encoder" if family == "ettin" or not embedder else "bi-encoder"


def reference_scores(folder: Path, kind: str, query: str, texts: Sequence[str]) -> np.ndarray:
    """Return what sentence-transformers computes in fp32: logits or cosines."""
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer

    options: dict[str, Any] = {"model_kwargs": {"dtype": torch.float32}, "device": "cpu"}
    if kind == "cross-encoder" and not (folder / "modules.json").exists():
        pairs = [(query, text) for text in texts]
        scores = CrossEncoder(str(folder), max_length=256, **options).predict(
            pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        return scores.astype(float)
    model = SentenceTransformer(str(folder), **options)
    if kind == "cross-encoder":  # pairs go through the same modules as texts
        rows = [model.tokenizer(query, text, return_tensors="pt") for text in texts]
        with torch.no_grad():
            return np.array([float(model(dict(row))["sentence_embedding"][0, 0]) for row in rows])
    vectors = model.encode([query, *texts], normalize_embeddings=True, show_progress_bar=False).astype(float)
    return vectors[1:] @ vectors[0]


def our_scores(folder: Path, kind: str, query: str, texts: Sequence[str], precision: Any) -> np.ndarray:
    """Pin the folder and score by its name."""
    from resift.models.embedder import Embedder
    from resift.models.loading import load
    from resift.models.pairs import PairModel
    from resift.models.pinning import add_model

    name = f"sweep/{folder.name}-{precision}"
    add_model(folder, name=name, probe=False, precision=precision)
    if kind == "cross-encoder":
        model = PairModel(load(name, kind="cross-encoder"))
        return np.array(model.predict([(query, text) for text in texts]))
    vectors = Embedder(name).embed_sync([query, *texts], kind="document").astype(float)
    return vectors[1:] @ vectors[0]


def check_model(seed: int, root: Path) -> dict[str, Any]:
    """Compare one random model."""
    import torch

    draw = random.Random(seed)
    torch.manual_seed(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    folder = root / f"{family}-{seed}"
    kind = write_folder(draw, folder, family)
    query = " ".join(draw.choices(WORDS, k=5))
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 40))) for _ in range(TEXTS)]
    expected = reference_scores(folder, kind, query, texts)
    flash = folder / "flash.tensors"
    if flash.exists():
        flash.replace(folder / "model.safetensors")
    fp32, int8 = (our_scores(folder, kind, query, texts, precision) for precision in ("fp32", "int8"))
    config = json.loads((folder / "config.json").read_text()) if family != "static" else {}
    width = config.get("hidden_size", config.get("dim", 0))
    shutil.rmtree(folder)
    # Scores that are nearly constant have no spread to compare with.
    floor = 0.05 * float(np.abs(expected).max())
    spread = max(float(np.std(expected)), floor)
    return {
        "family": family,
        "kind": kind,
        "width": width,
        "difference": float(np.abs(fp32 - expected).max() / spread),
        "tau": kendall_tau(fp32, int8) if spread > floor else None,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Check the models one by one."""
    parser = option_parser("model_sweep", __doc__)
    parser.add_argument("--models", type=int, default=90, help="number of random models")
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    args = parser.parse_args(argv)
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["RESIFT_HOME"] = temporary
        os.environ["RESIFT_MODELS_LOCK"] = str(Path(temporary) / "resift-models.lock")
        for seed in range(args.first, args.first + (9 if args.quick else args.models)):
            try:
                row = check_model(seed, Path(temporary) / "folders")
            except Exception as exc:
                failures.append(f"{seed} {FAMILIES[seed % len(FAMILIES)]}: {type(exc).__name__}: {exc}")
                print("FAILED", failures[-1], file=sys.stderr, flush=True)
                continue
            rows.append(row)
            if row["difference"] > MAX_DIFFERENCE or (row["tau"] or 1) < MIN_TAU:
                failures.append(f"{seed} {row}")
                print("FAILED", failures[-1], file=sys.stderr, flush=True)
    taus = [row["tau"] for row in rows if row["tau"] is not None]
    report(
        args,
        {
            "models": len(rows),
            "families": dict(Counter(f"{row['family']} {row['kind']}" for row in rows)),
            "fp32_difference": max((row["difference"] for row in rows), default=None),
            "int8_tau": {"models": len(taus), "min": round(min(taus), 4), "median": round(float(np.median(taus)), 4)},
            "failures": failures,
        },
        packages=("torch", "transformers", "sentence-transformers"),
    )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
