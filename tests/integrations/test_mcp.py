"""MCP: a session by the SDK's own client over stdio, tools with schemas, limits, errors in words."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters, stdio_client

from resift import Index
from resift.cli.main import main
from resift.integrations.mcp import ToolLimits, create_mcp_server
from tests.integrations.documents import QUERY, TEXTS


@pytest.fixture
def index(tmp_path: Path):
    with Index(tmp_path / "n.db", text_only=True, rerank=False) as opened:
        opened.add(TEXTS, ids=["a", "b", "c"], metadata=[{"title": "Lunch"}, {"page": 1}, {"page": 2}])
        yield opened


def session(server: Any, steps: Any) -> Any:
    async def run() -> Any:
        async with Client(server) as client:
            return await steps(client)

    return asyncio.run(run())


def test_tools_have_schemas_and_only_read(index):
    async def steps(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in session(create_mcp_server(index), steps)}
    assert sorted(tools) == ["ask", "fetch", "rerank", "search", "why"]
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert tool.description
        assert tool.output_schema
    writing = {tool.name for tool in session(create_mcp_server(index, allow_write=True), steps)}
    assert writing - set(tools) == {"add", "delete"}


def test_search_fetch_and_why(index):
    async def steps(client: Client) -> Any:
        found = await client.call_tool("search", {"query": QUERY, "k": 2})
        best = found.structured_content["hits"][0]
        whole = await client.call_tool("fetch", {"id": best["id"]})
        why = await client.call_tool("why", {"query": QUERY, "id": best["id"]})
        resource = await client.read_resource(f"resift://document/{best['id']}")
        return found.structured_content, whole.structured_content, why.structured_content, resource

    found, whole, why, resource = session(create_mcp_server(index), steps)
    assert [hit["id"] for hit in found["hits"]] == ["b", "c"]
    assert found["degraded"] is False
    assert whole["text"] == TEXTS[1]
    assert "1st" in why["why"]
    assert resource.contents[0].text == TEXTS[1]


def test_search_returns_a_context_if_tokens_are_given(index):
    async def steps(client: Client) -> Any:
        answers = [
            await client.call_tool("search", {"query": QUERY, "k": 2, "context_tokens": tokens})
            for tokens in (0, 500, 20_001)
        ]
        return [(answer.structured_content or {}).get("context") for answer in answers], answers[2]

    (none, context, _), refused = session(create_mcp_server(index), steps)
    assert none is None
    assert context.startswith("[1] ")
    assert TEXTS[1] in context
    assert refused.is_error
    assert "context_tokens" in refused.content[0].text


def test_write_tools_exist_only_if_allowed(index):
    async def steps(client: Client) -> Any:
        added = await client.call_tool("add", {"text": "Dogs bark.", "id": "d"})
        gone = await client.call_tool("delete", {"id": "d"})
        return added.structured_content, gone.structured_content

    added, gone = session(create_mcp_server(index, allow_write=True), steps)
    assert (added["ids"], gone["count"]) == (["d"], 1)


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("search", {"query": "x", "k": 1000}, "up to 50"),
        ("search", {"query": " "}, "query is empty"),
        ("search", {"query": "x" * 5000}, "up to 2000"),
        ("fetch", {"id": "nobody"}, "no document 'nobody'"),
        ("rerank", {"query": "x", "documents": ["y"] * 300}, "up to 200"),
        ("rerank", {"query": "x", "documents": ["y" * 200]}, "accepts up to 100"),
    ],
)
def test_errors_are_reported_with_their_message(index, tool, arguments, reason):
    async def steps(client: Client) -> Any:
        return await client.call_tool(tool, arguments)

    answer = session(create_mcp_server(index, limits=ToolLimits(document_chars=100)), steps)
    assert answer.is_error
    assert reason in answer.content[0].text
    assert "Traceback" not in answer.content[0].text


def test_the_command_serves_over_stdio(index, tmp_path):
    """`resift mcp --store notes.db`, started as an assistant starts it."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "resift.cli.main", "mcp", "--store", str(tmp_path / "n.db")]
    )

    async def steps(client: Client) -> Any:
        return (await client.call_tool("search", {"query": "late returns", "k": 1})).structured_content

    found = session(stdio_client(server), steps)
    assert [hit["id"] for hit in found["hits"]] == ["b"]


