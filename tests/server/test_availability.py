"""One client cannot take the server away from the others. Each of these failed on 0.2."""

from __future__ import annotations

import gc
import json
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

import resift
from resift.errors import ConfigError
from resift.pipeline.pipeline import Pipeline
from resift.server import ServerOptions, serve_app
from resift.server.ratings import LOG_FILE, RatingSession, RatingsLog
from resift.server.schema import RequestFailed
from resift.server.search_routes import CACHED_PIPELINES
from resift.testing import OverlapScorer
from tests.hardening.availability import endless_header, half_requests, hang_up, large_requests, seconds, watch_livez
from tests.hardening.ratings import rate_with_many_clients
from tests.server.process import ROOT, real, start
from tests.server.rating_sessions import session

BODY = {"query": "red fox", "documents": ["a red fox", "a whale"]}
BUSY_MS = 400
"""A shared machine delays answers by itself; 0.2 took seconds."""


@pytest.fixture(scope="module")
def server():
    server = start("--any-model")
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("name", ["fuse and explain", "explain", "search in documents", "one wrong document"])
def test_no_route_holds_the_event_loop(server, name):
    """/livez is answered while a large request is worked on."""
    import random

    path, body = large_requests(random.Random(3))[name]
    with watch_livez(server.port) as waits_ms:
        status = server.post(path, body).status
    assert status in (200, 400)
    assert max(waits_ms) < BUSY_MS


def test_fusions_that_are_far_too_large_are_refused(server):
    """More candidates than the limit: 413 before any work."""
    lists = {f"l{i}": [f"d{j}" for j in range(700)] for i in range(40)}
    answer = server.post("/v1/fuse", {"lists": lists})
    assert answer.status == 413
    assert "28000 candidates" in answer.json()["message"]


@pytest.mark.parametrize("pipelined", [False, True])
def test_half_a_request_on_a_kept_connection_is_closed(server, pipelined):
    """Within the time for headers, also if it came together with a whole request."""
    assert half_requests(server.port, 12, pipelined=pipelined) < 8
    assert server.get("/livez").status == 200


def test_headers_have_a_limit(server):
    """Endless header lines get 431, and the process does not keep them."""
    before = resident_kb(server.process.pid)
    for _ in range(5):
        assert b" 431" in endless_header(server.port, 3 << 20)
    assert resident_kb(server.process.pid) - before < 30_000
    large = {"x-large": "y" * 40_000}
    assert server.ask("GET", "/livez", None, large).status == 200


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


SERVER = """
import json, sys
from resift.server import Limits, ServerOptions, serve_app
from resift.server.server_options import ListenOptions
from resift.server.running import bind_socket, run_worker
from tests.server.stub_server import StubScorer
listen = ListenOptions(port=0, drain_delay_s=0.1)
listener = bind_socket(listen)
print(f"at :{listener.getsockname()[1]}", file=sys.stderr, flush=True)
make = lambda options: serve_app(options, scorer=StubScorer())
options = ServerOptions(limits=Limits(**json.loads(sys.argv[1])), embedder=None, any_model=True)
sys.exit(run_worker(options, listen, listener, make_app=make))
"""


