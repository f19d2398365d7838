"""ModernBERT: norms before each block, rotary positions, local attention, and a gated feed-forward layer."""

from __future__ import annotations

from resift.errors import ModelFileError
from resift.models.architectures.bert import Head
from resift.models.architectures.tensors import Config, Tensors
from resift.models.network import Network, NetworkLayer

_MAX_POSITIONS = 1 << 17  # the rotary position tables have one row per position

_GLOBAL_THETA, _LOCAL_THETA = 160_000.0, 10_000.0


def build_modernbert(config: Config, tensors: Tensors) -> Network:
    """Build a ModernBERT encoder; the score is pooled state → dense → GELU → norm → classifier."""
    prefix = tensors.prefix("model.", "", of="embeddings.tok_embeddings.weight")
    hidden, epsilon = config.size("hidden_size"), config.number("norm_eps", default=1e-5)
    norm_bias = config.flag("norm_bias", default=False)
    head: Head = ()
    if "classifier.weight" in tensors:
        head = (
            tensors.dense("head.dense", hidden, hidden, bias=None),
            config.activation("classifier_activation"),
            tensors.norm("head.norm", hidden, bias=None, epsilon=epsilon),
            tensors.dense("classifier", None, hidden, bias=None),
        )
    tensors.ignore("head.", f"{prefix}decoder.")
    return Network(
        hidden=hidden,
        heads=config.size("num_attention_heads"),
        ffn=config.size("intermediate_size"),
        positions=config.size("max_position_embeddings", default=8192, max=_MAX_POSITIONS),
        word=tensors.take(f"{prefix}embeddings.tok_embeddings.weight", None, hidden),
        embedding_norm=tensors.norm(f"{prefix}embeddings.norm", hidden, bias=norm_bias),
        layers=[
            _layer(config, tensors, f"{prefix}layers.{number}", number, norm_bias=norm_bias)
            for number in range(config.size("num_hidden_layers", max=200))
        ],
        final_norm=tensors.norm(f"{prefix}final_norm", hidden, bias=norm_bias),
        pre_norm=True,
        gated=True,
        activation=config.activation("hidden_activation"),
        epsilon=epsilon,
        pooling="mean" if config.text("classifier_pooling", default="cls") == "mean" else "first",
        head=head,
    )


def _layer(config: Config, tensors: Tensors, name: str, number: int, *, norm_bias: bool) -> NetworkLayer:
    hidden, ffn = config.size("hidden_size"), config.size("intermediate_size")
    attention_bias = config.flag("attention_bias", default=False)
    mlp_bias = config.flag("mlp_bias", default=False)
    full = _is_global(config, number)
    return NetworkLayer(
        qkv=tensors.dense(f"{name}.attn.Wqkv", 3 * hidden, hidden, bias=attention_bias),
        attention_output=tensors.dense(f"{name}.attn.Wo", hidden, hidden, bias=attention_bias),
        ffn_up=tensors.dense(f"{name}.mlp.Wi", 2 * ffn, hidden, bias=mlp_bias),
        ffn_down=tensors.dense(f"{name}.mlp.Wo", hidden, ffn, bias=mlp_bias),
        # The embeddings are already normalized, so the first layer has no norm before its attention.
        attention_norm=tensors.norm(f"{name}.attn_norm", hidden, bias=norm_bias) if number else None,
        ffn_norm=tensors.norm(f"{name}.mlp_norm", hidden, bias=norm_bias),
        window=0 if full else config.size("local_attention", default=128, min=2) // 2,
        rope_theta=_rope_theta(config, full=full),
    )


def _is_global(config: Config, number: int) -> bool:
    kinds = config.value("layer_types")
    if isinstance(kinds, list):
        if number >= len(kinds):
            raise ModelFileError(f"config.json has {len(kinds)} layer_types; layer {number} has none.")
        return bool(kinds[number] == "full_attention")
    return number % config.size("global_attn_every_n_layers", default=3) == 0


def _rope_theta(config: Config, *, full: bool) -> float:
    parameters = config.value("rope_parameters")
    if isinstance(parameters, dict):
        kind = parameters.get("full_attention" if full else "sliding_attention")
        if isinstance(kind, dict) and isinstance(kind.get("rope_theta"), (int, float)):
            if kind.get("rope_type", "default") != "default":
                raise ModelFileError(f"config.json has rope_type {kind['rope_type']!r}; only default is supported.")
            return float(kind["rope_theta"])
    if full:
        return config.number("global_rope_theta", default=_GLOBAL_THETA)
    return config.number("local_rope_theta", default=_LOCAL_THETA)
