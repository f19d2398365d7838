"""The graph store reads, maps rows to hits, keeps its limits and survives what the engine does not."""

# ruff: noqa: E501 - statements read best on one line
from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resift.errors import InputError, StoreError, UnsafeCypherError
from resift.protocols import GraphStore
from resift.stores.graph.ladybug import LadybugGraphStore, resident_bytes
from tests.stores.cypher_statements import READS, REFUSED

ladybug = pytest.importorskip("ladybug")

CASES = Path(os.environ.get("RESIFT_DATA", "../shared/data")) / "cypher_cases.jsonl"
EVERYBODY = "MATCH (p:Person) RETURN p.id AS id, p.name AS text, p.age AS age ORDER BY age"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small graph on disk, built once; its bytes must be the same when all tests are done."""
    path = tmp_path_factory.mktemp("graph") / "people.lbug"
    with ladybug.Database(str(path)) as database, ladybug.Connection(database) as connection:
        connection.execute("CREATE NODE TABLE Person(id STRING PRIMARY KEY, name STRING, age INT64, born DATE)")
        connection.execute("CREATE NODE TABLE Book(id INT64 PRIMARY KEY, title STRING)")
        connection.execute("CREATE REL TABLE KNOWS(FROM Person TO Person, since INT64)")
        for number, name in enumerate(["Ada", "Bob", "Cleo", "Dan"]):
            connection.execute(
                "CREATE (:Person {id: $id, name: $name, age: $age, born: date('1990-01-02')})",
                {"id": f"p{number}", "name": name, "age": 20 + number},
            )
        connection.execute("MATCH (a:Person), (b:Person) WHERE b.age = a.age + 1 CREATE (a)-[:KNOWS {since: 7}]->(b)")
        connection.execute("CREATE (:Book {id: 1, title: 'On Graphs'})")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    yield path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    with ladybug.Database(str(path), read_only=True) as database, ladybug.Connection(database) as connection:
        assert connection.execute("MATCH (p:Person) RETURN count(*)").get_next() == [4]


def run(path: Path, body: Callable[[LadybugGraphStore], Awaitable[Any]], **options: Any) -> Any:
    async def inside() -> Any:
        store = LadybugGraphStore(path, **options)
        try:
            return await body(store)
        finally:
            await store.close()

    return asyncio.run(inside())


def test_rows_become_hits_in_row_order(graph: Path) -> None:
    """id and text columns are used; the other columns are metadata; the score falls with the row."""

    async def body(store: LadybugGraphStore) -> None:
        assert isinstance(store, GraphStore)
        hits = await store.query(EVERYBODY, k=3)
        assert [(hit.id, hit.text, hit.metadata) for hit in hits] == [
            ("p0", "Ada", {"age": 20}), ("p1", "Bob", {"age": 21}), ("p2", "Cleo", {"age": 22}),
        ]  # fmt: skip
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
        assert (hits[1].source, hits[1].score) == ("ladybug", 0.5)
        assert {hit.source for hit in hits} == {"ladybug"}

    run(graph, body)


def test_a_node_brings_its_own_id_and_text(graph: Path) -> None:
    """RETURN n: id and title are properties of the only node; labels stay, inner ids do not."""

    async def body(store: LadybugGraphStore) -> None:
        (hit,) = await store.query("MATCH (b:Book) RETURN b", k=5)
        assert (hit.id, hit.text) == ("1", "On Graphs")
        assert hit.metadata == {"b": {"_LABEL": "Book", "id": 1, "title": "On Graphs"}}
        (path,) = await store.query("MATCH p = (a:Person {id: 'p0'})-[r:KNOWS]->(b) RETURN p, r", k=5)
        assert json.dumps(path.metadata)
        assert path.metadata["r"] == {"_LABEL": "KNOWS", "since": 7}

    run(graph, body)


def test_rows_without_an_id_get_one_from_their_content(graph: Path) -> None:
    """The same row has the same id in every run; equal rows count once."""

    async def body(store: LadybugGraphStore) -> list[str]:
        hits = await store.query("UNWIND [3, 1, 3, 2] AS n RETURN n", k=10)
        assert [hit.metadata["n"] for hit in hits] == [3, 1, 2]
        return [hit.id for hit in hits]

    assert run(graph, body) == run(graph, body)


def test_values_are_parameters_and_come_back_as_json(graph: Path) -> None:
    """Text that looks like Cypher stays text; dates and lists become JSON data."""

    async def body(store: LadybugGraphStore) -> None:
        evil = "x' }) DETACH DELETE n //"
        assert await store.query("MATCH (p:Person {name: $n}) RETURN p.id AS id", {"n": evil}, k=3) == []
        (hit,) = await store.query("RETURN $a AS a, $b AS b, $c AS text, date('2020-01-02') AS d", {"a": [1, 2], "b": datetime.date(2020, 1, 2), "c": evil}, k=1)  # fmt: skip
        assert (hit.text, hit.metadata) == (evil, {"a": [1, 2], "b": "2020-01-02", "d": "2020-01-02"})
        with pytest.raises(InputError, match="'o' contains"):
            await store.query("RETURN $o AS o", {"o": [object()]}, k=1)
        with pytest.raises(InputError, match="name"):
            await store.query("RETURN 1 AS o", {"a b": 1}, k=1)

    run(graph, body)


def test_other_columns_can_be_id_and_text(graph: Path) -> None:
    """id_column and text_column name them."""

    async def body(store: LadybugGraphStore) -> None:
        (hit,) = await store.query("MATCH (b:Book) RETURN b.id AS key, b.title AS body", k=1)
        assert (hit.id, hit.text, hit.metadata) == ("1", "On Graphs", {})

    run(graph, body, id_column="key", text_column="body")


@pytest.mark.parametrize("k", [-1, True, 1.5])
def test_k_must_be_a_count(graph: Path, k: Any) -> None:
    """k = 0 gives [], anything below or beside integers is refused."""

    async def body(store: LadybugGraphStore) -> None:
        assert await store.query(EVERYBODY, k=0) == []
        with pytest.raises(InputError):
            await store.query(EVERYBODY, k=k)

    run(graph, body)


def test_every_dangerous_statement_is_stopped_before_the_engine(graph: Path) -> None:
    """Acceptance: shared and own cases; the module's fixture checks the file and opens it afterwards."""
    dangerous = list(REFUSED)
    if CASES.exists():
        cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
        dangerous += [case["q"] for case in cases if case["write"]]

    async def body(store: LadybugGraphStore) -> None:
        for statement in dangerous:
            with pytest.raises(UnsafeCypherError):
                await store.query(statement, {"v": [0.1], "q": "x"}, k=3)
        assert store._idle == []

    run(graph, body)


