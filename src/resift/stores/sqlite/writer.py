"""Write transactions that add, replace and delete documents; conversion of older files; verification of a file."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from resift._internal.arrays import np
from resift.errors import StoreError, shell_path
from resift.stores.sqlite import database, lexical_index, vector_index
from resift.stores.sqlite import rows as stored_rows
from resift.stores.sqlite.database import Connection, FileMetadata, IndexCorruptedError, checksum, read_metadata
from resift.stores.sqlite.rows import ABSENT, BLOCK_ROWS, RowListCache, StoredRow, read_lengths, read_rows
from resift.text import Analysis, Analyzer
from resift.types import Hit, to_json

_MIN_BLOCK_DOCUMENTS = BLOCK_ROWS // 4
"""The documents of a sparser block move to the newest block, so that deletions free memory."""
_MAX_PROBLEMS = 20
_SUM_ATTRIBUTES = "SELECT key, value, count(*), sum(row) FROM attributes GROUP BY key, value"
_SEGMENT_DOCUMENTS = 10_000  # documents whose terms are kept in memory while a file is reanalyzed


class FileUser(NamedTuple):
    """The store that uses a file, and the name of its embedder (None without one)."""

    path: str
    store: str
    embedder: str | None

    def check_embedder(self, file: FileMetadata, *, dimension: int = 0, adding: bool = False) -> None:
        """Raise StoreError unless the embedder is the one that the file was built with."""
        if not file.dimension or (self.embedder is None and not adding):
            return
        built = f"{self.path} was built with {file.embedder!r} ({file.dimension} dimensions)"
        if self.embedder is None:
            raise StoreError(f"{built}; open it with that embedder to add documents.", store=self.store)
        if self.embedder != file.embedder or dimension not in (0, file.dimension):
            now = f"{self.embedder!r}" + (f" ({dimension} dimensions)" if dimension else "")
            raise StoreError(
                f"{built}, not with {now}. Open it with {file.embedder!r}, or index again into a new file.",
                store=self.store,
            )


class Batch(NamedTuple):
    """Documents to write, with their analyses and vectors."""

    hits: list[Hit]
    analyses: dict[str, Analysis]
    vectors: dict[str, bytes]

    @classmethod
    def join(cls, batches: Iterable[Batch]) -> Batch:
        """Join several batches, which must not share ids."""
        joined = cls([], {}, {})
        for batch in batches:
            joined.hits.extend(batch.hits)
            joined.analyses.update(batch.analyses)
            joined.vectors.update(batch.vectors)
        return joined

    def select(self, ids: Collection[str]) -> Batch:
        """Return a batch with only these ids."""
        return self._replace(hits=[hit for hit in self.hits if hit.id in ids])


class WriteTransaction:
    """The changes of one transaction. `finish` writes the blocks, the keyword index and the totals."""

    def __init__(self, connection: Connection, analyzer: Analyzer) -> None:
        self.file = read_metadata(connection)
        self._connection = connection
        self._analyzer = analyzer
        self._languages = set(self.file.languages)
        self._documents, self._tokens = self.file.documents, self.file.tokens
        self._terms: list[tuple[int, Sequence[str]]] = []
        self._lengths: dict[int, array[int]] = {}
        self._vectors: dict[int, dict[int, bytes]] = {}
        self._attribute_rows: Counter[tuple[str, object]] = Counter()
        self._attribute_totals: Counter[tuple[str, object]] = Counter()
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchone()
        self._last_row: int = 0 if row is None else row[0]

    def add(self, hit: Hit, analysis: Analysis, vector: bytes | None) -> None:
        """Insert a document whose id is not in the file."""
        self._last_row += 1
        row, metadata = self._last_row, encode_metadata(hit)
        texts = (hit.id, hit.text, metadata)
        digest = checksum(row, *[text.encode() for text in texts])
        self._connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", (row, *texts, digest))
        if vector is not None:
            self._connection.execute("INSERT INTO vectors VALUES (?, ?, ?)", (row, vector, checksum(row, vector)))
            self._vectors.setdefault(row // BLOCK_ROWS, {})[row % BLOCK_ROWS] = vector
        # A search returns the metadata after a JSON round trip, so filters must use the same values.
        for key, value in stored_rows.list_attributes(json.loads(metadata)):
            self._connection.execute("INSERT INTO attributes VALUES (?, ?, ?)", (key, value, row))
            self._attribute_rows[key, value] += 1
            self._attribute_totals[key, value] += row
        self._terms.append((row, analysis.terms))
        self._languages |= analysis.languages
        self._tokens += len(analysis.terms)
        self._block(row // BLOCK_ROWS)[row % BLOCK_ROWS] = len(analysis.terms)
        self._documents += 1

    def remove(self, rows: Collection[StoredRow]) -> int:
        """Delete documents and return their number. The rows stay in the posting lists until a merge."""
        for stored in rows:
            row = stored.row
            self._connection.execute("DELETE FROM vectors WHERE row = ?", (row,))
            for key, value in stored_rows.list_attributes(stored.decode_metadata()):
                self._connection.execute(
                    "DELETE FROM attributes WHERE key = ? AND value = ? AND row = ?", (key, value, row)
                )
                self._attribute_rows[key, value] -= 1
                self._attribute_totals[key, value] -= row
            self._connection.execute("DELETE FROM documents WHERE row = ?", (row,))
            lengths = self._block(row // BLOCK_ROWS)
            # Deleting a row twice would make the totals permanently wrong.
            if lengths[row % BLOCK_ROWS] == ABSENT:
                raise IndexCorruptedError("row_blocks", row // BLOCK_ROWS)
            self._documents -= 1
            self._tokens -= lengths[row % BLOCK_ROWS]
            lengths[row % BLOCK_ROWS] = ABSENT
        return len(rows)

    def finish(self) -> None:
        """Empty sparse blocks, then write the blocks, the keyword index and the totals."""
        rows = read_rows(self._connection, self._list_sparse_rows())
        vectors = stored_rows.read_vectors(self._connection, list(rows))
        # The row number determines the block, so a document moves by getting a new row number.
        for row in rows.values():
            self.remove([row])
            hit = Hit(row.id, row.text, metadata=row.decode_metadata())
            self.add(hit, self._analyzer.analyze(row.text), vectors.get(row.row))
        self._write_blocks()
        self._write_sums()
        connection = self._connection
        segments = lexical_index.SegmentWriter(connection, self.file.segments, self._documents)
        segments.add(self._terms)
        segments.save()
        totals = {"documents": self._documents, "tokens": self._tokens, "languages": " ".join(sorted(self._languages))}
        database.write_metadata(connection, totals)

    def _list_sparse_rows(self) -> list[int]:
        """Return the rows of changed blocks that have few documents, except the newest block."""
        (newest,) = self._connection.execute("SELECT max(row) FROM documents").fetchone()
        return [
            block * BLOCK_ROWS + offset
            for block, lengths in self._lengths.items()
            if newest is None or block != newest // BLOCK_ROWS
            if BLOCK_ROWS - lengths.count(ABSENT) < _MIN_BLOCK_DOCUMENTS
            for offset, length in enumerate(lengths)
            if length != ABSENT
        ]

    def _write_blocks(self) -> None:
        for block, lengths in self._lengths.items():
            # An empty record tells readers that the block has no documents.
            packed = stored_rows.write_lengths(self._connection, block, lengths, self.file.generation + 1)
            if not packed:
                self._connection.execute("DELETE FROM code_blocks WHERE block = ?", (block,))
            elif block in self._vectors:
                vector_index.write_codes(self._connection, block, self._vectors[block])

    def _write_sums(self) -> None:
        totals = self._attribute_totals
        changed = [(*pair, rows, totals[pair]) for pair, rows in self._attribute_rows.items() if rows or totals[pair]]
        self._connection.executemany(
            "INSERT INTO attribute_sums VALUES (?, ?, ?, ?) ON CONFLICT (key, value) "
            "DO UPDATE SET rows = rows + excluded.rows, total = total + excluded.total",
            changed,
        )
        decreased = [(key, value) for key, value, rows, _ in changed if rows < 0]
        statement = "DELETE FROM attribute_sums WHERE key = ? AND value = ? AND rows = 0"
        self._connection.executemany(statement, decreased)

    def _block(self, block: int) -> array[int]:
        if block not in self._lengths:
            statement = "SELECT lengths, checksum FROM row_blocks WHERE block = ?"
            stored = self._connection.execute(statement, (block,)).fetchone()
            empty = array("i", [ABSENT]) * BLOCK_ROWS
            self._lengths[block] = empty if stored is None else stored_rows.unpack_lengths(block, *stored)
        return self._lengths[block]


def write_batch(connection: Connection, batch: Batch, user: FileUser, analyzer: Analyzer) -> list[Hit]:
    """Write the documents; return those that another writer has changed since their texts were compared.

    `batch.vectors` contains the newly embedded documents. All others had the same text and keep their vector.
    """
    transaction = WriteTransaction(connection, analyzer)
    vectors = batch.vectors
    dimension = len(next(iter(vectors.values()))) // 4 if vectors else 0
    user.check_embedder(transaction.file, dimension=dimension, adding=True)
    if transaction.file.analyzer != analyzer.version:
        raise StoreError(
            f"The keyword index of {user.path} was built by another version of the text analysis. Rebuild "
            f"it without losing data: resift index --upgrade --store {shell_path(user.path)}",
            store=user.store,
        )
    # The first vectors determine the embedder of the file.
    if dimension and not transaction.file.dimension:
        database.write_metadata(connection, {"embedder": user.embedder, "dimension": dimension})
    # Read again inside the transaction, because another process may have written since the comparison.
    before = stored_rows.read_rows_by_id(connection, [hit.id for hit in batch.hits])
    ready, stale = list[Hit](), list[Hit]()
    for hit in batch.hits:
        has_vector = user.embedder is None or hit.id in vectors
        is_same = hit.id in before and before[hit.id].text == hit.text
        (ready if has_vector or is_same else stale).append(hit)
    replaced = {hit.id: before[hit.id] for hit in ready if hit.id in before}
    kept = stored_rows.read_vectors(connection, [row.row for id, row in replaced.items() if id not in vectors])
    transaction.remove(replaced.values())
    for hit in ready:
        old = kept.get(replaced[hit.id].row) if hit.id in replaced else None
        transaction.add(hit, batch.analyses[hit.id], vectors.get(hit.id) or old)
    transaction.finish()
    return stale


def delete_documents(connection: Connection, ids: Sequence[str], analyzer: Analyzer) -> int:
    """Delete the documents and return how many existed."""
    transaction = WriteTransaction(connection, analyzer)
    removed = transaction.remove(stored_rows.read_rows_by_id(connection, ids).values())
    transaction.finish()
    return removed


def encode_metadata(hit: Hit) -> str:
    """Return the metadata in its stored form."""
    return to_json(dict(hit.metadata))


# Maintenance


def optimize(connection: Connection) -> int:
    """Rebuild damaged bit codes, and merge all segments into one; return the number of rebuilt blocks."""
    rebuilt = _rebuild_codes(connection)
    file = read_metadata(connection)
    indexed = sum(segment.documents for segment in file.segments)
    if len(file.segments) > 1 or (file.segments and indexed > file.documents):
        segments = lexical_index.SegmentWriter(connection, file.segments, file.documents)
        segments.merge(len(file.segments))
        segments.save()
    return rebuilt


def _rebuild_codes(connection: Connection) -> int:
    rows = RowListCache().load(connection)
    if not rows.file.dimension:
        return 0
    damaged = 0
    for block, lengths in rows.lengths_by_block.items():
        try:
            vector_index.read_codes(connection, block, rows.file.dimension)
        except IndexCorruptedError:
            matrix = vector_index.read_block_vectors(connection, rows, block, rows.file.dimension)
            connection.execute("DELETE FROM code_blocks WHERE block = ?", (block,))
            present = [offset for offset, length in enumerate(lengths) if length != ABSENT]
            vector_index.write_codes(connection, block, {i: matrix[i].astype("<f4").tobytes() for i in present})
            damaged += 1
    return damaged


def convert_file(connection: Connection) -> None:
    """Convert a file of Resift 0.2 to the current version, as part of the first write to it."""
    for name in ("temp.instances", "terms", "term_checks"):
        connection.execute(f"DROP TABLE {name}")
    connection.execute(f"CREATE {database.TABLES['postings']}")
    connection.execute("DELETE FROM attributes")
    for row in stored_rows.iterate_documents(connection):
        pairs = [(*pair, row.row) for pair in stored_rows.list_attributes(row.decode_metadata())]
        connection.executemany("INSERT INTO attributes VALUES (?, ?, ?)", pairs)
    connection.execute("DELETE FROM attribute_sums")
    connection.execute(f"INSERT INTO attribute_sums {_SUM_ATTRIBUTES}")
    reanalyze(connection, Analyzer(read_metadata(connection).language))
    database.sign_definitions(connection)


def reanalyze(connection: Connection, analyzer: Analyzer) -> None:
    """Rebuild the keyword index and the row blocks with this text analysis."""
    file = read_metadata(connection)
    connection.execute("DELETE FROM postings")
    segments = lexical_index.SegmentWriter(connection, (), file.documents)
    languages, tokens = set[str](), 0
    documents: list[tuple[int, Sequence[str]]] = []
    blocks: dict[int, array[int]] = {}
    for row in stored_rows.iterate_documents(connection):
        analysis = analyzer.analyze(row.text)
        documents.append((row.row, analysis.terms))
        if len(documents) == _SEGMENT_DOCUMENTS:
            segments.add(documents)
            documents = []
        languages |= analysis.languages
        tokens += len(analysis.terms)
        empty = array("i", [ABSENT]) * BLOCK_ROWS
        blocks.setdefault(row.row // BLOCK_ROWS, empty)[row.row % BLOCK_ROWS] = len(analysis.terms)
    segments.add(documents)
    segments.save()
    for block, lengths in blocks.items():
        stored_rows.write_lengths(connection, block, lengths, file.generation + 1)
    facts = {"tokens": tokens, "languages": " ".join(sorted(languages))}
    database.write_metadata(connection, {**facts, "language": analyzer.language, "analyzer": analyzer.version})


# Verification of a file


def find_problems(connection: Connection) -> list[str]:
    """Check the file in the connection's snapshot; return at most 20 problems, which never quote documents."""
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
    count = sum(1 for _ in stored_rows.iterate_documents(connection))
    if count != expected:
        yield f"{count} exist, {expected} were written"


