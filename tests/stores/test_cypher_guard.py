"""The guard refuses what writes, reaches outside or is unclear, and lets plain reads through."""

# ruff: noqa: RUF005 - statements read best on one line
from __future__ import annotations

import json
import os
import string
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from resift.errors import UnsafeCypherError
from resift.stores.graph.cypher_guard import check_cypher
from tests.hardening.cypher import attack
from tests.stores.cypher_statements import READS, REFUSED

CASES = Path(os.environ.get("RESIFT_DATA", "../shared/data")) / "cypher_cases.jsonl"
WRITES = [
    "CREATE (zz)",
    "MERGE (zz)",
    "SET n.x = 1",
    "DELETE n",
    "DETACH DELETE n",
    "REMOVE n.x",
    "LOAD FROM 'f' RETURN *",
]
WRITES += [
    "FOREACH (i IN [1] | CREATE (:X))",
    "CALL threads=1",
    "CALL apoc.create.node([], {})",
    "COPY T FROM 'f'",
    "INSERT (zz)",
]
CLAUSES = [
    "MATCH (a)",
    "MATCH (a)-[r:R*1..2]->(b:B {k: 1})",
    "OPTIONAL MATCH (c) WHERE c.x = 'y'",
    "UNWIND [1, 2] AS u",
]
CLAUSES += ["WITH *", "WITH 1 AS w ORDER BY w DESC LIMIT 3", "CALL { RETURN 1 AS one }", "CALL db.labels() YIELD label"]
NAMES = [
    "create",
    "SET",
    "Delete",
    "merge",
    "load",
    "copy",
    "drop",
    "call",
    "match",
    "return",
    "with",
    "remove",
    "detach",
    "use",
]


def refused(statement: str) -> bool:
    try:
        check_cypher(statement)
    except UnsafeCypherError:
        return True
    return False


def test_every_shared_case_gets_its_verdict() -> None:
    """Acceptance: the statements of cypher_cases.jsonl, one by one."""
    if not CASES.exists():
        pytest.skip("RESIFT_DATA is absent")
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    assert [case["q"] for case in cases if refused(case["q"]) != case["write"]] == []


@pytest.mark.parametrize("statement", READS)
def test_a_reading_statement_passes(statement: str) -> None:
    """Keywords in strings, comments, names, labels, keys and aliases are not clauses."""
    check_cypher(statement)


@pytest.mark.parametrize("statement", REFUSED)
def test_anything_else_is_refused(statement: str) -> None:
    """Writes, side effects, several statements, unclear characters and nonsense."""
    with pytest.raises(UnsafeCypherError):
        check_cypher(statement)


def test_the_message_names_reason_and_place_but_not_the_statement() -> None:
    """Line and column count from 1; literals of the statement stay out of the message."""
    with pytest.raises(UnsafeCypherError) as caught:
        check_cypher("MATCH (n {name: 'secret'})\n  DETACH DELETE n")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert "DETACH" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.transient is False


@pytest.mark.parametrize("statement", [None, 1, b"RETURN 1", ["RETURN 1"], object()])
def test_what_is_no_string_is_refused(statement: object) -> None:
    """The guard raises its own error, never a TypeError."""
    with pytest.raises(UnsafeCypherError):
        check_cypher(statement)  # type: ignore[arg-type]


def test_macros_and_procedures_of_a_database_can_be_allowed() -> None:
    """The lists are open to the owner of the database, name by name."""
    check_cypher("RETURN addTwice(1)", functions=["ADDTWICE"])
    check_cypher("CALL gds.pageRank.stream('g') YIELD nodeId RETURN nodeId", procedures=["gds.pageRank.stream"])
    with pytest.raises(UnsafeCypherError, match="addonce"):
        check_cypher("RETURN addOnce(1)", functions=["addTwice"])


def long_statements(kb: int) -> list[str]:
    """Return statements of about so many kilobytes."""
    return (
        ["RETURN " + "(" * 500 * kb, "RETURN " + "[" * 500 * kb + "]" * 500 * kb, "RETURN " + "{a:" * 300 * kb]
        + ["'" * (1000 * kb - 1), "RETURN " + "NOT " * 250 * kb + "x" * 9, "/*" * 500 * kb, "`" * (1000 * kb - 1)]
        + ["RETURN " + "\\u0041" * 160 * kb, "MATCH (n) " * 100 * kb, "CALL {" * 150 * kb, "RETURN 1" + "+1" * 500 * kb]
        + ["RETURN '" + "\\" * (1000 * kb - 10), "a." * 500 * kb, "RETURN [" + "1," * 490 * kb + "1]", "//" * 500 * kb]
        + ["$" * 1000 * kb, "CASE " * 200 * kb, "RETURN " + "CASE " * 200 * kb]
    )  # fmt: skip


