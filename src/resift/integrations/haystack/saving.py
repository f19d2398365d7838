"""What a saved Haystack pipeline says of a component: the arguments that it was made with."""

from __future__ import annotations

from typing import ClassVar, Self

from haystack import default_from_dict, default_to_dict

from resift.types import JsonObject


class Saved:
    """A component that is saved by the arguments named in `saved`, which it keeps under the same names."""

    saved: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> JsonObject:
        """Return what Haystack saves."""
        data: JsonObject = default_to_dict(self, **{name: getattr(self, name) for name in self.saved})
        return data

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """Return the component that `to_dict` described."""
        made: Self = default_from_dict(cls, data)
        return made
