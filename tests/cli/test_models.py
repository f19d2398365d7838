"""`resift models`: pin models of the hub and of folders, list, check, remove and time them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resift.cli.main import main
from resift.errors import ModelNotAllowedError
from resift.models.known_models import known_models
from resift.models.registry import builtin_spec, find_spec
from resift.native.library import native_kernel
from tests.models.loopback_hub import Hub, serving
from tests.models.model_folders import network_folder, static_folder

pytestmark = pytest.mark.skipif(native_kernel().name is None, reason="needs the compiled library")

COMMIT = "c" * 40


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, cache and configuration folder of its own."""
    for name in ("RESIFT_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("RESIFT_MODELS_LOCK", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(["models", *words])
    out, err = capsys.readouterr()
    return code, out, err


def add_random(capsys, folder: Path, *words: str) -> dict:
    code, out, err = run(capsys, "add", str(folder), "--no-probe", "--json", *words)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_add_describes_and_pins_a_folder(place, capsys):
    folder = network_folder(place / "model")
    code, out, _ = run(capsys, "add", "./model", "--name", "mine/reranker", "--no-probe", "--lock", "models.lock")
    assert code == 0
    for words in ("cross-encoder", "bert", "48 tokens", "en", "mit", "dense(48→1)", "sigmoid", "skipped"):
        assert words in out
    locked = json.loads((place / "models.lock").read_text())["models"][0]
    assert locked["folder"] == "model"  # relative to the lock file, so that a checkout can be moved
    names = {file["name"] for file in locked["files"]}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "pytorch_model.bin").exists()


def test_scores_without_meaning_are_not_pinned(place, capsys):
    network_folder(place / "model")
    code, _, err = run(capsys, "add", "./model", "--lock", "models.lock")
    assert code == 1
    assert "probe" in err
    assert not (place / "models.lock").exists()


def test_a_model_that_passes_the_probe_is_pinned(place, capsys):
    static_folder(place / "model")
    code, out, _ = run(capsys, "add", "./model", "--name", "mine/static", "--json")
    added = json.loads(out)
    assert (code, added["probe"]["passed"], added["kind"]) == (0, True, "bi-encoder")
    code, out, _ = run(capsys, "show", "mine/static", "--json")
    assert json.loads(out)["files"] == added["files"]


def test_options_of_add(place, capsys):
    folder = network_folder(place / "model")
    added = add_random(
        capsys, folder, "--name", "m", "--languages", "en,de", "--max-length", "20", "--precision", "fp32"
    )
    assert (added["languages"], added["max_length"], added["precision"]) == (["en", "de"], 20, "fp32")
    assert find_spec("m").max_length == 20
    code, _, err = run(capsys, "add", "./model", "--name", "m", "--no-probe", "--max-length", "49")
    assert code == 1
    assert "48" in err
    code, _, err = run(capsys, "add", "./model", "--name", "cross-encoder/ms-marco-MiniLM-L-12-v2")
    assert code == 1
    assert "built in" in err
    with pytest.raises(SystemExit):
        main(["models", "add", "./model", "--languages", "english"])


def test_list_show_verify_and_remove(place, capsys):
    folder = network_folder(place / "model")
    (place / "resift-models.lock").write_text('{"version": 1, "models": []}')
    assert run(capsys, "verify")[1].endswith("does not pin any models.\n")
    add_random(capsys, folder, "--name", "mine/reranker")
    assert "mine/reranker" in (place / "resift-models.lock").read_text()
    _, out, _ = run(capsys, "list", "--json")
    rows = {row["id"]: row for row in json.loads(out)["models"]}
    assert rows["mine/reranker"]["pinned"] == "lock file"
    assert not rows["mine/reranker"]["probed"]
    assert rows["cross-encoder/ms-marco-MiniLM-L-12-v2"]["pinned"] == "built in"
    assert "mine/reranker" in run(capsys, "list")[1]
    assert "model.safetensors" in run(capsys, "show", "mine/reranker")[1]
    assert run(capsys, "verify")[0] == 0
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")
    code, out, _ = run(capsys, "verify", "--json")
    assert (code, json.loads(out)["models"][0]["ok"]) == (1, False)
    assert run(capsys, "remove", "mine/reranker")[0] == 0
    code, _, err = run(capsys, "remove", "mine/reranker")
    assert code == 1
    assert "does not pin" in err
    assert (folder / "model.safetensors").exists()


