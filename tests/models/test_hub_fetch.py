"""Fetching from the hub: resume, size cap, digest, offline, https only; against a server on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from loopback_hub import Hub, answer, cut, serving

from resift.errors import ModelFileError
from resift.events import ListSink
from resift.models import hub, locate
from resift.models.allowlist import HubSource, ModelSpec, PinnedFile
from resift.models.cache import own_folder
from resift.models.https_only import check_url

REVISION = "0123456789abcdef0123456789abcdef01234567"
GRAPH = os.urandom(1_000_000)
TOKENIZER = b'{"version": "1.0"}'
GRAPH_PATH = f"/org/tiny/resolve/{REVISION}/onnx/model.onnx"
TOKENIZER_PATH = f"/org/tiny/resolve/{REVISION}/tokenizer.json"


def pin(name: str, data: bytes) -> PinnedFile:
    return PinnedFile(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())


SPEC = ModelSpec(
    id="org/tiny",
    kind="cross-encoder",
    licence="MIT",
    revision=REVISION,
    onnx="onnx/model.onnx",
    tokenizer="tokenizer.json",
    files=(pin("onnx/model.onnx", GRAPH), pin("tokenizer.json", TOKENIZER)),
    hub=HubSource(repo="org/tiny", revision=REVISION),
)


@pytest.fixture
def online(tmp_path, monkeypatch):
    """A hub on loopback, an empty cache, and nothing of the machine's own settings."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RESIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with serving(Hub(files={GRAPH_PATH: GRAPH, TOKENIZER_PATH: TOKENIZER})) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def fetch(**options) -> Path:
    return hub.fetch(SPEC, pause=lambda _: None, **options)


def offset(handler) -> int:
    return int((handler.headers.get("Range") or "bytes=0-")[6:-1])


def only_a_thousand(server, handler, nth) -> bool:
    """Send the first thousand bytes once, and nothing more, however often it is asked."""
    cut(handler, GRAPH, after=1000 if nth == 1 else 0, start=offset(handler))
    return True


def leftovers() -> list[str]:
    return sorted(p.name for p in own_folder(SPEC).rglob("*") if p.is_file())


def test_files_arrive_with_progress_and_are_asked_for_once(online):
    """A fetch asks for each file at the pinned revision, reports progress, and is not repeated."""
    sink = ListSink()
    folder = fetch(progress=sink)
    assert (folder / "onnx/model.onnx").read_bytes() == GRAPH
    assert sink.events[-1].fields() == {
        "model": "org/tiny",
        "file": "tokenizer.json",
        "done_bytes": len(TOKENIZER),
        "total_bytes": len(TOKENIZER),
    }
    assert fetch() == folder
    assert online.asked == [(GRAPH_PATH, None), (TOKENIZER_PATH, None)]
    assert leftovers() == ["model.onnx", "tokenizer.json"]


def test_a_cut_connection_is_resumed_where_it_broke(online):
    """After a cut the rest is asked for by range, and the whole is still hashed."""

    def cut_twice(server, handler, nth):
        if nth > 2:
            return False
        cut(handler, GRAPH, after=300_000, start=offset(handler))
        return True

    online.behave = cut_twice
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH
    assert [asked for _, asked in online.asked[:3]] == [None, "bytes=300000-", "bytes=600000-"]


def test_a_part_of_an_earlier_process_is_continued(online):
    """What is on disk from an interrupted run is not fetched again."""
    online.behave = only_a_thousand
    with pytest.raises(ModelFileError, match="stopped short"):
        fetch()
    online.behave, online.asked[:] = None, []
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH
    assert online.asked[0] == (GRAPH_PATH, "bytes=1000-")


def test_a_server_without_ranges_starts_over(online):
    """A 200 to a range request means: from the beginning."""
    online.ranges = False
    online.behave = lambda server, handler, nth: nth == 1 and (cut(handler, GRAPH, after=5000) or True)
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH


def test_a_range_from_another_place_is_refused(online):
    """A 206 that begins elsewhere is not glued together."""

    def shifted(server, handler, nth):
        if nth == 1:
            cut(handler, GRAPH, after=5000)
        else:
            answer(handler, 206, GRAPH[4000:], {"Content-Range": f"bytes 4000-{len(GRAPH) - 1}/{len(GRAPH)}"})
        return True

    online.behave = shifted
    with pytest.raises(ModelFileError, match="another place"):
        fetch()


def test_a_damaged_part_is_thrown_away_in_the_end(online):
    """A part that was tampered with on disk is found out by the digest, and the next fetch succeeds."""
    online.behave = only_a_thousand
    with pytest.raises(ModelFileError):
        fetch()
    part = next(own_folder(SPEC).rglob("*.part"))
    part.write_bytes(b"x" * 1000)
    online.behave = None
    with pytest.raises(ModelFileError, match="other bytes"):
        fetch()
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH


def test_wrong_bytes_are_refused_and_removed(online):
    """A file of the right size with one wrong byte never reaches the cache."""
    online.files[GRAPH_PATH] = GRAPH[:-1] + bytes([GRAPH[-1] ^ 1])
    with pytest.raises(ModelFileError, match="other bytes than pinned"):
        fetch()
    assert leftovers() == []


@pytest.mark.parametrize("honest", [True, False])
def test_a_body_that_is_too_large_is_refused(online, honest):
    """More bytes than pinned are refused, announced or not, and nothing is kept."""

    def endless(server, handler, nth):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(GRAPH + b"x" * 1000)
        handler.close_connection = True
        return True

    if honest:
        online.files[GRAPH_PATH] = GRAPH + b"x"
    else:
        online.behave = endless
    with pytest.raises(ModelFileError, match="larger than"):
        fetch()
    assert leftovers() == []


@pytest.mark.parametrize(("status", "times"), [(404, 1), (401, 1), (503, 5)])
def test_an_error_of_the_hub_is_told(online, status, times):
    """A refusal is told at once, a failure after some attempts."""
    online.behave = lambda server, handler, nth: answer(handler, status, b"") or True
    with pytest.raises(ModelFileError, match=str(status)):
        fetch()
    assert len(online.asked) == times


def test_a_failure_that_passes_is_survived(online):
    """One 503 does not spoil the fetch."""
    online.behave = lambda server, handler, nth: nth == 1 and (answer(handler, 503, b"") or True)
    fetch()


def test_a_part_that_the_hub_calls_too_long_is_started_over(online):
    """A 416 drops the part and the file is fetched from the beginning."""

    def cut_then_416(server, handler, nth):
        if nth == 1:
            cut(handler, GRAPH, after=5000)
        elif nth == 2:
            answer(handler, 416, b"")
        return nth < 3

    online.behave = cut_then_416
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH
    assert [asked for _, asked in online.asked[:3]] == [None, "bytes=5000-", None]


@pytest.mark.parametrize("planted", ["too long", "link"])
def test_a_planted_part_is_dropped(online, tmp_path, planted):
    """A part that is larger than the file, or a link, is neither continued nor written through."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    graph = SPEC.pin("onnx/model.onnx")
    part = own_folder(SPEC) / "onnx" / f"model.onnx.{graph.sha256[:16]}.part"
    part.parent.mkdir(parents=True)
    if planted == "link":
        part.symlink_to(victim)
    else:
        part.write_bytes(GRAPH + b"x")
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH
    assert victim.read_bytes() == b"precious"
    assert online.asked[0] == (GRAPH_PATH, None)


def test_compressed_answers_are_refused(online):
    """An encoding that nobody asked for could be a bomb."""
    online.behave = lambda server, handler, nth: (
        answer(handler, 200, b"x", {"Content-Encoding": "gzip"}) or True
    )
    with pytest.raises(ModelFileError, match="compressed"):
        fetch()


def test_no_server_is_told(online, monkeypatch):
    """Nobody listening ends in ModelFileError."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelFileError, match="network"):
        fetch()


def test_redirects_are_followed_on_this_machine_and_keep_the_range(online):
    """The hub redirects to its file servers; the range goes along."""

    def redirect(server, handler, nth):
        if handler.path != GRAPH_PATH:
            return False
        answer(handler, 302, b"", {"Location": f"{server.url}/cdn"})
        return True

    online.files["/cdn"] = GRAPH
    online.behave = redirect
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH


