"""Every mistake gets one message with file, line and what to do; all of them in one go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from resift.config import inspect_yaml, load_plain, load_yaml
from resift.config.settings import Problems, Reader
from resift.config.yaml_nodes import read_text
from resift.errors import ConfigError
from resift.validation import Options, option

STORE = "stores: [{name: docs, kind: sqlite, path: docs.db}]\n"


def mistakes(file) -> list[str]:
    return inspect_yaml(file)[1].lines()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        # unknown keys
        ("fusoin: {}", 2, "The file has no key 'fusoin'. Did you mean 'fusion'?"),
        ("guard: {trust: {vectors: 0.6}}", 2, "guard has no key 'trust': the weights of the default order"),
        ("rerank: {kind: cross-encoder, dept: 5}", 2, "rerank has no key 'dept'. Did you mean 'depth'?"),
        ("fusion:\n  method: rrf\n  k_parm: 60", 4, "fusion has no key 'k_parm'. Did you mean 'k_param'?"),
        ("rerank: {kind: cross-encoder, semantic_weight: 1}", 2, "belongs to kind semantic-bm25"),
        # wrong types
        ("k: ten", 2, "k is 'ten'; it must be an integer ≥ 1"),
        ("k: 5.0", 2, "k is 5.0; it must be an integer"),
        ("k: true", 2, "k is true; it must be an integer"),
        ("k: [1]", 2, "k is a list; it must be an integer"),
        ("deadline_s: soon", 2, "deadline_s is 'soon'; it must be a number > 0"),
        ("deadline_s: .nan", 2, "deadline_s is nan; it must be a number"),
        ("fusion: rrf", 2, "fusion is 'rrf'; it must be a mapping"),
        ("rerank: [a]", 2, "rerank is a list; it must be a mapping"),
        ("capabilities: 5", 2, "capabilities is 5; it must be a list of texts"),
        ("capabilities: [5]", 2, "capabilities[0] is 5; it must be text"),
        ("fusion: {method: no}", 2, "fusion.method is false; it must be text. Put it in quotes"),
        ("rerank: {kind: ''}", 2, "rerank.kind is empty"),
        ("fusion: {weights: {docs: heavy}}", 2, "fusion.weights.docs is 'heavy'; it must be a number ≥ 0"),
        # impossible numbers
        ("k: 0", 2, "k is 0"),
        ("k: -3", 2, "k is -3"),
        ("k: 99999999", 2, "≤ 10000"),
        ("deadline_s: 0", 2, "deadline_s is 0"),
        ("fetch: {cap: 5}", 2, "fetch.cap is 5, but k is 10"),
        ("fetch: {cap: 20, minimum: 50}", 2, "below fetch.minimum 50"),
        ("fusion: {k_param: -60}", 2, "fusion.k_param is -60"),
        ("fusion: {weights: {docs: -1}}", 2, "fusion.weights.docs is -1"),
        ("fusion: {dialect: haystack, k_param: 9}", 2, "constant of RRF is fixed in haystack"),
        ("fusion: {dialect: llama-index, weights: {docs: 2}}", 2, "RRF has no weights in llama-index"),
        ("fusion: {dialect: qdrant, identity: content}", 2, "qdrant identifies hits by id"),
        # names that do not exist
        ("fusion: {method: rrff}", 2, "fusion.method is 'rrff'. Did you mean 'rrf'?"),
        ("fusion: {weights: {dcos: 1}}", 2, "fusion.weights names the unknown store 'dcos'. Did you mean 'docs'?"),
        (
            "gate: {signal: doc.vectors}",
            2,
            "gate.signal names the unknown store 'doc.vectors'. Did you mean 'docs.vectors'?",
        ),
        ("gate: {profile: memos}", 2, "Did you mean 'memosa'?"),
        ("rerank: {kind: cross-encodr}", 2, "rerank.kind is 'cross-encodr'. Did you mean 'cross-encoder'?"),
        (
            "rerank:\n  kind: cross-encoder\n  model: cross-encoder/ms-marco-MiniLM-L-12",
            4,
            "Did you mean 'cross-encoder/ms-marco-MiniLM-L-12-v2'?",
        ),
        # contradictions
        ("rerank: {depth: 5}", 2, "rerank needs either 'kind' or 'tiers'"),
        ("rerank: {kind: cross-encoder, tiers: []}", 2, "both 'kind' and 'tiers'"),
        ("rerank: {kind: cross-encoder, breaker: {cooldown_s: 5}}", 2, "needs two or more 'tiers'"),
        ("gate: {floors: {risk: low}}", 2, "gate.floors.risk is 'low'; it must be a number"),
        ("guard: {weight: 1.5}", 2, "guard.weight is 1.5; it must be a number ≥ 0, ≤ 1"),
        ("guard: {blend: maybe}", 2, "guard.blend is 'maybe'; it must be true or false"),
        ("shape: {mmr: 2}", 2, "shape.mmr is 2"),
        ("shape: {quotas: [{at_most: 2}]}", 2, "shape.quotas[0] needs the key 'key'"),
        ("shape: {recovery: {survivors: {risk: {EXCEL: two}}}}", 2, "must map source types to integers"),
        # secrets
        ("rerank: {kind: voyage, api_key: pa-123}", 2, "contains a secret under 'api_key'"),
        ("rerank: {kind: voyage, api_key_env: pa-123}", 2, "the secret itself stays out of the file"),
    ],
)
def test_each_mistake_is_one_line(write, text, line, expected):
    """Unknown key, wrong type, impossible number, missing name: one message, the right line, a fix."""
    file = write(STORE + text + "\n")
    [message] = mistakes(file)
    assert message.startswith(f"{file}:{line}: ")
    assert expected in message
    assert "pa-123" not in message
    with pytest.raises(ConfigError) as caught:
        load_yaml(file)
    assert str(caught.value) == message
    assert (caught.value.file, caught.value.line) == (str(file), line)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("k: 5", 1, "The file needs the key 'stores'"),
        ("stores: []", 1, "stores is empty"),
        ("stores: docs", 1, "stores is 'docs'; it must be a list of mappings"),
        ("stores: [docs]", 1, "stores[0] is 'docs'; it must be a mapping"),
        ("- stores", 1, "The file is a list; it must be a mapping"),
        ("stores:\n  - kind: sqlite\n    path: docs.db", 2, "stores[0] needs the key 'name'"),
        ("stores:\n  - name: docs\n    path: docs.db", 2, "stores[docs] needs the key 'kind'"),
        ("stores:\n  - {name: docs, kind: sqlite}", 2, "stores[docs] needs the key 'path'"),
        (
            "stores:\n  - name: docs\n    kind: sqlit\n    path: docs.db",
            3,
            "stores[docs].kind is 'sqlit'. Did you mean 'sqlite'?",
        ),
        ("stores:\n  - name: docs\n    kind: sqlite\n    path: nope.db", 4, "nope.db does not exist"),
        (
            "stores:\n  - name: docs\n    kind: sqlite\n    path: ${RESIFT_UNSET}/docs.db",
            4,
            "uses ${RESIFT_UNSET}, which is not set",
        ),
        ("stores:\n  - {name: docs, kind: sqlite, path: docs.db, mode: both}", 2, "stores[docs].mode is 'both'"),
        ("stores:\n  - {name: docs, kind: sqlite, path: docs.db, embedder: bge}", 2, "stores[docs].embedder is 'bge'"),
        ("stores:\n  - {name: docs, kind: sqlite, path: docs.db, k: 0}", 2, "stores[docs].k is 0"),
        (
            "stores:\n  - {name: docs, kind: sqlite, path: docs.db}\n  - {name: docs, kind: sqlite, path: docs.db}",
            3,
            "Two stores are named 'docs', first in line 2",
        ),
        (
            "stores:\n  - {name: docs, kind: sqlite, path: docs.db, cypher: MATCH (n) RETURN n}",
            2,
            "does not use $query",
        ),
        ("stores:\n  - {name: g, kind: ladybug, path: docs.db}", 2, "stores[g] is a graph; it needs the key 'cypher'"),
        (
            'stores:\n  - {name: g, kind: ladybug, path: docs.db, cypher: "MATCH (n {q: $query}) DELETE n"}',
            2,
            "stores[g].cypher",
        ),
        ("stores:\n  - {name: q, kind: qdrant, embedder: BAAI/bge-small-en-v1.5}", 2, "either 'url' or 'path'"),
        ("stores:\n  - {name: q, kind: qdrant, path: q}", 2, "stores[q] needs the key 'embedder'"),
        ('stores:\n  - {name: docs, kind: sqlite, path: "a\\0b"}', 2, "NUL"),
        ("stores:\n  - {name: p, kind: postgres, dsn: 'postgresql://me:pw@host/db'}", 2, "contains a password"),
        (
            "stores:\n  - {name: d, kind: sqlite, path: docs.db, parameters: 5}",
            2,
            "parameters is 5; it must be a mapping",
        ),
    ],
)
def test_mistakes_in_stores(write, text, line, expected):
    """A missing or wrong store is named with its line."""
    file = write(text + "\n")
    messages = [message for message in mistakes(file) if expected in message]
    assert [message.split(": ")[0] for message in messages] == [f"{file}:{line}"]


def test_all_mistakes_at_once_in_the_order_of_the_file(write):
    """One check tells everything; loading raises the first and says how many more there are."""
    file = write(
        """\
        k: -1
        stores:
          - name: docs
            kind: sqlite
            path: docs.db
            pth: x
        fusion: {method: rff, weights: {other: 1}}
        rerank: {depth: none, kind: cross-encoder}
        """
    )
    found = mistakes(file)
    assert [int(message.split(":")[1]) for message in found] == [1, 6, 7, 7, 8]
    with pytest.raises(ConfigError, match=r"pipeline\.yaml:1: k is -1.*\(4 more: run resift config check") as caught:
        load_yaml(file)
    assert "pipeline.yaml:8: rerank.depth" in caught.value.__notes__[0]


def test_passwords_in_addresses_are_rejected_without_being_shown():
    """Secrets never stand in the file: an address with a password is refused, one with a variable passes."""
    from resift.stores.postgres import PostgresOptions

    problems = Problems("f.yaml")
    reader = Reader(problems, folder=None)
    reader.section(PostgresOptions, read_text("dsn: postgresql://me:hunter2@host/db"), "s")
    [message] = problems.lines()
    assert "contains a password" in message
    assert "hunter2" not in message


def test_a_dict_is_checked_like_a_file(folder, monkeypatch):
    """`from_config` has the same checks, without lines."""
    monkeypatch.chdir(folder)
    settings = load_plain({"stores": [{"name": "docs", "kind": "sqlite", "path": "docs.db"}], "k": 3})
    assert settings["k"] == 3
    with pytest.raises(ConfigError, match=r"^k is 0; it must be an integer ≥ 1"):
        load_plain({"stores": [{"name": "docs", "kind": "sqlite", "path": "docs.db"}], "k": 0})
    with pytest.raises(ConfigError, match="pass a dict"):
        load_plain([])


@dataclass(frozen=True, kw_only=True)
class RenamedOptions(Options):
    min_depth: int = option("Minimum rerank depth.", default=6, min=1, aliases=("least",))


def test_a_key_of_an_earlier_version_is_accepted_with_a_warning():
    """The warning names file and line, and the value is checked under the new name."""
    problems = Problems("f.yaml")
    reader = Reader(problems, folder=Path())
    with pytest.warns(DeprecationWarning, match=r"f\.yaml:2: least was renamed to min_depth"):
        settings = reader.section(RenamedOptions, read_text("\nleast: 3\n"), "s")
    assert settings["min_depth"] == settings.part(RenamedOptions).min_depth == 3
    with pytest.warns(DeprecationWarning, match="least"):
        reader.section(RenamedOptions, read_text("least: 0\n"), "s")
    reader.section(RenamedOptions, read_text("least: 2\nmin_depth: 3\n"), "s")
    assert [message.split(": ", 1)[1] for message in problems.lines()] == [
        "s has both 'min_depth' and 'least', its old name. Remove 'least'.",
        "s.min_depth is 0; it must be an integer ≥ 1.",
    ]
