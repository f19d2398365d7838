"""A file examined from end to end: checksums, and whether everything derived follows from the documents."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterator

from resift._internal.arrays import np
from resift.stores.sqlite_attributes import attributes_of
from resift.stores.sqlite_blocks import ABSENT, ROWS, codes_of, read_codes, read_lengths
from resift.stores.sqlite_checks import Damage, checksum
from resift.stores.sqlite_postings import leads_to_all_pages
from resift.stores.sqlite_rows import documents_in
from resift.stores.sqlite_schema import LISTS_INDEXED_SINCE, Connection, read_facts
from resift.stores.sqlite_vectors import read_vectors
from resift.stores.sqlite_view import RowView
from resift.text import Analyzer

_MOST_SHOWN = 20


def problems_in(connection: Connection) -> list[str]:
    """Return what is wrong with the file in the connection's snapshot, at most 20 things; never any text."""
    found: list[str] = []
    for name, look in _CHECKS.items():
        try:
            found += [f"{name}: {problem}" for problem in look(connection)]
        except Damage as exc:
            found.append(f"{name}: {exc}")
        except (sqlite3.Error, KeyError, ValueError, TypeError) as exc:
            found.append(f"{name}: cannot be read ({type(exc).__name__})")
    return found[:_MOST_SHOWN]


def _pages(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST_SHOWN})"):
        if line != "ok":
            yield str(line)


def _documents(connection: sqlite3.Connection) -> Iterator[str]:
    facts = read_facts(connection)
    count = sum(1 for _ in documents_in(connection))
    if facts.version > 1 and count != facts.documents:
        yield f"{count} are there, {facts.documents} were written"


def _filters(connection: Connection) -> Iterator[str]:
    """Compare the attributes of every document with its metadata."""
    version = read_facts(connection).version
    if version == 1:
        return
    lists = version >= LISTS_INDEXED_SINCE
    statement = "SELECT row, key, value FROM attributes ORDER BY row"
    held: dict[int, set[object]] = {}
    for row, key, value in connection.execute(statement):
        held.setdefault(row, set()).add((key, value))
    for row in documents_in(connection):
        if held.pop(row.row, set()) != set(attributes_of(row.decoded(), lists=lists)):
            yield f"row {row.row} has other attributes than its metadata"
    if held:
        yield f"{len(held)} rows belong to no document"
    if connection.checked:
        counted = "SELECT key, value, count(*), sum(row) FROM attributes GROUP BY key, value"
        # As sets: values of several types have no order.
        if set(connection.execute(counted)) != set(connection.execute("SELECT * FROM attribute_sums")):
            yield "the attributes are not as many as were written"


def _rows(connection: sqlite3.Connection) -> Iterator[str]:
    facts = read_facts(connection)
    if facts.version == 1:
        return
    there = {row for (row,) in connection.execute("SELECT row FROM documents")}
    listed, tokens = set(), 0
    for block, lengths in read_lengths(connection):
        listed |= {block * ROWS + at for at, length in enumerate(lengths) if length != ABSENT}
        tokens += sum(length for length in lengths if length != ABSENT)
    if listed != there:
        yield f"{len(listed ^ there)} rows are listed and not there, or there and not listed"
    if tokens != facts.tokens:
        yield "the lengths do not add up"


def _vectors(connection: sqlite3.Connection) -> Iterator[str]:
    """Read every vector; where there are codes, each must be the signs of its vector."""
    facts = read_facts(connection)
    if not facts.dimension or facts.version == 1:
        return
    view = RowView(facts, {block: lengths for block, lengths in read_lengths(connection) if _any(lengths)})
    for block in view.blocks:
        matrix = read_vectors(connection, view, block, facts.dimension)
        present = np.asarray(view.lengths_by_block[block]) != ABSENT
        ((_, codes),) = read_codes(connection, [block], facts.dimension)
        if (codes.T[present] != codes_of(matrix[present])).any():
            yield f"the codes of block {block} do not fit its vectors"


def _words(connection: Connection) -> Iterator[str]:
    """Analyse every document again and compare how often each term occurs, and in which rows."""
    facts = read_facts(connection)
    if connection.checked:
        held = {row: checksum(row, page) for row, page in connection.execute("SELECT * FROM terms_data")}
        if held != dict(connection.execute("SELECT * FROM term_checks")):
            yield "pages of the word index are not as they were written"
        elif not leads_to_all_pages(connection):
            yield "the index of the word pages does not lead to all of them"
    analyzer = Analyzer(facts.language) if facts.version > 1 else None
    if analyzer is None:
        return
    if facts.analyzer != analyzer.version:
        yield "made by another version of the text analysis; run resift index --upgrade"
        return
    # How often and the sum of the rows: two numbers a term, where postings would not fit into memory.
    wanted: dict[str, tuple[int, int]] = {}
    for row in documents_in(connection):
        for term in analyzer.terms(row.text):
            count, rows = wanted.get(term, (0, 0))
            wanted[term] = (count + 1, rows + row.row)
    statement = "SELECT term, count(*), sum(doc) FROM temp.instances GROUP BY term"
    wrong = 0
    for term, count, rows in connection.execute(statement):
        wrong += wanted.pop(term, None) != (count, rows)
    if wrong or wanted:
        yield f"{wrong + len(wanted)} terms do not stand where they should"


def _any(lengths: array[int]) -> bool:
    return lengths.count(ABSENT) < ROWS


_CHECKS: dict[str, Callable[[Connection], Iterator[str]]] = {
    "pages": _pages,
    "documents": _documents,
    "filters": _filters,
    "rows": _rows,
    "vectors": _vectors,
    "words": _words,
}
