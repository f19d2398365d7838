"""Cypher statements that only read, and mutants of them that do not: the guard must tell them apart.

A statement is grown from a small grammar with a hole at every place where an operand can stand. With
harmless operands in the holes it must pass; with a call of `nextval`, which advances a sequence, in
one hole, or between any two tokens, it must be refused. A write clause at any clause place too.
"""

# ruff: noqa: E501 - a form of the grammar reads best on one line
from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

from resift.errors import UnsafeCypherError
from resift.stores.graph.cypher_guard import check_cypher
from tests.hardening.report import Outcome

HOLE = "\0"
"""Marks the place of an operand; no statement has this character."""

CALLS = (
    "nextval('sq')", "NEXTVAL('sq')", "nextval ('sq')", "nextval/**/('sq')", "nextval\n('sq')", "`nextval`('sq')",
    "nextval(\"sq\")", "nextval($s)", "next\\u0076al('sq')", "nextval // c\n ('sq')", "(nextval('sq'))", "-nextval('sq')",
    "abs(nextval('sq'))", "NOT nextval('sq')", "[nextval('sq')][0]", "{a: nextval('sq')}.a", "apoc.cypher.runFirstColumn('x')",
)  # fmt: skip
OPERANDS = ("1", "-2", "'x'", "n.age", "$p", "null", "true", "1.5e3", "`a b`", "id(n)", "n['k']", "0x1F", "size([1])")
WRITES = (
    "CREATE (z)", "MERGE (z {a: 1})", "SET n.x = 1", "DELETE n", "DETACH DELETE n", "REMOVE n.x",
    "FOREACH (i IN [1] | CREATE (:X))", "LOAD FROM 'f' RETURN *", "COPY T FROM 'f'", "CALL threads=1",
    "CALL apoc.create.node([], {})", "INSERT (z)", "DROP TABLE T", "CHECKPOINT", "INSTALL httpfs",
)  # fmt: skip
GAPS = (" ", "\n", "\t", "/**/", " // c\n", "\r\n")
BINARY = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "=",
    "<>",
    "!=",
    "<",
    ">=",
    "AND",
    "OR",
    "XOR",
    "IN",
    "STARTS WITH",
    "CONTAINS",
    "=~",
)
TYPES = ("INT64", "STRING[]", "DECIMAL(18, 3)", "UNION(a INT64, b STRING)", "STRUCT(a UNION(x BOOL, y FLOAT[3]))")

# Each takes one operand or several; a hole is filled with another form until the tree is deep enough.
FORMS = (
    f"{HOLE}[{HOLE}]", f"{HOLE}[{HOLE}:{HOLE}]", f"{HOLE}[{HOLE}:]", f"{HOLE}[:{HOLE}]", f"{HOLE}[{HOLE}..{HOLE}]",
    f"{HOLE}[..{HOLE}]", f"{HOLE}[{HOLE}..]", f"{HOLE}[:]", f"({HOLE})!", f"[{HOLE}, {HOLE}]", f"({HOLE})",
    f"{{a: {HOLE}, `b c`: {HOLE}}}", f"CASE WHEN {HOLE} THEN {HOLE} ELSE {HOLE} END", f"CASE {HOLE} WHEN {HOLE} THEN {HOLE} END",
    f"coalesce({HOLE}, {HOLE})", f"count(DISTINCT {HOLE})", f"[x IN {HOLE} WHERE {HOLE} | {HOLE}]",
    f"any(x IN {HOLE} WHERE {HOLE})", f"reduce(t = {HOLE}, x IN {HOLE} | {HOLE})", f"{HOLE} IS NOT NULL",
    f"list_transform({HOLE}, x -> {HOLE})", f"struct_pack(x := {HOLE}, y := {HOLE})", f"trim(BOTH {HOLE} FROM {HOLE})",
    f"EXISTS {{ MATCH (n)-[:R]->(m {{k: {HOLE}}}) WHERE {HOLE} }}", f"COUNT {{ (n)-->(m {{k: {HOLE}}}) }}",
    f"[(n)-[:R]->(m) WHERE {HOLE} | {HOLE}]", f"n {{.name, a: {HOLE}, .*}}", f"NOT {HOLE}",
    *(f"CAST({HOLE} AS {kind})" for kind in TYPES), *(f"{HOLE} {operator} {HOLE}" for operator in BINARY),
)  # fmt: skip
CLAUSES = (
    f"MATCH (n:Person {{k: {HOLE}}})", f"MATCH (n)-[r:R*1..3 {{k: {HOLE}}}]->(m) WHERE {HOLE}", f"UNWIND {HOLE} AS u",
    f"MATCH (a)-[e:R*1..2 (r, n | WHERE {HOLE} | {{r.a}}, {{n.b}})]->(b)", f"OPTIONAL MATCH (n) WHERE {HOLE}",
    f"WITH *, {HOLE} AS w ORDER BY {HOLE} DESC SKIP {HOLE} LIMIT {HOLE}", f"CALL {{ WITH n RETURN {HOLE} AS c }}",
    f"MATCH (a)-[e]->(b) WHERE {HOLE}", f"CALL db.labels() YIELD label WHERE {HOLE}",
    f"MATCH (a)-[r:R WHERE {HOLE}]->(b:A|B)", "MATCH (n:!A&(B|C))",
    f"CALL query_vector_index('T', 'i', {HOLE}, 10, efs := {HOLE})", f"MATCH SHORTEST 2 PATHS (a {{k: {HOLE}}})-->(b)",
)  # fmt: skip
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\w+|//[^\n]*\n|/\*.*?\*/|\s+|.", re.DOTALL)