@contextmanager
def limited_server(**limits):
    """Yield the port of a server with these limits."""
    command = [sys.executable, "-c", SERVER, json.dumps(limits)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield int(re.search(r":(\d+)$", process.stderr.readline().strip())[1])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stderr.close()


def request_without_reading(port, size):
    """Send a request whose response has about `size` bytes; return the connection and the size of the request."""
    data = json.dumps({"query": "a", "documents": ["a " * 250_000] * (size // 500_000)}).encode()
    head = f"POST /jina/v1/rerank HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(head + data)
    return connection, len(data)


def read_all(connection):
    """Return how many bytes arrive until the connection is closed or nothing comes for a second."""
    connection.settimeout(1)
    received = 0
    with connection, suppress(OSError):
        while part := connection.recv(1 << 20):
            received += len(part)
    return received


def test_a_client_that_does_not_read_its_answer_is_cut_off():
    """An answer of several megabytes is not kept for a client that reads nothing."""
    with limited_server(send_timeout_s=0.5) as port:
        time.sleep(1)
        connection, size = request_without_reading(port, 9_000_000)
        time.sleep(5)
        assert read_all(connection) < size


def test_answers_that_nobody_reads_have_a_limit_in_all():
    """150 clients that did not read answers of 12 MB took 1.8 GB. Those that have waited longest are cut off."""
    with limited_server(max_bytes_held=6_000_000) as port:
        time.sleep(1)
        requests = []
        for _ in range(6):
            requests.append(request_without_reading(port, 5_000_000))
            time.sleep(0.5)
        complete = [read_all(connection) >= size for connection, size in requests]
    assert not any(complete[:2])
    assert complete[-1]  # part of each answer is in the buffers of the operating system


@pytest.mark.parametrize("path", ["/v1/search", "/v1/ask"])
@pytest.mark.parametrize("deadline_ms", [1, 60])
def test_deadlines_hold_with_documents_in_the_request(server, path, deadline_ms):
    """Indexing the documents of a request ends at its deadline, and the answer says so."""
    texts = [f"{i} the red fox runs over the hill. " * 40 for i in range(1_000)]
    body = {"documents": texts, "deadline_ms": deadline_ms}
    body |= {"question": "who runs?"} if path == "/v1/ask" else {"query": "red fox"}
    answer = []
    took_s = seconds(lambda: answer.append(server.post(path, body)))
    assert answer[0].status in (200, 504)
    assert took_s < deadline_ms / 1000 + 3  # sending and parsing 1.5 MB beside a busy thread


@pytest.mark.real_model
def test_a_long_text_is_dropped_with_its_client_and_does_not_delay_the_end(tmp_path):
    """Embedding stops between two windows: for a client that hung up, at a deadline, and at the end."""
    server = real("--any-model", "--drain", "0.2")
    try:
        server.post("/v1/rerank", BODY)
        long = "ab " * 120_000
        hang_up(server.port, "/v1/embeddings", {"input": [long, "cd " * 110_000]}, after_s=0.3)
        assert seconds(lambda: server.post("/v1/rerank", BODY)) < 5
        late = server.post("/v1/embeddings", {"input": long}, x_resift_deadline_ms="150")
        assert late.status == 504
        assert "deadline" in late.json()["error"]["message"]
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.post, "/v1/embeddings", {"input": long})
            time.sleep(0.3)
            assert seconds(server.stop) < 20
            assert running.result().status == 503
        assert server.process.returncode == 0
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("where", "documents"),
    [
        ({f"k{i}": i for i in range(10_001)}, 1),
        ({"n": list(range(12_000))}, 1),
        ({"or": [{"n": i} for i in range(2_000)]}, 1_000),
    ],
    ids=["keys", "values", "keys and documents"],
)
def test_filters_that_take_long_to_test_are_refused(server, where, documents):
    """50,000 conditions on 1,000 documents took longer than a minute, whatever the deadline."""
    body = {"query": "red fox", "documents": ["a red fox"] * documents, "where": where}
    answer = server.post("/v1/search", body)
    assert answer.status == 413
    assert "filter has" in answer.json()["message"]
    question = {"question": "who runs?", "documents": body["documents"], "where": where}
    assert server.post("/v1/ask", question).status == 413


def test_windows_of_a_request_are_limited(server):
    """Texts of more windows than a server embeds in minutes are refused."""
    answer = server.post("/v1/embeddings", {"input": ["x" * 900_000] * 10})
    assert answer.status == 413
    assert "windows" in answer.json()["error"]["message"]


async def _echo(websocket):
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


def test_keys_cover_websockets_and_any_prefix():
    """A mounted app is behind the keys in every protocol; health is open under every prefix."""
    inner = Starlette(routes=[Route("/x", lambda request: PlainTextResponse("x")), WebSocketRoute("/ws", _echo)])
    options = ServerOptions(embedder=None, key_env=None, keys=("sesame",), access_log=False)
    for prefix in ("/playground", "/any", ""):
        app = serve_app(options, scorer=OverlapScorer(), mounts={"/inner": inner})
        outer = Starlette(routes=[Mount(prefix, app)], lifespan=app.router.lifespan_context) if prefix else app
        with TestClient(outer) as client:
            assert client.get(f"{prefix}/livez").status_code == 200
            assert client.get(f"{prefix}/playground/api.js").status_code == 200
            for path in ("/metrics", "/v1/models", "/openapi.json", "/inner/x"):
                assert client.get(f"{prefix}{path}").status_code == 401, (prefix, path)
                key = {"authorization": "Bearer sesame"}
                assert client.get(f"{prefix}{path}", headers=key).status_code in (200, 503)
            with (
                pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)),
                client.websocket_connect(f"{prefix}/inner/ws"),
            ):
                pass
            with client.websocket_connect(f"{prefix}/inner/ws", headers=key) as websocket:
                assert websocket.receive_text() == "hello"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8787"}, 421),
        ({"host": "127.0.0.1:8787"}, 200),
        ({"host": "[::1]:8787"}, 200),
        ({"host": "resift:8787"}, 200),
        ({"host": "search.example"}, 200),
        ({"host": "localhost", "origin": "https://evil.example"}, 403),
        ({"host": "localhost", "origin": "null"}, 403),
        ({"host": "localhost:8787", "origin": "http://localhost:8787"}, 200),
        ({"host": "localhost", "origin": "https://page.example"}, 200),
    ],
)
def test_foreign_hosts_and_cross_site_writes_are_refused_without_keys(headers, status):
    """A page of another site can neither read through a name that it controls, nor write."""
    options = ServerOptions(
        embedder=None,
        key_env=None,
        access_log=False,
        cors_origins=("https://page.example",),
        allowed_hosts=("search.example",),
    )
    with TestClient(serve_app(options, scorer=OverlapScorer())) as client:
        while client.get("/readyz").status_code != 200:
            pass
        answer = client.post("/v2/rerank", json=BODY, headers={"content-type": "text/plain", **headers})
    assert answer.status_code == status