def _check_filters(connection: Connection) -> Iterator[str]:
    """Compare the attributes of every document with its metadata."""
    if connection.version == database.LEGACY_VERSION:
        return  # the attributes of legacy files are not used
    attributes: dict[int, set[object]] = {}
    for row, key, value in connection.execute("SELECT row, key, value FROM attributes ORDER BY row"):
        attributes.setdefault(row, set()).add((key, value))
    for stored in stored_rows.iterate_documents(connection):
        expected = set(stored_rows.list_attributes(stored.decode_metadata()))
        if attributes.pop(stored.row, set()) != expected:
            yield f"the attributes of row {stored.row} differ from its metadata"
    if attributes:
        yield f"{len(attributes)} rows belong to no document"
    # Compare as sets, because values of different types cannot be sorted.
    if set(connection.execute(_SUM_ATTRIBUTES)) != set(connection.execute("SELECT * FROM attribute_sums")):
        yield "the number of attributes differs from the number written"


def _check_rows(connection: Connection) -> Iterator[str]:
    stored = {row for (row,) in connection.execute("SELECT row FROM documents")}
    if differing := stored.symmetric_difference(stored_rows.list_rows(connection)):
        yield f"{len(differing)} rows are listed without a document, or exist without being listed"
    tokens = sum(length for _, lengths in read_lengths(connection) for length in lengths if length != ABSENT)
    if tokens != read_metadata(connection).tokens:
        yield "the document lengths do not add up to the recorded total"


