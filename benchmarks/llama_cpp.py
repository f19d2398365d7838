"""A model of the `transformers` library as a GGUF file, and as a runner in llama.cpp through `xllamacpp`.

Needs `gguf` and `xllamacpp`. The vocabulary is made up: token i is the word "w<i>", so that a text has a known
number of tokens. llama.cpp scores BERT and XLM-RoBERTa; for ModernBERT it computes the mean of the token states.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CONTEXT, PASS = 512, 2560


def write_gguf(model: Any, path: Path) -> None:
    """Write a sequence classifier with linear layers in Q8_0 (8 bits, a scale per 32 weights), the rest in fp32."""
    import gguf

    config = model.config
    modern = config.model_type == "modernbert"
    tensors = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    writer = gguf.GGUFWriter(path, "modern-bert" if modern else "bert")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.norm_eps if modern else config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    if modern:
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_vocab_size(config.vocab_size)
        writer.add_sliding_window(config.local_attention)
        writer.add_sliding_window_pattern(3)
        writer.add_rope_freq_base(160000.0)
        writer.add_rope_freq_base_swa(10000.0)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    else:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["LABEL_0"])
    _add_vocabulary(writer, config.vocab_size, gguf)

    def add(name: str, value: np.ndarray) -> None:
        value = np.ascontiguousarray(value, np.float32)
        if value.ndim == 2 and name.startswith("blk."):
            packed = gguf.quants.quantize(value, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight" if value.ndim == 2 else name, value)

    for name, value in (_modern_names(tensors) if modern else _bert_names(tensors, config)).items():
        add(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any, size: int, gguf: Any) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # The converter of llama.cpp marks the beginning of a word, not its continuation.
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*special, *(f"▁w{i}" for i in range(len(special), size))])
    kinds = [gguf.TokenType.CONTROL] * len(special) + [gguf.TokenType.NORMAL] * (size - len(special))
    writer.add_token_types(kinds)
    writer.add_token_type_count(2)
    for name, token in (("pad", 0), ("unk", 1), ("bos", 2), ("cls", 2), ("eos", 3), ("sep", 3), ("mask", 4)):
        getattr(writer, f"add_{name}_token_id", lambda _: None)(token)


def _bert_names(tensors: dict[str, np.ndarray], config: Any) -> dict[str, np.ndarray]:
    prefix = next(name for name in tensors if name.endswith("embeddings.word_embeddings.weight"))
    prefix = prefix.removesuffix("embeddings.word_embeddings.weight")
    offset = config.pad_token_id + 1 if "roberta" in config.model_type else 0

    def get(name: str) -> np.ndarray:
        return tensors[f"{prefix}{name}"]

    found = {
        "token_embd": get("embeddings.word_embeddings.weight"),
        "token_types": get("embeddings.token_type_embeddings.weight"),
        "position_embd": get("embeddings.position_embeddings.weight")[offset : offset + CONTEXT],
        "token_embd_norm.weight": get("embeddings.LayerNorm.weight"),
        "token_embd_norm.bias": get("embeddings.LayerNorm.bias"),
    }
    if len(found["token_types"]) == 1:  # llama.cpp adds row 0 for every token
        found["token_types"] = np.repeat(found["token_types"], 2, axis=0)
    parts = {
        "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
    }  # fmt: skip
    for i in range(config.num_hidden_layers):
        for name, short in parts.items():
            weight = get(f"encoder.layer.{i}.{name}.weight")
            found[f"blk.{i}.{short}" if weight.ndim == 2 else f"blk.{i}.{short}.weight"] = weight
            found[f"blk.{i}.{short}.bias"] = get(f"encoder.layer.{i}.{name}.bias")
    if "classifier.dense.weight" in tensors:
        names = {"cls": "classifier.dense", "cls.output": "classifier.out_proj"}
    else:
        names = {"cls": f"{prefix}pooler.dense", "cls.output": "classifier"}
    for short, name in names.items():
        found[short], found[f"{short}.bias"] = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return found


def _modern_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    short = {
        "attn_norm.weight": "attn_norm.weight", "mlp_norm.weight": "ffn_norm.weight", "attn.Wqkv.weight": "attn_qkv",
        "attn.Wo.weight": "attn_output", "mlp.Wi.weight": "ffn_up", "mlp.Wo.weight": "ffn_down",
    }  # fmt: skip
    found = {}
    for full_name, value in tensors.items():
        name = full_name.removeprefix("model.")
        if name == "embeddings.tok_embeddings.weight":
            found["token_embd"] = value
        elif name == "embeddings.norm.weight":
            found["token_embd_norm.weight"] = value
        elif name == "final_norm.weight":
            found["output_norm.weight"] = value
        elif name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            found[f"blk.{number}.{short[rest]}"] = value
    return found


def llama_runner(path: Path, batch: np.ndarray, threads: int, *, scores: bool) -> Callable[[], Any]:
    """Return a run of one batch; each row of the batch becomes a pair or text of as many tokens."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.embedding = True
    # With one sequence at a time it was two to three times as fast as with all sequences in a common pass.
    params.n_ctx = params.n_batch = params.n_ubatch = PASS
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.warmup, params.verbosity = False, -1
    kinds = xllamacpp.llama_pooling_type
    params.pooling_type = kinds.LLAMA_POOLING_TYPE_RANK if scores else kinds.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)

    def checked(answer: Any) -> Any:
        if answer["usage"]["prompt_tokens"] != batch.size:
            raise RuntimeError(f"llama.cpp read {answer['usage']['prompt_tokens']} tokens, not {batch.size}")
        return answer

    words = [[f"w{5 + int(token) % 900}" for token in row] for row in batch]
    # A pair is [CLS] query [SEP] document, a text [CLS] text [SEP].
    if scores:
        query = " ".join(words[0][:8])
        documents = [" ".join(row[: len(row) - 10]) for row in words]
        return lambda: checked(server.handle_rerank({"query": query, "documents": documents}))
    texts = [" ".join(row[: len(row) - 2]) for row in words]
    return lambda: checked(server.handle_embeddings({"input": texts}))
