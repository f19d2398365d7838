"""BERT and relatives with learned positions and norms after each block: MiniLM, ELECTRA, DistilBERT."""

from __future__ import annotations

from resift._internal.arrays import np
from resift.models.architectures.tensors import Config, Tensors
from resift.models.network import Activation, Dense, Network, NetworkLayer, Norm
from resift.models.packed_weights import to_float32

Head = tuple[Dense | Norm | Activation, ...]


def build_bert(config: Config, tensors: Tensors) -> Network:
    """Return a BERT encoder; the score is CLS → pooler → tanh → classifier."""
    prefix = tensors.prefix("bert.", "", of="embeddings.word_embeddings.weight")
    hidden = config.size("hidden_size")
    head: Head = ()
    if "classifier.weight" in tensors:
        pooler = tensors.dense(f"{prefix}pooler.dense", hidden, hidden)
        head = (pooler, "tanh", tensors.dense("classifier", None, hidden))
    tensors.ignore(f"{prefix}pooler.")  # an embedder takes the states themselves
    return _post_norm_encoder(config, tensors, prefix, head=head)


def build_electra(config: Config, tensors: Tensors) -> Network:
    """Return an ELECTRA encoder; the score is CLS → dense → GELU → linear."""
    prefix = tensors.prefix("electra.", "", of="embeddings.word_embeddings.weight")
    hidden = config.size("hidden_size")
    head: Head = ()
    if "classifier.out_proj.weight" in tensors:
        head = (
            tensors.dense("classifier.dense", hidden, hidden),
            "gelu",
            tensors.dense("classifier.out_proj", None, hidden),
        )
    return _post_norm_encoder(config, tensors, prefix, head=head)


def build_distilbert(config: Config, tensors: Tensors) -> Network:
    """Return a DistilBERT encoder; the score is CLS → dense → ReLU → linear."""
    prefix = tensors.prefix("distilbert.", "", of="embeddings.word_embeddings.weight")
    hidden, ffn, positions = (
        config.size("dim"),
        config.size("hidden_dim"),
        config.size("max_position_embeddings"),
    )
    head: Head = ()
    if "classifier.weight" in tensors:
        head = (
            tensors.dense("pre_classifier", hidden, hidden),
            "relu",
            tensors.dense("classifier", None, hidden),
        )
    layers = []
    for number in range(config.size("n_layers", max=200)):
        name = f"{prefix}transformer.layer.{number}"
        layers.append(
            NetworkLayer(
                qkv=stack_dense(
                    *(tensors.dense(f"{name}.attention.{part}_lin", hidden, hidden) for part in "qkv")
                ),
                attention_output=tensors.dense(f"{name}.attention.out_lin", hidden, hidden),
                ffn_up=tensors.dense(f"{name}.ffn.lin1", ffn, hidden),
                ffn_down=tensors.dense(f"{name}.ffn.lin2", hidden, ffn),
                attention_norm=tensors.norm(f"{name}.sa_layer_norm", hidden),
                ffn_norm=tensors.norm(f"{name}.output_layer_norm", hidden),
            )
        )
    return Network(
        hidden=hidden,
        heads=config.size("n_heads"),
        ffn=ffn,
        positions=positions,
        word=tensors.take(f"{prefix}embeddings.word_embeddings.weight", None, hidden),
        position=tensors.take(f"{prefix}embeddings.position_embeddings.weight", positions, hidden),
        embedding_norm=tensors.norm(f"{prefix}embeddings.LayerNorm", hidden),
        layers=layers,
        activation=config.activation("activation"),
        epsilon=1e-12,
        head=head,
    )


def _post_norm_encoder(config: Config, tensors: Tensors, prefix: str, *, head: Head) -> Network:
    hidden = config.size("hidden_size")
    width = config.size("embedding_size", default=hidden)
    positions = config.size("max_position_embeddings")
    embeddings = f"{prefix}embeddings"
    projection = None
    if width != hidden:
        projection = tensors.dense(f"{prefix}embeddings_project", hidden, width)
    return Network(
        hidden=hidden,
        heads=config.size("num_attention_heads"),
        ffn=config.size("intermediate_size"),
        positions=positions,
        word=tensors.take(f"{embeddings}.word_embeddings.weight", None, width),
        position=tensors.take(f"{embeddings}.position_embeddings.weight", positions, width),
        token_type=tensors.take(f"{embeddings}.token_type_embeddings.weight", None, width),
        embedding_norm=tensors.norm(f"{embeddings}.LayerNorm", width),
        projection=projection,
        layers=read_bert_layers(config, tensors, f"{prefix}encoder.layer"),
        activation=config.activation("hidden_act"),
        epsilon=config.number("layer_norm_eps", default=1e-12),
        head=head,
    )


def read_bert_layers(config: Config, tensors: Tensors, prefix: str) -> list[NetworkLayer]:
    """Return the layers under the names that BERT, ELECTRA and RoBERTa share."""
    hidden, ffn = config.size("hidden_size"), config.size("intermediate_size")
    layers = []
    for number in range(config.size("num_hidden_layers", max=200)):
        name = f"{prefix}.{number}"
        parts = ("query", "key", "value")
        layers.append(
            NetworkLayer(
                qkv=stack_dense(
                    *(tensors.dense(f"{name}.attention.self.{part}", hidden, hidden) for part in parts)
                ),
                attention_output=tensors.dense(f"{name}.attention.output.dense", hidden, hidden),
                ffn_up=tensors.dense(f"{name}.intermediate.dense", ffn, hidden),
                ffn_down=tensors.dense(f"{name}.output.dense", hidden, ffn),
                attention_norm=tensors.norm(f"{name}.attention.output.LayerNorm", hidden),
                ffn_norm=tensors.norm(f"{name}.output.LayerNorm", hidden),
            )
        )
    return layers


def stack_dense(*parts: Dense) -> Dense:
    """Return linear layers with the same inputs as one, their outputs one after the other."""
    biases = [part.bias for part in parts if part.bias is not None]
    return Dense(
        np.concatenate([to_float32(part.weight) for part in parts]),
        np.concatenate([to_float32(bias) for bias in biases]) if biases else None,
    )