def test_the_command_explains_on_a_terminal_that_it_waits_for_a_client(index, tmp_path):
    import pty

    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-m", "resift.cli.main", "mcp", "--store", str(tmp_path / "n.db")]
    os.write(keyboard, b"\x04")  # Ctrl-D
    try:
        done = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=60, check=True)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.stdout == ""
    assert "Waiting for an assistant" in done.stderr


def test_the_log_names_the_index_if_there_are_several(tmp_path, caplog):
    """The other routes search all of them."""
    pytest.importorskip("uvicorn")
    from resift.integrations.mcp import app_with_mcp
    from resift.server import ServerOptions

    files = tuple(tmp_path / name for name in ("a.db", "b.db"))
    for file in files:
        with Index(file, text_only=True) as made:
            made.add(TEXTS)
    app_with_mcp(ServerOptions(embedder=None, stores=files))
    assert f"/mcp searches only {files[0]}" in caplog.text


def test_a_disconnecting_client_ends_the_command_without_a_traceback(index, tmp_path):
    command = [sys.executable, "-m", "resift.cli.main", "mcp", "--store", str(tmp_path / "n.db")]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True) as process:
        process.stdout.close()
        _, said = process.communicate('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n', timeout=60)
    assert (process.returncode, said) == (0, "")


def test_the_server_offers_the_tools_over_http(index, tmp_path):
    """`resift serve --mcp`: the SDK's client over HTTP, refused without the key."""
    pytest.importorskip("uvicorn")
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from tests.server.process import real

    keys = tmp_path / "keys.txt"
    keys.write_text("secret\n")

    async def search(address: str, path: str) -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer secret"}) as http,
            Client(streamable_http_client(f"{address}{path}", http_client=http)) as client,
        ):
            answer = await client.call_tool("search", {"query": "late returns", "k": 1})
            await client.call_tool("fetch", {"id": "hush\nhush"})
            return answer.structured_content

    server = real("--mcp", "--store", str(tmp_path / "n.db"), "--api-key-file", str(keys), "--embedder", "none")
    try:
        for path in ("/mcp", "/mcp/"):
            assert [hit["id"] for hit in asyncio.run(search(server.url, path))["hits"]] == ["b"]
            assert server.post(path, {}).status == 401
    finally:
        assert server.stop() == 0
    # One line per request: the SDK would write ids and tracebacks between them.
    unknown = [line for line in server.lines if not line.startswith(("{", "ready", "draining", "Resift", " "))]
    assert not unknown
    assert not any("hush" in line for line in server.lines)


def test_without_keys_only_local_host_names_are_accepted(index, tmp_path):
    """A page of another site whose name leads to this machine gets nothing."""
    pytest.importorskip("uvicorn")
    from starlette.testclient import TestClient

    from resift.integrations.mcp import app_with_mcp
    from resift.server.server_options import ServerOptions

    def statuses(**options: Any) -> list[int]:
        app = app_with_mcp(
            ServerOptions(stores=(tmp_path / "n.db",), embedder=None, key_env=None, access_log=False, **options)
        )
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        kept = {"Accept": "application/json, text/event-stream", "Authorization": "Bearer secret"}
        sites = ["localhost:8787", "evil.example", "notes.example"]
        with TestClient(app) as client:
            return [
                client.post("/mcp/", json=ask, headers={**kept, "Host": site, "Origin": f"http://{site}"}).status_code
                for site in sites
            ]

    assert statuses() == [200, 421, 421]
    assert statuses(cors_origins=("http://notes.example",)) == [200, 421, 200]
    assert statuses(keys=("secret",)) == [200, 200, 200]


def test_the_command_needs_something_to_search(tmp_path, capsys):
    assert main(["mcp"]) == 1
    assert "--store FILE" in capsys.readouterr().err
    assert main(["mcp", "--store", str(tmp_path / "no.db")]) == 1
    assert "resift index" in capsys.readouterr().err