def grown(draw: random.Random) -> list[str]:
    """Return the clauses of a random reading statement, with holes for operands."""
    clauses = draw.choices(CLAUSES, k=draw.randint(0, 3))
    clauses.append(f"RETURN {HOLE} AS a, {HOLE} AS b")
    return [_deepened(clause, draw) for clause in clauses]


def _deepened(text: str, draw: random.Random) -> str:
    for _ in range(draw.randint(0, 4)):
        holes = [at for at, char in enumerate(text) if char == HOLE]
        if not holes:
            break
        at = draw.choice(holes)
        # Brackets around it: `NOT x` after `^` is no Cypher, `(NOT x)` is.
        text = f"{text[:at]}({draw.choice(FORMS)}){text[at + 1 :]}"
    return text


def filled(text: str, draw: random.Random, *, call: str | None = None) -> str:
    """Return the text with operands in its holes; with `call` in one of them where that is given."""
    holes = text.count(HOLE)
    spoilt = draw.randrange(holes) if call is not None and holes else -1
    for at in range(holes):
        text = text.replace(HOLE, str(call) if at == spoilt else draw.choice(OPERANDS), 1)
    return text


def mutants(seed: int, count: int) -> Iterator[tuple[str, str, bool]]:
    """Yield (kind, statement, whether it must pass), `count` of them that must not pass."""
    draw = random.Random(seed)
    made = 0
    while made < count:
        clauses = grown(draw)
        gap = draw.choice(GAPS)
        harmless = filled(gap.join(clauses), draw)
        yield "read", harmless, True
        yield "call in an operand place", filled(gap.join(clauses), draw, call=draw.choice(CALLS)), False
        yield "call between two tokens", _inserted(harmless, draw), False
        at = draw.randint(0, len(clauses))
        spoilt = [*clauses[:at], draw.choice(WRITES), *clauses[at:]]
        yield "write clause", filled(gap.join(spoilt), draw), False
        made += 3


def _inserted(statement: str, draw: random.Random) -> str:
    """Put a call between two tokens, or in the place of one that is a name or a number."""
    parts = _TOKEN.findall(statement)
    at = draw.randrange(len(parts) + 1)
    # Not before a quote: ' and ` after a call would still be inside one literal for the lexer.
    keep = at < len(parts) and not (parts[at][0].isalnum() and draw.random() < 0.5)
    return "".join([*parts[:at], " ", draw.choice(CALLS[:8]), " ", *parts[at if keep else at + 1 :]])


def attack(seed: int, count: int) -> Outcome:
    """Check `count` mutants and the statements that they were made from."""
    outcome = Outcome("Cypher statements that write, or call functions that are not listed, mixed with reads")
    kinds: Counter[str] = Counter()
    for kind, statement, harmless in mutants(seed, count):
        kinds[kind] += 1
        try:
            check_cypher(statement)
            passed = True
        except UnsafeCypherError:
            passed = False
        outcome.check(passed == harmless, f"{kind}: {statement!r}")
    outcome.tried = sum(kinds.values()) - kinds["read"]
    outcome.figures = dict(kinds)
    return outcome
