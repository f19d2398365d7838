"""From a store's section to the branches of the fan-out."""

from __future__ import annotations

from collections.abc import Callable

from resift.config.settings import Settings
from resift.errors import UnsafeCypherError
from resift.pipeline.defaults import views
from resift.pipeline.store_ref import StoreRef
from resift.plugins import built_by
from resift.protocols import DocStore, GraphStore
from resift.stores.cypher_guard import check_cypher


def build_store(settings: Settings) -> list[StoreRef]:
    """Open one store and return its branches: two where one store is asked by words and by vectors."""
    name = settings["name"]
    store = built_by(settings.plugin, settings["kind"], {"name": name, **settings.arguments()})
    # A graph answers its statement alone: it has no words and vectors to be asked apart.
    branches = [store] if settings["cypher"] else views(store)
    asked = settings.given("k", "timeout_s", "cypher", "parameters")
    # Views have names of their own (docs.text, docs.vectors); a store asked as one goes by the name given.
    return [
        StoreRef(name=name if len(branches) == 1 else each.name, store=each, **asked) for each in branches
    ]


def check_store(settings: Settings, add: Callable[[int | None, str], None]) -> None:
    """Note what single keys cannot show."""
    where = f"stores[{settings['name']}]"
    if is_graph(settings.plugin) and "cypher" not in settings.written:
        add(settings.line, f"{where} is a graph; it needs the key 'cypher' with $query in it.")
    if not settings["cypher"]:
        return
    if "$query" not in settings["cypher"]:
        add(
            settings.line_of("cypher"),
            f"{where}.cypher does not use $query, so every question gets the same answer.",
        )
    try:
        # What the graph store's guard would refuse at the first question is refused now.
        check_cypher(settings["cypher"])
    except UnsafeCypherError as exc:
        add(settings.line_of("cypher"), f"{where}.cypher: {exc}")


def is_graph(plugin: object) -> bool:
    """Say whether a store answers statements and no questions."""
    return isinstance(plugin, GraphStore) and not isinstance(plugin, DocStore)


def names_of(settings: Settings) -> list[str]:
    """Return the names that this store's branches may have."""
    name = settings["name"]
    return [name, f"{name}.text", f"{name}.vectors"]
