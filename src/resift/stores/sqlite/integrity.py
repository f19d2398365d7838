"""The full check of a file: checksums, and whether the derived tables match the documents."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator

from resift._internal.arrays import np
from resift.stores.sqlite.attributes import list_attributes
from resift.stores.sqlite.lexical_index import iterate_legacy_terms, iterate_segment
from resift.stores.sqlite.rows import ABSENT, BLOCK_ROWS, RowList, iterate_documents, read_lengths
from resift.stores.sqlite.tables import (
    LISTS_INDEXED_SINCE,
    POSTINGS_SINCE,
    Connection,
    IndexCorruptedError,
    read_metadata,
)
from resift.stores.sqlite.vector_index import encode_vectors, read_block_vectors, read_codes
from resift.text import Analyzer

_MAX_PROBLEMS = 20


def find_problems(connection: Connection) -> list[str]:
    """Return at most 20 problems of the file in the connection's snapshot, without any text of documents."""
    problems: list[str] = []
    for name, check in _CHECKS.items():
        try:
            problems += [f"{name}: {problem}" for problem in check(connection)]
        except IndexCorruptedError as exc:
            problems.append(f"{name}: {exc}")
        except (sqlite3.Error, KeyError, ValueError, TypeError) as exc:
            problems.append(f"{name}: cannot be read ({type(exc).__name__})")
    return problems[:_MAX_PROBLEMS]


def _check_pages(connection: Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})"):
        if line != "ok":
            yield str(line)


def _check_documents(connection: Connection) -> Iterator[str]:
    expected = read_metadata(connection).documents
    count = sum(1 for _ in iterate_documents(connection))
    if count != expected:
        yield f"{count} exist, {expected} were written"


def _check_filters(connection: Connection) -> Iterator[str]:
    """Compare the attributes of every document with its metadata."""
    lists = read_metadata(connection).version >= LISTS_INDEXED_SINCE
    attributes: dict[int, set[object]] = {}
    for row, key, value in connection.execute("SELECT row, key, value FROM attributes ORDER BY row"):
        attributes.setdefault(row, set()).add((key, value))
    for stored in iterate_documents(connection):
        expected = set(list_attributes(stored.decode_metadata(), lists=lists))
        if attributes.pop(stored.row, set()) != expected:
            yield f"the attributes of row {stored.row} differ from its metadata"
    if attributes:
        yield f"{len(attributes)} rows belong to no document"
    counted = "SELECT key, value, count(*), sum(row) FROM attributes GROUP BY key, value"
    # As sets: values of several types have no order.
    if set(connection.execute(counted)) != set(connection.execute("SELECT * FROM attribute_sums")):
        yield "the number of attributes differs from the number written"


def _check_rows(connection: Connection) -> Iterator[str]:
    stored = {row for (row,) in connection.execute("SELECT row FROM documents")}
    listed, tokens = set(), 0
    for block, lengths in read_lengths(connection):
        listed |= {block * BLOCK_ROWS + i for i, length in enumerate(lengths) if length != ABSENT}
        tokens += sum(length for length in lengths if length != ABSENT)
    if listed != stored:
        yield f"{len(listed ^ stored)} rows are listed without a document, or the reverse"
    if tokens != read_metadata(connection).tokens:
        yield "the lengths do not add up"


def _check_vectors(connection: Connection) -> Iterator[str]:
    """Read every vector, and compare its signs with its bit code."""
    file = read_metadata(connection)
    if not file.dimension:
        return
    blocks = {
        block: lengths for block, lengths in read_lengths(connection) if lengths.count(ABSENT) < BLOCK_ROWS
    }
    rows = RowList(file, blocks)
    for block in rows.blocks:
        matrix = read_block_vectors(connection, rows, block, file.dimension)
        present = np.asarray(blocks[block]) != ABSENT
        ((_, codes),) = read_codes(connection, [block], file.dimension)
        if (codes.T[present] != encode_vectors(matrix[present])).any():
            yield f"the codes of block {block} differ from its vectors"


def _check_terms(connection: Connection) -> Iterator[str]:
    """Analyze every document again, and compare the count of each term and the sum of its rows."""
    file = read_metadata(connection)
    analyzer = Analyzer(file.language)
    if file.analyzer != analyzer.version:
        yield "made by another version of the text analysis; run resift index --upgrade"
        return
    # Two numbers per term: the posting lists of a large file would not fit into memory.
    expected: dict[str, tuple[int, int]] = {}
    present: set[int] = set()
    for stored in iterate_documents(connection):
        present.add(stored.row)
        for term in analyzer.terms(stored.text):
            count, rows = expected.get(term, (0, 0))
            expected[term] = (count + 1, rows + stored.row)
    found: dict[str, tuple[int, int]] = {}
    for term, occurrences in _iterate_terms(connection):
        counted = [(row, count) for row, count in occurrences.items() if row in present]
        if counted:
            count, rows = found.get(term, (0, 0))
            total = sum(row * n for row, n in counted)
            found[term] = (count + sum(n for _, n in counted), rows + total)
    wrong = {term for term, _ in expected.items() ^ found.items()}
    if wrong:
        yield f"the posting lists of {len(wrong)} terms differ from the documents"


def _iterate_terms(connection: Connection) -> Iterator[tuple[str, Counter[int]]]:
    if connection.version < POSTINGS_SINCE:
        yield from iterate_legacy_terms(connection)
        return
    for segment in read_metadata(connection).segments:
        for item in iterate_segment(connection, segment.number):
            rows, counts = item.decode()
            yield item.term, Counter(dict(zip(map(int, rows), map(int, counts), strict=True)))


_CHECKS: dict[str, Callable[[Connection], Iterator[str]]] = {
    "pages": _check_pages,
    "documents": _check_documents,
    "filters": _check_filters,
    "rows": _check_rows,
    "vectors": _check_vectors,
    "words": _check_terms,
}