@pytest.mark.parametrize("target", ["http://example.com/x", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirects_away_from_https_are_refused(online, target):
    """No redirect leads to plain http elsewhere, to files or to ftp."""
    online.behave = lambda server, handler, nth: answer(handler, 302, b"", {"Location": target}) or True
    with pytest.raises(ModelFileError):
        fetch()


def test_endless_redirects_end(online):
    """A redirect loop is an error, not a hang."""
    online.behave = lambda server, handler, nth: answer(handler, 302, b"", {"Location": handler.path}) or True
    with pytest.raises(ModelFileError):
        fetch()
    assert len(online.asked) < 20


@pytest.mark.parametrize(
    "url",
    ["http://example.com", "ftp://127.0.0.1", "file:///x", "https://", "x", "https://a:b@c", "http://[x"],
)
def test_endpoints_that_are_not_https_are_refused(url, monkeypatch):
    """HF_ENDPOINT is honoured as https, or as http on this machine."""
    monkeypatch.setenv("HF_ENDPOINT", url)
    with pytest.raises(ModelFileError):
        hub.endpoint()


def test_endpoints_that_are_fine_pass(monkeypatch):
    """A mirror over https and a server on loopback are fine."""
    assert check_url("https://mirror.example/hub") == "https://mirror.example/hub"
    assert check_url("http://[::1]:8080") == "http://[::1]:8080"
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert hub.endpoint().startswith("https://")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_variables_are_honoured(online, monkeypatch, variable):
    """With an offline variable nothing is asked, by fetch or by resolve."""
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(locate, "shipped", {SPEC.id: SPEC}.get)
    with pytest.raises(ModelFileError, match=variable):
        fetch()
    with pytest.raises(ModelFileError, match="switched off"):
        locate.resolve(SPEC.id)
    with pytest.raises(ModelFileError, match="download=False"):
        locate.resolve(SPEC.id, download=False)
    assert online.asked == []


def test_resolve_fetches_once_then_finds_the_cache(online, monkeypatch):
    """The hub is the last place; what it gave is found in the cache the next time."""
    monkeypatch.setattr(locate, "shipped", {SPEC.id: SPEC}.get)
    assert locate.resolve(SPEC.id).source == "hub"
    again = locate.resolve(SPEC.id)
    assert again.source == "cache"
    assert again.onnx_bytes() == GRAPH
    assert len(online.asked) == 2


def test_a_changed_file_in_the_cache_is_refused(online, monkeypatch):
    """A cached file that was changed is not silently replaced: it is refused, by name."""
    monkeypatch.setattr(locate, "shipped", {SPEC.id: SPEC}.get)
    files = locate.resolve(SPEC.id)
    files.onnx.write_bytes(GRAPH[:-1] + b"?")
    for act in (lambda: locate.resolve(SPEC.id), files.onnx_bytes, fetch):
        with pytest.raises(ModelFileError, match="sha256"):
            act()


@pytest.mark.slow
def test_two_processes_fetch_once(online):
    """Two processes that want the same model at once ask the hub for each file once."""
    code = (
        "import sys, json; from resift.models import hub; from resift.models.allowlist import parse;"
        "print(hub.fetch(parse(json.loads(sys.argv[1]))))"
    )
    entry = {
        "id": SPEC.id, "kind": SPEC.kind, "licence": "MIT", "revision": REVISION, "onnx": SPEC.onnx,
        "tokenizer": SPEC.tokenizer, "hub": {"repo": "org/tiny", "revision": REVISION},
        "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in SPEC.files],
    }  # fmt: skip
    src = Path(hub.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(src)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(entry)], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for process in running:
        assert process.communicate(timeout=60)[0]
        assert process.returncode == 0
    assert sorted(online.asked) == [(GRAPH_PATH, None), (TOKENIZER_PATH, None)]


def test_a_cache_that_cannot_be_written_is_told(online, monkeypatch, tmp_path):
    """A file where the cache folder should be ends in ModelFileError."""
    (tmp_path / "taken").write_text("x")
    monkeypatch.setenv("RESIFT_HOME", str(tmp_path / "taken"))
    with pytest.raises(ModelFileError, match="Cannot write"):
        fetch()


def test_a_folder_that_cannot_be_written_is_told_at_once(online):
    """A disk that refuses is not taken for a network that is down."""
    own_folder(SPEC).parent.mkdir(parents=True)
    own_folder(SPEC).write_text("a file where the folder should be")
    with pytest.raises(ModelFileError, match="cannot write"):
        fetch()
    assert online.asked == []


def test_no_token_is_sent(online, monkeypatch):
    """A token in the environment is for private models; pinned ones are public."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen = []

    def look(server, handler, nth):
        seen.append({name.lower(): value for name, value in handler.headers.items()})
        return False

    online.behave = look
    fetch()
    assert [headers["user-agent"] for headers in seen] == ["resift", "resift"]
    assert "hf_secret" not in repr(seen)
    assert not any({"authorization", "cookie", "x-amzn-trace-id"} & headers.keys() for headers in seen)


def test_all_files_together_have_a_time_limit(online):
    """A hub that drips ends in one error; what has arrived is kept for the next try."""
    seconds = iter(range(0, 10_000, 10))

    def drip(server, handler, nth):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(GRAPH)))
        handler.end_headers()
        for start in range(0, len(GRAPH), 10_000):
            handler.wfile.write(GRAPH[start : start + 10_000])
            handler.wfile.flush()
        handler.close_connection = True
        return True

    online.behave = drip
    with pytest.raises(ModelFileError, match="took too long"):
        fetch(limit_s=15, clock=lambda: next(seconds))
    online.behave = None
    assert (fetch() / "onnx/model.onnx").read_bytes() == GRAPH


def test_the_hubs_client_is_as_it_was_afterwards(online):
    """Whoever uses the same client in this process gets their own back."""
    from huggingface_hub import get_session, set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    made = []

    def own():
        made.append(default_client_factory())
        return made[-1]

    set_client_factory(own)
    try:
        fetch()
        assert get_session() is made[-1]
    finally:
        set_client_factory(default_client_factory)


def test_a_model_without_a_hub_is_not_fetched(online):
    """Carried models are not on the hub in this form."""
    carried = ModelSpec(
        id="a/b", kind="nli", licence="MIT", revision="r", onnx="m.onnx", tokenizer="t.json", files=()
    )
    with pytest.raises(ModelFileError, match="not on the hub"):
        hub.fetch(carried)
