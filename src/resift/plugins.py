"""Names to objects, by entry points. Built-ins come through the same door as everybody else's.

A group per role: `resift.rerankers` (scorers), `resift.fusion` (methods that make one list of several),
`resift.stores`, `resift.gate_profiles`, `resift.stages`. What can be set on a plugin is its `Options`
(`resift.validation`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from resift.errors import (
    ConfigError,
    InputError,
    PluginClashError,
    PluginLoadError,
    ProfileNotFound,
    RerankerNotFound,
    ResiftError,
    StoreNotFound,
    did_you_mean,
)
from resift.types import JsonMapping

RERANKERS = "resift.rerankers"
FUSION = "resift.fusion"
STORES = "resift.stores"
GATE_PROFILES = "resift.gate_profiles"
STAGES = "resift.stages"

_ROLES = {
    RERANKERS: "reranker",
    FUSION: "fusion method",
    STORES: "store",
    GATE_PROFILES: "gate profile",
    STAGES: "stage",
}
_NOT_FOUND: Mapping[str, type[PluginLoadError]] = {
    RERANKERS: RerankerNotFound,
    FUSION: RerankerNotFound,
    STORES: StoreNotFound,
    GATE_PROFILES: ProfileNotFound,
    STAGES: PluginLoadError,
}
# Whoever looks for a reranker by name may mean one that fuses lists: both keep the Reranker protocol.
_ALSO_IN = {RERANKERS: (FUSION,), FUSION: (RERANKERS,)}

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
"""What people call a plugin that has another name here."""


def available_rerankers() -> list[str]:
    """Return the names of all installed rerankers, those that fuse included, without importing any."""
    return sorted({*_names(RERANKERS), *_names(FUSION)})


def available_scorers() -> list[str]:
    """Return the names of the rerankers that score one list against a question."""
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
    """Return the names of all installed stages, without importing any; Resift's own have sections instead."""
    return sorted(_names(STAGES))


def load_reranker(name: str, /, **options: object) -> Any:
    """Import the reranker of that name and build it with these options.

    Raises RerankerNotFound, PluginClashError, MissingExtraError or PluginLoadError, and ConfigError where its
    key is missing or it is switched off.
    """
    factory = load_plugin(RERANKERS, name)
    # Where a hosted reranker may be left out, whoever asks for it by name wants to know why.
    built = built_by(getattr(factory, "required", factory), name, options)
    if built is None:
        raise ConfigError(f"The reranker {name!r} is not there: it has no key, or is switched off.")
    return built


def load_store(name: str, /, **options: object) -> Any:
    """Import the store of that name and build it with these options.

    Raises StoreNotFound, PluginClashError, MissingExtraError or PluginLoadError.
    """
    return built_by(load_plugin(STORES, name), name, options)


def load_plugin(group: str, name: str) -> Any:
    """Import the class, factory or value behind a name, and only that one."""
    if not isinstance(name, str) or not name.strip():
        raise _unknown(group, name, f"Known: {', '.join(sorted(_names(group)))}.")
    found = [each for one in (group, *_ALSO_IN.get(group, ())) for each in _entries(one) if each.name == name]
    if not found:
        raise _unknown(group, name, _suggested(group, name))
    _refuse_clash(found, name)
    return _imported(found[0])


def package_of(group: str, name: str) -> str:
    """Return the name of the package that offers a plugin."""
    return next((_package(entry) for entry in _entries(group) if entry.name == name), "")


def _names(group: str) -> set[str]:
    return {entry.name for entry in _entries(group)}


def _entries(group: str) -> tuple[EntryPoint, ...]:
    return _registered(tuple((folder, _changed(folder)) for folder in sys.path))[group]


@functools.lru_cache(maxsize=4)
def _registered(folders: tuple[tuple[str, int], ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of our groups; looking through all packages each time would take 10 ms.

    The folders and the times of their last change are what an installation alters.
    """
    found = entry_points()  # reads the metadata of every installed package
    return {group: tuple(found.select(group=group)) for group in _ROLES}


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _unknown(group: str, name: object, known: str) -> PluginLoadError:
    return _NOT_FOUND[group](f"Unknown {_ROLES[group]} {name!r}. {known}")


def _suggested(group: str, name: str) -> str:
    known = {each for one in (group, *_ALSO_IN.get(group, ())) for each in _names(one)}
    if not known and group != STAGES:
        return "None is registered: the installation is older than the code. Run: pip install -e ."
    # First what the field calls it: no likeness of letters leads from 'colbert' to 'late-interaction'.
    meant = OTHER_NAMES.get(name.lower().replace("_", "-"))
    if meant in known:
        return f"Did you mean {meant!r}? Known: {', '.join(sorted(known))}."
    return did_you_mean(name, known)


def _refuse_clash(found: list[EntryPoint], name: str) -> None:
    if len({entry.value for entry in found}) > 1:
        offers = " and ".join(sorted(f"{_package(entry)} ({entry.value})" for entry in found))
        raise PluginClashError(f"The plugin name {name!r} is offered by {offers}. Uninstall one of them.")


def _imported(entry: EntryPoint) -> Any:
    try:
        plugin = entry.load()
    except ResiftError:
        raise
    except Exception as exc:
        raise PluginLoadError(
            f"The plugin {entry.name!r} of {_package(entry)} does not load: {type(exc).__name__}: {exc}. "
            f"Repair or uninstall {_package(entry)}; other plugins are not affected."
        ) from exc
    # A gate profile is data; all others are built.
    if entry.group != GATE_PROFILES and not callable(plugin):
        raise PluginLoadError(
            f"The plugin {entry.name!r} of {_package(entry)} is a {type(plugin).__name__}; "
            "its entry point must name a class or a function that builds one."
        )
    return plugin


def built_by(factory: Callable[..., Any], name: str, options: JsonMapping) -> Any:
    """Return what a factory builds; options that it does not take are the caller's mistake."""
    try:
        return factory(**options)
    except TypeError as exc:
        if "argument" not in str(exc):
            raise
        raise InputError(f"Options of {name!r}: {exc}.") from exc


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value.partition(".")[0]
