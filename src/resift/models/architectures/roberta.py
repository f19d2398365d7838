"""RoBERTa and XLM-RoBERTa: BERT with shifted positions, one token type and a head of its own."""

from __future__ import annotations

from resift.models.architectures.bert import Head, read_bert_layers
from resift.models.architectures.tensors import Config, Tensors
from resift.models.network import Network, NetworkLayer


def build_roberta(config: Config, tensors: Tensors) -> Network:
    """Return a RoBERTa encoder; the score is CLS → dense → tanh → linear.

    The tensors decide whether there is a head: some configs name the bare model although the file has one.
    """
    flash = any(f"{prefix}emb_ln.weight" in tensors for prefix in ("roberta.", ""))
    embeddings_norm = "emb_ln" if flash else "embeddings.LayerNorm"
    prefix = tensors.prefix("roberta.", "", of=f"{embeddings_norm}.weight")
    hidden = config.size("hidden_size")
    head: Head = ()
    if "classifier.out_proj.weight" in tensors:
        head = (
            tensors.dense("classifier.dense", hidden, hidden),
            "tanh",
            tensors.dense("classifier.out_proj", None, hidden),
        )
    tensors.ignore(f"{prefix}pooler.")
    rows = config.size("max_position_embeddings")
    offset = _padding_id(config) + 1
    return Network(
        hidden=hidden,
        heads=config.size("num_attention_heads"),
        ffn=config.size("intermediate_size"),
        positions=rows - offset,
        word=tensors.take(f"{prefix}embeddings.word_embeddings.weight", None, hidden),
        position=tensors.take(f"{prefix}embeddings.position_embeddings.weight", rows, hidden),
        position_offset=offset,
        token_type=tensors.take(f"{prefix}embeddings.token_type_embeddings.weight", None, hidden),
        embedding_norm=tensors.norm(f"{prefix}{embeddings_norm}", hidden),
        layers=(
            _flash_layers(config, tensors, f"{prefix}encoder.layers")
            if flash
            else read_bert_layers(config, tensors, f"{prefix}encoder.layer")
        ),
        activation=config.activation("hidden_act"),
        epsilon=config.number("layer_norm_eps", default=1e-5),
        head=head,
    )


def _padding_id(config: Config) -> int:
    value = config.value("pad_token_id")
    return value if isinstance(value, int) and 0 <= value < 1000 else 1


def _flash_layers(config: Config, tensors: Tensors, prefix: str) -> list[NetworkLayer]:
    """Return the layers of the same network under the names of flash-attention's implementation."""
    hidden, ffn = config.size("hidden_size"), config.size("intermediate_size")
    layers = []
    for number in range(config.size("num_hidden_layers", max=200)):
        name = f"{prefix}.{number}"
        layers.append(
            NetworkLayer(
                qkv=tensors.dense(f"{name}.mixer.Wqkv", 3 * hidden, hidden),
                attention_output=tensors.dense(f"{name}.mixer.out_proj", hidden, hidden),
                ffn_up=tensors.dense(f"{name}.mlp.fc1", ffn, hidden),
                ffn_down=tensors.dense(f"{name}.mlp.fc2", hidden, ffn),
                attention_norm=tensors.norm(f"{name}.norm1", hidden),
                ffn_norm=tensors.norm(f"{name}.norm2", hidden),
            )
        )
    return layers
