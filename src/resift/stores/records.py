"""Documents in the shape that server and file engines hold: hashed keys, filter tags, terms, a vector.

Ids, metadata keys and values reach an engine only as hashes or as JSON text, so that nothing in them can
be read as syntax, and every engine filters by the same equality (`filtering.canonical`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from resift._internal.arrays import Array, np
from resift.errors import StoreError
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.stores.documents import Found, documents_from
from resift.stores.embedding import unit_vectors
from resift.stores.filtering import (
    Condition,
    Pattern,
    Test,
    Value,
    canonical,
    conditions,
    filter_values,
    passes,
)
from resift.text import Analyzer
from resift.types import Hit, Metadata, Where, to_json

_SPARE = 32
"""Rows fetched beyond k: engines break ties in ways of their own, and here they are broken by id."""

_CLOSE = 1e-5
"""Scores of engines this near may be the same number: they add float32 up in any order."""

_LONGEST_VALUE = 80

TAGS_VERSION = "2"
"""Version of the tags in a table: 1 (Resift 0.2) has none for the items of lists."""


class Record(NamedTuple):
    """One document as an engine stores it; `document` is JSON in plain ASCII and holds all of it."""

    key: str
    document: str
    tags: list[str]
    terms: list[str]
    vector: Any

    @classmethod
    def of(cls, hit: Hit, terms: list[str], vector: Array | None) -> Record:
        """Return the record of a document, its index terms and its vector (None without an embedder)."""
        # There and back: dates become text first, and half characters then escapes that any engine takes.
        plain = json.loads(to_json({"id": hit.id, "text": hit.text, "metadata": dict(hit.metadata)}))
        return cls(key_of(hit.id), json.dumps(plain), tags_of(hit.metadata), terms, vector)


class Row(NamedTuple):
    """One row that an engine found: its document, its score by the engine, its vector if asked for."""

    document: str
    score: float
    vector: Any = None


async def records_from(
    documents: Iterable[Candidate], embedder: Embedder | None, analyzer: Analyzer | None, *, store: str
) -> list[Record]:
    """Return the records to store, embedded in one call with the store's own embedder."""
    given = documents_from(documents)
    terms = [[] if analyzer is None else analyzer.terms(hit.text) for hit in given]
    if embedder is None or not given:
        return [Record.of(hit, words, None) for hit, words in zip(given, terms, strict=True)]
    rows = await unit_vectors(embedder, [hit.text for hit in given], kind="document", store=store)
    return [Record.of(hit, words, row) for hit, words, row in zip(given, terms, rows, strict=True)]


def key_of(id: str) -> str:
    """Return the hash under which an engine knows a document."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def tags_of(metadata: Metadata) -> list[str]:
    """Return one tag per value that can be filtered on; each item of a list has its own."""
    return sorted({_tag(key, item) for key, value in metadata.items() for item in filter_values(value)})


class Filter(NamedTuple):
    """A filter in two parts: groups of tags for the engine, tests that are made on what it finds.

    A document has a tag of every group; an empty group has none, so nothing passes.
    """

    groups: list[list[str]]
    tests: list[Test]

    @classmethod
    def of(cls, where: Where | None) -> Filter:
        """Return the filter, or raise InputError for one that means nothing."""
        groups: list[list[str]] = []
        tests: list[Test] = []
        for test in conditions(where):
            if isinstance(test, Condition) and test.operator == "=":
                plain = [value for value in test.values if not isinstance(value, Pattern)]
                if len(plain) == len(test.values):
                    groups.append(sorted({_tag(test.key, value) for value in plain}))
                    continue
            tests.append(test)
        return cls(groups, tests)

    @classmethod
    def untagged(cls, where: Where | None) -> Filter:
        """Return the filter for a table whose tags leave out lists: everything is tested on the rows."""
        return cls([], conditions(where))

    @property
    def empty(self) -> bool:
        """Whether nothing can pass."""
        return not all(self.groups)


def document_hit(document: str, *, source: str) -> Hit:
    """Return the stored document as a hit without a score."""
    held = json.loads(document)
    return Hit(held["id"], held["text"], source=source, metadata=held["metadata"])


async def enough(
    fetch: Callable[[int], Awaitable[list[Row]]], k: int, tests: Sequence[Test] = ()
) -> list[Row]:
    """Fetch until k rows pass the tests and no row left behind can tie with the last of them."""
    limit = k + _SPARE
    while True:
        rows = await fetch(limit)
        kept = [row for row in rows if passes(json.loads(row.document)["metadata"], tests)] if tests else rows
        if len(rows) < limit or (len(kept) >= k and kept[k - 1].score - rows[-1].score > _CLOSE):
            return kept
        # Four times as many: tests that few documents pass would else ask the engine over and over.
        limit *= 4


def found_by_words(rows: Sequence[Row]) -> list[Found]:
    """Return the matches with the engine's own scores."""
    return [_found(row, row.score) for row in rows]


def found_by_vector(rows: Sequence[Row], asked: Array) -> list[Found]:
    """Return the matches with exact cosines; engines add float32 up in an order of their own."""
    # Summed in float64, so that a score does not depend on the engine's order of adding.
    query = asked.astype(np.float64)
    held = [np.asarray(row.vector, dtype=np.float32).astype(np.float64) for row in rows]
    return [_found(row, float(vector @ query)) for row, vector in zip(rows, held, strict=True)]


def refuse_other_table(table: str, present: Iterable[str], needed: Iterable[str], *, store: str) -> None:
    """Raise StoreError for a table that Resift did not create."""
    held = set(present)
    missing = [name for name in needed if name not in held]
    if missing:
        raise StoreError(
            f"{table!r} of store {store!r} was not created by Resift: it has no {', '.join(missing)}. Name "
            "another table, or search this one as it is with an ExternalStore "
            "(docs/integrations/other-indexes.md).",
            store=store,
        )


def refuse_other_embedder(held: str, mine: str, *, store: str) -> None:
    """Raise StoreError when an index holds the vectors of another embedder."""
    if held != mine:
        raise StoreError(
            f"{store!r} holds vectors of {held or 'no embedder'!r}, not of {mine or 'no embedder'!r}; "
            "their distances mean nothing to each other. Use that embedder, or another table.",
            store=store,
        )


def _found(row: Row, score: float) -> Found:
    held = json.loads(row.document)
    return Found(held["id"], held["text"], score, held["metadata"])


def _tag(key: str, value: Value) -> str:
    text = canonical(value)
    if len(text) > _LONGEST_VALUE:
        text = "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(json.dumps([key, text]).encode("ascii")).hexdigest()[:32]