def test_repeated_headers_are_refused(server):
    """Of two keys or hosts, a proxy may have checked the other one."""
    for name in (b"host", b"authorization"):
        head = b"GET /livez HTTP/1.1\r\nhost: x\r\n" + name + b": a\r\n" + name + b": b\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(head)
            assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("origin", ["good.example", "", "https://good.example/path"])
def test_an_origin_that_never_matches_is_reported(origin):
    """An origin is a scheme and a host."""
    with pytest.raises(ConfigError, match="origin"):
        ServerOptions(cors_origins=(origin,))


def test_ratings_of_many_clients_are_all_there(tmp_path):
    """Threads that write and read at the same time see every confirmed session."""
    log = RatingsLog(tmp_path)

    def rate(number: int) -> None:
        log.add_session(session(number))
        log.add_rating(f"s{number}", "d0", number % 4)
        assert f"s{number}" in log.read().sessions

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(rate, range(60)))
    fresh = RatingsLog(tmp_path).read()
    assert (len(fresh.sessions), fresh.count) == (60, 60)


def test_clients_that_rate_at_the_same_time_get_no_error(tmp_path):
    """One request reads the log while others write it; 0.2 answered 404 or 500 for confirmed sessions."""
    server = start("--any-model", "--judgements", str(tmp_path))
    try:
        assert rate_with_many_clients(server, tmp_path, sessions=96, kb=200) == []
    finally:
        assert server.stop() == 0


