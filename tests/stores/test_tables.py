"""Tables and collections of other programs as stores: one suite over every engine, with its own client."""

# ruff: noqa: E501 - statements and bodies read best on one line
from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import resift
from resift.errors import ConfigError, InputError, ResiftError, StoreError
from resift.stores.filters import matches
from tests.stores.factories import HashingEmbedder
from tests.stores.table_systems import (
    DOCUMENTS,
    EMBEDDER,
    FIELDS,
    FILTERS,
    HOSTILE,
    SYSTEMS,
    TEXTS,
    Opened,
    SearchServer,
    search_server,
)


@pytest.fixture(scope="module", params=list(SYSTEMS))
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with SYSTEMS[request.param](tmp_path_factory.mktemp("table")) as opened:
        opened.store = opened.make(fields=FIELDS)
        yield opened
        asyncio.run(opened.store.close())


def search(store: Any, query: str = "travel", *, k: int = 5, **options: Any) -> list[Any]:
    async def run() -> list[Any]:
        try:
            return list(await store.search(query, k=k, **options))
        finally:
            await store.close()

    return asyncio.run(run())


def find(store: Any, query: str = "travel", *, k: int = 5, **options: Any) -> list[Any]:
    """Search without closing the store."""
    return list(asyncio.run(store.search(query, k=k, **options)))


def test_a_table_is_searched_where_it_is_and_stays_as_it_is(table: Opened) -> None:
    before = table.snapshot()
    hits = find(table.store, "travel costs")
    assert hits[0].id in ("2", "4")
    assert "5" not in {hit.id for hit in hits}
    best = next(hit for hit in hits if hit.id == "2")
    name = "document" if table.store.name == "chroma" else "body"
    assert best.text == f"headline: Travel\n\n{name}: {DOCUMENTS[1]['body']}"
    assert (best.metadata["year"], best.metadata["topic"], best.metadata["active"]) == (2022, "money", True)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
    assert find(table.store, k=0) == find(table.store, "  ") == find(table.store, "\0") == []
    assert table.snapshot() == before


def test_filters_mean_the_same_as_everywhere(table: Opened) -> None:
    async def run() -> None:
        every = {hit.id for hit in await table.store.search("travel", k=5)}
        assert len(every) >= 3
        for where in FILTERS if table.has_booleans else [w for w in FILTERS if "active" not in w]:
            found = {hit.id for hit in await table.store.search("travel", k=5, where=where)}
            expected = {str(row["nr"]) for row in DOCUMENTS if matches(row, where)}
            assert found == every & expected, where

    asyncio.run(run())
    fixed = find(table.make(fields=FIELDS, filter={"topic": ["food", "it's"]}), where={"year": 2023})
    assert {hit.id for hit in fixed} == {"3", "4"}


def test_vectors_are_searched_with_the_embedder_that_filled_them(table: Opened) -> None:
    if table.vector is None:
        pytest.skip("keyword search only")
    store = table.make(fields=FIELDS, embedder=EMBEDDER, mode="vector", **table.vector)
    hits = search(store, TEXTS[4], k=2, where={"year": {"<": 2022}})
    assert [hits[0].id, len(hits)] == ["5", 2]
    other = table.make(fields=FIELDS, embedder=HashingEmbedder(dimension=32), mode="vector", **table.vector)
    with pytest.raises(StoreError, match="embedder"):
        search(other)
    ranking = resift.Pipeline(table.make(fields=FIELDS, embedder=EMBEDDER, **table.vector), k=3).rank("Books")
    assert ranking.ids[0] == "5"


def test_wrong_names_fail_at_construction_with_those_that_exist(table: Opened) -> None:
    for wrong in ({"fields": ["headlin"]}, {"metadata": ["topik"]}, {"filter": {"yeer": 1}}):
        with pytest.raises(InputError) as raised:
            table.make(**{"fields": FIELDS, **wrong})
        assert "headline" in str(raised.value)
        assert "topic" in str(raised.value)
    with pytest.raises(InputError, match="year"):
        find(table.store, where={"yeer": 1})
    with pytest.raises(InputError, match="mode"):
        table.make(fields=FIELDS, mode="both")


