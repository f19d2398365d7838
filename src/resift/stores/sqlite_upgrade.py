"""An older file to this version: new tables, words analysed anew, checksums and codes; in one transaction."""

from __future__ import annotations

import sqlite3

from resift.stores import sqlite_version_1 as version_1
from resift.stores.sqlite_blocks import ABSENT, ROWS, BlockChanges, read_codes, read_lengths, write_codes
from resift.stores.sqlite_checks import Damage, checksum, sign_new_word_pages
from resift.stores.sqlite_file import DatabaseFile
from resift.stores.sqlite_rows import documents_in, write_attributes
from resift.stores.sqlite_schema import (
    DERIVED_TABLES,
    SCHEMA_VERSION,
    Connection,
    FileFacts,
    first_facts,
    protect,
    read_facts,
    write_facts,
)
from resift.stores.sqlite_vectors import read_vectors
from resift.stores.sqlite_view import RowView
from resift.text import Analyzer

_OLD_TABLES = ("attributes", "words", "removed")


def upgrade_file(file: DatabaseFile, analyzer: Analyzer) -> bool:
    """Upgrade a file of version 1, without checksums or of another text analysis; say whether so."""
    with file.reading() as connection:
        facts, checked = read_facts(connection), connection.checked
    if checked and facts.version == SCHEMA_VERSION and facts.analyzer == analyzer.version:
        return False
    with file.writing(upgrade=True) as connection:
        facts = read_facts(connection)
        if facts.version == 1:
            _new_tables(connection)
        rebuild(connection, facts, analyzer)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    file.drop_connections()  # they show the tables as they were
    return True


def rebuild(connection: Connection, facts: FileFacts, analyzer: Analyzer) -> None:
    """Make everything anew that follows from documents and vectors; inside a write transaction."""
    for name, definition in DERIVED_TABLES.items():
        kind = definition.partition(" ")[0].replace("VIRTUAL", "TABLE")
        connection.execute(f"DROP {kind} IF EXISTS main.{name}")
        connection.execute(f"CREATE {definition}")
    sign_new_word_pages(connection)
    connection.checked = True
    languages: set[str] = set()
    changes = BlockChanges(connection, facts.generation + 1)
    for row in documents_in(connection):
        analysis = analyzer.analyze(row.text)
        languages |= analysis.languages
        connection.execute(
            "INSERT INTO terms (rowid, words) VALUES (?, ?)", (row.row, " ".join(analysis.terms))
        )
        write_attributes(connection, changes, row.row, row.decoded())
        found = connection.execute("SELECT vector FROM vectors WHERE row = ?", (row.row,)).fetchone()
        changes.add(row.row, len(analysis.terms), None if found is None else found[0])
    changes.flush()
    kept = {"generation": facts.generation, "embedder": facts.embedder, "dimension": facts.dimension}
    counted = {
        "documents": changes.documents,
        "tokens": changes.tokens,
        "languages": " ".join(sorted(languages)),
    }
    write_facts(connection, {**first_facts(analyzer.language, analyzer.version), **kept, **counted})
    protect(connection)


def rebuild_codes(connection: sqlite3.Connection) -> int:
    """Make the bit codes anew of blocks whose codes are damaged or missing; return how many there were."""
    facts = read_facts(connection)
    if not facts.dimension:
        return 0
    held = {block: lengths for block, lengths in read_lengths(connection) if lengths.count(ABSENT) < ROWS}
    view = RowView(facts, held)
    damaged = 0
    for block, lengths in held.items():
        try:
            next(read_codes(connection, [block], facts.dimension))
        except Damage:
            vectors = read_vectors(connection, view, block, facts.dimension)
            connection.execute("DELETE FROM code_blocks WHERE block = ?", (block,))
            present = [at for at, length in enumerate(lengths) if length != ABSENT]
            write_codes(connection, block, {at: vectors[at].astype("<f4").tobytes() for at in present})
            damaged += 1
    return damaged


def _new_tables(connection: sqlite3.Connection) -> None:
    """Give documents and vectors their checksums, and drop what version 2 does not have."""
    version_1.show_as_it_is(connection)
    for table in ("documents", "vectors"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    for row in documents_in(connection, checked=False):
        connection.execute("UPDATE documents SET checksum = ? WHERE row = ?", (row.checksum(), row.row))
    rows = [row for (row,) in connection.execute("SELECT row FROM vectors")]
    for row in rows:
        (vector,) = connection.execute("SELECT vector FROM vectors WHERE row = ?", (row,)).fetchone()
        connection.execute("UPDATE vectors SET checksum = ? WHERE row = ?", (checksum(row, vector), row))
    for table in _OLD_TABLES:
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM facts WHERE name IN ('tokenizer', 'removals')")
