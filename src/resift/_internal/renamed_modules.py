"""Keep module paths of Resift 0.2 importable in 0.3, with a DeprecationWarning; 0.4 removes them."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

with open(os.path.join(os.path.dirname(__file__), "renamed_modules.txt"), encoding="utf-8") as _table:
    RENAMED = {
        f"resift.{old}": f"resift.{new}"
        for new, olds in (row.split(":") for row in _table if not row.startswith("#"))
        for old in olds.split()
    }
"""Old module path -> new module path. The longest entry that is a prefix of the imported path applies."""

FITTED = (
    "the weights of the default order are now fitted. To set them, use WeightedReranker(dense_weight=…) and "
    "Blend(weight=…), or `fusion: {dense_weight: …}` and `guard: {weight: …}` in a pipeline file"
)
REMOVED = {"resift.trust": f"The module resift.trust was removed: {FITTED}."}
"""Module path of 0.2 without a successor -> error message that names the replacement."""


class _Alias:
    """Loader that resolves an old path by importing the new one, so that both are the same module object."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it with the spec of the alias


class _RenamedModules:
    """Finder on `sys.meta_path` for old module paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("resift."):
            return None
        if fullname in REMOVED:
            raise ImportError(REMOVED[fullname], name=fullname)
        prefix, rest = fullname, ""
        while prefix not in RENAMED:
            prefix, _, last = prefix.rpartition(".")
            rest = f".{last}{rest}"
            if prefix in ("resift", ""):
                return None
        new = RENAMED[prefix] + rest
        warnings.warn(
            f"The module {fullname} is now {new}; the old path will be removed in Resift 0.4.",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, _Alias(new))  # type: ignore[arg-type]  # its two methods make it a loader


def install() -> None:
    """Install the finder for old module paths, once per process."""
    if not any(isinstance(finder, _RenamedModules) for finder in sys.meta_path):
        # In first position, because the path finder would load a second copy of a submodule under its old name.
        sys.meta_path.insert(0, _RenamedModules())
