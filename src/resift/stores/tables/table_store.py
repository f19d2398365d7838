"""Shared parts of stores over tables of other programs: columns, hits, filters, and keyword search by a scan.

A table store only reads. It passes as much of a filter to the engine as the engine can test exactly or more
loosely than `resift.stores.filters`, and tests every row that comes back. Without a text index, a store reads
the rows, analyzes their text and computes BM25 itself, up to `scan_limit` rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict

from resift.errors import InputError, StoreError, did_you_mean
from resift.external.records import (
    BODY_NAMES,
    ID_KEYS,
    TITLE_NAMES,
    LabeledFields,
    check_fields,
    lookup,
    read_flat_text,
)
from resift.external.systems import clean_row
from resift.models.embedder import NO_EMBEDDER, EmbedderOptions, embedding_models
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.stores.backend import BackendStore, Row
from resift.stores.base import Mode, SearchHits, Side, StoreView
from resift.stores.filters import Condition, Test, list_conditions, parse_filter, passes_all
from resift.text import Analyzer
from resift.text.analysis import BM25, idf
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, Where, set_original
from resift.validation import check_arguments, check_k, option

Fields = Sequence[str] | Mapping[str, float] | str
Distance = Literal["cosine", "l2", "inner-product"]

SCAN_LIMIT = 20_000
"""Rows that a keyword search without a text index reads; analyzing them takes about two seconds, once."""
MAX_FETCH = 20_000
"""Rows that are fetched to find k that pass a filter which the engine cannot test."""
_KNOWN_NAMES = (*TITLE_NAMES, *BODY_NAMES)


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(EmbedderOptions):
    """Options that all table stores share in a pipeline file."""

    fields: Fields | None = option(
        "Columns with the text, the most important first, or column: weight. Default: known names, such as "
        "`title` and `body`.",
        default=None,
        kind="names or weights",
    )
    id: tuple[str, ...] | None = option(
        "Column with the id, or several that make one. Default: the primary key.", default=None
    )
    metadata: tuple[str, ...] | None = option(
        "Columns to return with each hit. Default: all other columns.", default=None
    )
    filter: JsonMapping | None = option(
        "Search only rows that pass this filter, written like `where`: {published: true}.", default=None
    )
    embedder: str | None = option(
        "Model that filled the vector column: a model's id, or `none` to search by keywords only.",
        default=None,
        choices=lambda: [NO_EMBEDDER, *embedding_models()],
        advice=pin_advice,
    )
    vector: str | None = option("Column with the vectors.", default=None)
    mode: Mode | None = option("Search by keywords, by vectors, or by both.", default=None)
    language: str = option("Language of the text, such as `english`, for keyword search.", default="auto")
    scan_limit: int = option(
        "Rows that a keyword search without a text index reads at most.", default=SCAN_LIMIT, min=1
    )


class ColumnArguments(TypedDict, total=False):
    """Keyword arguments that all table stores share."""

    fields: Fields | None
    id: str | Sequence[str] | None
    metadata: Sequence[str] | None
    filter: Where | None
    embedder: Embedder | None
    vector: str | None
    mode: Mode | None
    language: str
    scan_limit: int


class TableColumns:
    """Which columns of a table are the id, the text, the vector and the metadata."""

    @check_arguments
    def __init__(self, *, store: str, **arguments: JsonValue) -> None:
        self.store = store
        fields = arguments.get("fields")
        self.fields = check_fields(fields)
        self.weights: dict[str, float] = dict.fromkeys(self.fields or (), 1.0)
        if isinstance(fields, Mapping):
            self.weights = {name: float(fields[name]) for name in self.fields or ()}
        id = arguments.get("id")
        self.id: tuple[str, ...] = (id,) if isinstance(id, str) else tuple(id or ())
        self.metadata = None if arguments.get("metadata") is None else tuple(arguments["metadata"])
        self.vector: str | None = arguments.get("vector")
        self.tests = parse_filter(arguments.get("filter"))

    def named(self) -> list[tuple[str, str]]:
        """Return (argument, column) for every column that the caller named."""
        names = [("fields", name) for name in self.fields or ()]
        names += [("id", name) for name in self.id]
        names += [("metadata", name) for name in self.metadata or ()]
        names += [("vector", self.vector)] if self.vector else []
        return names + [("filter", condition.key) for condition in list_conditions(self.tests)]

    def check(self, table: str, columns: Iterable[str], *, what: str = "columns") -> None:
        """Raise InputError for the first named column that does not exist."""
        known = list(columns)
        for argument, name in self.named():
            if name not in known and name.partition(".")[0] not in known:
                raise InputError(missing_column(table, name, known, argument=f"{argument}=", what=what))

    def choose_fields(self, table: str, text_columns: Sequence[str]) -> None:
        """Choose the columns with known names if the caller named none."""
        if self.fields is not None:
            return
        by_name = {name.casefold(): name for name in reversed(text_columns)}
        chosen = [by_name[name] for name in _KNOWN_NAMES if name in by_name]
        ignored = [name for name in text_columns if name not in (*chosen, *self.id, *ID_KEYS)]
        if not chosen or (ignored and all(name.casefold() in TITLE_NAMES for name in chosen)):
            subject = f"Only {', '.join(chosen)}" if chosen else "No text column"
            raise InputError(
                f"{subject} of {table!r} has a known name, such as title or body. Name the columns to search "
                f"with fields=. Text columns: {', '.join(text_columns) or 'none'}."
            )
        self.fields = LabeledFields(chosen)
        self.weights = dict.fromkeys(chosen, 1.0)

    def choose_id(self, table: str, columns: Iterable[str], primary_key: Sequence[str]) -> None:
        """Choose the primary key, or a column with a known name, if the caller named no id."""
        known = list(columns)
        if not self.id:
            self.id = tuple(primary_key) or tuple(name for name in ID_KEYS if name in known)[:1]
        if not self.id:
            shown = ", ".join(known)
            raise InputError(
                f"{table!r} has no primary key and no column named id. Name the column with id=. "
                f"Columns: {shown}."
            )

    def make_hit(self, row: Row, source: str) -> Hit:
        """Return a row as a hit; its text has the fields in order, each with its name in front."""
        record = clean_row(
            {name: cell for name, cell in row.values.items() if not isinstance(cell, (bytes, memoryview))}
        )
        try:
            values = row.values if self.id[0] in row.values else flatten_metadata(row.values)
            id = ":".join(str(values[name]) for name in self.id if values[name] is not None)
        except KeyError as exc:
            raise StoreError(
                f"A document of {self.store!r} has no field {exc.args[0]!r}, which id= names.",
                store=self.store,
            ) from exc
        if not id:
            shown = ", ".join(self.id)
            raise StoreError(
                f"A row of {self.store!r} has no value in {shown}; name another column with id=.",
                store=self.store,
            )
        text = read_flat_text(record, self.fields, original=record)
        score = None if row.score is None or not math.isfinite(row.score) else float(row.score)
        hit = Hit(id, text.text, score, source, self._metadata(record, text.fields))
        return set_original(hit, dict(row.values))

    def _metadata(self, record: JsonMapping, text_fields: Sequence[str]) -> JsonObject:
        nested, flat = record.get("metadata"), flatten_metadata(record)
        if self.metadata is not None:
            return {name: flat[name] for name in self.metadata if name in flat}
        hidden = {
            *self.id,
            self.vector,
            *(name for name in text_fields if name.casefold() not in TITLE_NAMES),
        }
        if isinstance(nested, Mapping):
            hidden.add("metadata")
        return {name: value for name, value in flat.items() if name not in hidden}


def flatten_metadata(record: JsonMapping) -> JsonObject:
    """Return the fields of a record with those of its `metadata`."""
    nested = record.get("metadata")
    return {**nested, **record} if isinstance(nested, Mapping) else dict(record)


def missing_column(
    table: str, name: str, known: Sequence[str], *, argument: str, what: str = "columns"
) -> str:
    """Return the message about a column that does not exist."""
    suggestion = did_you_mean(name, known) if known else ""
    listed = ", ".join(known[:40]) + (f" and {len(known) - 40} more" if len(known) > 40 else "")
    hint = suggestion if "?" in suggestion else ""
    hint = hint.partition("?")[0] + "? " if hint else ""
    return f"{argument} names {name!r}, which {table!r} does not have. {hint}Its {what}: {listed or 'none'}."


class TableStore(BackendStore):
    """The part of a table store that does not depend on its engine.

    Subclasses fetch rows: the best by keywords, the nearest by vectors, or all of them for a scan.
    """

    max_fetch = MAX_FETCH
    default_mode: Mode = "hybrid"
    """The mode with an embedder; "vector" where keyword search would read the whole collection."""
    column_word = "columns"
    table = ""
    """Name of the table in messages."""
    embeds_queries = False
    """Whether the engine embeds queries itself, so that vector search needs no embedder."""

    def __init__(
        self, name: str, columns: TableColumns, arguments: ColumnArguments, *, threads: int, has_vectors: bool
    ) -> None:
        self.columns = columns
        self.embedder = arguments.get("embedder")
        self.name = name
        self.scan_limit = check_k(arguments.get("scan_limit", SCAN_LIMIT), name="scan_limit", min=1)
        mode = self._resolve_mode(arguments.get("mode"), has_vectors=has_vectors)
        super().__init__(name, self.embedder, mode, threads=threads)
        self._scan_index = ScanIndex(Analyzer(arguments.get("language") or "auto"), columns, self.scan_limit)
        hybrid = self.mode == "hybrid"
        self.text = StoreView(self, "text", partial(self.search_side, "text")) if hybrid else None
        self.vectors = StoreView(self, "vectors", partial(self.search_side, "vectors")) if hybrid else None

    def _resolve_mode(self, mode: Mode | None, *, has_vectors: bool) -> Mode:
        if mode not in (None, "hybrid", "text", "vector"):
            raise InputError(f"mode is {mode!r}; pass 'hybrid', 'text' or 'vector'.")
        if mode == "text":
            return "text"
        if self.embedder is None and self.embeds_queries:
            return mode or "vector"
        if mode is None and self.embedder is None and not self.columns.vector:
            return "text"
        if self.embedder is None:
            raise InputError(
                f"Vectors of {self.name!r} need the model that made them: pass embedder=, or mode='text'."
            )
        if not has_vectors:
            raise InputError(
                f"Store {self.name!r} has an embedder but no vector column; name it with vector=, or leave "
                "embedder out to search by keywords."
            )
        return mode or self.default_mode

    async def search_side(
        self, side: Side, query: str, *, k: int, where: Where | None, source: str
    ) -> list[Hit]:
        """Search by keywords or by vectors alone."""
        if isinstance(query, str):
            query = clean_text(query)
        return await super().search_side(side, query, k=k, where=where, source=source)

    async def _search_text(self, query: str, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        if self._has_text_index():
            return await super()._search_text(query, tests, k, source)
        words = self._scan_index.like_words(query)
        rows, total = await self._scan(tests, words, self.scan_limit)
        passing = [row for row in rows if not tests or self._passes(row, tests)]
        best = await self._workers.run(lambda: self._scan_index.best(query, passing, k))
        hits = SearchHits(self._make_hits(best, source))
        if total > len(rows):
            hits.approximate = True
            hits.warning = (
                f"{self.name}: read {len(rows):,} of {total:,} rows, because it has no text index. "
                "Create one, narrow the search with filter, or raise scan_limit."
            )
        return hits

    def _filter_tests(self, where: Where | None) -> list[Test]:
        return [*self.columns.tests, *parse_filter(where)]

    def _make_hit(self, row: Row, source: str) -> Hit:
        return self.columns.make_hit(row, source)

    def _passes(self, row: Row, tests: Sequence[Test]) -> bool:
        values = flatten_metadata(clean_row(row.values))
        for condition in list_conditions(tests):
            if "." in condition.key and condition.key not in values:
                values[condition.key] = lookup(values, condition.key)
        return passes_all(values, tests)

    def _check_filter(self, conditions: Sequence[Condition]) -> None:
        known = self._filter_columns()
        for condition in conditions:
            if known and condition.key not in known and condition.key.partition(".")[0] not in known:
                message = missing_column(
                    self.table, condition.key, known, argument="where", what=self.column_word
                )
                raise InputError(message)

    def _check_dimension(self, dimension: int) -> None:
        column = self.columns.vector or ""
        stored = self._vector_dimension(column)
        if stored and stored != dimension:
            raise StoreError(
                f"{column or 'the vector'!r} of {self.name!r} has vectors of {stored} dimensions, and the "
                f"embedder makes {dimension}. Use the embedder that filled the column.",
                store=self.name,
            )

    # Implemented by engines

    def _filter_columns(self) -> list[str]:
        """Return the columns that a filter may name; an empty list if they are not known."""
        return []

    def _vector_dimension(self, column: str) -> int:
        """Return the length of the vectors in a column; 0 if it is not known."""
        return 0

    def _has_text_index(self) -> bool:
        return False

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        """Return up to `limit` rows that may pass the tests, and how many there are.

        If there are more, rows that contain one of the words are preferred.
        """
        raise NotImplementedError


def distance_score(distance: float | None, kind: str) -> float | None:
    """Return a score that is higher for nearer vectors: the cosine, the inner product, or −distance."""
    if distance is None or not math.isfinite(distance):
        return None
    return 1.0 - distance if kind == "cosine" else -distance


def nearest_rows(names: Sequence[str], rows: Iterable[Sequence[JsonValue]], kind: str) -> list[Row]:
    """Return the rows of a statement whose last column is a distance."""
    return [Row(dict(zip(names, row[:-1], strict=True)), distance_score(row[-1], kind)) for row in rows]


def clean_text(text: str) -> str:
    """Return a text that every engine can take as a value, without NUL and lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


