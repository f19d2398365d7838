"""How every package offers its public names: by PEP 562, each imported when it is first asked for.

A package writes its names twice, for two readers. Type checkers and editors read the imports under
`if TYPE_CHECKING`; Python reads the table given here. A test holds the two together.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for typing's, whose import would cost more than this module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Exports = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def lazy_exports(package: str, table: str, *, more: Sequence[str] = ()) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Each line of the table is a module of the package and its public names: `sqlite: SQLiteStore`. `more` are
    names that the package has by itself.
    """
    rows = [row.split(":") for row in table.split("\n") if ":" in row]
    homes = {name: f".{module.strip()}" for module, names in rows for name in names.split()}

    def __getattr__(name: str) -> object:  # noqa: N807 - becomes the package's
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    def __dir__() -> list[str]:  # noqa: N807 - becomes the package's
        return sorted([*homes, *more])

    return __getattr__, __dir__, sorted(homes)
