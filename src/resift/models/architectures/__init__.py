"""Model families: each module maps a config and tensor names to a `Network`.

To add a family, write a module with a function `(config, tensors) -> Network`, or a `Layout` with its tensor names
for `build_bert`, and add its `model_type` below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from resift.errors import ModelFileError, did_you_mean
from resift.models.architectures import bert, modernbert
from resift.models.architectures.tensors import Config, Tensors
from resift.models.network import Network

Family = Callable[[Config, Tensors], Network]

FAMILIES: dict[str, Family] = {
    "bert": bert.build_bert,
    "distilbert": partial(bert.build_bert, layout=bert.DISTILBERT),
    "electra": partial(bert.build_bert, layout=bert.ELECTRA),
    "roberta": partial(bert.build_bert, layout=bert.ROBERTA),
    "xlm-roberta": partial(bert.build_bert, layout=bert.ROBERTA),
    "modernbert": modernbert.build_modernbert,
}
"""`model_type` in config.json -> function that builds the network."""


def build_network(config: Config, tensors: Tensors) -> Network:
    """Build the network for a config and its tensors; raise ModelFileError if they do not match."""
    kind = config.text("model_type")
    if kind not in FAMILIES:
        raise ModelFileError(
            f"The architecture {kind!r} has no native implementation. {did_you_mean(kind, sorted(FAMILIES))}"
        )
    if config.flag("is_decoder", default=False):
        raise ModelFileError("config.json has is_decoder; only encoders are supported.")
    network = FAMILIES[kind](config, tensors)
    tensors.check_all_used()
    # The engine splits the hidden size evenly into heads.
    width, rest = divmod(network.hidden, network.heads)
    if rest or not width:
        raise ModelFileError(
            f"config.json has {network.heads} attention heads, which do not divide the hidden size {network.hidden}."
        )
    if width % 2 and any(layer.rope_theta is not None for layer in network.layers):
        raise ModelFileError(f"The attention heads are {width} wide; rotary positions need an even width.")
    return network