def test_the_running_score_is_computed_while_others_rate(tmp_path):
    """The score reads a copy, so a new session cannot change it in the middle."""
    log = RatingsLog(tmp_path)
    for number in range(3):
        log.add_session(session(number))
        log.add_rating(f"s{number}", "d0", 1)
    before = log.read()
    log.add_session(session(3))
    log.add_rating("s0", "d1", 3)
    assert (len(before.sessions), before.grades["query 0"], before.count) == (3, {"d0": 1}, 3)
    assert log.read().grades["query 0"] == {"d0": 1, "d1": 3}


def test_a_damaged_log_of_ratings_is_reported_and_nothing_is_passed_over(tmp_path):
    """Every changed byte is reported with file and line, by every request, until it is repaired."""
    log = RatingsLog(tmp_path)
    for number in range(3):
        log.add_session(session(number))
        log.add_rating(f"s{number}", "d1", 2)
    file = tmp_path / LOG_FILE
    whole = file.read_bytes()
    for position in range(3, len(whole), 41):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        file.write_bytes(damaged)
        for _ in range(2):
            reader = RatingsLog(tmp_path)
            with pytest.raises(RequestFailed, match=rf"{LOG_FILE}, line \d"):
                reader.read()
            with pytest.raises(RequestFailed, match="damaged"):
                reader.add_rating("s0", "d0", 3)
    file.write_bytes(whole)
    assert RatingsLog(tmp_path).read().count == 3


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from resift.server.ratings import RatingsLog
from resift.server.schema import RequestFailed
from tests.server.rating_sessions import session
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = RatingsLog(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))
for number in range(200):
    try:
        log.add_session(session(number))
    except RequestFailed:
        continue
    print(number)
"""


def test_a_full_disk_loses_no_confirmed_session(tmp_path):
    """A session is confirmed only if all of it is in the log; later there is room again."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    confirmed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert 5 < len(confirmed) < 200
    log = RatingsLog(tmp_path)
    assert list(log.read().sessions) == [f"s{number}" for number in confirmed]
    log.add_session(session(999))
    assert "s999" in RatingsLog(tmp_path).read().sessions


def test_an_id_cannot_forge_a_row_of_the_judgements(tmp_path):
    """Tabs and line breaks in ids are escaped in the BEIR folder, which others cannot read."""
    id = "evil\t3\nq1\tforged"
    (tmp_path / "open").mkdir(mode=0o755)
    for folder in (tmp_path / "judged", tmp_path / "open"):
        forge_row(folder, id)
    assert (tmp_path / "judged").stat().st_mode & 0o077 == 0
    files = [file for file in (tmp_path / "open").rglob("*") if file.is_file() and file.name != ".lock"]
    assert len(files) == 4
    assert not any(file.stat().st_mode & 0o077 for file in files)


