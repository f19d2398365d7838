"""Whatever is asked, only fixed statements reach the engine, with ids from the pack as parameters."""

from __future__ import annotations

import time

import ladybug
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resift.agent import KnowledgeGraphAgent
from resift.agent.pack import STATEMENTS
from resift.stores.graph.cypher_guard import check_cypher
from tests.agent.small import WordEmbedder

CYPHER = "honey'}) MATCH (n) DETACH DELETE n // \" `x` ; COPY Article TO 'x.csv'; CALL show_tables() RETURN *"


class Recorder:
    """A connection that remembers what it was asked."""

    def __init__(self, connection):
        self.connection = connection
        self.seen = []

    def execute(self, statement, parameters):
        self.seen.append((statement, parameters))
        return self.connection.execute(statement, parameters)


@pytest.fixture(scope="module")
def recorded(pack_file):
    database = ladybug.Database(str(pack_file), read_only=True)
    recorder = Recorder(ladybug.Connection(database))
    agent = KnowledgeGraphAgent.from_connection(recorder, embedder=WordEmbedder())
    known = set(agent.pack.vectors().ids) | set(agent.pack.vectors().articles)
    yield agent, recorder, known
    recorder.connection.close()
    database.close()


@given(st.text(max_size=300) | st.text(alphabet="'\"`\\;{}()[]$-/*MATCHDELETEn \x00\n\u202e", max_size=200))
@example(CYPHER)
@example("honey \x00\x1b[31m \ud800 \u202e bees")
@example("bee " * 25_000)
def test_no_question_becomes_part_of_a_statement(recorded, question):
    """Statements are constants, parameters are ids of the pack, answers have their shape."""
    agent, recorder, known = recorded
    recorder.seen.clear()
    answer = agent.query(question)
    assert {statement for statement, _ in recorder.seen} <= set(STATEMENTS["read"].values())
    values = [value for _, parameters in recorder.seen for ids in parameters.values() for value in ids]
    assert set(values) <= known
    assert isinstance(answer["answer"], str)
    numbers = {source["number"] for source in answer["sources"]}
    assert {number for one in answer["sentences"] for number in one["sources"]} <= numbers


def test_read_statements_pass_the_guard():
    """Every statement only reads."""
    for statement in [*STATEMENTS["read"].values(), *STATEMENTS["wikigr"].values()]:
        check_cypher(statement)


def test_a_very_long_question_is_truncated(agent):
    """Long questions are cut, said so, and take no longer."""
    started = time.process_time()
    answer = agent.query("Who makes honey? " + "bee honey " * 10_000)
    assert time.process_time() - started < 5
    assert answer["found"]
    assert any("first 1000 characters" in note for note in answer["notes"])
