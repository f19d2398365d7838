"""Public names of packages that are imported on first use (PEP 562).

Most packages use plain imports and `__all__`. `lazy_exports` is for packages where importing one name must not
load the modules of all others: `resift` itself (`import resift` takes under 50 ms), and packages with one optional
dependency per module, such as `stores`, `models` and `rerankers`. These packages list each name twice: type checkers
and editors read the imports under `if TYPE_CHECKING`, and Python reads the table. tests/test_exports.py compares
the two.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers treat it like `typing.TYPE_CHECKING`; importing `typing` is slow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Exports = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def lazy_exports(
    package: str, table: str, *, more: Sequence[str] = (), renamed: Mapping[str, str] | None = None
) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` for a package.

    Each line of the table contains a module of the package and its public names: `sqlite: SQLiteStore`. `more`
    lists names that the package defines itself. `renamed` maps old names, which still work with a warning, to
    new names.
    """
    rows = [row.split(":") for row in table.split("\n") if ":" in row]
    modules = {name: f".{module.strip()}" for module, names in rows for name in names.split()}

    def __getattr__(name: str) -> object:  # noqa: N807 - it becomes the `__getattr__` or `__dir__` of the package
        if renamed and name in renamed:
            warn_renamed(f"{package}.{name}", renamed[name])
            name = renamed[name]
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    def __dir__() -> list[str]:  # noqa: N807 - it becomes the `__getattr__` or `__dir__` of the package
        return sorted([*modules, *more])

    return __getattr__, __dir__, sorted(modules)


def renamed_names(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a module, so that old names still work with a warning."""

    def __getattr__(name: str) -> object:  # noqa: N807 - it becomes the `__getattr__` of the module
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", names[name])
        return getattr(import_module(module), names[name])

    return __getattr__


def warn_renamed(old: str, new: str) -> None:
    """Warn that a name from Resift 0.2 was used. The warning points to the caller's caller."""
    import warnings

    message = f"{old} is now {new}; the old name will be removed in Resift 0.4."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
