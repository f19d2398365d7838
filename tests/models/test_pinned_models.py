"""A pinned model works by its name everywhere. An unpinned name fails with the command that adds it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import resift
from resift._internal.sync import run_sync
from resift.cli.main import main
from resift.errors import ConfigError, InputError, ModelFileError, ModelNotAllowedError, ResiftError
from resift.models.pinning import add_model
from resift.native.library import native_kernel
from tests.models.model_folders import network_folder, static_folder

pytestmark = pytest.mark.skipif(native_kernel().name is None, reason="needs the compiled library")

RERANKER, EMBEDDER, ABSENT = "mine/reranker", "mine/embedder", "org/absent"
COMMAND = f"resift models add {ABSENT}"
TEXTS = ["the hot word is on time", "he said that they use it", "which one can you have"]
QUERY = "what is the time"


@pytest.fixture(scope="module")
def lock(tmp_path_factory) -> Path:
    """A lock file with a random cross-encoder and a static embedder."""
    folder = tmp_path_factory.mktemp("pinned")
    path = folder / "resift-models.lock"
    add_model(network_folder(folder / "reranker"), name=RERANKER, lock=path, probe=False)
    add_model(static_folder(folder / "embedder"), name=EMBEDDER, lock=path)
    return path


@pytest.fixture(autouse=True)
def use_lock(lock, monkeypatch):
    monkeypatch.setenv("RESIFT_MODELS_LOCK", str(lock))


def test_rerank():
    ranking = resift.rerank(QUERY, TEXTS, model=RERANKER)
    assert not ranking.degraded
    assert ranking.hits[0].score > ranking.hits[-1].score
    with pytest.raises(ModelNotAllowedError, match=COMMAND):
        resift.rerank(QUERY, TEXTS, model=ABSENT)


def test_probabilities_come_from_the_activation_of_the_model():
    """This model declares no activation, so it is the sigmoid, as in sentence-transformers."""
    raw = resift.rerank(QUERY, TEXTS, model=RERANKER)
    shown = resift.rerank(QUERY, TEXTS, model=RERANKER, scores="probability")
    expected = [1 / (1 + math.exp(-score)) for score in (hit.score for hit in raw)]
    assert [hit.score for hit in shown] == pytest.approx(expected)


def test_a_model_without_an_activation_needs_a_calibration(lock, tmp_path, monkeypatch):
    path = tmp_path / "models.lock"
    folder = network_folder(
        tmp_path / "model", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}
    )
    added = add_model(folder, name=RERANKER, lock=path, probe=False)
    assert added.model.score_activation == "identity"
    monkeypatch.setenv("RESIFT_MODELS_LOCK", str(path))
    with pytest.raises(InputError, match="calibrat"):
        resift.rerank(QUERY, TEXTS, model=RERANKER, scores="probability")


def test_index(tmp_path):
    with resift.Index(tmp_path / "docs.db", reranker=RERANKER, embedder=EMBEDDER) as index:
        index.add(TEXTS)
        assert index.stats().embedder == EMBEDDER
        ranking = index.search(QUERY, k=2)
        assert not ranking.degraded
        assert index.pipeline.scorer.model_name == RERANKER
    for wrong in ({"reranker": ABSENT}, {"embedder": ABSENT}):
        with pytest.raises(ModelNotAllowedError, match=COMMAND):
            resift.Index(tmp_path / "other.db", **wrong)
    with pytest.raises(InputError, match="rerank=False"):
        resift.Index(tmp_path / "other.db", reranker=RERANKER, rerank=False)
    with pytest.raises(InputError, match="pipeline"):
        resift.Index(tmp_path / "other.db", reranker=RERANKER, pipeline="pipeline.yaml")


def pipeline_file(folder: Path, model: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(
        f"stores:\n  - kind: sqlite\n    name: docs\n    path: docs.db\n    embedder: {EMBEDDER}\n"
        f"rerank:\n  kind: cross-encoder\n  model: {model}\n"
    )
    return path


def test_pipeline_files(tmp_path):
    with resift.Index(tmp_path / "docs.db", embedder=EMBEDDER) as index:
        index.add(TEXTS)
    pipeline = resift.Pipeline.from_yaml(pipeline_file(tmp_path, RERANKER))
    assert not run_sync(pipeline.search(QUERY, k=2)).degraded
    with pytest.raises(ConfigError, match=COMMAND):
        resift.Pipeline.from_yaml(pipeline_file(tmp_path, ABSENT))


def test_evaluation(tmp_path, capsys):
    pytest.importorskip("ir_measures")
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(TEXTS)]
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (data / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": QUERY}))
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t1\n")
    file = tmp_path / "mine.yaml"
    file.write_text(
        f'stores: [{{name: docs, kind: sqlite, path: "${{RESIFT_COLLECTION}}"}}]\n'
        f"rerank: {{kind: cross-encoder, model: {RERANKER}}}\n"
    )
    code = main(["eval", str(data), "--pipeline", str(file), "--cache", str(tmp_path), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "nDCG@10" in out


def test_batch_workers_see_the_lock_file(tmp_path, capsys):
    rows = [{"query": QUERY, "candidates": TEXTS} for _ in range(3)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["batch", "rerank", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out"), "--workers", "1"]
    assert main([*words, "--model", RERANKER]) == 0, capsys.readouterr().err
    words[4] = str(tmp_path / "other")
    assert main([*words, "--model", ABSENT]) == 1
    assert COMMAND in capsys.readouterr().err


def test_the_server_serves_several_models(capsys):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from resift.cli.main import build_parser
    from resift.cli.serve import server_options
    from resift.server.app import serve_app

    words = ["serve", "--model", RERANKER, "--model", "cross-encoder/ms-marco-MiniLM-L-12-v2"]
    options = server_options(build_parser("serve").parse_args([*words, "--embedder", EMBEDDER]))
    assert (options.model, options.more_models) == (RERANKER, ("cross-encoder/ms-marco-MiniLM-L-12-v2",))
    options = server_options(build_parser("serve").parse_args([*words[:3], "--embedder", EMBEDDER]))
    with TestClient(serve_app(options)) as client:
        for _ in range(200):
            if client.get("/health").status_code == 200 and client.get("/ready").status_code != 503:
                break
        answer = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS, "model": RERANKER})
        assert answer.status_code == 200, answer.text
        vectors = client.post("/v1/embeddings", json={"input": TEXTS[0], "model": EMBEDDER})
        assert vectors.status_code == 200, vectors.text
    assert main(["serve", "--model", RERANKER, "--model", ABSENT, "--port", "0"]) == 1
    assert COMMAND in capsys.readouterr().err


def test_the_command_line_reranks_with_a_pinned_model(tmp_path, capsys):
    (tmp_path / "docs.txt").write_text("\n".join(TEXTS))
    assert main(["rerank", QUERY, str(tmp_path / "docs.txt"), "--model", RERANKER, "--json"]) == 0
    capsys.readouterr()
    assert main(["rerank", QUERY, str(tmp_path / "docs.txt"), "--model", ABSENT]) == 1
    assert COMMAND in capsys.readouterr().err


def test_a_changed_file_is_refused(tmp_path):
    folder = network_folder(tmp_path / "model")
    path = tmp_path / "models.lock"
    add_model(folder, name="mine/other", lock=path, probe=False)
    (folder / "config.json").write_text("{}")
    from resift.models.locate import resolve
    from resift.models.registry import use_lock

    with use_lock(path), pytest.raises(ResiftError, match=r"config\.json"):
        resolve("mine/other")


def test_doctor_checks_the_scores_of_pinned_models(capsys, monkeypatch):
    """The random reranker is reported as broken, the static embedder is fine."""
    from resift.cli import doctor

    monkeypatch.setattr(doctor, "check_models", list)
    assert main(["doctor", "--models", "--json"]) == 1
    findings = {row["name"]: row for row in json.loads(capsys.readouterr().out)["findings"]}
    assert findings[RERANKER]["state"] == "broken"
    assert "comparisons are correct" in findings[EMBEDDER]["message"]


def test_allow_local_takes_a_folder_of_the_hub(tmp_path):
    """Files that the model does not need are ignored; its own files are pinned."""
    folder = network_folder(tmp_path / "mine")
    spec = resift.models.allow_local(folder, max_length=30)
    try:
        assert (spec.id, spec.kind, spec.license, spec.max_length) == ("local/mine", "cross-encoder", "mit", 30)
        assert not resift.rerank(QUERY, TEXTS, model="local/mine").degraded
        with pytest.raises(ModelNotAllowedError, match="bi-encoder"):
            resift.models.allow_local(folder, kind="bi-encoder")
        with pytest.raises(ModelFileError, match="manifest"):
            resift.models.allow_local(folder, {"config.json": "0" * 64})
    finally:
        resift.models.disallow_local("local/mine")
