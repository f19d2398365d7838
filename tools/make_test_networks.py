"""Write the small random models of tests/models/networks and the scores that transformers computes.

    python -m tools.make_test_networks        # in an environment with torch and transformers

Weights are rounded to float16 before the scores are computed, so files stay small and scores exact.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models" / "networks"
VOCABULARY = 60
LENGTHS = (1, 2, 17, 40)
LONG = (1, 60, 115, 180)


def models() -> Iterator[tuple[str, Callable[[], object], tuple[int, ...]]]:
    """Yield the name, the constructor and the text lengths of each model."""
    import transformers as t

    bert = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "num_labels": 1, "max_position_embeddings": 48}
    small = {**bert, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 80}
    roberta = {**small, "max_position_embeddings": 50, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    roberta["pad_token_id"] = 1
    modern = {**bert, "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 2}
    modern |= {"intermediate_size": 48, "local_attention": 32, "max_position_embeddings": 256}
    modern |= {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    modern["attn_implementation"] = "eager"
    distil = {"vocab_size": VOCABULARY, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 80}
    distil |= {"num_labels": 1, "max_position_embeddings": 48}
    yield "bert", lambda: t.BertForSequenceClassification(t.BertConfig(**small)), LENGTHS
    yield "bert-embedder", lambda: t.BertModel(t.BertConfig(**small)), LENGTHS
    yield (
        "electra",
        lambda: t.ElectraForSequenceClassification(t.ElectraConfig(**{**small, "embedding_size": 32})),
        LENGTHS,
    )
    yield "distilbert", lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(**distil)), LENGTHS
    yield "xlm-roberta", lambda: t.XLMRobertaForSequenceClassification(t.XLMRobertaConfig(**roberta)), LENGTHS
    for pooling in ("cls", "mean"):
        config = t.ModernBertConfig(**modern, classifier_pooling=pooling)
        yield f"modernbert-{pooling}", partial(t.ModernBertForSequenceClassification, config), LONG
    yield "modernbert-embedder", lambda: t.ModernBertModel(t.ModernBertConfig(**modern)), LONG


def main() -> int:
    """Write every model."""
    import torch
    from safetensors.torch import save_file

    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, build, lengths in models():
        torch.manual_seed(7)
        model = build().eval()
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for key, tensor in model.named_parameters():
                # Larger than at initialization, so that every part of the network matters for the score.
                scale = 0.2 if tensor.ndim == 1 else 1.2 / tensor.shape[-1] ** 0.5
                base = 1.0 if tensor.ndim == 1 and "norm" in key.lower() and key.endswith("weight") else 0.0
                tensor.copy_((base + scale * torch.randn(tensor.shape, generator=generator)).half().float())
        folder = FOLDER / name
        folder.mkdir(parents=True)
        weights = {key: value.half().contiguous() for key, value in model.state_dict().items()}
        save_file(weights, folder / "model.safetensors")
        (folder / "config.json").write_text(model.config.to_json_string())
        rows = []
        for length in lengths:
            ids = torch.randint(5, VOCABULARY, (1, length), generator=generator)
            types = torch.zeros_like(ids)
            options = {}
            if model.config.model_type in ("bert", "electra"):
                types[:, length // 2 :] = 1
                options["token_type_ids"] = types
            with torch.no_grad():
                output = model(input_ids=ids, **options)
            values = output.logits if hasattr(output, "logits") else output.last_hidden_state
            numbers = [round(float(x), 6) for x in values[0].reshape(-1)[:64]]
            rows.append({"ids": ids[0].tolist(), "types": types[0].tolist(), "expected": numbers})
        (folder / "expected.json").write_text(json.dumps(rows))
        sys.stderr.write(f"{name}: {sum(p.numel() for p in model.parameters())} parameters\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
