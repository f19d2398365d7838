"""Downloads from the hub: pinned revision, size and digest, resuming, offline (server on loopback)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resift.errors import ModelFileError
from resift.events import ListSink
from resift.models import locate, registry
from resift.models.locate import download_folder, download_model, hub_endpoint
from resift.models.registry import HubSource, ModelSpec
from resift.models.verify import PinnedFile
from tests.models.loopback_hub import Hub, answer, cut, serving

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
    license="MIT",
    revision=REVISION,
    onnx="onnx/model.onnx",
    tokenizer="tokenizer.json",
    files=(pin("onnx/model.onnx", GRAPH), pin("tokenizer.json", TOKENIZER)),
    hub=HubSource(repo="org/tiny", revision=REVISION),
)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on loopback and an empty cache, independent of this machine's settings."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RESIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    # The client waits a second between two attempts.
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    with serving(Hub(REVISION, files={GRAPH_PATH: GRAPH, TOKENIZER_PATH: TOKENIZER})) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def download(**options) -> Path:
    return download_model(SPEC, download_folder(SPEC), **options)


def cached_files() -> list[str]:
    return sorted(path.name for path in download_folder(SPEC).rglob("*") if path.is_file())


def test_files_are_requested_once_and_progress_is_reported(hub):
    """A download requests each file at the pinned revision, reports progress, and is not repeated."""
    sink = ListSink()
    folder = download(progress=sink)
    assert (folder / "onnx/model.onnx").read_bytes() == GRAPH
    assert sink.events[-1].fields() == {
        "model": "org/tiny",
        "file": "tokenizer.json",
        "done_bytes": len(TOKENIZER),
        "total_bytes": len(TOKENIZER),
    }
    assert download() == folder
    assert hub.requests == [(GRAPH_PATH, None), (TOKENIZER_PATH, None)]
    assert cached_files() == ["model.onnx", "tokenizer.json"]
    assert [path.name for path in folder.parent.iterdir() if path.name.endswith(".part")] == []


def test_a_broken_connection_is_retried(hub):
    hub.behave = lambda server, handler, nth: nth == 1 and (cut(handler, GRAPH, after=300_000) or True)
    assert (download() / "onnx/model.onnx").read_bytes() == GRAPH


def test_a_rest_that_does_not_fit_is_refused(hub):
    """A 206 that begins at another position is not accepted."""

    def shifted(server, handler, nth):
        if nth == 1:
            cut(handler, GRAPH, after=5000)
        else:
            rest = GRAPH[4000 : len(GRAPH) - 1000]
            answer(handler, 206, rest, {"Content-Range": f"bytes 4000-{len(GRAPH) - 1}/{len(GRAPH)}"})
        return True

    hub.behave = shifted
    with pytest.raises(ModelFileError, match="failed"):
        download()
    assert cached_files() == []


def test_wrong_bytes_are_refused_and_removed(hub):
    """A file of the right size with one wrong byte never reaches the cache; the next download succeeds."""
    hub.files[GRAPH_PATH] = GRAPH[:-1] + bytes([GRAPH[-1] ^ 1])
    with pytest.raises(ModelFileError, match="does not match its pin"):
        download()
    assert cached_files() == []
    hub.files[GRAPH_PATH] = GRAPH
    assert (download() / "onnx/model.onnx").read_bytes() == GRAPH


@pytest.mark.parametrize("announced", [True, False])
def test_a_file_that_is_too_large_is_refused(hub, announced):
    """More bytes than pinned are refused, whether or not the server announces them."""

    def endless(server, handler, nth):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(GRAPH + b"x" * 1000)
        handler.close_connection = True
        return True

    if announced:
        hub.files[GRAPH_PATH] = GRAPH + b"x"
    else:
        hub.behave = endless
    with pytest.raises(ModelFileError, match="more than"):
        download()
    assert cached_files() == []


@pytest.mark.parametrize("status", [404, 401, 500])
def test_an_error_of_the_hub_is_reported(hub, status):
    hub.behave_head = lambda server, handler: answer(handler, status, b"") or True
    with pytest.raises(ModelFileError, match="failed"):
        download()
    assert hub.requests == []


def test_a_missing_server_is_reported(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelFileError, match="network"):
        download()


def test_redirects_to_file_servers_are_followed(hub):
    def redirect(server, handler, nth):
        if handler.path != GRAPH_PATH:
            return False
        answer(handler, 302, b"", {"Location": f"{server.url}/cdn"})
        return True

    hub.files["/cdn"] = GRAPH
    hub.behave = redirect
    assert (download() / "onnx/model.onnx").read_bytes() == GRAPH


def test_endless_redirects_end(hub):
    hub.behave = lambda server, handler, nth: answer(handler, 302, b"", {"Location": handler.path}) or True
    with pytest.raises(ModelFileError):
        download()
    assert len(hub.requests) < 50


@pytest.mark.parametrize(
    "url", ["http://example.com", "ftp://127.0.0.1", "file:///x", "https://", "x", "https://a:b@c", "http://[x"]
)
def test_endpoints_other_than_https_are_refused(url, monkeypatch):
    """HF_ENDPOINT must be https, or http on this machine."""
    monkeypatch.setenv("HF_ENDPOINT", url)
    with pytest.raises(ModelFileError, match="HF_ENDPOINT"):
        hub_endpoint()


@pytest.mark.parametrize("url", ["https://mirror.example/hub", "http://[::1]:8080", ""])
def test_mirrors_and_loopback_servers_are_accepted(url, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", url)
    assert hub_endpoint() == (url or "https://huggingface.co")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_variables_are_respected(hub, monkeypatch, variable):
    """With an offline variable, neither download nor resolve sends a request."""
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(registry, "builtin_spec", {SPEC.id: SPEC}.get)
    with pytest.raises(ModelFileError, match=variable):
        download()
    with pytest.raises(ModelFileError, match="switched off"):
        locate.resolve(SPEC.id)
    with pytest.raises(ModelFileError, match="download=False"):
        locate.resolve(SPEC.id, download=False)
    assert hub.headers == []


def test_resolve_downloads_once_and_then_uses_the_cache(hub, monkeypatch):
    monkeypatch.setattr(registry, "builtin_spec", {SPEC.id: SPEC}.get)
    assert locate.resolve(SPEC.id).source == "hub"
    second = locate.resolve(SPEC.id)
    assert second.source == "cache"
    assert second.onnx_bytes() == GRAPH
    assert len(hub.requests) == 2


def test_a_changed_file_in_the_cache_is_refused(hub, monkeypatch):
    """A cached file that was changed is refused by name and not silently replaced."""
    monkeypatch.setattr(registry, "builtin_spec", {SPEC.id: SPEC}.get)
    files = locate.resolve(SPEC.id)
    files.onnx.write_bytes(GRAPH[:-1] + b"?")
    for act in (lambda: locate.resolve(SPEC.id), files.onnx_bytes, download):
        with pytest.raises(ModelFileError, match="sha256"):
            act()


@pytest.mark.slow
def test_two_processes_download_once(hub):
    """Two processes that need the same model at once request each file once."""
    code = (
        "import sys, json; from pathlib import Path; from resift.models.locate import download_model;"
        "from resift.models.registry import parse_spec; from resift.models.locate import download_folder;"
        "spec = parse_spec(json.loads(sys.argv[1])); print(download_model(spec, download_folder(spec)))"
    )
    entry = {
        "id": SPEC.id, "kind": SPEC.kind, "license": "MIT", "revision": REVISION, "onnx": SPEC.onnx,
        "tokenizer": SPEC.tokenizer, "hub": {"repo": "org/tiny", "revision": REVISION},
        "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in SPEC.files],
    }  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(locate.__file__).parents[2])}
    running = [
        subprocess.Popen([sys.executable, "-c", code, json.dumps(entry)], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in running:
        assert process.communicate(timeout=60)[0]
        assert process.returncode == 0
    assert sorted(hub.requests) == [(GRAPH_PATH, None), (TOKENIZER_PATH, None)]


def test_a_cache_that_cannot_be_written_is_reported(hub, monkeypatch, tmp_path):
    """A file where the cache folder should be raises ModelFileError."""
    (tmp_path / "taken").write_text("x")
    monkeypatch.setenv("RESIFT_HOME", str(tmp_path / "taken"))
    with pytest.raises(ModelFileError, match="Cannot write"):
        download()


def test_a_model_folder_that_cannot_be_written_is_reported(hub):
    download_folder(SPEC).parent.mkdir(parents=True)
    download_folder(SPEC).write_text("a file where the folder should be")
    with pytest.raises(ModelFileError, match="Cannot write"):
        download()


def test_no_token_is_sent(hub, monkeypatch):
    """A token in the environment is for private models; pinned ones are public."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    download()
    assert len(hub.headers) == 4
    assert "hf_secret" not in repr(hub.headers)
    assert not any({"authorization", "cookie"} & headers.keys() for headers in hub.headers)
    assert all("resift" in headers["user-agent"] for headers in hub.headers)


def test_all_files_together_have_a_time_limit(hub):
    """A slow hub ends in one error; the bytes received so far are kept for the next try."""
    seconds = iter(range(0, 10_000, 10))
    with pytest.raises(ModelFileError, match="took too long"):
        download(time_limit_s=5, clock=lambda: next(seconds))
    assert (download() / "onnx/model.onnx").read_bytes() == GRAPH


def test_a_model_without_a_hub_is_not_downloaded(hub):
    """Bundled models are not on the hub in this form."""
    bundled = ModelSpec(id="a/b", kind="nli", license="MIT", revision="r", onnx="m.onnx", tokenizer="t.json", files=())
    with pytest.raises(ModelFileError, match="not on the hub"):
        download_model(bundled, download_folder(bundled))
