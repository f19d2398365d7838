"""Compare the native engine with transformers and sentence-transformers on random models of real shapes.

    python -m benchmarks.model_parity            # small shapes; needs torch and sentence-transformers
    python -m benchmarks.model_parity --all      # also the large ones

For each shape: the largest difference of fp32 scores, relative to their spread, and Kendall's tau between
int8 and fp32 on random pairs. Weights have the default initialization.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from resift.models.hf_folder import read_model_folder
from resift.models.packed_weights import pack_network
from resift.models.transformer_session import TransformerSession
from resift.native.library import native_kernel

WORDS = 1000
LENGTHS = (1, 2, 7, 64, 100, 257, 512)


def shapes() -> dict[str, tuple[Callable[[], Any], bool, int]]:
    """Return name -> (constructor, whether it is large, longest text)."""
    import transformers as t

    def bert(hidden: int, layers: int, heads: int) -> Any:
        return t.BertForSequenceClassification(
            t.BertConfig(vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_labels=1,
                         num_attention_heads=heads, intermediate_size=4 * hidden)
        )  # fmt: skip

    def xlm(hidden: int, layers: int, positions: int = 514) -> Any:
        return t.XLMRobertaForSequenceClassification(
            t.XLMRobertaConfig(vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_labels=1,
                               num_attention_heads=hidden // 64 if hidden > 384 else 12,
                               intermediate_size=4 * hidden, max_position_embeddings=positions,
                               type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
        )  # fmt: skip

    def modern(hidden: int, layers: int, ffn: int, pooling: str | None) -> Any:
        kind = t.ModernBertModel if pooling is None else t.ModernBertForSequenceClassification
        config = t.ModernBertConfig(
            vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_labels=1, pad_token_id=0,
            num_attention_heads=hidden // 64, intermediate_size=ffn, classifier_pooling=pooling or "cls",
            attn_implementation="eager", max_position_embeddings=8192, cls_token_id=1, sep_token_id=2,
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        return kind(config)

    return {
        "TinyBERT-L-2": (lambda: bert(128, 2, 2), False, 512),
        "MiniLM-L-6": (lambda: bert(384, 6, 12), False, 512),
        "MiniLM-L-12": (lambda: bert(384, 12, 12), False, 512),
        "mmarco-mMiniLM": (lambda: xlm(384, 12), False, 512),
        "ettin-17m": (lambda: modern(256, 7, 384, None), False, 2000),
        "ettin-32m": (lambda: modern(384, 10, 576, None), False, 512),
        "bge-reranker-base": (lambda: xlm(768, 12), True, 512),
        "bge-reranker-v2-m3": (lambda: xlm(1024, 24, 8194), True, 8000),
        "gte-modernbert (mean)": (lambda: modern(768, 22, 1152, "mean"), True, 8000),
    }


def save(folder: Path, model: Any, *, modules: bool) -> Callable[[list[int]], float]:
    """Write the model as a folder of the hub and return a function that scores token ids with torch."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    model.eval()
    save_file(
        {key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(model.config.to_json_string())
    (folder / "tokenizer.json").write_text("{}")
    head: list[Any] = []
    if modules:
        from sentence_transformers.models import Dense, LayerNorm, Pooling

        width = model.config.hidden_size
        first = Dense(width, width, bias=False, activation_function=torch.nn.GELU())
        head = [first, LayerNorm(width), Dense(width, 1, activation_function=torch.nn.Identity())]
        rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
        for i, module in enumerate([Pooling(width, pooling_mode="cls"), *head], start=1):
            kind = type(module).__name__
            path = folder / f"{i}_{kind}"
            path.mkdir()
            module.eval().save(str(path), safe_serialization=True)
            rows.append(
                {"idx": i, "name": str(i), "path": path.name, "type": f"sentence_transformers.models.{kind}"}
            )
        (folder / "modules.json").write_text(json.dumps(rows))

    @torch.no_grad()
    def score(ids: list[int]) -> float:
        output = model(
            input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)
        )
        if not head:
            return float(output.logits[0, 0])
        features = {"sentence_embedding": output.last_hidden_state[:, 0]}
        for module in head:
            features = module(features)
        return float(features["sentence_embedding"][0, 0])

    return score


def main() -> int:
    """Print one row per shape."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also large shapes")
    parser.add_argument("--only", help="one shape")
    parser.add_argument("--pairs", type=int, default=200, help="random pairs for tau")
    args = parser.parse_args()
    kernel, rng = native_kernel(), np.random.default_rng(5)
    print(
        f"| shape | fp32 difference / spread | int8 tau | lengths |  kernel {kernel.name}\n|---|---|---|---|"
    )
    for name, (build, large, longest) in shapes().items():
        if (args.only and name != args.only) or (large and not (args.all or args.only)):
            continue
        torch.manual_seed(7)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model"
            reference = save(folder, build(), modules=name.startswith("ettin"))
            network = read_model_folder(folder).network
            assert network is not None
            fp32, int8 = (
                TransformerSession(pack_network(network, kernel, precision), kernel)
                for precision in ("fp32", "int8")
            )
            lengths = sorted({*LENGTHS, longest})
            texts = [rng.integers(5, WORDS, size).tolist() for size in lengths]
            exact = np.array([reference(ids) for ids in texts])
            ours = np.array([fp32.run(ids, [0] * len(ids))[0] for ids in texts])
            pairs = [rng.integers(5, WORDS, int(rng.integers(20, 120))).tolist() for _ in range(args.pairs)]
            scores = [[session.run(ids, [0] * len(ids))[0] for ids in pairs] for session in (fp32, int8)]
            spread = float(np.std(scores[0]))
            difference = float(np.abs(exact - ours).max()) / spread
            print(f"| {name} | {difference:.1e} | {kendall_tau(*scores):.4f} | 1 to {longest} |", flush=True)
    return 0


def kendall_tau(first: list[float], second: list[float]) -> float:
    """Return the share of ordered pairs in agreement minus that in disagreement."""
    signs = [
        np.sign(first[i] - first[j]) * np.sign(second[i] - second[j])
        for i, j in itertools.combinations(range(len(first)), 2)
    ]
    return float(np.mean(signs))


if __name__ == "__main__":
    raise SystemExit(main())