def test_bench_times_a_model(place, capsys):
    add_random(capsys, network_folder(place / "model"), "--name", "mine/reranker")
    code, out, _ = run(capsys, "bench", "mine/reranker", "--pairs", "2", "--rounds", "2", "--json")
    row = json.loads(out)["models"][0]
    assert (code, row["tokens"]) == (0, 48)
    assert row["ms_1_thread"] > 0


def test_known_models_are_listed_and_need_add(place, capsys):
    code, out, _ = run(capsys, "list", "--known", "--json")
    rows = {row["id"]: row for row in json.loads(out)["models"]}
    ettin = "cross-encoder/ettin-reranker-32m-v1"
    assert code == 0
    assert rows[ettin]["add"] == f"resift models add {ettin}"
    assert ettin in run(capsys, "list", "--known")[1]
    assert f"resift models add {ettin}" in run(capsys, "show", ettin)[1]
    with pytest.raises(ModelNotAllowedError, match=f"resift models add {ettin}"):
        find_spec(ettin)
    assert not [id for id in known_models() if builtin_spec(id) is not None]


def test_known_prompts_and_languages_apply_to_an_air_gapped_folder(place, capsys):
    """A copy of the files on a disk is added under the model's own name."""
    folder = network_folder(place / "model", "bert-embedder")
    added = add_random(capsys, folder, "--name", "intfloat/multilingual-e5-small")
    assert (added["query_prefix"], added["document_prefix"]) == ("query: ", "passage: ")
    assert added["languages"] == "any"


def test_a_repository_is_downloaded_from_the_configured_hub(place, capsys, monkeypatch):
    folder = network_folder(place / "source")
    with serving(Hub(COMMIT)) as hub:
        hub.add_repository("org/reranker", folder, revision="v1")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        code, out, err = run(capsys, "add", "org/reranker@v1", "--no-probe", "--json")
        assert (code, err) == (0, "")
        added = json.loads(out)
        assert (added["id"], added["repo"], added["revision"]) == ("org/reranker", "org/reranker", COMMIT)
        requested = [path for path, _ in hub.requests]
        assert not any("pytorch_model" in path for path in requested)
        assert all("authorization" not in headers for headers in hub.headers)
        code, _, err = run(capsys, "add", "org/absent", "--no-probe")
        assert code == 1
        assert "404" in err
    # Without the hub, the downloaded files are used.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run(capsys, "verify")[0] == 0
    assert run(capsys, "bench", "org/reranker", "--pairs", "1", "--rounds", "1")[0] == 0


def test_a_pinned_model_is_downloaded_again_at_its_commit(place, capsys, monkeypatch):
    """A colleague who has only the lock file gets the same files; other bytes are refused."""
    folder = network_folder(place / "source")
    with serving(Hub(COMMIT)) as hub:
        hub.add_repository("org/reranker", folder)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert run(capsys, "add", "org/reranker", "--no-probe", "--lock", "models.lock")[0] == 0
        monkeypatch.setenv("RESIFT_HOME", str(place / "colleague"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "colleague"))
        assert run(capsys, "bench", "org/reranker", "--pairs", "1", "--lock", "models.lock")[0] == 0
        monkeypatch.setenv("RESIFT_HOME", str(place / "third"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "third"))
        hub.files[f"/org/reranker/resolve/{COMMIT}/tokenizer.json"] = b"{}"
        code, _, err = run(capsys, "bench", "org/reranker", "--pairs", "1", "--lock", "models.lock")
        assert code == 1
        assert "does not match its pin" in err


def test_offline_mode_names_the_command_for_a_folder(place, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, _, err = run(capsys, "add", "org/reranker")
    assert code == 1
    assert "resift models add ./folder --name org/reranker" in err
