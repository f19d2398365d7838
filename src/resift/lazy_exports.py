"""How every package offers its public names: by PEP 562, each imported when it is first asked for.

A package writes its names twice, for two readers. Type checkers and editors read the imports under
`if TYPE_CHECKING`; Python reads the table given here. A test holds the two together.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for typing's, whose import would cost more than this module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Exports = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def lazy_exports(package: str, modules: Mapping[str, Sequence[str]], *, more: Sequence[str] = ()) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from its modules and their public names.

    Modules are named relative to the package: ".sqlite". `more` are names that the package has by itself.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> object:  # noqa: N807 - becomes the package's
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    def __dir__() -> list[str]:  # noqa: N807 - becomes the package's
        return sorted([*homes, *more])

    return __getattr__, __dir__, sorted(homes)
