"""Who may write to a file, and one batch of documents in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resift.errors import StoreError
from resift.stores import sqlite_rows as sql
from resift.stores.sqlite_file import DatabaseFile
from resift.stores.sqlite_schema import FileFacts, read_facts
from resift.types import Hit


class Owner(NamedTuple):
    """Who opened the file, and with which embedder."""

    path: str
    store: str
    identity: str | None

    def check(self, facts: FileFacts, *, dimension: int = 0, adding: bool = False) -> None:
        """Raise StoreError unless this embedder is the one that the file was built with."""
        if not facts.dimension or (self.identity is None and not adding):
            return
        told = f"{self.path} was built with {facts.embedder!r} ({facts.dimension} dimensions)"
        if self.identity is None:
            raise StoreError(f"{told}; open it with that embedder to add documents.", store=self.store)
        if self.identity != facts.embedder or dimension not in (0, facts.dimension):
            now = f"{self.identity!r}" + (f" ({dimension} dimensions)" if dimension else "")
            raise StoreError(
                f"{told}, not with {now}. Open it with {facts.embedder!r}, or index again into a new file.",
                store=self.store,
            )

    def refuse_wordy(self, file: DatabaseFile) -> None:
        """Raise StoreError for a file whose documents were stored without vectors."""
        with file.reading() as connection:
            if connection.execute("SELECT 1 FROM documents LIMIT 1").fetchone():
                raise StoreError(
                    f"{self.path} was built without an embedder. Open it without one, "
                    "or index again into a new file.",
                    store=self.store,
                )


def write_batch(
    connection: sqlite3.Connection, given: Sequence[Hit], vectors: Mapping[str, bytes], owner: Owner
) -> list[Hit]:
    """Write the documents; return those that another writer changed since their texts were compared.

    `vectors` holds what was embedded. A document that is not in it had the same text in the file, so its
    vector is kept; if that is no longer so, it must be embedded and written again.
    """
    facts = read_facts(connection)
    dimension = len(next(iter(vectors.values()))) // 4 if vectors else 0
    owner.check(facts, dimension=dimension, adding=True)
    if dimension and not facts.dimension:
        new = [(owner.identity, "embedder"), (str(dimension), "dimension")]
        connection.executemany("UPDATE facts SET value = ? WHERE name = ?", new)
    before = sql.rows_by_id(connection, [hit.id for hit in given])
    again = [] if owner.identity is None else [hit for hit in given if _stale(hit, before, vectors)]
    waiting = {hit.id for hit in again}
    ready = [hit for hit in given if hit.id not in waiting]
    replaced = {hit.id: before[hit.id] for hit in ready if hit.id in before}
    kept = {id: sql.vector_of(connection, row.row) for id, row in replaced.items() if id not in vectors}
    sql.remove(connection, replaced.values())
    for hit in ready:
        sql.write(connection, hit, vectors.get(hit.id) or kept.get(hit.id))
    return again


def same(row: sql.Row, hit: Hit) -> bool:
    """Say whether the stored document is this one."""
    return row.text == hit.text and row.metadata == sql.metadata_text(hit)


def _stale(hit: Hit, before: Mapping[str, sql.Row], vectors: Mapping[str, bytes]) -> bool:
    return hit.id not in vectors and (hit.id not in before or before[hit.id].text != hit.text)
