"""ElasticsearchQuery: an Elasticsearch or OpenSearch index, searched with a custom query body."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack
from urllib.parse import quote

from resift._internal.arrays import Array
from resift.errors import InputError, StoreError, require
from resift.external.systems import flatten_record
from resift.stores.backend import ApiKeyOptions, Row
from resift.stores.base import embed_texts
from resift.stores.filters import Condition, Test, translate_tests
from resift.stores.tables.table_store import ColumnArguments, ColumnOptions, TableColumns, TableStore, can_bind_all
from resift.types import JsonMapping, JsonObject, JsonValue
from resift.validation import check_arguments, check_number, option

Body = JsonMapping | Callable[..., JsonMapping]
"""A search body with placeholders, or a function of (query, k) or (query, k, vector) that returns one."""

PLACEHOLDERS = ("$query", "$k", "$vector", "$filter")
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_NUMBERS = _INTEGERS | {"double"}  # not float, which has less precision than the numbers of JSON
_STRINGS = frozenset({"keyword", "constant_keyword"})
_MAX_KEYWORD, _MAX_INTEGER = 256, 2**53
_ROW_ID = "_id"
_MAX_WINDOW = 10_000


@dataclass(frozen=True, kw_only=True)
class ElasticsearchQueryOptions(ApiKeyOptions, ColumnOptions):
    """Options of an Elasticsearch or OpenSearch index in a pipeline file."""

    url: str = option("Address of the server.", kind="address", variables=("ELASTICSEARCH_URL", "OPENSEARCH_URL"))
    index: str = option("The index, an alias, or a pattern such as docs-*.")
    body: JsonMapping | None = option(
        "Body of the `_search` request. The values `$query`, `$k`, `$vector` and `$filter` are replaced by the "
        "query, the number of hits, the query vector, and the list of filter clauses.",
        default=None,
    )
    api_key_env: str | None = option(
        "Environment variable with the API key.",
        default=None,
        kind="variable",
        variables=("ELASTICSEARCH_API_KEY", "ELASTIC_API_KEY", "OPENSEARCH_API_KEY"),
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error for an invalid body."""
        if self.body is not None:
            try:
                check_body(self.body)
            except InputError as exc:
                yield "body", f".body: {exc}"


