"""Shared code of the read-only stores for tables created by other programs: columns, filters, keyword search by scan.

The engine tests the parts of a filter that it does not test more strictly than `resift.stores.filters`, and the
store tests every returned row. Without a text index, it reads up to `scan_limit` rows and computes BM25 itself.
"""

from __future__ import annotations

import math
import os.path
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from resift.errors import InputError, StoreError, did_you_mean
from resift.external import records
from resift.external.records import BODY_NAMES, ID_KEYS, TITLE_NAMES
from resift.external.systems import clean_row
from resift.protocols import Embedder
from resift.stores import filters
from resift.stores.backend import BackendStore, ModeOptions, Row
from resift.stores.base import Mode, SearchHits, Side, StoreView
from resift.stores.filters import Condition, Pattern, Test, list_conditions, parse_filter
from resift.stores.memory import score_terms
from resift.text import Analyzer
from resift.types import Hit, JsonMapping, JsonObject, JsonValue, Where, set_original
from resift.validation import check_k, option

Fields = Sequence[str] | Mapping[str, float] | str
Distance = Literal["cosine", "l2", "inner-product"]

SCAN_LIMIT = 20_000  # analyzing this many rows takes about two seconds, once
THREADS = 4  # number of threads per store, and of connections if the store opens its own
_KNOWN_NAMES = (*TITLE_NAMES, *BODY_NAMES)


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(ModeOptions):
    """Options of all table stores in a pipeline file."""

    fields: Fields | None = option(
        "Columns with the text, most important first, or a mapping of columns to weights. Default: columns with "
        "known names, such as `title` and `body`.",
        default=None,
        kind="names or weights",
    )
    id: tuple[str, ...] | None = option(
        "Column with the id, or several columns that form the id. Default: the primary key.", default=None
    )
    metadata: tuple[str, ...] | None = option("Columns to return with each hit. Default: all others.", default=None)
    filter: JsonMapping | None = option(
        "Search only rows that pass this filter, in the syntax of `where`: {published: true}.", default=None
    )
    vector: str | None = option("Column with the vectors.", default=None)
    language: str = option("Language of the text, such as `english`, for keyword search.", default="auto")
    scan_limit: int = option("Maximum rows that keyword search without a text index reads.", default=SCAN_LIMIT, min=1)


