"""What a saved Haystack pipeline says of a component: the arguments that it was made with."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from haystack import default_from_dict, default_to_dict


class Saved:
    """A component that is saved by the arguments named in `saved`, which it keeps under the same names."""

    saved: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what Haystack saves."""
        data: dict[str, Any] = default_to_dict(self, **{name: getattr(self, name) for name in self.saved})
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component that `to_dict` described."""
        made: Self = default_from_dict(cls, data)
        return made
