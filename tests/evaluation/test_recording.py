"""Recordings: raw scores on disk once, then any setting without a model; tuning and held-out queries."""

from __future__ import annotations

import dataclasses
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from resift._internal.sync import run_sync
from resift.cli.tune import default_yaml, tuned_yaml
from resift.errors import DataFormatError, InputError
from resift.evaluation.evaluated_systems import System
from resift.evaluation.measures import Judge
from resift.evaluation.readers import read_collection
from resift.evaluation.recording import (
    Header,
    RecordedQuery,
    Recording,
    Setting,
    blend_policy,
    default_setting,
    read_recording,
    record,
    recorded_hits,
    recording_line,
    replay,
)
from resift.evaluation.runner import evaluate, hits_beyond_k
from resift.evaluation.tuning import split_by_hash, split_by_name, tune
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import AdaptiveDepth, Rerank, Shape
from resift.ranking.fusion.rerankers import FusionReranker
from resift.ranking.fusion.weighted import weighted
from resift.ranking.shape import Boost, Recency, ShapePolicy
from resift.stores.memory import MemoryStore
from resift.types import Hit, Scores
from tests.evaluation.small import DOCUMENTS, write_collection


class Length:
    """A reranker that likes short texts, and counts how many it read."""

    name = "length"
    read = 0

    async def score(self, query, hits, *, deadline):
        Length.read += len(hits)
        return Scores([-float(len(hit.text)) for hit in hits], self.name)


class Backwards:
    """A store that knows every document and likes late letters."""

    name = "backwards"

    async def search(self, query, *, k, where=None):
        ids = sorted(DOCUMENTS, reverse=True)[:k]
        return [Hit(id, DOCUMENTS[id], 10.0 - place) for place, id in enumerate(ids)]


def words():
    import asyncio

    store = MemoryStore(name="words")
    asyncio.run(store.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()]))
    return store


def subject(**stages):
    stages = stages or {"rerank": Rerank(Length(), depth=4), "shape": Shape(ShapePolicy(guard=None), name="guard")}

    def open_pipeline(_):
        return Pipeline([words(), Backwards()], k=3, **stages)

    return System("s", {}, needs_corpus=False, needs_vectors=False, open=open_pipeline)


@pytest.fixture
def collection(tmp_path):
    return read_collection(write_collection(tmp_path / "small"))


def test_a_replay_ranks_like_the_recorded_pipeline_without_the_model(collection, tmp_path):
    out = tmp_path / "run.jsonl"
    assert record(subject(), [collection], out, index=None, key="x", depth=4) == 5
    outcome = evaluate(subject(), collection, Judge(collection.qrels), index=None, cache=tmp_path)
    before = Length.read
    setting = Setting(depth=4)
    run = replay(read_recording(out), setting)
    assert run == {query: list(ids) for query, ids in outcome.run.items()}
    assert Length.read == before


def test_an_interrupted_recording_continues(collection, tmp_path):
    out = tmp_path / "run.jsonl"
    record(subject(), [collection], out, index=None, key="x", depth=4)
    whole = out.read_text()
    lines = whole.splitlines(keepends=True)
    out.write_text("".join(lines[:3]) + lines[3][:20])
    assert record(subject(), [collection], out, index=None, key="x", depth=4) == 3
    assert out.read_text() == whole
    with pytest.raises(InputError, match="another pipeline"):
        record(subject(), [collection], out, index=None, key="other", depth=4)