class ScanIndex:
    """BM25 over rows that are read anew for each search; only the analysis of their texts is kept."""

    def __init__(self, analyzer: Analyzer, columns: TableColumns, max_texts: int) -> None:
        self._analyzer = analyzer
        self._columns = columns
        self._max_texts = max_texts
        self._analyzed: dict[str, tuple[Counter[str], frozenset[str]]] = {}

    def like_words(self, query: str) -> list[str]:
        """Return the beginnings of the query's words that survive stemming, for a search by LIKE."""
        words = []
        for term in dict.fromkeys(self._analyzer.query_terms(query)):
            same = [word for word in query.casefold().split() if word.startswith(term[:3])]
            prefix = next((_common_prefix(word, term) for word in same), term)
            words.append(prefix)
        return words[:32]

    def best(self, query: str, rows: Sequence[Row], k: int) -> list[Row]:
        """Return the best k rows with their scores; rows without a word of the query are left out."""
        documents: list[Counter[str]] = []
        languages: set[str] = set()
        names = {part for name in self._columns.weights for part in (name, name.partition(".")[0])}
        for row in rows:
            counts: Counter[str] = Counter()
            record = clean_row({name: row.values.get(name) for name in names})
            for name, weight in self._columns.weights.items():
                text = read_flat_text(record, (name,), original=record).text
                if text:
                    terms, found = self._analyze(text)
                    languages |= found
                    for term, count in terms.items():
                        counts[term] += count * weight  # type: ignore[assignment]
            documents.append(counts)
        lengths = [math.fsum(counts.values()) for counts in documents]
        mean = math.fsum(lengths) / max(1, len(lengths)) or 1.0
        scores = [0.0] * len(rows)
        model = BM25()
        for word in self._analyzer.query_words(query, languages=languages):
            found_in = {
                i: tf for i, counts in enumerate(documents) if (tf := sum(counts[term] for term in word))
            }
            rarity = idf(len(rows), len(found_in))
            for i, tf in found_in.items():
                scores[i] += model.weight(tf, lengths[i], idf=rarity, mean_length=mean)
        scored = [Row(row.values, score) for row, score in zip(rows, scores, strict=True) if score > 0]
        ids = self._columns.id
        scored.sort(key=lambda row: (-(row.score or 0), *(str(row.values.get(name)) for name in ids)))
        return scored[:k]

    def _analyze(self, text: str) -> tuple[Counter[str], frozenset[str]]:
        known = self._analyzed.get(text)
        if known is None:
            if len(self._analyzed) >= 2 * self._max_texts:
                self._analyzed.clear()
            analysis = self._analyzer.analyze(text)
            known = self._analyzed[text] = (Counter(analysis.terms), analysis.languages)
        return known


def _common_prefix(word: str, term: str) -> str:
    same = 0
    while same < min(len(word), len(term)) and word[same] == term[same]:
        same += 1
    return word[:same]
