"""LanceDBTable: a LanceDB table created by another program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, cast

from resift._internal.arrays import Array
from resift.errors import InputError, StoreError, require
from resift.stores.backend import Row, in_thread
from resift.stores.filters import Test, Value
from resift.stores.lancedb import LanceDBBackend, LanceDBFolderOptions, search_vectors
from resift.stores.tables import table_store
from resift.stores.tables.table_store import Column, ColumnArguments, ColumnOptions, Distance, TableColumns
from resift.validation import check_arguments, option

_KIND = re.compile(
    r"\A(?:(?P<text>string|large_string|string_view|dictionary<values=string.*)|(?P<bool>bool)"
    r"|(?P<number>u?int\d+|float|double|halffloat)|(?P<binary>.*binary.*))\Z"
)
"""Arrow types for each kind of column."""
_MARK = "\0"  # placeholder of a value; LanceDB cannot bind values, so literals replace it


@dataclass(frozen=True, kw_only=True)
class LanceDBTableOptions(LanceDBFolderOptions, ColumnOptions):
    """Options of an existing LanceDB table in a pipeline file."""

    table: str = option("The table.")
    distance: Distance = option("Distance of the vector column.", default="cosine")
    exact: bool = option("Compare every vector, even if an index would be faster.", default=False)


class LanceDBTable(LanceDBBackend, table_store.TypedTable):
    """A LanceDB table created by another program.

    Keyword search uses the full-text indexes of the fields if they have any, else BM25 over a scan.
    """

    Options = LanceDBTableOptions
    _dialect = table_store.Dialect(_MARK, "", lambda name: f"`{name}`", patterns=False)

    @check_arguments
    def __init__(
        self,
        uri: str | Path,
        table: str,
        *,
        distance: Distance = "cosine",
        exact: bool = False,
        name: str = "lancedb",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        if "://" not in str(uri) and not Path(uri).is_dir():
            raise StoreError(f"{uri} does not exist; pass the folder of a LanceDB database.", store=name)
        self.distance, self.exact = distance, exact
        self._set_database(uri, name)
        try:
            tables = list(self._list_tables())
            if table not in tables:
                raise table_store.missing_column(str(uri), table, tables, "table=", "tables")
            self._table = self._connect().open_table(table)
            column_types = {field.name: _lance_column(field) for field in self._table.schema}
            indexes = self._table.list_indices()
        except (OSError, RuntimeError, ValueError) as exc:
            if isinstance(exc, InputError):
                raise
            raise StoreError(f"{uri} cannot be read: {type(exc).__name__}.", store=name) from exc
        chosen = TableColumns(store=name, **columns)
        indexed = {column for index in indexes if index.index_type == "FTS" for column in index.columns}
        self._indexed_vectors = {column for index in indexes if index.index_type != "FTS" for column in index.columns}
        chosen.choose(table, [*column_types], [name for name, column in column_types.items() if column.kind == "text"])
        self._indexed_text = [name for name in chosen.fields or () if name in indexed]
        self.has_text_index = bool(self._indexed_text)
        if not self.has_text_index:
            self.default_mode = "vector"
        super().__init__(table, chosen, column_types, primary_key=[])

    async def _has_vector_index(self) -> bool:
        return self.columns.vector in self._indexed_vectors

    @in_thread
    def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        queries = require("lancedb.query", extra="lancedb")
        boosts = [self.columns.weights[name] for name in self._indexed_text]
        match = queries.MatchQuery(query, self._indexed_text[0])
        if len(self._indexed_text) > 1:
            match = queries.MultiMatchQuery(query, self._indexed_text, boosts=boosts)
        search = self._open().search(match, query_type="fts").select([*self._selected, "_score"])
        rows = self._apply_filter(search, tests).limit(limit).to_list()
        return [Row(row, float(row.pop("_score"))) for row in rows]

    @in_thread
    def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        kind, column = {"inner-product": "dot"}.get(self.distance, self.distance), self.columns.vector or ""
        search = search_vectors(self._open(), vector, column, kind, self._selected, exact=exact)
        rows = self._apply_filter(search, tests).limit(limit).to_list()
        # Both cosine and dot are 1 − similarity in LanceDB.
        metric = "l2" if kind == "l2" else "cosine"
        return [Row(row, table_store.distance_score(row.pop("_distance"), metric)) for row in rows]

    @in_thread
    def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        table = self._open()
        rows = self._apply_filter(table.search().select(self._selected), tests).limit(limit).to_list()
        return [Row(row) for row in rows], int(table.count_rows(self._filter_sql(tests)))

    def _open(self) -> Any:
        with self._lock:
            if self._table is None:
                self._table = self._connect().open_table(self.table)
            return self._table

    def _filter_sql(self, tests: Sequence[Test]) -> str | None:
        clause = table_store.filter_clause(tests, self.column_types, self._dialect)
        pieces = clause.sql.split(_MARK)
        literals = [_literal(value) for value in clause.values]
        text = "".join(piece + literal for piece, literal in zip(pieces, [*literals, ""], strict=True))
        return text if tests else None

    def _apply_filter(self, search: Any, tests: Sequence[Test]) -> Any:
        where = self._filter_sql(tests)
        return search if where is None else search.where(where, prefilter=True)


def _lance_column(field: Any) -> Column:
    declared = str(field.type)
    vector = re.fullmatch(r"fixed_size_list<\w+: (?:float|halffloat|double)[^>]*>\[(\d+)\]", declared)
    if vector is not None:
        return Column("vector", "", int(vector[1]))
    match = _KIND.match(declared)
    kind: table_store.ColumnKind = "other" if match is None else cast("table_store.ColumnKind", match.lastgroup)
    if re.search(r"[`.\0]", field.name) and kind != "binary":  # LanceDB cannot quote such names, so Resift tests them
        kind = "other"
    if kind == "number" and "int" in declared:  # so that it can be compared with any number
        return Column(kind, f"CAST(`{field.name}` AS DOUBLE)")
    if kind == "text" and "dictionary" in declared:
        return Column(kind, f"CAST(`{field.name}` AS STRING)")
    return Column(kind, f"`{field.name}`")


def _literal(value: Value) -> str:
    """Return a value as an SQL literal; doubling the quotes in a string makes it safe."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
