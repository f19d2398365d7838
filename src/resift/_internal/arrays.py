"""numpy for modules that compute with arrays. Type checkers see it, but it is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Vector: TypeAlias = NDArray[Any] | Sequence[float]
else:
    from resift.errors import require

    # Option and argument checks read annotations at run time, when numpy may not be installed.
    Array = Vector = Any

    class _Numpy:
        """Imports numpy when an attribute is first used; without numpy, the error says what to install."""

        def __getattr__(self, name: str) -> object:
            value = getattr(require("numpy", extra="local"), name)
            vars(self)[name] = value  # the next access does not call __getattr__
            return value

    np = _Numpy()

__all__ = ["Array", "Vector", "np"]