def forge_row(folder, id):
    log = RatingsLog(folder)
    log.add_session(
        RatingSession(
            id="s", query="q", settings={}, lists={"a": [id], "b": [id]}, shown=[(id, "a")], documents={id: "text"}
        )
    )
    log.add_rating("s", id, 1)
    rows = (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 2


def test_settings_with_preferences_for_fields_can_be_judged(tmp_path):
    """Recency and boosts are saved with the session, and the score names them."""
    options = ServerOptions(embedder=None, key_env=None, access_log=False, judgements=tmp_path / "judged")
    settings = {"a": {"recency": {"field": "day"}, "boosts": [{"field": "views"}]}, "b": {"reranker": "none"}}
    body = {"query": "red fox", "documents": ["a red fox", "a whale"], "settings": settings}
    with TestClient(serve_app(options, scorer=OverlapScorer())) as client:
        while client.get("/readyz").status_code != 200:
            pass
        session = client.post("/v1/judge/sessions", json=body).json()
        rating = {"session": session["session"], "id": session["hits"][0]["id"], "grade": 3}
        assert client.post("/v1/judge/ratings", json=rating).json() == {"ratings": 1}
        judged = client.get("/v1/judge/score").json()["settings"]
    assert judged["a"]["recency"]["field"] == "day"
    assert judged["b"] == {"reranker": "none"}


def test_settings_do_not_pile_up(tmp_path):
    """Pipelines of old settings are dropped: a client that varies one does not fill the memory."""
    file = tmp_path / "docs.db"
    with resift.Index(file) as index:
        index.add(["a red fox", "a whale"])
    options = ServerOptions(embedder=None, key_env=None, access_log=False, stores=(file,))
    app = serve_app(options, scorer=OverlapScorer())
    with TestClient(app) as client:
        while client.get("/readyz").status_code != 200:
            pass
        for blend in range(CACHED_PIPELINES + 6):
            body = {"query": "red fox", "settings": {"blend": blend / 100}}
            assert client.post("/v1/search", json=body).status_code == 200
        gc.collect()  # tests/conftest.py lets it run rarely
        pipelines = [each for each in gc.get_objects() if isinstance(each, Pipeline)]
    assert len(pipelines) <= CACHED_PIPELINES + 2


def index_of(file, *texts):
    with resift.Index(file) as index:
        index.add(list(texts))


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A server over an index of one document, and the file of the index."""
    file = tmp_path_factory.mktemp("indexed") / "docs.db"
    index_of(file, "a red fox")
    server = start("--any-model", "--store", str(file))
    yield server, file
    assert server.stop() == 0


def test_a_filter_without_a_name_is_the_clients_mistake(indexed):
    """An empty key in `where` is 400 with a sentence, and no traceback."""
    server, _ = indexed
    for key in ("", "\ud800"):
        answer = server.post("/v1/search", {"query": "fox", "where": {key: 1}})
        assert answer.status in (200, 400), answer.body
    assert not any("Traceback" in line for line in server.lines)


def test_an_index_that_was_replaced_is_opened_again(indexed):
    """After `mv new.db docs.db` the server answers from the new file; a deleted one stays open."""
    server, file = indexed
    index_of(file.with_name("new.db"), "a red apple")
    texts = lambda: [hit["text"] for hit in server.post("/v1/search", {"query": "red"}).json()["hits"]]  # noqa: E731
    assert texts() == ["a red fox"]
    file.with_name("new.db").replace(file)
    assert texts() == ["a red apple"]
    file.unlink()
    assert texts() == ["a red apple"]


@pytest.mark.parametrize("delay_s", [0.05, 0.4])
@pytest.mark.real_model
def test_a_signal_before_the_server_is_ready_is_a_clean_end(delay_s):
    """SIGTERM right after the address is printed, while models are loaded: exit code 0."""
    server = real("--any-model", ready=False)
    time.sleep(delay_s)
    assert server.stop() == 0


@pytest.mark.real_model
@pytest.mark.hardening
def test_workers_end_with_their_supervisor(tmp_path):
    """A killed supervisor leaves neither a process that keeps the port nor the files of the metrics."""
    server = real("--workers", "2", "--any-model", "--embedder", "none", env={"TMPDIR": str(tmp_path)})
    assert list(tmp_path.glob("resift-metrics-*"))
    server.process.kill()
    server.process.wait(10)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=2).close()
        except ConnectionRefusedError:
            break
        time.sleep(0.2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=2)
    while list(tmp_path.glob("resift-metrics-*")) and time.monotonic() < end:
        time.sleep(0.2)
    assert not list(tmp_path.glob("resift-metrics-*"))


def test_modules_and_models_are_left_out_of_garbage_collection():
    # A full collection over them held the event loop for 20 to 30 ms.
    gc.unfreeze()  # what tests/conftest.py left out
    app = serve_app(ServerOptions(embedder=None), scorer=OverlapScorer())
    try:
        with TestClient(app) as client:
            assert client.post("/v1/rerank", json=BODY).status_code in (200, 503)
            while client.get("/readyz").status_code != 200:
                time.sleep(0.01)
            assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