def test_hostile_values_are_only_values(table: Opened) -> None:
    """A small part; `python -m tests.hardening tables` tries more of them in more places."""
    store, before = table.store, table.snapshot()

    async def run() -> None:
        for text in HOSTILE[::6]:
            for query, where in ((text, None), ("travel", {"topic": text}), ("travel", {"topic": {">": text}})):
                hits = await store.search(query, k=3, where=where)
                assert len(hits) <= 3
            for where in ({text: 1}, {"topic": {"!=": text}}, {"headline": f"{text}*"}):
                try:
                    await store.search("travel", k=3, where=where)
                except InputError:
                    assert text in where  # an unknown column

    asyncio.run(run())
    for text in HOSTILE[::12]:
        for wrong in ({"fields": [text + "x"]}, {"id": text}, {"metadata": [text]}):
            with pytest.raises(ResiftError):
                table.make(**{"fields": FIELDS, **wrong}).name  # noqa: B018
    assert table.snapshot() == before


def test_known_names_are_found_without_being_named(table: Opened) -> None:
    hits = search(table.make(), "travel costs")
    assert {"2", "4"} <= {hit.id for hit in hits}


# What only some engines have


def test_an_unread_part_of_a_table_is_reported(tmp_path: Path) -> None:
    with SYSTEMS["sqlite"](tmp_path) as table:
        ranking = resift.Pipeline(table.make(fields=FIELDS, scan_limit=2)).rank("travelling guests")
        assert "2 of 5 rows" in ranking.warnings[0]
        assert ranking.ids == ["3", "2"] or "3" in ranking.ids  # rows with a word of the query are read first
        assert resift.Pipeline(table.make(fields=FIELDS)).rank("guests").warnings == ()


def test_field_weights_decide_where_a_word_counts(tmp_path: Path) -> None:
    import sqlite3

    rows = [("a", "lunch", "travel"), ("b", "travel", "lunch")]
    for number, fts in enumerate(("", "CREATE VIRTUAL TABLE f USING fts5(title, body, content='docs')")):
        path = tmp_path / f"{number}.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE docs (id TEXT PRIMARY KEY, title TEXT, body TEXT)")
            connection.executemany("INSERT INTO docs VALUES (?, ?, ?)", rows)
            if fts:
                connection.execute(fts)
                connection.execute("INSERT INTO f(f) VALUES ('rebuild')")
        connection.close()
        from resift.stores.tables import SQLiteTable

        for weights, best in (({"title": 3, "body": 1}, "b"), ({"title": 1, "body": 3}, "a")):
            assert search(SQLiteTable(path, "docs", fields=weights))[0].id == best


def test_a_column_whose_values_repeat_is_no_id(tmp_path: Path) -> None:
    with SYSTEMS["sqlite"](tmp_path) as table, pytest.raises(StoreError, match="unique"):
        search(table.make(fields=FIELDS, id="year"), "travel")
    with SYSTEMS["sqlite fts5"](tmp_path / "..") as table:
        hits = search(table.make(fields=FIELDS, id=["year", "nr"]), "costs")
        assert hits[0].id == "2022:2"


@pytest.mark.parametrize("name", ["sqlite", "duckdb", "postgres", "statement"])
def test_the_engine_refuses_writes(name: str, tmp_path: Path) -> None:
    with SYSTEMS[name](tmp_path) as table:
        store = table.make(fields=FIELDS)
        before = table.snapshot()
        target = "articles" if name != "postgres" else store.table
        if name == "statement":
            store._statement = pytest.importorskip("sqlalchemy").text(
                f"DELETE FROM {target} RETURNING nr AS id, :query AS body"
            )
            store._uses = {"query"}
            with pytest.raises(StoreError):
                search(store)
        else:
            with pytest.raises(StoreError):
                asyncio.run(store._run(f"DELETE FROM {target}", []))
        asyncio.run(store.close())
        assert table.snapshot() == before