@pytest.mark.slow
def test_every_harmless_statement_runs_or_says_why_not(graph: Path) -> None:
    """Acceptance: other dialects give StoreError, the rest hits; the engine is there all the time."""
    harmless = list(READS)
    if CASES.exists():
        cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
        harmless += [case["q"] for case in cases if not case["write"]]

    async def body(store: LadybugGraphStore) -> int:
        answered = 0
        for statement in harmless:
            try:
                answered += len(await store.query(statement, {}, k=3)) >= 0
            except UnsafeCypherError:
                pytest.fail(f"refused: {statement}")
            except StoreError:
                continue
        assert len(await store.query(EVERYBODY, k=9)) == 4
        return answered

    assert run(graph, body) > 30


FRAGMENTS = [
    "CREATE (:Person {id: 'z'})",
    "SET n.name = 'x'",
    "DELETE n",
    "DETACH DELETE n",
    "MERGE (:Person {id: 'q'})",
]
FRAGMENTS += [
    "CREATE",
    "SET",
    "DELETE",
    "NOT",
    "AS",
    "AS set",
    "*",
    "'",
    "`",
    "//",
    "/*",
    "*/",
    ";",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "|",
]
FRAGMENTS += [
    "\\",
    "\\u0027",
    "WITH n",
    "MATCH (n:Person)",
    "RETURN n",
    "UNION",
    "WHERE",
    "COUNT {",
    "EXISTS {",
    "DROP TABLE Book",
]


@pytest.mark.slow
def test_what_passes_the_guard_is_never_a_write_to_the_engine(graph: Path) -> None:
    """Harmless and dangerous statements, spoilt at random: the engine's own opinion is the judge."""
    chance = random.Random(20261115)
    seeds = ["MATCH (n:Person)-[e:KNOWS]->(m:Person) WHERE n.age > 3 RETURN m.id AS id", *READS, *REFUSED]
    plain = [seed for seed in seeds if not any(slow in seed for slow in ("range", "CASE", "*"))]

    def spoilt() -> str:
        text = chance.choice(plain)
        for _ in range(chance.randint(1, 3)):
            at = chance.choice([match.start() for match in re.finditer(r"\b|$", text)])
            text = f"{text[:at]} {chance.choice(FRAGMENTS)} {text[at:]}"
        return text

    async def body(store: LadybugGraphStore) -> int:
        asked = 0
        for _ in range(4000):
            try:
                await store.query(spoilt(), k=1)
            except UnsafeCypherError:
                continue
            except StoreError as exc:
                told = str(exc)
                if "Connection exception" in told:  # "Cannot execute write operations …"
                    pytest.fail(told)
            asked += 1
        return asked

    assert run(graph, body) > 20


