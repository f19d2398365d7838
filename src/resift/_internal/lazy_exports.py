"""Public names of packages that are imported on first use (PEP 562).

Most packages use plain imports and `__all__`. `lazy_exports` is for packages where importing one name must not
load the modules of all others: `resift` itself (`import resift` takes under 50 ms), and packages with one optional
dependency per module, such as `stores`, `models` and `rerankers`. Their public names are listed once, as imports in
`__init__.pyi`, which type checkers and editors read as well.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers treat it like `typing.TYPE_CHECKING`; importing `typing` is slow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Exports = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def lazy_exports(package: str, *, renamed: Mapping[str, str] | None = None) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` for a package from the imports in its `__init__.pyi`.

    `renamed` maps old names, which still work with a warning, to new names.
    """
    namespace = vars(sys.modules[package])
    with open(f"{namespace['__path__'][0]}/__init__.pyi", encoding="utf-8") as stub:
        # Each line is an import such as `from .sqlite import SQLiteStore as SQLiteStore`.
        imports = [line.split() for line in stub if line.startswith("from ")]
    modules = {name: module for _, module, _, name, *_ in imports}

    def __getattr__(name: str) -> object:  # noqa: N807 - it becomes the `__getattr__` or `__dir__` of the package
        if renamed and name in renamed:
            warn_renamed(f"{package}.{name}", renamed[name])
            name = renamed[name]
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    def __dir__() -> list[str]:  # noqa: N807 - it becomes the `__getattr__` or `__dir__` of the package
        return sorted({*modules, *({"__version__"} & namespace.keys())})

    return __getattr__, __dir__, sorted(modules)


def renamed_names(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a module, so that old names still work with a warning."""

    def __getattr__(name: str) -> object:  # noqa: N807 - it becomes the `__getattr__` of the module
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", names[name])
        return getattr(import_module(module), names[name])

    return __getattr__


def warn_renamed(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Warn that a name from Resift 0.2 was used; by default, the warning points to the caller's caller."""
    import warnings

    message = f"{old} was renamed to {new}; the old name will be removed in Resift 0.4."
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)