class ElasticsearchQuery(TableStore):
    """An index on the server at `url`, or accessed with an official client, sync or async.

    `body` is the search request: a dict whose values `$query`, `$k`, `$vector` and `$filter` are replaced, or a
    function that returns the dict. Without a body, `fields` are searched by `multi_match`, and `vector` by kNN.
    A filter replaces `$filter`, or else wraps the `query` of the body. Resift tests it again on the hits.
    """

    Options = ElasticsearchQueryOptions
    column_word = "fields"
    has_text_index = True
    max_fetch = _MAX_WINDOW

    @check_arguments
    def __init__(
        self,
        index: str,
        body: JsonValue = None,
        *,
        url: str | None = None,
        client: Any = None,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        name: str = "elasticsearch",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        if (url is None) == (client is None):
            raise InputError("Pass exactly one of url= and client=.")
        if body is not None and not callable(body):
            check_body(body)
        self.name, self.index, self.table, self.body = name, index, index, body
        self._timeout_s = check_number(timeout_s, "timeout_s", gt=0)
        self._client = client if client is not None else _HttpClient(str(url), api_key, self._timeout_s)
        # The official clients wrap their methods. Only the wrapped function shows whether it must be awaited.
        self._is_async = inspect.iscoroutinefunction(inspect.unwrap(self._client.search))
        self.field_types: dict[str, str] = {}
        self._dimensions: dict[str, int] = {}
        self._read_mapping()
        self.filter_columns = list(self.field_types)
        chosen = TableColumns(store=name, **columns)
        chosen.id = chosen.id or (_ROW_ID,)
        if self.field_types:
            texts = [name for name, kind in self.field_types.items() if kind in ("text", "match_only_text")]
            chosen.choose(index, [*self.field_types, _ROW_ID], texts, what="fields")
        elif chosen.fields is None:
            raise InputError(f"This client cannot list the fields of {index!r}; list the text fields in fields=.")
        self._uses_vector = body is not None and not callable(body) and "$vector" in set(_strings(body))
        if callable(body):
            self._uses_vector = len(inspect.signature(body).parameters) > 2
        if body is not None:
            if self._uses_vector and chosen.embedder is None:
                raise InputError("The body uses $vector; pass the embedder of the vector field as embedder=.")
            chosen.mode, self.kind = "text", "search"
        elif self.field_types:
            self.vector_dimension = chosen.choose_vector(index, self._dimensions, what="vector fields")
        super().__init__(chosen)

    def _read_mapping(self) -> None:
        """Read the names and types of the fields, which is not possible in advance with an async client."""
        indices = getattr(self._client, "indices", None)
        get_mapping = getattr(indices, "get_mapping", None) or getattr(self._client, "get_mapping", None)
        if get_mapping is None or self._is_async:
            return
        with self._explained():
            response = get_mapping(index=self.index)
            response = getattr(response, "body", response)
            for index in response.values():
                self._add_fields(index["mappings"].get("properties") or {}, "")
        if not response:
            raise InputError(f"No index matches {self.index!r}; correct index=.")

    def _add_fields(self, properties: JsonMapping, prefix: str) -> None:
        for name, field in properties.items():
            if "properties" in field:
                self._add_fields(field["properties"], f"{prefix}{name}.")
                continue
            kind = field.get("type", "object")
            self.field_types[prefix + name] = kind
            if kind in ("dense_vector", "knn_vector"):
                self._dimensions[prefix + name] = int(field.get("dims") or field.get("dimension") or 0)
            for subname, subfield in (field.get("fields") or {}).items():
                if subfield.get("type") == "keyword" and kind == "text":
                    self.field_types.setdefault(f"{prefix}{name}.{subname}", "keyword")

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        clauses = self._filter_clauses(tests)
        if self.body is None:
            fields = [f"{name}^{weight:g}" for name, weight in self.columns.weights.items()]
            text = {"multi_match": {"query": query, "fields": fields}}
            return await self._search({"size": limit, "query": {"bool": {"must": [text], "filter": clauses}}})
        vector = None
        if self._uses_vector and self.embedder is not None:
            vector = (await embed_texts(self.embedder, [query], kind="query", store=self.name))[0].tolist()
        return await self._search(self._make_body(query, limit, vector, clauses))

    def _make_body(self, query: str, limit: int, vector: list[float] | None, clauses: list[JsonObject]) -> JsonObject:
        if callable(self.body):
            made = self.body(query, limit, vector) if self._uses_vector else self.body(query, limit)
            if not isinstance(made, Mapping):
                raise InputError(f"The function in body= returned a {type(made).__name__}; return a dict.")
            body = {"size": limit, **made}
        else:
            values = {"$query": query, "$k": limit, "$vector": vector, "$filter": clauses}
            body = {"size": limit, **_fill(self.body, values)}
            if "$filter" in _strings(self.body):
                return body
        # A kNN or retriever clause cannot be wrapped in a filter; then only Resift tests the hits.
        if clauses and "query" in body and not body.keys() & {"knn", "retriever", "rank"}:
            body["query"] = {"bool": {"must": [body["query"]], "filter": clauses}}
        return body

    async def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        field, clauses = self.columns.vector or "", self._filter_clauses(tests)
        if self.field_types.get(field) == "knn_vector":
            filter = {"filter": {"bool": {"filter": clauses}}} if clauses else {}
            knn = {field: {"vector": vector.tolist(), "k": limit, **filter}}
            return await self._search({"size": limit, "query": {"knn": knn}})
        candidates = min(_MAX_WINDOW, max(100, 2 * limit))
        search = {"field": field, "query_vector": vector.tolist(), "k": limit, "filter": clauses}
        return await self._search({"size": limit, "knn": {**search, "num_candidates": candidates}})

    async def _search(self, body: JsonObject) -> list[Row]:
        if hidden := {*self._dimensions, self.columns.vector or ""} - {""}:
            body.setdefault("_source", {"excludes": sorted(hidden)})
        body.setdefault("timeout", f"{int(self._timeout_s * 1000)}ms")
        response = await self._call(self._client.search, index=self.index, body=body)
        response = getattr(response, "body", response)
        try:
            # A partial response looks like a complete one, so it is an error.
            if failed := response.get("_shards", {}).get("failed"):
                total = response["_shards"].get("total", "?")
                raise self._error(f"{failed} of {total} shards of {self.index!r} failed.")
            if response.get("timed_out"):
                raise self._error(f"{self.index!r} ran out of time and returned only some of its hits.", transient=True)
            return [_read_hit(hit) for hit in response["hits"]["hits"]]
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            raise self._error(f"{self.index!r} returned no list of hits.") from exc

    def _filter_clauses(self, tests: Sequence[Test]) -> list[JsonObject]:
        def any_of(alternatives: Sequence[Sequence[JsonObject]]) -> JsonObject:
            should = [{"bool": {"filter": part}} for part in alternatives]
            return {"bool": {"should": should, "minimum_should_match": 1}}

        return translate_tests(tests, self._filter_clause, any_of)

    def _filter_clause(self, test: Condition) -> JsonObject | None:
        """Return a clause that all passing documents meet, or None if the engine cannot express one."""
        kind, values = self.field_types.get(test.key, ""), test.values
        if not can_bind_all(test):
            return None
        if test.operator != "=":
            name = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}[test.operator]
            is_number = kind in _NUMBERS and _is_number(values[0])
            return {"range": {test.key: {name: values[0]}}} if is_number else None
        typed: list[JsonValue]
        if kind in _STRINGS and all(not isinstance(v, str) or len(v) <= _MAX_KEYWORD for v in values):
            typed = [value for value in values if isinstance(value, str)]
        elif kind == "boolean":
            typed = [value for value in values if isinstance(value, bool)]
        elif kind in _NUMBERS and all(isinstance(v, str) or _is_number(v) for v in values):
            numbers = [value for value in values if isinstance(value, (int, float))]
            typed = [int(v) for v in numbers if v == int(v)] if kind in _INTEGERS else numbers
        else:
            return None
        return {"terms": {test.key: typed}} if typed else {"match_none": {}}

    def _explain(self, exc: Exception) -> StoreError:
        code = getattr(exc, "status_code", None) or getattr(getattr(exc, "meta", None), "status", None)
        code = code or getattr(getattr(exc, "response", None), "status_code", None)
        hint = {400: " The server rejected the body.", 401: " The API key is missing or wrong.",
                403: " The API key is not allowed to read the index.", 404: " There is no such index.",
                429: " The server is busy."}.get(code or 0, "")  # fmt: skip
        problem = f"Index {self.index!r} of {self.name!r} failed: {code or type(exc).__name__}.{hint}"
        return self._error(problem, transient=code is None or code >= 429)

    def _disconnect(self) -> None:
        if isinstance(self._client, _HttpClient):
            self._client.close()


