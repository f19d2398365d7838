"""The pipeline that nobody had to configure, with the real models and a real file."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest

from resift.pipeline import Pipeline
from resift.protocols import display_name
from resift.stores import MemoryStore, SQLiteStore
from tests.pipeline.fake_stores import Answers
from tests.run_program import run_here
from tests.stores.factories import HashingEmbedder

pytest.importorskip("tokenizers", reason="needs resift[local]")

DOCUMENTS = {
    "newton": "Newton's laws govern the motion of bodies from apples to planets.",
    "quantum": "Quantum mechanics governs the behaviour of subatomic particles.",
    "breaker": "A circuit breaker opens after three failures in a row.",
    "soup": "Boil the onions slowly before you add the stock.",
}


@pytest.mark.real_model
def test_default_finds_by_words_and_meaning_and_reranks(tmp_path):
    """With nothing configured: two views of one store, RRF, cross-encoder, guard; the same bytes twice."""
    from resift.models.embedder import Embedder

    async def work():
        store = SQLiteStore(tmp_path / "docs.db", embedder=Embedder(), name="docs", create=True)
        await store.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()])
        pipe = Pipeline.default(store, k=2)
        try:
            return pipe, [await pipe.search("What governs subatomic particles?") for _ in range(2)]
        finally:
            await pipe.close()

    pipe, (first, second) = asyncio.run(work())
    assert [ref.name for ref in pipe.stores] == ["docs.text", "docs.vectors"]
    assert pipe.requires == ("db.docs:read",)
    assert [(ref.kind, ref.provider) for ref in pipe.stores] == [("doc", "SQLiteStore"), ("vector", "SQLiteStore")]
    assert [display_name(stage) for stage in pipe.stages] == ["fuse", "rerank", "guard"]
    assert first.ids[0] == "quantum"
    assert first.tier == "cross-encoder"
    assert first.replay() == first.ids
    assert not first.degraded
    assert json.dumps([h.to_dict() for h in first]) == json.dumps([h.to_dict() for h in second])


_SCRIPT = """
import asyncio, json, sys
from resift.models.embedder import Embedder
from resift.pipeline import Pipeline
from resift.stores import MemoryStore, SQLiteStore
from tests.stores.factories import HashingEmbedder

async def work():
    pipe = Pipeline.default(SQLiteStore(sys.argv[1], embedder=Embedder(), name="docs", create=True), k=3)
    ranking = await pipe.search("What opens, and what governs?")
    await pipe.close()
    data = ranking.to_dict()
    return data

print(json.dumps(asyncio.run(work()), sort_keys=True))
"""


@pytest.mark.real_model
def test_n4_two_processes_with_real_models_give_the_same_bytes(tmp_path):
    """File, embedder, cross-encoder and guard give one result whatever the process and its hash seed."""
    from resift.models.embedder import Embedder

    async def fill():
        store = SQLiteStore(tmp_path / "docs.db", embedder=Embedder(), name="docs", create=True)
        await store.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()])
        await store.close()

    asyncio.run(fill())
    output = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "docs.db")],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    ).stdout
    assert output == run_here(_SCRIPT, str(tmp_path / "docs.db"))
    assert len(json.loads(output)["hits"]) == 3


def test_default_without_rerank_needs_no_model(tmp_path):
    """A store of words alone gives the smallest default."""

    async def work():
        store = SQLiteStore(tmp_path / "docs.db", create=True)
        await store.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()])
        pipe = Pipeline.default(store, rerank=False)
        try:
            return await pipe.search("circuit breaker failures")
        finally:
            await pipe.close()

    assert asyncio.run(work()).ids == ["breaker"]


def test_default_takes_any_store():
    """Any store has a default pipeline."""
    assert Pipeline.default(Answers("a", ["x"]), rerank=False).rank("words").ids == ["x"]


def test_a_file_with_vectors_is_searched_by_both_however_it_was_opened(tmp_path):
    """The file names its embedder: opened without one, its vectors are asked all the same, and once."""
    from resift.models.embedder import Embedder

    async def work():
        built = SQLiteStore(tmp_path / "docs.db", embedder=Embedder(), name="docs", create=True)
        await built.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()])
        both = await Pipeline.default(built, rerank=False).search("subatomic particles")
        await built.close()
        pipe = Pipeline.default(SQLiteStore(tmp_path / "docs.db", name="docs"), rerank=False)
        try:
            return both, await pipe.search("subatomic particles"), [ref.name for ref in pipe.stores]
        finally:
            await pipe.close()

    both, plain, names = asyncio.run(work())
    assert names == ["docs.text", "docs.vectors"]
    assert plain.ids == both.ids


def test_vectors_of_an_embedder_that_is_not_at_hand_degrade(tmp_path):
    """Words still answer, and the ranking says which embedder is missing."""

    async def work():
        built = SQLiteStore(tmp_path / "docs.db", embedder=HashingEmbedder(), name="docs", create=True)
        await built.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()])
        await built.close()
        pipe = Pipeline.default(SQLiteStore(tmp_path / "docs.db", name="docs"), rerank=False)
        try:
            return await pipe.search("subatomic particles")
        finally:
            await pipe.close()

    ranking = asyncio.run(work())
    assert ranking.ids == ["quantum"]
    assert ranking.degraded
    assert "Open the store with that embedder" in ranking.failures["docs.vectors"]


def test_a_store_in_memory_is_asked_by_both():
    """Words and meaning are two lists here too."""

    async def work():
        store = MemoryStore(HashingEmbedder(), name="m")
        await store.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()])
        return await Pipeline.default(store, rerank=False).search("subatomic particles")

    ranking = asyncio.run(work())
    assert [record.source for record in ranking.trace[:2]] == ["m.text", "m.vectors"]
    assert ranking.ids[0] == "quantum"


def test_the_model_loads_inside_the_deadline(monkeypatch):
    """Making a pipeline loads nothing; a first search without the time for it answers without the model."""
    from resift.rerankers import cross_encoder

    monkeypatch.setattr(cross_encoder, "_pair_models", {})
    release = threading.Event()
    monkeypatch.setattr(cross_encoder, "load_pair_model", lambda key: release.wait(5))
    pipe = Pipeline.default(Answers("a", ["x", "y"]))
    ranking = pipe.rank("q", deadline_s=0.3)
    release.set()
    with cross_encoder._lock:  # the loading thread is done with what is patched here
        assert ranking.ids == ["x", "y"]
    assert "while the model was loading" in ranking.reason
