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
        (
            "rerank: {kind: tei, base_url: 'https://h.example/${AWS_SECRET_ACCESS_KEY}'}",
            "not meant for this option",
        ),
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
        (
            "rerank: {kind: voyage, options: {api_key_env: AWS_SECRET_ACCESS_KEY}}",
            "Move it out of `options`",
        ),
        ("rerank: {kind: voyage, options: {api_key: pa-1}}", "Keep it out of the file"),
        (
            "rerank: {tiers: [{kind: cohere, api_key_env: AWS_SECRET_ACCESS_KEY}]}",
            "(COHERE_API_KEY, CO_API_KEY)",
        ),
    ],
)
def test_a_secret_stays_where_it_belongs(write, folder, text, message):
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
        (
            "{name: d, kind: sqlite, path: '${AWS_SECRET_ACCESS_KEY}'}",
            "${AWS_SECRET_ACCESS_KEY} does not exist",
        ),
    ],
)
def test_addresses_of_stores_take_only_their_own_variables(write, store, message):
    """What leaves the machine in an address was made for it; messages show what is written."""
    [mistake] = inspect_yaml(write(f"stores:\n  - {store}\n"))[1].lines()
    assert message in mistake
    assert SECRET not in mistake


def test_a_variable_made_for_the_place_is_filled_in(write):
    """libpq's own password variable stands in a connection string."""
    settings = load_yaml(
        write("stores: [{name: p, kind: postgres, dsn: 'postgresql://me:${PGPASSWORD}@h/db'}]\n")
    )
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


def test_a_key_file_beside_the_pipeline_file_is_read(write, folder):
    """Nothing to allow for what lies where the file lies."""
    (folder / "voyage.key").write_text("abc")
    assert inspect_yaml(write(STORE + "rerank: {kind: voyage, api_key_file: voyage.key}\n"))[1].lines() == []