class _HttpClient:
    """An HTTP client for the two calls that the store needs; works with both engines."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        httpx = require("httpx", extra="hosted")
        headers = {"Authorization": f"ApiKey {api_key}"} if api_key else {}
        verify = not url.startswith("http:")  # loading certificates takes longer than a search
        try:
            self._http = httpx.Client(base_url=url.rstrip("/") + "/", headers=headers, timeout=timeout_s, verify=verify)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as exc:
            raise InputError("url is not an address; pass one such as http://localhost:9200.") from exc

    def search(self, *, index: str, body: JsonMapping) -> JsonValue:
        return self._http.post(f"{quote(index, safe=',*')}/_search", json=body).raise_for_status().json()

    def get_mapping(self, *, index: str) -> JsonValue:
        return self._http.get(f"{quote(index, safe=',*')}/_mapping").raise_for_status().json()

    def close(self) -> None:
        self._http.close()


def _read_hit(hit: JsonMapping) -> Row:
    record = dict(flatten_record(hit))
    source = hit.get("_source") or hit.get("fields") or {}
    for name in ("id", "score"):  # drop those of the hit; keep those of the document
        record.pop(name, None)
        if name in source:
            record[name] = source[name]
    score = hit.get("_score")
    return Row({**record, _ROW_ID: hit["_id"]}, None if score is None else float(score))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MAX_INTEGER


def check_body(body: object) -> None:
    """Raise InputError for a template that ignores the query or contains a placeholder inside a text."""
    if not isinstance(body, Mapping):
        raise InputError(f"body is a {type(body).__name__}; pass a dict that contains $query, or a function.")
    strings = list(_strings(body))
    for text in strings:
        for placeholder in PLACEHOLDERS:
            if placeholder in text and text not in PLACEHOLDERS:
                raise InputError(
                    f"{placeholder} is inside the text {text[:60]!r}. It must be the complete value; "
                    "otherwise the query could change the meaning of that text."
                )
    if "$query" not in strings and "$vector" not in strings:
        raise InputError("The body uses neither $query nor $vector, so every query returns the same hits.")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item)
            if isinstance(key, str) and key in PLACEHOLDERS:
                raise InputError(f"{key} is a key of the body; use it only as a value.")
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _fill(value: JsonValue, values: JsonMapping) -> JsonValue:
    """Return the template with its placeholders replaced by values."""
    if isinstance(value, str):
        return values.get(value, value)
    if isinstance(value, Mapping):
        return {key: _fill(item, values) for key, item in value.items()}
    return [_fill(item, values) for item in value] if isinstance(value, (list, tuple)) else value
