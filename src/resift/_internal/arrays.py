"""numpy for all that compute with arrays: known to type checkers, loaded at its first use."""

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

    # Signatures are also read while the program runs (options, checked arguments), where numpy may be absent.
    Array = Vector = Any

    class _Numpy:
        """numpy from the first name that is asked for on; an absent one raises what to install."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(require("numpy", extra="local"), name)
            vars(self)[name] = found  # the next time no code of ours runs
            return found

    np = _Numpy()

__all__ = ["Array", "Vector", "np"]