class Letters:
    """An embedder: how often each of three letters occurs."""

    name = "letters"

    async def embed(self, texts, *, kind):
        rows = np.array([[1.0 + text.count(letter) for letter in "aes"] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_two_processes_do_not_write_one_recording(collection, tmp_path):
    """The second is refused at once, in words, and the file of the first is whole."""
    out = tmp_path / "run.jsonl"
    refused = []

    def attempt():
        with pytest.raises(InputError, match="another process") as caught:
            record(subject(), [collection], out, index=None, key="k", depth=3)
        refused.append(str(caught.value))

    def second(done, total):
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()

    new = record(subject(), [collection], out, index=None, key="k", depth=3, progress=second)
    assert len(refused) == new > 0
    assert len(read_recording(out).queries) == new


def test_neighbors_are_recorded_and_replayed(collection, tmp_path):
    """A store with vectors: the replay gives the pipeline's order, neighbors and all."""

    def open_pipeline(_):
        import asyncio

        store = MemoryStore(Letters(), name="letters")
        asyncio.run(store.add([{"id": id, "text": text} for id, text in DOCUMENTS.items()]))
        return Pipeline(
            [store, Backwards()], k=3, rerank=Rerank(Length(), depth=4), shape=Shape(ShapePolicy(guard=None))
        )

    subject = System("s", {}, needs_corpus=False, needs_vectors=False, open=open_pipeline)
    out = tmp_path / "run.jsonl"
    record(subject, [collection], out, index=None, key="x", depth=4)
    recording = read_recording(out)
    assert all(set(one.neighbors) == set(DOCUMENTS) for one in recording.queries)
    outcome = evaluate(subject, collection, Judge(collection.qrels), index=None, cache=tmp_path)
    wanted = {query: list(ids) for query, ids in outcome.run.items()}
    assert replay(recording, Setting(depth=4)) == wanted
    tuned = tune(recording, budget=100)
    assert {setting.neighbors for setting, _ in tuned.history if setting.depth and setting.blend} > {0.0, 0.5}


def test_a_recording_without_neighbors_is_readable(collection, tmp_path):
    """Recordings of earlier versions have no `near`."""
    out = tmp_path / "run.jsonl"
    record(subject(), [collection], out, index=None, key="x", depth=4)
    header, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    for row in rows:
        del row["neighbors"]
    out.write_text("".join(json.dumps(row) + "\n" for row in (header, *rows)))
    assert all(one.neighbors == {} for one in read_recording(out).queries)


def test_no_text_is_recorded(collection, tmp_path):
    out = tmp_path / "run.jsonl"
    record(subject(), [collection], out, index=None, key="x", depth=4)
    assert not any(text in out.read_text() for text in (*DOCUMENTS.values(), *collection.queries.values()))


ids = st.sampled_from("abcdefgh")
levels = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, -1.0])


def ranked(pairs):
    return tuple(sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0])))


lists = st.dictionaries(ids, levels, max_size=8).map(ranked)
likeness = st.lists(st.tuples(ids, st.sampled_from([0.0, 0.5, 0.5, 0.9])), max_size=5, unique_by=lambda one: one[0])
recordings = st.lists(
    st.tuples(
        lists,
        lists,
        st.dictionaries(ids, levels, max_size=8),
        st.dictionaries(ids, likeness, max_size=8),
        st.sampled_from([{}, {"code_density": 0.3}, {"mean_word_length": 6.0}, {"script cyrillic": 1.0}]),
    ).filter(lambda one: one[0] or one[1]),
    min_size=1,
    max_size=4,
).map(
    lambda rows: Recording(
        Header(
            stores=("one", "two"),
            reranker=("r", "cross-encoder")[len(rows) % 2],
            depth=8,
            k=3,
            retrieval_modes=("lexical", "dense"),
            **({"score_scale": "logit", "languages": ("en",)} if len(rows) % 2 else {}),
        ),
        tuple(
            RecordedQuery(f"q{at}", "test", {"one": one, "two": two}, *said[:1], {"a": 1}, *said[1:])
            for at, (one, two, *said) in enumerate(rows)
        ),
    )
)
all_settings = st.builds(
    Setting,
    method=st.sampled_from(["rrf", "linear", "weighted"]),
    k_param=st.sampled_from([1.0, 60.0]),
    weights=st.sampled_from([(), (1.0, 2.0), (1.0, 0.5)]),
    depth=st.sampled_from([0, 1, 3, 8]),
    blend=st.sampled_from([None, "promote", "z-score", "rank"]),
    blend_weight=st.sampled_from([None, 0.25, 0.5]),
    temperature=st.sampled_from([0.5, 2.0]),
    neighbors=st.sampled_from([0.0, 0.25, 1.0]),
)


class RecordedStore:
    """Returns the recorded list of a query."""

    def __init__(self, name, kind, hits):
        self.name, self.kind, self.hits = name, kind, hits

    async def search(self, query, *, k, where=None):
        return self.hits