def test_a_search_is_stopped_in_the_engine_when_its_caller_gives_up(tmp_path: Path) -> None:
    async def run(store: Any) -> float:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        task = asyncio.create_task(store._run(endless, []))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store._workers.close(wait=True)  # returns only because the statement was interrupted
        return 1.0

    with SYSTEMS["sqlite"](tmp_path) as table:
        assert asyncio.run(asyncio.wait_for(run(table.make(fields=FIELDS)), 20)) == 1.0


@pytest.mark.parametrize("kind", ["table", "unknown table", "statement", "refused statement"])
def test_sqlite_connections_are_closed_with_the_store_even_if_nobody_closes_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlalchemy")
    from resift.stores.tables import SQLiteTable, SQLStatement

    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def record(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    with SYSTEMS["sqlite"](tmp_path):
        monkeypatch.setattr(sqlite3, "connect", record)
        monkeypatch.setattr(sqlite3.dbapi2, "connect", record)
        path, column = tmp_path / "library.db", "bodi" if "refused" in kind else "body"
        statement = f"SELECT nr AS id, {column} FROM articles WHERE instr(body, :query) > 0"
        try:
            if "statement" in kind:
                store = SQLStatement(f"sqlite:///{path}", statement, fields=["body"])
            else:
                store = SQLiteTable(path, "articels" if "unknown" in kind else "articles", fields=FIELDS)
            assert find(store)
            del store
        except ResiftError:
            assert kind.startswith(("unknown", "refused"))
    gc.collect()
    assert opened
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_pipeline_files_use_tables_and_report_mistakes_by_line(tmp_path: Path) -> None:
    text = """\
stores:
  - name: library
    kind: sqlite-table
    path: library.db
    table: articles
    fields: {headline: 2, body: 1}
    filter: {active: true}
"""
    file = tmp_path / "pipeline.yaml"
    with SYSTEMS["sqlite fts5"](tmp_path):
        file.write_text(text)
        ranking = resift.Pipeline.from_yaml(file).rank("travel")
        assert set(ranking.ids) == {"2", "4"}
        for change, line in ((("table: articles", "table: artikel"), 2), (("fields: {headline: 2", "fields: {headlin: 2"), 2),
                             (("fields:", "feilds:"), 6), (("{headline: 2, body: 1}", "{headline: x}"), 6),
                             (("kind: sqlite-table", "kind: sqlite-tables"), 3)):  # fmt: skip
            file.write_text(text.replace(*change))
            with pytest.raises(ConfigError) as raised:
                resift.Pipeline.from_yaml(file)
            assert raised.value.line == line, raised.value


# Elasticsearch and OpenSearch


@pytest.fixture
def url() -> Iterator[str]:
    with search_server() as address:
        yield address


def es(url: str, body: Any = None, **options: Any) -> Any:
    from resift.stores.tables import ElasticsearchQuery

    return ElasticsearchQuery("articles", body, url=url, **options)


@pytest.mark.parametrize(
    ("fault", "message"),
    [("shards", "1 of 2 shards"), ("timed out", "out of time"), ("500", "500"), ("429", "busy"), ("400", "body"),
     ("broken json", "JSONDecodeError"), ("no hits", "no list of hits")],
)  # fmt: skip
def test_a_fault_of_the_server_is_an_error_and_quotes_nothing(url: str, fault: str, message: str) -> None:
    store = es(url)
    SearchServer.fault = fault
    with pytest.raises(StoreError, match=message) as raised:
        search(store)
    assert "secret" not in str(raised.value)


def test_a_server_that_is_away_or_an_index_that_is_missing(url: str) -> None:
    from resift.stores.tables import ElasticsearchQuery

    with pytest.raises(StoreError, match="no such index"):
        ElasticsearchQuery("other", url=url)
    with pytest.raises(StoreError, match="ConnectError"):
        ElasticsearchQuery("articles", url="http://127.0.0.1:9")


def test_a_template_takes_complete_values_only(url: str) -> None:
    body = {"query": {"match": {"body": "$query"}}, "size": "$k"}
    hits = search(es(url, body), "travel costs", k=3, where={"active": True})
    assert hits[0].id == "a2"
    sent = SearchServer.seen[0]
    assert sent["query"]["bool"]["must"] == [{"match": {"body": "travel costs"}}]
    assert sent["query"]["bool"]["filter"] == [{"terms": {"active": [True]}}]
    placed = {"query": {"bool": {"must": [{"match": {"body": "$query"}}], "filter": "$filter"}}}
    search(es(url, placed), where={"year": {">": 2020}})
    assert SearchServer.seen[-1]["query"]["bool"]["filter"] == [{"range": {"year": {"gt": 2020}}}]
    for wrong in ({"query": {"query_string": {"query": "body:($query)"}}}, {"query": {"match_all": {}}},
                  {"query": {"match": {"$query": 1}}}, ["$query"]):  # fmt: skip
        with pytest.raises(InputError, match="query"):
            es(url, wrong)


def test_a_function_and_vectors_make_the_body(url: str) -> None:
    def body(query: str, k: int, vector: list[float]) -> dict[str, Any]:
        return {"knn": {"field": "embedding", "query_vector": vector, "k": k}, "size": k}

    assert search(es(url, body, embedder=EMBEDDER), TEXTS[4])[0].id == "a5"
    with pytest.raises(InputError, match="embedder"):
        es(url, body)
    with pytest.raises(InputError, match="dict"):
        search(es(url, lambda query, k: [query]))


def test_opensearch_gets_its_own_vector_query(url: str) -> None:
    SearchServer.vector_type = "knn_vector"
    store = es(url, embedder=EMBEDDER, mode="vector")
    assert search(store, TEXTS[4], where={"topic": "Food"})[0].id == "a5"
    assert "knn" in SearchServer.seen[-1]["query"]


def test_the_official_client_and_its_async_form(url: str) -> None:
    elasticsearch = pytest.importorskip("elasticsearch")
    from resift.stores.tables import ElasticsearchQuery

    with elasticsearch.Elasticsearch(url) as client:
        assert search(ElasticsearchQuery("articles", client=client), "travel costs")[0].id == "a2"

    async def run() -> str:
        async with elasticsearch.AsyncElasticsearch(url) as client:
            store = ElasticsearchQuery("articles", client=client, fields=FIELDS)
            return str((await store.search("travel costs", k=1))[0].id)

    assert asyncio.run(run()) == "a2"


# Statements


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM articles", "SELECT"),
        ("SELECT * FROM articles WHERE body = :query; DROP TABLE articles", "more than one"),
        ("SELECT nr AS id, body FROM articles LIMIT 2", "every query"),
        ("SELECT nr AS id, body FROM articles WHERE topic = :topic AND body = :query", "topic"),
        ("SELECT nr AS id, bodi FROM articles WHERE body = :query", "failed"),
    ],
)
def test_statements_that_cannot_work_are_refused(statement: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    from resift.stores.tables import SQLStatement

    with SYSTEMS["sqlite"](tmp_path), pytest.raises(ResiftError, match=message):
        SQLStatement(f"sqlite:///{tmp_path / 'library.db'}", statement)


def test_a_statement_takes_further_parameters(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    from resift.stores.tables import SQLStatement

    with SYSTEMS["sqlite"](tmp_path):
        store = SQLStatement(
            f"sqlite:///{tmp_path / 'library.db'}",
            "SELECT nr AS id, headline AS title, body FROM articles WHERE topic = :topic AND instr(body, :query) > 0",
            parameters={"topic": "food"},
        )
        assert [hit.id for hit in search(store, "travel")] == ["3"]