def _check_vectors(connection: Connection) -> Iterator[str]:
    """Read every vector, and compare its signs with its bit code."""
    rows = RowListCache().load(connection)
    dimension = rows.file.dimension
    for block in rows.blocks if dimension else ():
        matrix = vector_index.read_block_vectors(connection, rows, block, dimension)
        present = np.asarray(rows.lengths_by_block[block]) != ABSENT
        codes = vector_index.read_codes(connection, block, dimension)
        if (codes.T[present] != vector_index.encode_vectors(matrix[present])).any():
            yield f"the codes of block {block} differ from its vectors"


def _check_terms(connection: Connection) -> Iterator[str]:
    """Analyze every document again, and compare the count of each term and the sum of its rows."""
    file = read_metadata(connection)
    analyzer = Analyzer(file.language)
    if file.analyzer != analyzer.version:
        yield "built by another version of the text analysis; run resift index --upgrade"
        return
    # Keep two numbers per term, because the posting lists of a large file would not fit into memory.
    counts, sums = Counter[str](), Counter[str]()
    present: set[int] = set()
    for stored in stored_rows.iterate_documents(connection):
        present.add(stored.row)
        for term in analyzer.terms(stored.text):
            counts[term] += 1
            sums[term] += stored.row
    for term, occurrences in _iterate_terms(connection):
        for row, count in occurrences:
            if row in present:
                counts[term] -= count
                sums[term] -= row * count
    if wrong := sum(1 for term, count in counts.items() if count or sums[term]):
        yield f"the posting lists of {wrong} terms differ from the documents"


def _iterate_terms(connection: Connection) -> Iterator[tuple[str, Iterable[tuple[int, int]]]]:
    """Yield (term, (row, count) pairs) of the keyword index; a term may occur in several segments."""
    if connection.version == database.LEGACY_VERSION:
        yield from lexical_index.iterate_legacy_terms(connection)
    for segment in read_metadata(connection).segments:
        for item in lexical_index.iterate_segment(connection, segment.number):
            rows, counts = item.decode()
            yield item.term, zip(map(int, rows), map(int, counts), strict=True)


_CHECKS: dict[str, Callable[[Connection], Iterator[str]]] = {
    "pages": _check_pages,
    "documents": _check_documents,
    "filters": _check_filters,
    "rows": _check_rows,
    "vectors": _check_vectors,
    "words": _check_terms,
}
