"""An encoder network as data: the layer description and weights that the native engine computes.

A family module in `resift.models.architectures` maps a config and tensor names to a `Network`. Weights are
numpy arrays in the orientation of the files, [outputs, inputs]. They may be views of a memory-mapped file in
any float type and are converted when they are packed.
"""

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
    """A layer norm; without a bias it is 0."""

    weight: Array
    bias: Array | None = None
    epsilon: float | None = None
    """For norms in a head; those of layers use the epsilon of the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLayer:
    """One encoder layer; `qkv` has the rows of query, key and value one after the other.

    `window` limits attention to keys at most that many positions away (0: all). `rope_theta` is the base of
    the rotary position embedding (None: none).
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
    """A whole encoder with its pooling and head.

    At most `positions` tokens fit. Token i has the learned position `position_offset + i`. `head` is applied
    to the pooled state in order. With `gated`, `ffn_up` has twice `ffn` rows, and its first half is activated
    and multiplied by the second.
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