class RecordedScorer:
    """Returns the recorded scores of a query."""

    def __init__(self, info, known):
        self.info, self.name, self.known = info, info.name, known

    async def score(self, query, hits, *, deadline):
        return Scores([self.known.get(hit.id) for hit in hits], self.name)


class RecordedFusion:
    """Weighted fusion with the recorded facts of a query."""

    name = "weighted"

    def __init__(self, facts, weights):
        self.facts, self.weights = facts, weights

    async def fuse(self, per_store, *, k, retrieval_modes=()):
        return weighted(per_store, k=k, retrieval_modes=retrieval_modes, facts=self.facts, weights=self.weights)


def rank_with_pipeline(recording, setting):
    """Rank the queries with pipelines whose stores and scorer return the recorded data."""
    header, ranked_ids = recording.header, {}
    for query in recording.queries:
        stores = [
            RecordedStore(name, kind, recorded_hits(query.lists[name], name))
            for name, kind in zip(header.stores, header.retrieval_modes, strict=True)
        ]
        if setting.method == "weighted":
            fuse = RecordedFusion(query.facts, setting.weights or None)
        else:
            options = {"k_param": setting.k_param} if setting.method == "rrf" else {}
            options |= {"weights": list(setting.weights)} if setting.weights else {}
            fuse = FusionReranker(setting.method, sources=list(header.stores), **options)

        async def add_neighbors(pool, query=query):
            return dataclasses.replace(pool, neighbors=query.neighbors)

        stages = {}
        if setting.depth:
            depth = AdaptiveDepth(setting.depth, otherwise=setting.depth)
            stages["rerank"] = Rerank(RecordedScorer(header.scorer, query.rerank), depth=depth)
            stages["guard"] = add_neighbors
            stages["shape"] = Shape(ShapePolicy(blend=blend_policy(setting), guard=None))
        ranking = Pipeline(stores, fuse=fuse, k=header.k, **stages).rank(query.query)
        ranked_ids[query.query] = [hit.id for hit in hits_beyond_k(ranking)]
    return ranked_ids


@given(recording=recordings, setting=all_settings)
@pytest.mark.slow
def test_a_replay_ranks_like_the_pipeline(recording, setting):
    """With ties, absent hits, hits without a reranker score and one-sided lists."""
    assert replay(recording, setting) == rank_with_pipeline(recording, setting)


def make_queries(count, *, split="test", good="rerank"):
    """Queries whose relevant document only one signal knows: the reranker, or the second store."""
    rows = []
    for at in range(count):
        names = [f"d{number}" for number in range(10)]
        right = names[at % 10]
        second = [right, *(name for name in names if name != right)] if good == "second" else names[::-1]
        rerank = {name: float(name == right) * (good == "rerank") for name in names}
        rows.append(
            RecordedQuery(
                f"{split}{at}",
                split,
                {
                    "one": tuple((name, 10.0 - place) for place, name in enumerate(names)),
                    "two": tuple((name, 10.0 - place) for place, name in enumerate(second)),
                },
                rerank,
                {right: 1},
            )
        )
    return rows


HEADER = Header(stores=("one", "two"), reranker="r", depth=10, k=10)


@pytest.mark.slow
def test_tuning_finds_the_informative_signal():
    best = tune(Recording(HEADER, tuple(make_queries(20))), budget=150, measure="RR")
    assert best.best.depth == 10
    assert best.value > 0.9
    second = tune(Recording(HEADER, tuple(make_queries(20, good="second"))), budget=150, measure="RR")
    assert second.best.weights[1] > 1
    assert second.tried <= 150


