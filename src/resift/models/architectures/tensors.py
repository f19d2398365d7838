"""Typed access to a model's config and tensors, with errors that name the mismatch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from resift._internal.arrays import Array
from resift.errors import ModelFileError
from resift.models.network import Activation, Dense, Norm

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
}

_IGNORED = re.compile(
    r"(^|\.)(position_ids|token_type_ids)$|^(cls|lm_head|decoder|generator_\w+|discriminator_\w+|vocab_\w+)\."
    r"|\.rotary_emb\.inv_freq$"
)
"""Buffers and pretraining heads, which do not affect scores or vectors."""


class Config:
    """The values of a config.json."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def value(self, *names: str) -> object:
        """Return the first of these values that the config contains, or None."""
        return next((self._values[name] for name in names if self._values.get(name) is not None), None)

    def text(self, *names: str, default: str | None = None) -> str:
        """Return a string value."""
        value = self.value(*names)
        value = default if value is None else value
        if not isinstance(value, str):
            raise ModelFileError(f"config.json has {names[0]} {value!r}; it must be a string.")
        return value

    def size(self, *names: str, default: int | None = None, min: int = 1, max: int = 1 << 20) -> int:
        """Return an integer from `min` to `max`."""
        value = self.value(*names)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not min <= value <= max:
            raise ModelFileError(f"config.json has {names[0]} {value!r}; it must be an integer from {min} to {max}.")
        return value

    def number(self, *names: str, default: float) -> float:
        """Return a finite number above 0."""
        value = self.value(*names)
        value = default if value is None else value
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e12:
            raise ModelFileError(f"config.json has {names[0]} {value!r}; it must be a number above 0.")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean value."""
        value = self.value(name)
        return default if value is None else bool(value)

    def activation(self, *names: str, default: str = "gelu") -> Activation:
        """Return an activation, given by its name in transformers."""
        name = self.text(*names, default=default)
        if name not in _ACTIVATIONS:
            known = ", ".join(sorted(_ACTIVATIONS))
            raise ModelFileError(f"config.json has {names[0]} {name!r}. Supported: {known}.")
        return _ACTIVATIONS[name]


class Tensors:
    """The tensors of a model by name, with a record of which ones were used."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def prefix(self, *candidates: str, of: str) -> str:
        """Return the first candidate prefix for which the tensor `of` exists."""
        for candidate in candidates:
            if candidate + of in self._arrays:
                return candidate
        raise ModelFileError(f"The weights have no tensor {candidates[0] + of!r}; the file has another architecture.")

    def take(self, name: str, *shape: int | None) -> Array:
        """Return a tensor after checking its shape; None matches any size."""
        if name not in self._arrays:
            raise ModelFileError(f"The weights have no tensor {name!r}, which the config requires.")
        array = self._arrays[name]
        if len(array.shape) != len(shape) or any(
            want is not None and size != want for size, want in zip(array.shape, shape, strict=True)
        ):
            wanted = " x ".join("any" if size is None else str(size) for size in shape)
            raise ModelFileError(
                f"The tensor {name!r} is {' x '.join(map(str, array.shape))}; the config requires {wanted}."
            )
        if not array.size:
            raise ModelFileError(f"The tensor {name!r} is empty.")
        self._used.add(name)
        return array

    def dense(self, name: str, outputs: int | None, inputs: int, *, bias: bool | None = True) -> Dense:
        """Return the linear layer `name`. bias=None uses a bias if the weights contain one."""
        weight = self.take(f"{name}.weight", outputs, inputs)
        if bias is None:
            bias = f"{name}.bias" in self
        return Dense(weight, self.take(f"{name}.bias", weight.shape[0]) if bias else None)

    def norm(self, name: str, width: int, *, bias: bool | None = True, epsilon: float | None = None) -> Norm:
        """Return the layer norm `name`."""
        if bias is None:
            bias = f"{name}.bias" in self
        weight = self.take(f"{name}.weight", width)
        return Norm(weight, self.take(f"{name}.bias", width) if bias else None, epsilon)

    def ignore(self, *prefixes: str) -> None:
        """Mark tensors with these prefixes as used, because this model does not need them."""
        self._used |= {name for name in self._arrays if name.startswith(prefixes)}

    def check_all_used(self) -> None:
        """Raise ModelFileError if the network does not use all weights."""
        unused: Sequence[str] = sorted(
            name for name in self._arrays if name not in self._used and not _IGNORED.search(name)
        )
        if unused:
            more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
            raise ModelFileError(
                f"The weights contain tensors that the config does not account for: {', '.join(unused[:3])}{more}."
            )