class ColumnArguments(TypedDict, total=False):
    """Keyword arguments of all table stores."""

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
    """The arguments of a table store: the columns with id, text, vector and metadata, and how to search them."""

    def __init__(self, *, store: str, **arguments: Unpack[ColumnArguments]) -> None:
        self.store = store
        fields, id, metadata = arguments.get("fields"), arguments.get("id"), arguments.get("metadata")
        self.fields = records.check_fields(fields)
        weights = fields if isinstance(fields, Mapping) else {}
        self.weights = {name: float(weights.get(name, 1.0)) for name in self.fields or ()}
        self.id: tuple[str, ...] = (id,) if isinstance(id, str) else tuple(id or ())
        self.metadata = None if metadata is None else tuple(metadata)
        self.vector = arguments.get("vector")
        self.tests = parse_filter(arguments.get("filter"))
        self.embedder = arguments.get("embedder")
        self.mode = arguments.get("mode")
        self.language = arguments.get("language") or "auto"
        self.scan_limit = check_k(arguments.get("scan_limit", SCAN_LIMIT), name="scan_limit", min=1)

    def list_named_columns(self) -> list[tuple[str, str]]:
        """Return (argument, column) for every column that the caller named, except the vector."""
        keys = [condition.key for condition in list_conditions(self.tests)]
        named = {"fields": self.fields, "id": self.id, "metadata": self.metadata, "filter": keys}
        return [(argument, name) for argument, names in named.items() for name in names or ()]

    def choose(
        self, table: str, known: Sequence[str], texts: Sequence[str], keys: Sequence[str] = (), *, what: str = "columns"
    ) -> None:
        """Check the columns that the caller named. Choose text columns with known names, and the primary key."""
        for argument, name in self.list_named_columns():
            check_column(table, name, known, f"{argument}=", what)
        if self.fields is None:
            self._choose_fields(table, texts)
        self.id = self.id or tuple(keys) or tuple(name for name in ID_KEYS if name in known)[:1]
        if not self.id:
            shown = ", ".join(known)
            raise InputError(
                f"{table!r} has no primary key and no column named id. Set id= to a unique column. Columns: {shown}."
            )

    def _choose_fields(self, table: str, text_columns: Sequence[str]) -> None:
        by_name = {name.casefold(): name for name in reversed(text_columns)}
        chosen = [by_name[name] for name in _KNOWN_NAMES if name in by_name]
        ignored = [name for name in text_columns if name not in (*chosen, *self.id, *ID_KEYS)]
        if not chosen or (ignored and all(name.casefold() in TITLE_NAMES for name in chosen)):
            subject = f"Only {', '.join(chosen)}" if chosen else "No text column"
            raise InputError(
                f"{subject} of {table!r} has a known name, such as title or body. List the columns to search "
                f"in fields=. Text columns: {', '.join(text_columns) or 'none'}."
            )
        self.fields = records.LabeledFields(chosen)
        self.weights = dict.fromkeys(chosen, 1.0)

    def choose_vector(self, table: str, dimensions: Mapping[str, int], *, what: str = "vector columns") -> int:
        """Choose the only vector column if there is an embedder; return the dimension of the vectors, or 0."""
        if self.vector is None and self.embedder is not None and len(dimensions) == 1:
            self.vector = next(iter(dimensions))
        if self.vector is not None and self.vector not in dimensions:
            known = [name or "(unnamed)" for name in dimensions]
            raise missing_column(table, self.vector, known, "vector=", what)
        return 0 if self.vector is None else dimensions[self.vector]

    def make_hit(self, row: Row, source: str) -> Hit:
        """Return a row as a hit. Its text consists of the fields in order, each preceded by its name."""
        record = clean_row(row.values)
        try:
            values = row.values if self.id[0] in row.values else flatten_metadata(row.values)
            id = ":".join(str(values[name]) for name in self.id if values[name] is not None)
        except KeyError as exc:
            raise StoreError(
                f"A document of {self.store!r} has no field {exc.args[0]!r}, although id= names it.", store=self.store
            ) from exc
        if not id:
            shown = ", ".join(self.id)
            raise StoreError(
                f"A row of {self.store!r} has no value in {shown}; set id= to another column.", store=self.store
            )
        text = records.read_flat_text(record, self.fields, original=record)
        score = None if row.score is None or not math.isfinite(row.score) else float(row.score)
        hit = Hit(id, text.text, score, source, self._metadata(record, text.fields))
        return set_original(hit, dict(row.values))

    def _metadata(self, record: JsonMapping, text_fields: Sequence[str]) -> JsonObject:
        nested, flat = record.get("metadata"), flatten_metadata(record)
        if self.metadata is not None:
            return {name: flat[name] for name in self.metadata if name in flat}
        hidden = {*self.id, self.vector, *(name for name in text_fields if name.casefold() not in TITLE_NAMES)}
        if isinstance(nested, Mapping):
            hidden.add("metadata")
        return {name: value for name, value in flat.items() if name not in hidden}


def flatten_metadata(record: JsonMapping) -> JsonObject:
    """Return the fields of a record, together with the fields inside its `metadata`."""
    nested = record.get("metadata")
    return {**nested, **record} if isinstance(nested, Mapping) else dict(record)


def check_column(table: str, name: str, known: Sequence[str], argument: str, what: str = "columns") -> None:
    """Raise InputError if a column, or the column that a dotted name begins with, does not exist."""
    if name not in known and name.partition(".")[0] not in known:
        raise missing_column(table, name, known, argument, what)


