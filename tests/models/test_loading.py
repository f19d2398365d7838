"""Loading: the output must fit the kind that a model is used as; every entry point knows allowed folders."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resift
from resift.batch import EmbedWork, RerankWork, run_batch
from resift.cli.main import main
from resift.deadline import Deadline
from resift.errors import ModelNotAllowedError
from resift.models import Embedder, allow_local, disallow_local, resolve
from resift.models.loading import load
from resift.pipeline import Pipeline
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.rerankers.late_interaction import LateInteractionReranker
from resift.rerankers.zero_shot import ZeroShotReranker
from resift.types import Hit
from tests.models.onnx_writer import Node, write_model
from tests.rerankers.test_zero_shot import WORDS, tokenizer

pytest.importorskip("onnxruntime")

HITS = [Hit("a", "rain"), Hit("b", "cheese")]
MARKERS = {"query_marker_id": 4, "document_marker_id": 5}


def graph(width: int, *, per_token: bool = False) -> bytes:
    """Return a graph with `width` numbers per token, or their sum over the tokens."""
    table = np.random.default_rng(3).normal(size=(len(WORDS), width)).astype("float32")
    weights = {"table": table, "axis": np.array([1], dtype="int64")}
    nodes = [Node("Gather", ["table", "input_ids"], ["output" if per_token else "rows"], name="look_up")]
    if not per_token:
        nodes.append(Node("ReduceSum", ["rows", "axis"], ["output"], name="add", attributes={"keepdims": 0}))
    shape = ["batch", "tokens", width] if per_token else ["batch", width]
    return write_model(nodes, weights, inputs={"input_ids": ["batch", "tokens"]}, outputs={"output": shape})


GRAPHS = {"score": graph(1), "labels": graph(3), "token vectors": graph(8, per_token=True), "pooled vector": graph(384)}


@pytest.fixture
def allow(tmp_path):
    """Allow a folder with one of the graphs and return the model's id."""
    allowed: list[str] = []

    def make(output: str, kind: str, *, id: str = "test/model", files=None, **facts) -> str:
        folder = tmp_path / f"model{len(allowed)}"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(GRAPHS[output])
        tokenizer().save(str(folder / "tokenizer.json"))
        for name, content in (files or {}).items():
            (folder / name).write_text(json.dumps(content))
        allow_local(folder, id=id, kind=kind, max_length=32, **facts)
        allowed.append(id)
        return id

    yield make
    for id in allowed:
        disallow_local(id)


def use(kind: str, model: str) -> object:
    never = Deadline.never()
    if kind == "bi-encoder":
        return Embedder(model).embed_sync(["rain"], kind="query").shape
    if kind == "cross-encoder":
        return asyncio.run(CrossEncoderReranker(model).score("rain", HITS, deadline=never))
    if kind == "nli":
        return asyncio.run(ZeroShotReranker(model).score("rain", HITS, deadline=never))
    return asyncio.run(LateInteractionReranker(model).score("rain", HITS, deadline=never))


FACTS = {"nli": {"entailment_index": 0}, "late-interaction": MARKERS}
FITS = {
    "cross-encoder": {"score"},
    "nli": {"labels", "pooled vector"},  # 384 labels are many, and still labels
    "bi-encoder": {"token vectors"},
    "late-interaction": {"token vectors"},
}


@pytest.mark.parametrize("output", GRAPHS)
@pytest.mark.parametrize("kind", FITS)
def test_an_output_that_does_not_fit_the_kind_is_refused(allow, kind, output):
    model = allow(output, kind, **FACTS.get(kind, {}))
    if output in FITS[kind]:
        assert use(kind, model)
        return
    with pytest.raises(ModelNotAllowedError, match=kind):
        use(kind, model)


def test_a_single_vector_model_is_refused_for_late_interaction(allow):
    pooling = [{"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    with pytest.raises(ModelNotAllowedError, match="single vector"):
        use("late-interaction", allow("token vectors", "late-interaction", **MARKERS, files={"modules.json": pooling}))
    with pytest.raises(ModelNotAllowedError, match="marker"):
        use("late-interaction", allow("token vectors", "late-interaction"))


def test_labels_that_are_not_entailment_are_refused(allow):
    sentiment = {"id2label": {"0": "negative", "1": "neutral", "2": "positive"}}
    with pytest.raises(ModelNotAllowedError, match="negative"):
        use("nli", allow("labels", "nli", entailment_index=0, files={"config.json": sentiment}))
    named = {"id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"}}
    assert use("nli", allow("labels", "nli", entailment_index=0, files={"config.json": named}))


def test_a_folder_that_is_allowed_again_has_its_new_settings(allow):
    model = allow("token vectors", "bi-encoder")
    assert load(model, kind="bi-encoder").spec.pooling == "cls"
    allow_local(resolve(model).folder, id=model, kind="bi-encoder", pooling="mean")
    assert load(model, kind="bi-encoder").spec.pooling == "mean"


def test_a_pipeline_file_takes_an_allowed_model(allow, tmp_path):
    model = allow("score", "cross-encoder", id="mine/scorer")
    embedder = allow("token vectors", "bi-encoder", id="mine/embedder")
    resift.Index(tmp_path / "a.db", embedder=embedder).add(["rain"])
    config = {
        "stores": [{"name": "a", "kind": "sqlite", "path": str(tmp_path / "a.db"), "embedder": embedder}],
        "rerank": {"kind": "cross-encoder", "model": model},
    }
    assert Pipeline.from_config(config)
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(config))
    assert Pipeline.from_yaml(file)
    disallow_local("mine/scorer")
    with pytest.raises(resift.ResiftError, match="mine/scorer"):
        Pipeline.from_config(config)


def test_the_index_and_the_command_line_take_an_allowed_model(allow, tmp_path, capsys):
    embedder = allow("token vectors", "bi-encoder", id="mine/embedder")
    index = resift.Index(tmp_path / "own.db", embedder=embedder, rerank=False)
    index.add(["rain and storm", "cheese"])
    assert len(index.search("rain").hits) == 2
    scorer = allow("score", "cross-encoder", id="mine/scorer")
    lines = tmp_path / "lines.txt"
    lines.write_text("rain\ncheese\n")
    assert main(["rerank", "rain", str(lines), "--model", scorer, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["hits"]) == 2


@pytest.mark.slow
def test_worker_processes_of_a_bulk_job_take_an_allowed_model(allow, tmp_path):
    embedder = allow("token vectors", "bi-encoder", id="mine/embedder")
    pq.write_table(pa.table({"text": ["rain", "cheese"]}), tmp_path / "in.parquet")
    report = run_batch(EmbedWork(model=embedder), tmp_path / "in.parquet", tmp_path / "out")
    assert (report.rows, report.failed) == (2, 0)


@pytest.mark.slow
def test_a_bulk_job_stops_when_its_model_does_not_load(allow, tmp_path):
    scorer = allow("score", "cross-encoder", id="mine/scorer")
    pq.write_table(pa.table({"query": ["rain"], "candidates": [["rain", "cheese"]]}), tmp_path / "in.parquet")
    (resolve(scorer).folder / "tokenizer.json").write_text("{}")
    with pytest.raises(resift.ResiftError, match="tokenizer"):
        run_batch(RerankWork(model=scorer), tmp_path / "in.parquet", tmp_path / "out")