@pytest.mark.parametrize("kb", [20, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.hardening])])
@pytest.mark.parametrize("number", range(len(long_statements(1))))
def test_long_and_deep_statements_take_bounded_time(number: int, kb: int) -> None:
    """100 kB of anything gets a verdict in well under a second of work per pass, without recursion."""
    started = time.process_time()
    refused(long_statements(kb)[number])
    assert time.process_time() - started < 0.05 * kb


@given(st.text(max_size=200))
@example("\ud800")
@example("\\u")
def test_any_text_gets_a_verdict(text: str) -> None:
    """Nothing but UnsafeCypherError ever comes out."""
    refused(text)
    refused("MATCH (n) " + text + " RETURN n")


@given(st.lists(st.sampled_from([*"()[]{}.,:;'\"`*+-/|=<>$", " ", "\n", "\\", "//", "/*", "*/", "CALL", "MATCH", "SET"]
    + ["WHERE", "AS", "n", "1", "CASE", "END", "COUNT", "IN", "NOT", "WITH", "\\u0027"]), max_size=40))  # fmt: skip
def test_any_token_soup_gets_a_verdict(parts: list[str]) -> None:
    """Fuzz in Cypher's own letters."""
    refused(" ".join(parts))
    refused("".join(parts))


@given(st.sampled_from(READS), st.sampled_from(WRITES))
def test_a_write_after_any_reading_statement_is_refused(statement: str, write: str) -> None:
    """Appended as one more clause on its own line."""
    assert refused(statement.rstrip().rstrip(";") + "\n" + write)


@given(st.lists(st.sampled_from(CLAUSES), max_size=4), st.sampled_from(WRITES), st.data())
def test_a_write_at_any_clause_position_is_refused(clauses: list[str], write: str, data: st.DataObject) -> None:
    """Before, between and after clauses; with comments, other spacing and other capitals; in subqueries."""
    at = data.draw(st.integers(0, len(clauses)))
    gap = data.draw(st.sampled_from([" ", "\n", "\t", "/**/", " // c\n", "\r\n"]))
    write = data.draw(st.sampled_from([write, write.lower(), write.swapcase()]))
    harmless = gap.join([*clauses, "RETURN 1 AS z"])
    check_cypher(harmless)
    spoilt = gap.join([*clauses[:at], write, *clauses[at:], "RETURN 1 AS z"])
    assert refused(spoilt)
    assert refused("MATCH (q) CALL {" + spoilt + "} RETURN z")
    assert refused("MATCH (q) WHERE EXISTS {" + spoilt + "} RETURN q")
    assert refused(harmless + " UNION " + spoilt)


@given(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_clause_words_as_names_pass(one: str, two: str, three: str) -> None:
    """Property, label, type, key, alias, parameter, variable and backticked name."""
    check_cypher(f"MATCH (n:{one} {{{two}: 1}})-[:{three}|{one}]->(m) WHERE n.{two} = ${three} RETURN n.{one} AS {two}")
    check_cypher(
        f"MATCH (`{one}`)-[`{two}`]->() RETURN `{one}`.`{three}`, {{{one}: '{two}', {three}: \"{one}\"}} AS {one}"
    )
    check_cypher(f"MATCH ({one}:X)-[{two}:Y]->({three} {{a: 1}}) RETURN {one}.a, {two}.b AS c, {three}")


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=60))
def test_any_visible_text_may_stand_in_a_string(text: str) -> None:
    """Data of any language passes when it is quoted, and in comments too."""
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    assume("u" not in text.lower() or "\\" not in text)
    check_cypher(f"MATCH (n) WHERE n.name = '{quoted}' RETURN n")
    check_cypher(f"MATCH (n) // {text.replace(chr(92), '')}\nRETURN n")


@given(st.sampled_from(["CREATE", "DELETE", "SET", "MERGE"]), st.data())
def test_escapes_cannot_spell_a_clause(word: str, data: st.DataObject) -> None:
    """Any letters of a clause written as \\uXXXX, in any case, stay refused."""
    spelt = "".join(
        data.draw(st.sampled_from([char, char.lower(), f"\\u{ord(char):04X}", f"\\u{ord(char.lower()):04x}"]))
        for char in word
    )
    assert refused(f"MATCH (n) {spelt} (m)")
    assert refused(f"MATCH (n) {spelt} n.x = 1")


@given(st.sampled_from(string.ascii_uppercase))
def test_full_width_letters_spell_nothing(letter: str) -> None:
    """NFKC look-alikes outside strings are refused wherever they stand."""
    wide = chr(ord(letter) + 0xFEE0)
    assert refused(f"MATCH (n) {wide}REATE (m)")
    assert refused(f"MATCH ({wide}) RETURN {wide}")
    check_cypher(f"RETURN '{wide}'")


@pytest.mark.slow
def test_no_call_of_an_unlisted_function_passes_in_any_place() -> None:
    """`nextval` in every operand place and between any two tokens; the same statements without it pass."""
    outcome = attack(seed=14, count=900)
    assert outcome.examples == []
    assert outcome.tried == 900