def missing_column(table: str, name: str, known: Sequence[str], argument: str, what: str = "columns") -> InputError:
    """Return an error about a column, table or other name that does not exist."""
    suggestion = did_you_mean(name, known) if known else ""
    available = ", ".join(known[:40]) + (f" and {len(known) - 40} more" if len(known) > 40 else "")
    hint = suggestion.partition("?")[0] + "? " if "?" in suggestion else ""
    return InputError(
        f"{argument} names {name!r}, which {table!r} does not have. {hint}Its {what}: {available or 'none'}."
    )


class TableStore(BackendStore):
    """The engine-independent part of a table store. Subclasses fetch rows of searches and scans."""

    max_fetch = 20_000
    default_mode: Mode = "hybrid"
    """Default mode with an embedder; "vector" if keyword search would read the whole collection."""
    column_word = "columns"
    table = ""  # name of the table in error messages
    filter_columns: Sequence[str] = ()  # columns that a filter may use; empty if they are unknown
    has_text_index = False
    embeds_queries = False  # whether the engine embeds queries itself, so that vector search needs no embedder
    _is_async = False  # whether the methods of the engine's client must be awaited

    def __init__(self, columns: TableColumns, *, threads: int = THREADS) -> None:
        self.columns = columns
        super().__init__(columns.store, columns.embedder, self._resolve_mode(columns), threads=threads)
        self._scan_index = ScanIndex(columns)
        hybrid = self.mode == "hybrid"
        self.text = StoreView(self, "text", partial(self.search_side, "text")) if hybrid else None
        self.vectors = StoreView(self, "vectors", partial(self.search_side, "vectors")) if hybrid else None

    def _resolve_mode(self, columns: TableColumns) -> Mode:
        mode, has_embedder = columns.mode, columns.embedder is not None
        if mode == "text":
            return "text"
        if self.embeds_queries and not has_embedder:
            return mode or "vector"
        if mode is None and not has_embedder and not columns.vector:
            return "text"
        if not has_embedder:
            raise InputError(
                f"Vector search of {columns.store!r} needs the model that produced the vectors: "
                "pass embedder=, or mode='text'."
            )
        if columns.vector is None and not self.embeds_queries:
            raise InputError(
                f"Store {columns.store!r} has an embedder but no vector column; pass the column as vector=, or omit "
                "embedder to search by keywords."
            )
        return mode or self.default_mode

    async def search_side(self, side: Side, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Search one side only: keywords or vectors."""
        if isinstance(query, str):  # replace NUL and lone surrogates, which not all engines accept
            query = query.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
        return await super().search_side(side, query, k=k, where=where, source=source)

    async def _search_text(self, query: str, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        if self.has_text_index:
            return await super()._search_text(query, tests, k, source)
        words = self._scan_index.like_words(query)
        rows, total = await self._scan(tests, words, self.columns.scan_limit)
        passing = [row for row in rows if not tests or self._passes(row, tests)]
        best = await self._workers.run(lambda: self._scan_index.best(query, passing, k))
        hits = SearchHits(self._make_hits(best, source))
        if total > len(rows):
            hits.approximate = True
            hits.warning = (
                f"{self.name}: read {len(rows):,} of {total:,} rows, because it has no text index. "
                "Create a text index, narrow the search with filter, or raise scan_limit."
            )
        return hits

    def _filter_tests(self, where: Where | None) -> list[Test]:
        tests = [*self.columns.tests, *parse_filter(where)]
        for condition in list_conditions(tests) if self.filter_columns else ():
            check_column(self.table, condition.key, self.filter_columns, "where", self.column_word)
        return tests

    def _make_hit(self, row: Row, source: str) -> Hit:
        return self.columns.make_hit(row, source)

    def _passes(self, row: Row, tests: Sequence[Test]) -> bool:
        values = flatten_metadata(clean_row(row.values))
        for condition in list_conditions(tests):
            if "." in condition.key and condition.key not in values:
                values[condition.key] = records.lookup(values, condition.key)
        return filters.passes_all(values, tests)

    async def _call(self, method: Callable[..., Any], **arguments: JsonValue) -> Any:
        """Call a sync or async method of the engine's client."""
        if not self._is_async:
            return await self._work(partial(method, **arguments))
        with self._explained():
            return await method(**arguments)

    # Implemented by subclasses

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        """Return up to `limit` rows that may pass the tests, if possible with one of the words, and their total."""
        raise NotImplementedError


def distance_score(distance: float | None, kind: str) -> float | None:
    """Convert a distance to a score that is higher for nearer vectors: cosine, inner product, or −distance."""
    if distance is None or not math.isfinite(distance):
        return None
    return 1.0 - distance if kind == "cosine" else -distance


class ScanIndex:
    """BM25 over rows that are read again for each search; only the analysis of their texts is cached."""

    def __init__(self, columns: TableColumns) -> None:
        self._analyzer = Analyzer(columns.language)
        self._columns = columns
        self._analyzed: dict[str, tuple[Counter[str], frozenset[str]]] = {}

    def like_words(self, query: str) -> list[str]:
        """Return the part of each query word that it shares with its stem, for a search with LIKE."""
        words = []
        for term in list(dict.fromkeys(self._analyzer.query_terms(query)))[:32]:
            original = next((word for word in query.casefold().split() if word.startswith(term[:3])), term)
            words.append(os.path.commonprefix([original, term]))  # noqa: RUF071 - characters
        return words

    def best(self, query: str, rows: Sequence[Row], k: int) -> list[Row]:
        """Return the best k rows with their scores; rows without any query word are omitted."""
        documents: list[Counter[str]] = []
        languages: set[str] = set()
        names = {part for name in self._columns.weights for part in (name, name.partition(".")[0])}
        for row in rows:
            counts: Counter[str] = Counter()
            record = clean_row({name: row.values.get(name) for name in names})
            for name, weight in self._columns.weights.items():
                text = records.read_flat_text(record, (name,), original=record).text
                if text:
                    if text not in self._analyzed:
                        if len(self._analyzed) >= 2 * self._columns.scan_limit:
                            self._analyzed.clear()
                        analysis = self._analyzer.analyze(text)
                        self._analyzed[text] = (Counter(analysis.terms), analysis.languages)
                    terms, text_languages = self._analyzed[text]
                    languages |= text_languages
                    for term, count in terms.items():
                        counts[term] += count * weight  # type: ignore[assignment]
            documents.append(counts)
        scores = score_terms(self._analyzer.query_words(query, languages=languages), documents)
        scored = [Row(row.values, score) for row, score in zip(rows, scores, strict=True) if score > 0]
        ids = self._columns.id
        scored.sort(key=lambda row: (-(row.score or 0), *(str(row.values.get(name)) for name in ids)))
        return scored[:k]


# Tables with typed columns: SQL filters with bound values, and table scans

ColumnKind = Literal["text", "number", "bool", "time", "any", "vector", "tsvector", "binary", "other"]

_MAX_PATTERN = 10_000
_MAX_INT = 2**63 - 1


class Column(NamedTuple):
    """A column: its kind, its quoted expression, its dimension, and whether SQLite may store text in it."""

    kind: ColumnKind
    expression: str
    dimension: int = 0
    may_be_text: bool = True

    @property
    def is_text(self) -> bool:
        """Whether the column is declared as text, or may contain any values."""
        return self.kind == "text" or (self.kind == "any" and self.may_be_text)


class Clause(NamedTuple):
    """A piece of SQL with the values of its placeholders."""

    sql: str
    values: tuple[JsonValue, ...] = ()


class Dialect(NamedTuple):
    """SQL syntax of an engine: placeholders, identifier quoting and code point collation."""

    placeholder: str
    binary: str
    quote: Callable[[str], str]
    timestamp: str = ""  # expression that casts a bound ISO date to a timestamp
    patterns: bool = True  # whether the engine supports LIKE with an ESCAPE clause


def quote_name(name: str) -> str:
    """Return a name in double quotes, as in standard SQL."""
    return '"' + name.replace('"', '""') + '"'


def join_clauses(clauses: Sequence[Clause], separator: str, *, empty: str) -> Clause:
    """Join several clauses with a separator such as AND."""
    if not clauses:
        return Clause(empty)
    sql = separator.join(f"({clause.sql})" for clause in clauses)
    return Clause(sql, tuple(value for clause in clauses for value in clause.values))


def filter_clause(tests: Sequence[Test], columns: Mapping[str, Column], dialect: Dialect) -> Clause:
    """Return the part of a filter that the engine can test. All rows that pass the filter pass this clause."""

    def translate(test: Condition) -> Clause | None:
        if test.key not in columns:
            return None
        make_clause = _equal_clause if test.operator == "=" else _range_clause
        return make_clause(test, columns[test.key], dialect)

    def any_of(alternatives: Sequence[Sequence[Clause]]) -> Clause:
        return join_clauses([join_clauses(part, " AND ", empty="") for part in alternatives], " OR ", empty="")

    return join_clauses(filters.translate_tests(tests, translate, any_of), " AND ", empty="1 = 1")


def _equal_clause(test: Condition, column: Column, dialect: Dialect) -> Clause | None:
    if column.kind not in ("text", "number", "bool", "any"):
        return None
    clauses = []
    for value in test.values:
        bound: JsonValue = value
        test_sql = f"{column.expression} = {dialect.placeholder}"
        if isinstance(value, Pattern):
            bound = _like_pattern(value.text)
            test_sql = f"{column.expression} LIKE {dialect.placeholder} ESCAPE '!'"
            if not dialect.patterns or len(bound) > _MAX_PATTERN:
                return None
        if not can_bind(bound):
            return None
        kind = "bool" if isinstance(bound, bool) else "text" if isinstance(bound, str) else "number"
        if column.kind in (kind, "any"):  # values of other types are never equal
            clauses.append(Clause(test_sql, (bound,)))
    return join_clauses(clauses, " OR ", empty="1 = 0")


def _range_clause(test: Condition, column: Column, dialect: Dialect) -> Clause | None:
    limit = test.values[0]
    expression, mark, kinds = column.expression, dialect.placeholder, ("text", "any")
    if isinstance(limit, Pattern) or not can_bind(limit):
        return None
    if isinstance(limit, str) and filters.is_date(limit):
        # The exact comparison, with time zones and whole days, comes later. Here two days of tolerance suffice.
        days = timedelta(days=-2 if test.operator in (">", ">=") else 3)
        try:
            limit = (datetime.fromisoformat(limit).replace(tzinfo=None) + days).date().isoformat()
        except OverflowError:
            return None
        if column.kind == "time" and dialect.timestamp:
            kinds, mark = ("time", "time"), dialect.timestamp
    elif not isinstance(limit, str):
        kinds = ("number", "any")
    if column.kind not in kinds:
        return None
    if isinstance(limit, str) and column.kind != "time":
        expression += dialect.binary
    return Clause(f"{expression} {test.operator} {mark}", (limit,))


def can_bind(value: object) -> bool:
    """Return whether every engine can bind this value: no NUL, no lone surrogates, at most 64 bits."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
    return not isinstance(value, int) or abs(value) <= _MAX_INT


def can_bind_all(test: Condition) -> bool:
    """Return whether every engine can bind all values of a test, and none is a pattern."""
    return all(can_bind(value) and not isinstance(value, Pattern) for value in test.values)


def _like_pattern(text: str) -> str:
    for letter in "!%_":
        text = text.replace(letter, "!" + letter)
    return text.replace("*", "%")


class TypedTable(TableStore):
    """A table whose columns have declared types."""

    def __init__(
        self, table: str, columns: TableColumns, column_types: Mapping[str, Column], *, primary_key: Sequence[str]
    ) -> None:
        self.table = table
        self.column_types = column_types
        self.filter_columns = list(column_types)
        texts = [name for name, column in column_types.items() if column.is_text]
        columns.choose(table, self.filter_columns, texts, primary_key)
        dimensions = {name: column.dimension for name, column in column_types.items() if column.kind == "vector"}
        self.vector_dimension = columns.choose_vector(table, dimensions)
        super().__init__(columns)
        hidden = ("vector", "tsvector", "binary")
        needed = [name for name, column in column_types.items() if column.kind not in hidden]
        if columns.metadata is not None:
            needed = [name for _, name in columns.list_named_columns()]
        self._selected = [name for name in column_types if name in needed]

    def _selected_for(self, tests: Sequence[Test]) -> list[str]:
        """Return the columns to read: those that hits contain, and those that the tests use."""
        keys = [condition.key for condition in list_conditions(tests)]
        keys = [key if key in self.column_types else key.partition(".")[0] for key in keys]
        return list(dict.fromkeys([*self._selected, *keys]))


Run = Callable[[str, Sequence[JsonValue]], Awaitable[list[tuple[JsonValue, ...]]]]
"""Executes a statement with bound values and returns its rows."""


class SQLTable(TypedTable):
    """A table or view that is queried with SQL."""

    dialect: Dialect

    async def _run(self, statement: str, values: Sequence[JsonValue]) -> list[tuple[JsonValue, ...]]:
        """Execute a statement with bound values and return its rows."""
        raise NotImplementedError

    def _table_sql(self) -> str:
        """Return the quoted name of the table."""
        raise NotImplementedError

    def _select_sql(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.dialect.quote, names))

    def _order_sql(self) -> str:
        return ", ".join(map(self.dialect.quote, self.columns.id))

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        where = filter_clause(tests, self.column_types, self.dialect)
        names, table = self._selected_for(tests), self._table_sql()
        counts = await self._run(f"SELECT count(*) FROM {table} WHERE {where.sql}", where.values)  # noqa: S608
        total = int(counts[0][0])
        order, values = "", where.values
        if total > limit and words:
            # Sort the rows by the number of words that occur in any of their text columns.
            fields = [name for name in self.columns.fields or () if name in self.column_types]
            test = " OR ".join(
                f"lower({self.dialect.quote(name)}) LIKE {self.dialect.placeholder} ESCAPE '!'" for name in fields
            )
            patterns = [f"%{_like_pattern(word.replace('*', ''))}%" for word in words]
            count = " + ".join([f"CASE WHEN {test} THEN 1 ELSE 0 END"] * len(patterns))
            order = f" ORDER BY {count} DESC, {self._order_sql()}"
            values = (*values, *(pattern for pattern in patterns for _ in fields))
        columns = self._select_sql(names)
        statement = f"SELECT {columns} FROM {table} WHERE {where.sql}{order} LIMIT {int(limit)}"  # noqa: S608
        return [self._make_row(names, row) for row in await self._run(statement, values)], total

    async def _search_sql(
        self,
        tests: Sequence[Test],
        score: Clause,
        condition: Clause,
        order: str,
        limit: int,
        *,
        source: str = "",
        run: Run | None = None,
    ) -> list[Row]:
        """Return the rows that meet the condition, in the order of their score."""
        where = filter_clause(tests, self.column_types, self.dialect)
        names = self._selected_for(tests)
        statement = (
            f"SELECT {self._select_sql(names)}, {score.sql} AS resift_score FROM {source or self._table_sql()} "  # noqa: S608
            f"WHERE {condition.sql} AND ({where.sql}) ORDER BY resift_score {order} LIMIT {int(limit)}"
        )
        rows = await (run or self._run)(statement, [*score.values, *condition.values, *where.values])
        return [self._make_row(names, row, row[-1]) for row in rows]

    def _make_row(self, names: Sequence[str], values: Sequence[JsonValue], score: float | None = None) -> Row:
        return Row(dict(zip(names, values, strict=False)), score)  # the score may follow the columns
