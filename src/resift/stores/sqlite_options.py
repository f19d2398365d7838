"""What a pipeline file can say of a SQLite store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from resift.models.embedder import NO_EMBEDDER, embedding_models
from resift.stores.store_options import SearchOptions
from resift.types import JsonObject
from resift.validation import option

AUTO = "auto"
"""The embedder that the file was built with."""


@dataclass(frozen=True, kw_only=True)
class SQLiteOptions(SearchOptions):
    """An index file and how it is searched."""

    path: str = option("The index file. Make one with: resift index PATH", kind="path", must_exist=True)
    embedder: str | None = option(
        "Model that turns the question into a vector; `auto` takes the one that the file was built with, "
        "`none` searches by words only.",
        default=AUTO,
        choices=lambda: [AUTO, NO_EMBEDDER, *embedding_models()],
    )
    read_only: bool = option("Open the file without the right to write.", default=False)

    def arguments(self) -> JsonObject:
        """Return the arguments, with the file's own embedder where none is named."""
        if self.embedder != AUTO:
            return super().arguments()
        return replace(self, embedder=built_with(self.path)).arguments()


def built_with(path: str) -> str:
    """Return the embedder that an index file was built with, or `none`."""
    from resift.stores.sqlite import SQLiteStore

    store = SQLiteStore(path, read_only=True)
    try:
        facts = store.facts()
    finally:
        store.release()
    return facts.embedder if facts.dimension else NO_EMBEDDER
