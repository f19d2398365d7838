"""A pipeline file cannot choose which secrets leave the machine."""

from __future__ import annotations

import pytest

from resift.config import inspect_yaml, load_yaml
from resift.errors import ConfigError

STORE = "stores: [{name: docs, kind: sqlite, path: docs.db}]\n"
SECRET = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name in ("AWS_SECRET_ACCESS_KEY", "VOYAGE_API_KEY", "COHERE_API_KEY", "OPENAI_API_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, SECRET)
    for name in ("RESIFT_ALLOW_VARIABLES", "RESIFT_ALLOW_KEY_FILES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rerank: {kind: tei, base_url: 'https://h.example/${AWS_SECRET_ACCESS_KEY}'}", "not meant for this option"),
        ("rerank: {kind: voyage, api_key_env: AWS_SECRET_ACCESS_KEY}", "(VOYAGE_API_KEY)"),
        ("rerank: {kind: voyage, api_key_env: COHERE_API_KEY}", "(VOYAGE_API_KEY)"),
        ("rerank: {kind: voyage, base_url: 'https://h.example'}", "would send the key of api.voyageai.com"),
        (
            "rerank: {kind: voyage, api_key_env: VOYAGE_API_KEY, base_url: 'https://h.example'}",
            "would send the key of api.voyageai.com to h.example",
        ),
        (
            "rerank: {kind: llm, model: m, base_url: 'https://h.example', api_key_env: OPENAI_API_KEY}",
            "would send the key of api.openai.com to h.example",
        ),
        ("rerank: {kind: tei, base_url: 'https://h.example', api_key_file: ../id_rsa}", "is outside"),
        ("rerank: {kind: tei, base_url: 'https://h.example', api_key_file: link}", "is outside"),
        ("rerank: {kind: voyage, options: {api_key_env: AWS_SECRET_ACCESS_KEY}}", "Move it out of `options`"),
        ("rerank: {kind: voyage, options: {api_key: pa-1}}", "Keep it out of the file"),
        ("rerank: {tiers: [{kind: cohere, api_key_env: AWS_SECRET_ACCESS_KEY}]}", "(COHERE_API_KEY, CO_API_KEY)"),
    ],
)
def test_secrets_do_not_leave_their_host(write, folder, text, message):
    """Each way out is one mistake with its line, and the message has no secret in it."""
    (folder.parent / "id_rsa").write_text("key")
    (folder / "link").symlink_to(folder.parent / "id_rsa")
    [mistake] = inspect_yaml(write(STORE + text + "\n"))[1].lines()
    assert ":2: " in mistake
    assert message in mistake
    assert SECRET not in mistake
    with pytest.raises(ConfigError):
        load_yaml(write(STORE + text + "\n"))


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (
            "{name: p, kind: postgres, dsn: 'postgresql://me:${AWS_SECRET_ACCESS_KEY}@h/db'}",
            "not meant for this option",
        ),
        ("{name: l, kind: lancedb, uri: 's3://h/${AWS_SECRET_ACCESS_KEY}'}", "not meant for this option"),
        (r"{name: l, kind: lancedb, uri: '\\h\${AWS_SECRET_ACCESS_KEY}'}", "not meant for this option"),
        ("{name: d, kind: sqlite, path: '${AWS_SECRET_ACCESS_KEY}'}", "${AWS_SECRET_ACCESS_KEY} does not exist"),
    ],
)
def test_addresses_of_stores_take_only_their_own_variables(write, store, message):
    """What leaves the machine in an address was made for it; messages show what is written."""
    [mistake] = inspect_yaml(write(f"stores:\n  - {store}\n"))[1].lines()
    assert message in mistake
    assert SECRET not in mistake


def test_an_intended_variable_is_expanded(write):
    """A connection string may use libpq's own password variable."""
    settings = load_yaml(write("stores: [{name: p, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@h/db'}]\n"))
    assert settings["stores"][0]["dsn"] == f"postgresql://me:{SECRET}@h/db"