HOSTILE = {
    "endless rows": "UNWIND range(1, 1000000000) AS x RETURN x",
    "huge list": "RETURN range(1, 10000000000) AS x",
    "huge string": "RETURN lpad('a', 2147483647, 'b') AS x",
    "slow parse": "RETURN " + "CASE WHEN true THEN " * 50 + "1" + " ELSE 0 END" * 50,
    "deep tree": "RETURN 1" + "+1" * 12_000,
    "many paths": "MATCH (a)-[*1..30]-(b), (c)-[*1..30]-(d), (e)-[*1..30]-(f) RETURN count(*)",
}


@pytest.mark.parametrize(
    "what",
    [  # one statement that never ends, one that takes all memory
        *("endless rows", "huge list"),
        *(
            pytest.param(name, marks=pytest.mark.hardening)
            for name in sorted({*HOSTILE} - {"endless rows", "huge list"})
        ),
    ],
)
@pytest.mark.slow
def test_a_reading_statement_that_breaks_the_engine_costs_only_itself(graph: Path, what: str) -> None:
    """Within time and memory there is an answer or a StoreError, and the next query works."""

    async def body(store: LadybugGraphStore) -> None:
        started = time.monotonic()
        with pytest.raises(StoreError) as caught:
            await store.query(HOSTILE[what], k=3)
        assert time.monotonic() - started < 10
        assert "CASE WHEN" not in str(caught.value)
        assert len(await store.query(EVERYBODY, k=9)) == 4

    run(graph, body, timeout_s=1.5, memory_mb=400)


def test_rows_are_limited(graph: Path) -> None:
    """max_rows bounds what is read, whatever k says."""

    async def body(store: LadybugGraphStore) -> None:
        assert len(await store.query("UNWIND range(1, 500) AS n RETURN n AS id", k=1000)) == 20

    run(graph, body, max_rows=20)


def test_cancelling_ends_the_work(graph: Path) -> None:
    """A caller's deadline ends the engine process of that query, and the store goes on."""

    async def body(store: LadybugGraphStore) -> None:
        await store.query(EVERYBODY, k=1)
        (engine,) = store._idle
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await store.query(HOSTILE["many paths"], k=1)
        engine._process.wait(timeout=5)
        assert resident_bytes(engine._process.pid) == 0
        assert len(await store.query(EVERYBODY, k=9)) == 4

    run(graph, body, timeout_s=30)


def test_concurrent_queries_agree(graph: Path) -> None:
    """Twelve at once over two processes give what one gives."""

    async def body(store: LadybugGraphStore) -> None:
        alone = await store.query(EVERYBODY, k=4)
        assert all(hits == alone for hits in await asyncio.gather(*(store.query(EVERYBODY, k=4) for _ in range(12))))
        assert len(store._idle) <= 2

    run(graph, body, timeout_s=30)


def test_errors_of_the_engine_name_the_fault_without_the_data(graph: Path) -> None:
    """Binder messages are kept, quoted pieces are not; a missing file and a closed store say so."""

    async def body(store: LadybugGraphStore) -> None:
        with pytest.raises(StoreError, match="Binder exception: Cannot find property nope") as caught:
            await store.query("MATCH (p:Person) WHERE p.name = 'secret' RETURN p.nope", k=1)
        assert "secret" not in str(caught.value)
        with pytest.raises(StoreError) as caught:
            await store.query("RETURN 'secret' AS secret LIMIT 'secret'", k=1)
        assert "'secret'" not in str(caught.value)
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.query(EVERYBODY, k=1)

    run(graph, body)

    async def nowhere(store: LadybugGraphStore) -> None:
        with pytest.raises(StoreError, match="no database file"):
            await store.query(EVERYBODY, k=1)

    run(graph.parent / "nowhere.lbug", nowhere)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """The engine's reason comes through as StoreError."""
    (tmp_path / "junk.lbug").write_bytes(b"junk" * 5000)

    async def body(store: LadybugGraphStore) -> None:
        with pytest.raises(StoreError, match="cannot open"):
            await store.query(EVERYBODY, k=1)

    run(tmp_path / "junk.lbug", body)


def test_limits_must_be_positive(graph: Path) -> None:
    """A limit of zero would mean no answers or no limit."""
    with pytest.raises(InputError, match="above 0"):
        LadybugGraphStore(graph, max_rows=0)
