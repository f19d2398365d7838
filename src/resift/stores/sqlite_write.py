"""Who may write to a file, and one batch of documents in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from resift.errors import StoreError, shell_path
from resift.stores import sqlite_rows as sql
from resift.stores.sqlite_blocks import BlockChanges
from resift.stores.sqlite_file import DatabaseFile
from resift.stores.sqlite_schema import Connection, FileFacts, read_facts, write_facts
from resift.text import Analysis, Analyzer
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
        built = f"{self.path} was built with {facts.embedder!r} ({facts.dimension} dimensions)"
        if self.identity is None:
            raise StoreError(f"{built}; open it with that embedder to add documents.", store=self.store)
        if self.identity != facts.embedder or dimension not in (0, facts.dimension):
            now = f"{self.identity!r}" + (f" ({dimension} dimensions)" if dimension else "")
            raise StoreError(
                f"{built}, not with {now}. Open it with {facts.embedder!r}, or index again into a new file.",
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

    def refuse_other_analysis(self, facts: FileFacts, analyzer: Analyzer) -> None:
        """Raise StoreError where the words in the file were made by another version of the analysis."""
        if facts.analyzer != analyzer.version:
            raise StoreError(
                f"The words in {self.path} were made by another version of the text analysis. Make them "
                f"anew, nothing is lost: resift index --upgrade --store {shell_path(self.path)}",
                store=self.store,
            )


class Batch(NamedTuple):
    """Documents to write, with what was worked out for them before the transaction."""

    hits: Sequence[Hit]
    analyses: Mapping[str, Analysis]
    vectors: Mapping[str, bytes]

    @classmethod
    def joined(cls, batches: Iterable[Batch]) -> Batch:
        """Return several batches, whose ids differ, as one."""
        hits: list[Hit] = []
        analyses: dict[str, Analysis] = {}
        vectors: dict[str, bytes] = {}
        for batch in batches:
            hits += batch.hits
            analyses |= batch.analyses
            vectors |= batch.vectors
        return cls(hits, analyses, vectors)

    def only(self, ids: Collection[str]) -> Batch:
        """Return the batch without the documents of other ids."""
        return self._replace(hits=[hit for hit in self.hits if hit.id in ids])


class Writing:
    """One transaction's changes to documents; `finish` writes what they mean for the file as a whole."""

    def __init__(self, connection: Connection, analyzer: Analyzer) -> None:
        self._connection = connection
        self._analyzer = analyzer
        self._facts = read_facts(connection)
        self._languages = set(self._facts.languages)
        self._changes = BlockChanges(connection, self._facts.generation + 1)

    @property
    def facts(self) -> FileFacts:
        """The file as it was when the transaction began."""
        return self._facts

    def add(self, hit: Hit, analysis: Analysis, vector: bytes | None) -> None:
        """Insert a document; its id must be free."""
        sql.write(self._connection, self._changes, hit, analysis.terms, vector)
        self._languages |= analysis.languages

    def remove(self, rows: Sequence[sql.Row]) -> int:
        """Delete documents; return how many."""
        # Analysed again: FTS5 needs the very terms it was given, and the file does not keep them.
        for row in rows:
            sql.remove(self._connection, self._changes, row, self._analyzer.terms(row.text))
        return len(rows)

    def finish(self) -> None:
        """Move documents out of sparse blocks, write the blocks and the file's totals."""
        rows = sql.rows_by_number(self._connection, self._changes.sparse_rows())
        vectors = sql.vectors_by_row(self._connection, list(rows))
        # A block follows from the number of a row: to leave one, a document gets a new number.
        for row in rows.values():
            self.remove([row])
            hit = Hit(row.id, row.text, metadata=row.decoded())
            self.add(hit, self._analyzer.analyze(row.text), vectors.get(row.row))
        self._changes.flush()
        write_facts(
            self._connection,
            {
                "documents": self._facts.documents + self._changes.documents,
                "tokens": self._facts.tokens + self._changes.tokens,
                "languages": " ".join(sorted(self._languages)),
            },
        )


def write_batch(connection: Connection, batch: Batch, owner: Owner, analyzer: Analyzer) -> list[Hit]:
    """Write the documents; return those that another writer changed since their texts were compared.

    `batch.vectors` holds what was embedded. A document that is not in it had the same text in the file, so
    its vector is kept; if that is no longer so, it must be embedded and written again.
    """
    writing = Writing(connection, analyzer)
    vectors = batch.vectors
    dimension = len(next(iter(vectors.values()))) // 4 if vectors else 0
    owner.check(writing.facts, dimension=dimension, adding=True)
    owner.refuse_other_analysis(writing.facts, analyzer)
    # The first vectors decide which embedder the file belongs to.
    if dimension and not writing.facts.dimension:
        write_facts(connection, {"embedder": owner.identity, "dimension": dimension})
    # Read again inside the transaction: between comparing and writing somebody else may have written.
    before = sql.rows_by_id(connection, [hit.id for hit in batch.hits])
    again = [] if owner.identity is None else [hit for hit in batch.hits if _stale(hit, before, vectors)]
    waiting = {hit.id for hit in again}
    ready = [hit for hit in batch.hits if hit.id not in waiting]
    replaced = {hit.id: before[hit.id] for hit in ready if hit.id in before}
    kept = sql.vectors_by_row(connection, [row.row for id, row in replaced.items() if id not in vectors])
    writing.remove(list(replaced.values()))
    for hit in ready:
        old = replaced.get(hit.id)
        vector = vectors.get(hit.id) or (None if old is None else kept.get(old.row))
        writing.add(hit, batch.analyses[hit.id], vector)
    writing.finish()
    return again


def same(row: sql.Row, hit: Hit) -> bool:
    """Say whether the stored document is this one."""
    return row.text == hit.text and row.metadata == sql.metadata_text(hit)


def _stale(hit: Hit, before: Mapping[str, sql.Row], vectors: Mapping[str, bytes]) -> bool:
    return hit.id not in vectors and (hit.id not in before or before[hit.id].text != hit.text)