def test_tuning_fits_the_weight_of_a_boost(tmp_path):
    """Relevant documents have many views, and the stores do not know them."""
    header = dataclasses.replace(HEADER, reranker="", depth=0, boosts=(Boost(field="views", weight=0.1),))
    queries = []
    for i, query in enumerate(make_queries(40, good="none")):
        views = {f"d{number}": {"views": 1000 if number == i % 10 else 1} for number in range(10)}
        one = query.lists["one"]
        queries.append(dataclasses.replace(query, lists={"one": one, "two": one}, metadata=views))
    recording = Recording(header, tuple(queries))
    tuned = tune(recording, budget=60, measure="RR")
    assert tuned.best.boosts[0] > 0.1
    none, strong = (replay(recording, dataclasses.replace(tuned.best, boosts=(weight,))) for weight in (0.0, 0.5))
    assert none["test5"][:2] == ["d0", "d1"]
    assert strong["test5"].index("d5") < 5
    assert "weight: 0.1" in default_yaml(header)
    pipeline = yaml.safe_load(tuned_yaml(tuned.best, header))
    assert pipeline["shape"] == {"boosts": [{"field": "views", "by": "log", "weight": tuned.best.boosts[0]}]}


def test_the_fields_of_boosts_are_recorded(collection, tmp_path):
    policy = ShapePolicy(guard=None, blend=None, recency=Recency(field="date"), boosts=(Boost(field="length"),))
    store = MemoryStore(name="words")
    lengths = {id: {"length": len(text), "other": "x"} for id, text in DOCUMENTS.items()}
    run_sync(store.add([{"id": id, "text": text, "metadata": lengths[id]} for id, text in DOCUMENTS.items()]))
    system = System(
        "s", {}, needs_corpus=False, needs_vectors=False, open=lambda _: Pipeline(store, k=3, shape=Shape(policy))
    )
    record(system, [collection], tmp_path / "run.jsonl", index=None, key="x", depth=4)
    recording = read_recording(tmp_path / "run.jsonl")
    assert recording.header.rules == (policy.recency, *policy.boosts)
    for query in recording.queries:
        for id, metadata in query.metadata.items():
            assert metadata == {"length": lengths[id]["length"]}
    outcome = evaluate(system, collection, Judge(collection.qrels), index=None, cache=tmp_path)
    assert replay(recording, default_setting(recording.header)) == {q: list(ids) for q, ids in outcome.run.items()}


@pytest.mark.slow
def test_tuning_is_deterministic():
    recording = Recording(HEADER, tuple(make_queries(30)))
    assert tune(recording, budget=60) == tune(recording, budget=60)


def test_the_held_out_half_is_never_the_training_half():
    recording = Recording(HEADER, (*make_queries(20), *make_queries(20, split="train")))
    for train, test in (split_by_hash(recording, 0.4), split_by_name(recording, "train", "test")):
        assert not {one.query for one in train.queries} & {one.query for one in test.queries}
        assert train.queries
        assert test.queries
    with pytest.raises(InputError, match="must not be evaluated"):
        split_by_name(recording, "test", "test")
    again = Recording(HEADER, (*make_queries(5), *(replace(one, split="dev") for one in make_queries(5))))
    with pytest.raises(InputError, match="5 queries are in both splits"):
        split_by_name(again, "dev", "test")
    with pytest.raises(InputError, match="No split 'tset'"):
        split_by_name(recording, "train", "tset")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "not a recorded query"),
        ('{"query": "q", "split": "t", "lists": {"one": []}, "rerank": {}, "qrels": {}}', "not a recorded query"),
        (
            '{"query":"q","split":"t","lists":{"one":[["a",NaN]],"two":[]},"rerank":{},"qrels":{}}',
            "not a recorded query",
        ),
        ("nonsense", "not a recorded query"),
    ],
)
def test_broken_recordings_are_reported_with_file_and_line(tmp_path, line, message):
    path = tmp_path / "r.jsonl"
    path.write_text(recording_line(HEADER) + recording_line(make_queries(1)[0]) + line + "\n")
    with pytest.raises(DataFormatError, match=message) as caught:
        read_recording(path)
    assert caught.value.line == 3


def test_a_recording_of_0_2_asks_for_a_new_one(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(recording_line(HEADER).replace("recording-2", "recording-1") + recording_line(make_queries(1)[0]))
    with pytest.raises(DataFormatError, match="create one with: resift record"):
        read_recording(path)


def test_other_files_are_not_read_as_recordings(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"id": 1}) + "\n")
    with pytest.raises(DataFormatError, match="not a recording"):
        read_recording(path)
