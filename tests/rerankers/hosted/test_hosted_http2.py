"""HTTP/2 to a real TLS server on loopback: requests share one connection, and HTTP/1.1 servers still work."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("h2")

import h2.config
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from resift.deadline import Deadline
from resift.rerankers.hosted import HostedReranker, close_connections, transport

ANSWER_S = 0.1


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """Make a certificate of 127.0.0.1 that this process trusts, and return the server's TLS settings."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    # Certificates are read once per process.
    transport._tls_context.cache_clear()
    yield file
    transport._tls_context.cache_clear()


class TlsServer:
    """Speaks HTTP/2 or HTTP/1.1, as the handshake decided; answers as Voyage after a short time."""

    def __init__(self) -> None:
        self.versions: list[str] = []  # one per connection
        self.connections: list[int] = []  # one per request
        self.most_at_once = 0
        self._running = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version = writer.get_extra_info("ssl_object").selected_alpn_protocol() or "http/1.1"
        self.versions.append(version)
        number = len(self.versions)
        try:
            await (self._http2 if version == "h2" else self._http1)(reader, writer, number)
        finally:
            writer.close()

    async def _answer(self, body: bytes, number: int) -> bytes:
        self.connections.append(number)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await asyncio.sleep(ANSWER_S)
        self._running -= 1
        count = len(json.loads(body)["documents"])
        rows = [{"index": at, "relevance_score": 1 / (at + 1)} for at in range(count)]
        return json.dumps({"object": "list", "data": rows, "model": "m", "usage": {"total_tokens": 1}}).encode()

    async def _http1(self, reader, writer, number) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
            length = next(int(value) for name, value in fields.items() if name.lower() == "content-length")
            answer = await self._answer(await reader.readexactly(length), number)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(f"Content-Length: {len(answer)}\r\n\r\n".encode() + answer)
            await writer.drain()

    async def _http2(self, reader, writer, number) -> None:
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        writer.write(state.data_to_send())
        bodies: dict[int, bytes] = {}

        async def answer(stream: int) -> None:
            body = await self._answer(bodies.pop(stream), number)
            state.send_headers(stream, [(":status", "200"), ("content-type", "application/json")])
            state.send_data(stream, body, end_stream=True)
            writer.write(state.data_to_send())

        async with asyncio.TaskGroup() as group:
            while data := await reader.read(65536):
                for event in state.receive_data(data):
                    if isinstance(event, h2.events.DataReceived):
                        bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
                        state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        group.create_task(answer(event.stream_id))
                writer.write(state.data_to_send())


@asynccontextmanager
async def serving(certificate, *versions: str) -> AsyncIterator[tuple[TlsServer, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if versions:
        context.set_alpn_protocols(list(versions))
    told = TlsServer()
    server = await asyncio.start_server(told.connected, "127.0.0.1", 0, ssl=context)
    try:
        yield told, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await close_connections()
        server.close()


async def scored(address: str, pool, *, count: int) -> list:
    reranker = HostedReranker("voyage", base_url=address, api_key="k", allow_loopback=True)
    await reranker.score("soil", pool(2), deadline=Deadline.after(20))
    asked = (reranker.score("soil", pool(3), deadline=Deadline.after(20)) for _ in range(count))
    return [list(scores.values) for scores in await asyncio.gather(*asked)]


def test_concurrent_requests_share_one_http2_connection(certificate, pool):
    async def run() -> TlsServer:
        async with serving(certificate, "h2", "http/1.1") as (server, address):
            assert await scored(address, pool, count=6) == [[1, 1 / 2, 1 / 3]] * 6
            return server

    server = asyncio.run(run())
    assert server.versions == ["h2"]
    assert server.connections == [1] * 7
    assert server.most_at_once == 6


@pytest.mark.parametrize("versions", [("http/1.1",), ()])
def test_a_server_without_http2_is_called_over_http1(certificate, pool, versions):
    async def run() -> TlsServer:
        async with serving(certificate, *versions) as (server, address):
            assert await scored(address, pool, count=3) == [[1, 1 / 2, 1 / 3]] * 3
            return server

    server = asyncio.run(run())
    assert set(server.versions) == {"http/1.1"}
    assert len(server.versions) == 3


def test_a_timed_out_request_leaves_the_connection_usable(certificate, pool):
    async def run() -> TlsServer:
        async with serving(certificate, "h2") as (server, address):
            reranker = HostedReranker("voyage", base_url=address, api_key="k", allow_loopback=True)
            await reranker.score("soil", pool(1), deadline=Deadline.after(20))
            slow = reranker.score("soil", pool(2), deadline=Deadline.after(20))
            late = reranker.score("soil", pool(3), deadline=Deadline.after(ANSWER_S / 2))
            answered, failed = await asyncio.gather(slow, late, return_exceptions=True)
            assert list(answered.values) == [1, 1 / 2]
            assert isinstance(failed, TimeoutError)
            again = await reranker.score("soil", pool(2), deadline=Deadline.after(20))
            assert list(again.values) == [1, 1 / 2]
            return server

    assert asyncio.run(run()).versions == ["h2"]
