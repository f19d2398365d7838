"""Names to objects, by entry points. Built-ins come through the same door as everybody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from resift.errors import (
    InputError,
    PluginClashError,
    PluginLoadError,
    RerankerNotFound,
    ResiftError,
    StoreNotFound,
    did_you_mean,
)

RERANKERS = "resift.rerankers"
STORES = "resift.stores"

_NOT_FOUND: Mapping[str, type[RerankerNotFound] | type[StoreNotFound]] = {
    RERANKERS: RerankerNotFound,
    STORES: StoreNotFound,
}


def available_rerankers() -> list[str]:
    """Return the names of all installed rerankers, without importing any."""
    return sorted({entry.name for entry in entry_points(group=RERANKERS)})


def available_stores() -> list[str]:
    """Return the names of all installed stores, without importing any."""
    return sorted({entry.name for entry in entry_points(group=STORES)})


def load_reranker(name: str, /, **options: Any) -> Any:
    """Import the reranker of that name and build it with these options.

    Raises RerankerNotFound, PluginClashError, MissingExtraError or PluginLoadError.
    """
    return _build(load_plugin(RERANKERS, name), name, options)


def load_store(name: str, /, **options: Any) -> Any:
    """Import the store of that name and build it with these options.

    Raises StoreNotFound, PluginClashError, MissingExtraError or PluginLoadError.
    """
    return _build(load_plugin(STORES, name), name, options)


def load_plugin(group: str, name: str) -> Callable[..., Any]:
    """Import the class or factory behind a name, and only that one."""
    found = [entry for entry in entry_points(group=group) if entry.name == name]
    if not found:
        role = group.rpartition(".")[2].removesuffix("s")
        known = {entry.name for entry in entry_points(group=group)}
        raise _NOT_FOUND[group](f"Unknown {role} {name!r}. {did_you_mean(name, known)}")
    _refuse_clash(found, name)
    return _imported(found[0])


def _refuse_clash(found: list[EntryPoint], name: str) -> None:
    if len({entry.value for entry in found}) > 1:
        offers = " and ".join(sorted(f"{_package(entry)} ({entry.value})" for entry in found))
        raise PluginClashError(f"The plugin name {name!r} is offered by {offers}. Uninstall one of them.")


def _imported(entry: EntryPoint) -> Callable[..., Any]:
    try:
        plugin = entry.load()
    except ResiftError:
        raise
    except Exception as exc:
        raise PluginLoadError(
            f"The plugin {entry.name!r} of {_package(entry)} does not load: {type(exc).__name__}: {exc}. "
            f"Repair or uninstall {_package(entry)}; other plugins are not affected."
        ) from exc
    if not callable(plugin):
        raise PluginLoadError(
            f"The plugin {entry.name!r} of {_package(entry)} is a {type(plugin).__name__}; "
            "its entry point must name a class or a function that builds one."
        )
    factory: Callable[..., Any] = plugin
    return factory


def _build(factory: Callable[..., Any], name: str, options: Mapping[str, Any]) -> Any:
    try:
        return factory(**options)
    except TypeError as exc:
        if "argument" not in str(exc):
            raise
        raise InputError(f"Options of {name!r}: {exc}.") from exc


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value.partition(".")[0]
