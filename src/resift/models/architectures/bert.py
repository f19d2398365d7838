"""BERT-like models with learned positions and norms after each block: MiniLM, ELECTRA, DistilBERT, RoBERTa."""

from __future__ import annotations

from dataclasses import dataclass, replace

from resift._internal.arrays import np
from resift.errors import ModelFileError
from resift.models.architectures.tensors import Config, Tensors
from resift.models.network import Activation, Dense, Network, NetworkLayer, Norm
from resift.models.packed_weights import to_float32

Head = tuple[Dense | Norm | Activation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Tensor and config names of one model family.

    `layers` is the prefix before a layer's number; the next six names follow the number. A single name in `qkv`
    means one tensor with all three parts. `head` is dense → activation → linear on the CLS state; `{}` is replaced
    by the root prefix. `config` lists the names of hidden size, feed-forward size, heads, layers and activation.
    """

    root: str
    head: tuple[str, Activation, str]
    layers: str = "encoder.layer"
    qkv: tuple[str, ...] = ("attention.self.query", "attention.self.key", "attention.self.value")
    attention_output: str = "attention.output.dense"
    ffn_up: str = "intermediate.dense"
    ffn_down: str = "output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    ffn_norm: str = "output.LayerNorm"
    embedding_norm: str = "embeddings.LayerNorm"
    token_types: bool = True
    padded_positions: bool = False
    epsilon: float = 1e-12
    config: tuple[str, str, str, str, str] = (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "hidden_act",
    )  # fmt: skip


BERT = Layout(root="bert.", head=("{}pooler.dense", "tanh", "classifier"))
ELECTRA = Layout(root="electra.", head=("classifier.dense", "gelu", "classifier.out_proj"))
ROBERTA = Layout(
    root="roberta.", head=("classifier.dense", "tanh", "classifier.out_proj"), padded_positions=True, epsilon=1e-5
)
DISTILBERT = Layout(
    root="distilbert.",
    head=("pre_classifier", "relu", "classifier"),
    layers="transformer.layer",
    qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_output="attention.out_lin",
    ffn_up="ffn.lin1",
    ffn_down="ffn.lin2",
    attention_norm="sa_layer_norm",
    ffn_norm="output_layer_norm",
    token_types=False,
    config=("dim", "hidden_dim", "n_heads", "n_layers", "activation"),
)
# RoBERTa with the tensor names of the flash-attention implementation.
_FLASH = replace(
    ROBERTA,
    layers="encoder.layers",
    qkv=("mixer.Wqkv",),
    attention_output="mixer.out_proj",
    ffn_up="mlp.fc1",
    ffn_down="mlp.fc2",
    attention_norm="norm1",
    ffn_norm="norm2",
    embedding_norm="emb_ln",
)


def build_bert(config: Config, tensors: Tensors, layout: Layout = BERT) -> Network:
    """Build an encoder from tensors named as in `layout`; the tensors decide whether there is a head."""
    if layout is ROBERTA and any(f"{root}emb_ln.weight" in tensors for root in ("roberta.", "")):
        layout = _FLASH
    prefix = tensors.prefix(layout.root, "", of=f"{layout.embedding_norm}.weight")
    hidden_name, ffn_name, heads_name, layers_name, activation_name = layout.config
    hidden, ffn = config.size(hidden_name), config.size(ffn_name)
    width = config.size("embedding_size", default=hidden) if layout in (BERT, ELECTRA) else hidden
    dense_name, activation, linear_name = layout.head
    head: Head = ()
    if f"{linear_name}.weight" in tensors:
        dense = tensors.dense(dense_name.format(prefix), hidden, hidden)
        head = (dense, activation, tensors.dense(linear_name, None, hidden))
    tensors.ignore(f"{prefix}pooler.")  # an embedder uses the states directly
    embeddings, rows, offset = f"{prefix}embeddings", config.size("max_position_embeddings"), 0
    if layout.padded_positions:
        padding = config.value("pad_token_id")
        offset = (padding if isinstance(padding, int) and 0 <= padding < 1000 else 1) + 1
        if rows <= offset:
            raise ModelFileError(f"config.json has {rows} positions; the first token has position {offset}.")
    layers = []
    for number in range(config.size(layers_name, max=200)):
        name = f"{prefix}{layout.layers}.{number}"
        outputs = 3 * hidden // len(layout.qkv)
        qkv = [tensors.dense(f"{name}.{part}", outputs, hidden) for part in layout.qkv]
        layers.append(
            NetworkLayer(
                qkv=qkv[0] if len(qkv) == 1 else _stack(qkv),
                attention_output=tensors.dense(f"{name}.{layout.attention_output}", hidden, hidden),
                ffn_up=tensors.dense(f"{name}.{layout.ffn_up}", ffn, hidden),
                ffn_down=tensors.dense(f"{name}.{layout.ffn_down}", hidden, ffn),
                attention_norm=tensors.norm(f"{name}.{layout.attention_norm}", hidden),
                ffn_norm=tensors.norm(f"{name}.{layout.ffn_norm}", hidden),
            )
        )
    return Network(
        hidden=hidden,
        heads=config.size(heads_name),
        ffn=ffn,
        positions=rows - offset,
        word=tensors.take(f"{embeddings}.word_embeddings.weight", None, width),
        position=tensors.take(f"{embeddings}.position_embeddings.weight", rows, width),
        position_offset=offset,
        token_type=(
            tensors.take(f"{embeddings}.token_type_embeddings.weight", None, width) if layout.token_types else None
        ),
        embedding_norm=tensors.norm(f"{prefix}{layout.embedding_norm}", width),
        projection=None if width == hidden else tensors.dense(f"{prefix}embeddings_project", hidden, width),
        layers=layers,
        activation=config.activation(activation_name),
        epsilon=layout.epsilon if layout is DISTILBERT else config.number("layer_norm_eps", default=layout.epsilon),
        head=head,
    )


def _stack(parts: list[Dense]) -> Dense:
    """Merge linear layers that share their inputs into one, with concatenated outputs."""
    biases = [part.bias for part in parts if part.bias is not None]
    return Dense(
        np.concatenate([to_float32(part.weight) for part in parts]),
        np.concatenate([to_float32(bias) for bias in biases]) if biases else None,
    )