def test_the_owner_of_the_machine_can_allow_more(write, folder, monkeypatch, tmp_path_factory):
    """Outside the file, by name."""
    keys = tmp_path_factory.mktemp("keys")
    (keys / "team.key").write_text("abc")
    monkeypatch.setenv("RESIFT_ALLOW_VARIABLES", "TEAM_HOST, VOYAGE_API_KEY,AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("RESIFT_ALLOW_KEY_FILES", str(keys))
    monkeypatch.setenv("TEAM_HOST", "rank.example")
    for text in (
        "rerank: {kind: tei, base_url: 'https://${TEAM_HOST}/'}",
        "rerank: {kind: voyage, base_url: 'https://gateway.example'}",
        "rerank: {kind: voyage, api_key_env: AWS_SECRET_ACCESS_KEY}",
        f"rerank: {{kind: tei, base_url: 'https://h.example', api_key_file: {keys / 'team.key'}}}",
    ):
        assert inspect_yaml(write(STORE + text + "\n"))[1].lines() == []


def test_a_key_file_next_to_the_pipeline_file_is_read(write, folder):
    """Nothing to allow for what lies where the file lies."""
    (folder / "voyage.key").write_text("abc")
    assert inspect_yaml(write(STORE + "rerank: {kind: voyage, api_key_file: voyage.key}\n"))[1].lines() == []


@pytest.mark.parametrize(
    "text",
    [
        "{name: q, kind: qdrant, url: 'https://evil.example:6333', api_key_env: QDRANT_API_KEY, embedder: M}",
        "{name: q, kind: qdrant, url: 'http://169.254.169.254/', api_key_env: QDRANT_API_KEY, embedder: M}",
        "{name: e, kind: elasticsearch-query, url: 'https://evil.example', index: d, api_key_env: ELASTIC_API_KEY}",
        "{name: p, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@db.evil.example:5433/db'}",
        "{name: p, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@9.9.9.9/db'}",
    ],
)
def test_a_file_cannot_send_the_secret_of_a_store_to_another_host(write, text, monkeypatch):
    """A public host that only the file names gets no secret; the owner of the machine can allow it."""
    monkeypatch.setenv("QDRANT_API_KEY", SECRET)
    monkeypatch.setenv("ELASTIC_API_KEY", SECRET)
    store = text.replace("M}", "BAAI/bge-small-en-v1.5}")
    [mistake] = inspect_yaml(write(f"stores:\n  - {store}\n"))[1].lines()
    assert "would send" in mistake
    assert SECRET not in mistake
    monkeypatch.setenv("RESIFT_ALLOW_VARIABLES", "QDRANT_API_KEY,ELASTIC_API_KEY,PGPASSWORD")
    assert inspect_yaml(write(f"stores:\n  - {store}\n"))[1].lines() == []


def test_a_store_in_the_own_network_or_named_outside_the_file_gets_its_secret(write, monkeypatch):
    """libpq's PGHOST and QDRANT_URL name the host that a secret belongs to."""
    monkeypatch.setenv("QDRANT_API_KEY", SECRET)
    monkeypatch.setenv("PGHOST", "db.cloud.example")
    monkeypatch.setenv("QDRANT_URL", "https://q.cloud.example:6333")
    monkeypatch.setenv("ELASTIC_API_KEY", SECRET)
    monkeypatch.setenv("ELASTICSEARCH_URL", "https://es.cloud.example:9243")
    embedder = "embedder: BAAI/bge-small-en-v1.5"
    for store in (
        "{name: p, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@db.cloud.example/db'}",
        "{name: p, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@10.1.2.3/db'}",
        f"{{name: q, kind: qdrant, url: 'https://q.cloud.example', api_key_env: QDRANT_API_KEY, {embedder}}}",
        f"{{name: q, kind: qdrant, url: '${{QDRANT_URL}}', api_key_env: QDRANT_API_KEY, {embedder}}}",
        f"{{name: q, kind: qdrant, url: 'http://localhost:6333', api_key_env: QDRANT_API_KEY, {embedder}}}",
        "{name: e, kind: elasticsearch-query, url: '${ELASTICSEARCH_URL}', index: d, api_key_env: ELASTIC_API_KEY}",
    ):
        assert inspect_yaml(write(f"stores:\n  - {store}\n"))[1].lines() == []


@pytest.mark.parametrize("provider", ["tei", "vllm", "infinity"])
def test_a_file_cannot_send_the_key_of_a_server_to_another_host(write, provider, monkeypatch):
    """Servers of your own have no fixed address: their key leaves the network only if you allow it."""
    variable = f"{provider.upper()}_API_KEY"
    text = f"rerank: {{kind: {provider}, base_url: 'https://rank.evil.example'}}"
    monkeypatch.delenv(variable, raising=False)
    assert inspect_yaml(write(STORE + text + "\n"))[1].lines() == []
    monkeypatch.setenv(variable, SECRET)
    [mistake] = inspect_yaml(write(STORE + text + "\n"))[1].lines()
    assert "would send the key" in mistake
    near = f"rerank: {{kind: {provider}, base_url: 'https://rank.internal', allow_private: true}}"
    monkeypatch.setenv("RESIFT_ALLOW_VARIABLES", variable)
    for allowed in (text, near):
        assert inspect_yaml(write(STORE + allowed + "\n"))[1].lines() == []
