"""An encoder network as data for the native engine. Weights are numpy arrays, [outputs, inputs], of any float type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from resift._internal.arrays import Array

Activation = Literal["gelu", "gelu_tanh", "relu", "tanh"]
Pooling = Literal["none", "first", "mean", "last"]


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer: `x @ weight.T + bias`."""

    weight: Array
    bias: Array | None = None


@dataclass(frozen=True, slots=True)
class Norm:
    """A layer norm; a bias of None is 0."""

    weight: Array
    bias: Array | None = None
    epsilon: float | None = None  # epsilon of a norm in a head; norms in layers use the network's epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLayer:
    """One encoder layer; `qkv` is the concatenation of the query, key and value rows.

    `window` limits attention to near keys; 0 means no limit. `rope_theta` is the base of rotary positions, if any.
    """

    qkv: Dense
    attention_output: Dense
    ffn_up: Dense
    ffn_down: Dense
    attention_norm: Norm | None
    ffn_norm: Norm
    window: int = 0
    rope_theta: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A complete encoder with its pooling and head.

    At most `positions` tokens fit. Token i has the learned position `position_offset + i`. The steps of `head`
    are applied to the pooled state in order. If `gated` is set, `ffn_up` has 2 × `ffn` rows; the activation is
    applied to the first half of the output, which is then multiplied by the second half.
    """

    hidden: int
    heads: int
    ffn: int
    positions: int
    word: Array
    layers: Sequence[NetworkLayer]
    pre_norm: bool = False
    gated: bool = False
    activation: Activation = "gelu"
    epsilon: float = 1e-12
    position: Array | None = None
    position_offset: int = 0
    token_type: Array | None = None
    embedding_norm: Norm | None = None
    projection: Dense | None = None
    final_norm: Norm | None = None
    pooling: Pooling = "first"
    head: Sequence[Dense | Norm | Activation] = ()

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads
