"""Find and load plugins by name, through entry points. Built-in plugins are registered in the same way.

There is one group per role: `resift.rerankers` (scorers), `resift.fusion` (methods that fuse several lists),
`resift.stores`, `resift.gate_profiles` and `resift.stages`. A plugin declares its options as `Options`
(`resift.validation`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from resift import errors

T = TypeVar("T")

RERANKERS = "resift.rerankers"
FUSION = "resift.fusion"
STORES = "resift.stores"
GATE_PROFILES = "resift.gate_profiles"
STAGES = "resift.stages"

_ROLES: Mapping[str, tuple[str, type[errors.PluginLoadError]]] = {
    RERANKERS: ("reranker", errors.RerankerNotFound),
    FUSION: ("fusion method", errors.RerankerNotFound),
    STORES: ("store", errors.StoreNotFound),
    GATE_PROFILES: ("gate profile", errors.ProfileNotFound),
    STAGES: ("stage", errors.PluginLoadError),
}
# The name of a reranker may belong to a fusion method and vice versa: both implement the Reranker protocol.
_SEARCHED_GROUPS = {RERANKERS: (RERANKERS, FUSION), FUSION: (FUSION, RERANKERS)}

OTHER_NAMES = {
    "colbert": "late-interaction",
    "crossencoder": "cross-encoder",
    "bm25": "semantic-bm25",
    "nli": "zero-shot",
    "openai": "llm",
    "gpt": "llm",
    "rank-fusion": "rrf",
    "reciprocal-rank-fusion": "rrf",
}
"""Common names of plugins -> the registered names; used for suggestions."""


def available_rerankers() -> list[str]:
    """Return the names of all installed rerankers, including fusion methods, without importing any."""
    return sorted({*_names(RERANKERS), *_names(FUSION)})


def available_scorers() -> list[str]:
    """Return the names of the rerankers that score one list against a query."""
    return sorted(_names(RERANKERS) - _names(FUSION))


def available_fusions() -> list[str]:
    """Return the names of all installed fusion methods, without importing any."""
    return sorted(_names(FUSION))


def available_stores() -> list[str]:
    """Return the names of all installed stores, without importing any."""
    return sorted(_names(STORES))


def available_gate_profiles() -> list[str]:
    """Return the names of all installed gate profiles, without importing any."""
    return sorted(_names(GATE_PROFILES))


def available_stages() -> list[str]:
    """Return the names of all installed stages. Built-in stages are not listed: they have their own sections."""
    return sorted(_names(STAGES))


def load_reranker(name: str, /, **options: object) -> Any:
    """Import the reranker with this name and build it with these options.

    Raises RerankerNotFound, PluginClashError, MissingExtraError or PluginLoadError, and ConfigError if its
    API key is missing or it is switched off.
    """
    factory = load_plugin(RERANKERS, name)
    # A pipeline file omits a hosted reranker without a key. A caller who names it gets an error from `required`.
    reranker = build_plugin(getattr(factory, "required", factory), name, options)
    if reranker is None:
        raise errors.ConfigError(f"The reranker {name!r} is not available: it has no API key or is switched off.")
    return reranker


def load_store(name: str, /, **options: object) -> Any:
    """Import the store with this name and build it with these options.

    Raises StoreNotFound, PluginClashError, MissingExtraError or PluginLoadError.
    """
    return build_plugin(load_plugin(STORES, name), name, options)


def load_plugin(group: str, name: str) -> Any:
    """Import and return the class, factory or value with this name; no other plugin is imported."""
    role, not_found = _ROLES[group]
    groups = _SEARCHED_GROUPS.get(group, (group,))
    known = {plugin for each in groups for plugin in _names(each)}
    entries = [entry for each in groups for entry in _entries(each) if entry.name == name]
    if not isinstance(name, str) or not name.strip():
        raise not_found(f"Unknown {role} {name!r}. Known: {', '.join(sorted(known))}.")
    if not entries:
        # Try common names first: spelling correction cannot turn 'colbert' into 'late-interaction'.
        alternative = OTHER_NAMES.get(name.lower().replace("_", "-"))
        if not known and group != STAGES:
            hint = "No plugin is registered: the installation is older than the code. Run: pip install -e ."
        elif alternative in known:
            hint = f"Did you mean {alternative!r}? Known: {', '.join(sorted(known))}."
        else:
            hint = errors.did_you_mean(name, known)
        raise not_found(f"Unknown {role} {name!r}. {hint}")
    if len({entry.value for entry in entries}) > 1:
        packages = " and ".join(sorted(f"{_package(entry)} ({entry.value})" for entry in entries))
        raise errors.PluginClashError(f"The plugin name {name!r} is registered by {packages}. Uninstall one of them.")
    entry = entries[0]
    try:
        plugin = entry.load()
    except errors.ResiftError:
        raise
    except Exception as exc:
        raise errors.PluginLoadError(
            f"The plugin {name!r} of {_package(entry)} cannot be loaded: {type(exc).__name__}: {exc}. "
            f"Repair or uninstall {_package(entry)}; other plugins are not affected."
        ) from exc
    # A gate profile may be an object; all other plugins are classes or factories.
    if group != GATE_PROFILES and not callable(plugin):
        raise errors.PluginLoadError(
            f"The plugin {name!r} of {_package(entry)} is a {type(plugin).__name__}; "
            "its entry point must name a class or a factory function."
        )
    return plugin


def build_plugin(factory: Callable[..., T], name: str, options: Mapping[str, object]) -> T:
    """Call a plugin's factory with these options; raises InputError for an option that it does not accept."""
    try:
        return factory(**options)
    except TypeError as exc:
        if "argument" not in str(exc):
            raise
        raise errors.InputError(f"Options of {name!r}: {exc}.") from exc


def plugin_package(group: str, name: str) -> str:
    """Return the name of the package that registers a plugin; empty if no package does."""
    return next((_package(entry) for entry in _entries(group) if entry.name == name), "")


def _names(group: str) -> set[str]:
    return {entry.name for entry in _entries(group)}


def _entries(group: str) -> tuple[EntryPoint, ...]:
    return _read_entry_points(tuple((folder, _modified_ns(folder)) for folder in sys.path))[group]


@functools.lru_cache(maxsize=4)
def _read_entry_points(folders: tuple[tuple[str, int], ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of Resift's groups, cached: reading the metadata of all packages takes about 10 ms.

    `folders` is the cache key. Installing a package changes the modification time of a folder on the path.
    """
    installed = entry_points()
    return {group: tuple(installed.select(group=group)) for group in _ROLES}


def _modified_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value.partition(".")[0]
