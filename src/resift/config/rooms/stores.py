"""The section `stores`: which stores are asked, and how they are opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from resift.config.schema import Key, Section, Settings
from resift.errors import InputError, UnsafeCypherError
from resift.models.embedding import Embedder
from resift.models.loading import of_kind
from resift.plugins import available_stores, load_store
from resift.retrieval.defaults import views
from resift.retrieval.store_ref import StoreRef
from resift.stores.cypher_guard import check_cypher

AUTO, NONE = "auto", "none"


def embedders() -> list[str]:
    """Return what `embedder` may be."""
    return [AUTO, NONE, *sorted(of_kind("bi-encoder"))]


_EMBEDDER = Key(
    name="embedder",
    kind="text",
    about="Model that turns the question into a vector: a model's id, or `none` to search by words only.",
    choices=lambda: [name for name in embedders() if name != AUTO],
)
_MODE = Key(
    name="mode",
    kind="text",
    about="How the store finds: by words, by vectors, or by both.",
    choices=("hybrid", "text", "vector"),
)

SECTION = Section(
    name="stores",
    about="The stores to ask, all at the same time. Their order decides whose text and metadata a hit keeps "
    "when several stores have it.",
    keys=(
        Key(
            name="name",
            kind="text",
            required=True,
            about="Name of the store in rankings, weights and capabilities.",
        ),
        Key(name="kind", kind="text", required=True, about="The engine.", choices=available_stores),
        Key(name="k", kind="int", least=1, about="How many hits to ask this store for; else see `fetch`."),
        Key(name="timeout_s", kind="number", above=0, about="Longest wait for this store, in seconds."),
        Key(
            name="cypher",
            kind="text",
            about="For graph stores: the statement to run; the question is its parameter `$query`.",
        ),
        Key(name="parameters", kind="options", about="Further parameters of `cypher`."),
        Key(
            name="options",
            kind="options",
            about="Arguments for the store's constructor, for stores of others.",
        ),
    ),
    by_kind={
        "sqlite": (
            Key(
                name="path",
                kind="path",
                required=True,
                must_exist=True,
                about="The index file. Make one with: resift index PATH",
            ),
            Key(
                name="embedder",
                kind="text",
                default=AUTO,
                about="Model that turns the question into a vector; `auto` takes the one that the file was "
                "built with, `none` searches by words only.",
                choices=embedders,
            ),
            _MODE,
            Key(name="read_only", kind="flag", about="Open the file without the right to write."),
        ),
        "lancedb": (
            Key(name="uri", kind="path", required=True, about="Folder or address of the database."),
            Key(name="table", kind="text", about="The table (documents)."),
            _EMBEDDER,
            _MODE,
        ),
        "ladybug": (
            Key(
                name="path",
                kind="path",
                required=True,
                must_exist=True,
                about="The graph database; it is opened read-only.",
            ),
            Key(name="id_column", kind="text", about="Column of the rows that is the hit's id (id)."),
            Key(name="text_column", kind="text", about="Column of the rows that is the hit's text (text)."),
        ),
        "postgres": (
            Key(
                name="dsn",
                kind="address",
                required=True,
                about="Connection string; keep the password out of the file with ${VARIABLE}.",
            ),
            Key(name="table", kind="text", about="The table (resift_documents)."),
            _EMBEDDER,
            _MODE,
        ),
        "qdrant": (
            Key(name="url", kind="address", about="Address of the server."),
            Key(name="path", kind="path", about="Folder of a local database, instead of `url`."),
            Key(name="collection", kind="text", about="The collection (resift)."),
            Key(
                name="embedder",
                kind="text",
                required=True,
                about="Model that turns the question into a vector.",
                choices=lambda: sorted(of_kind("bi-encoder")),
            ),
            Key(
                name="api_key_env", kind="variable", about="Environment variable that holds the server's key."
            ),
        ),
    },
)


def build(settings: Settings) -> list[StoreRef]:
    """Open one store and return its branches: two where one store is asked by words and by vectors."""
    name, kind = settings["name"], settings["kind"]
    store = _OPENERS.get(kind, _open)(kind, settings)
    branches = [store] if settings["cypher"] else views(store)
    own = settings.given("k", "timeout_s", "cypher", "parameters")
    # Views have names of their own (docs.text, docs.vectors); a store asked as one goes by the name given.
    return [StoreRef(name=name if len(branches) == 1 else each.name, store=each, **own) for each in branches]


def check(settings: Settings, add: Callable[[int | None, str], None]) -> None:
    """Note what single keys cannot show."""
    if settings["kind"] == "ladybug" and "cypher" not in settings.written:
        add(
            settings.line,
            f"stores[{settings['name']}] is a graph; it needs the key 'cypher' with $query in it.",
        )
    if settings["cypher"] and "$query" not in settings["cypher"]:
        add(
            settings.line_of("cypher"),
            f"stores[{settings['name']}].cypher does not use $query, so every question gets the same answer.",
        )
    if settings["cypher"]:
        _check_statement(settings, add)
    if settings["kind"] == "qdrant" and len(settings.written & {"url", "path"}) != 1:
        add(settings.line, f"stores[{settings['name']}] needs either 'url' or 'path'.")


def _check_statement(settings: Settings, add: Callable[[int | None, str], None]) -> None:
    """Refuse now what the graph store's guard would refuse at the first question (N6)."""
    try:
        check_cypher(settings["cypher"])
    except UnsafeCypherError as exc:
        add(settings.line_of("cypher"), f"stores[{settings['name']}].cypher: {exc}")


def names_of(settings: Settings) -> list[str]:
    """Return the names that this store's branches may have."""
    name = settings["name"]
    return [name, f"{name}.text", f"{name}.vectors"]


def _open(kind: str, settings: Settings) -> Any:
    names = ("path", "uri", "url", "dsn", "table", "collection", "mode", "id_column", "text_column")
    options: dict[str, Any] = settings.given(*(name for name in names if name in settings))
    options.update(settings["options"] or {})
    if settings.get("embedder") not in (None, NONE):
        options["embedder"] = Embedder(settings["embedder"])
    variable = settings.get("api_key_env")
    if variable is not None:
        if not os.environ.get(variable):
            raise InputError(f"{variable} is not set. Run: export {variable}=…")
        options["api_key"] = os.environ[variable]
    return load_store(kind, name=settings["name"], **options)


def _open_sqlite(kind: str, settings: Settings) -> Any:
    options = {**settings.given("mode", "read_only"), **(settings["options"] or {})}
    chosen = settings["embedder"]
    if chosen == AUTO:
        chosen = _built_with(settings["path"])
    if chosen != NONE:
        options["embedder"] = Embedder(chosen)
    return load_store(kind, path=settings["path"], name=settings["name"], **options)


def _built_with(path: str) -> str:
    """Return the embedder that an index file was built with, or `none`."""
    from resift.stores.sqlite import SQLiteStore

    store = SQLiteStore(path, read_only=True)
    try:
        facts = store.facts()
    finally:
        store.release()
    return facts.embedder if facts.dimension else NONE


_OPENERS: Mapping[str, Callable[[str, Settings], Any]] = {"sqlite": _open_sqlite}
