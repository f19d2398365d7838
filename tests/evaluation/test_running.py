"""Evaluating pipelines: measured answers, what is kept between runs, and a kill in the middle."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resift.errors import InputError
from resift.evaluation.evaluated_systems import BUILT_IN, System, find_system
from resift.evaluation.measures import Judge
from resift.evaluation.readers import read_collection
from resift.evaluation.runner import Answer, AnswerCache, evaluate, hits_beyond_k, index_for
from resift.pipeline.pipeline import Pipeline
from resift.types import Hit
from tests.evaluation.small import QUERIES, write_collection


class CountingStore:
    """Answers every query with the same document and remembers who asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = []

    async def search(self, query, *, k, where=None):
        self.asked.append(query)
        return [Hit("apple", "An apple", 1.0)]


@pytest.fixture
def collection(tmp_path):
    return read_collection(write_collection(tmp_path / "small"))


def counted(store, name="counted"):
    return System(name, {"test": name}, needs_corpus=False, needs_vectors=False, open=lambda _: Pipeline([store]))


def test_bm25_finds_relevant_documents(collection, tmp_path):
    subject = find_system("bm25")
    index = index_for([subject], collection, tmp_path)
    outcome = evaluate(subject, collection, Judge(collection.qrels), index=index, cache=tmp_path)
    assert outcome.quality.mean("RR") == 1.0
    assert set(outcome.latency) == {"p50", "p95", "p99"}
    assert outcome.answers["q1"].paths["apple"][0] == ("retrieve", "collection.text", 1, "")


@pytest.mark.real_model
def test_fused_lists_are_deeper_than_those_of_the_default(collection, tmp_path):
    """They stand next to published figures of long lists; the others ask for what the default asks."""
    index = index_for([find_system("rrf")], collection, tmp_path)
    opened = {name: find_system(name).open(index) for name in BUILT_IN}
    deep = {name for name, pipeline in opened.items() if pipeline.fetch(10) == 500}
    assert deep == {"rrf", "linear"}
    assert opened["default"].fetch(10) == 300
    assert {pipeline.fetch(10) for name, pipeline in opened.items() if name not in {*deep, "default"}} == {100}
    # Answers that an earlier version kept of shallower lists are not taken for these.
    assert all(find_system(name).identity != {"built-in": name} for name in deep)
    for pipeline in opened.values():
        asyncio.run(pipeline.close())


@pytest.mark.real_model
def test_a_system_name_can_choose_exact_or_approximate_search(collection, tmp_path):
    """`:approximate` goes by codes, `:exact` compares all; their answers are kept apart."""
    index = index_for([find_system("dense")], collection, tmp_path)
    names = ("dense", "dense:exact", "dense:approximate")
    found = {name: find_system(name) for name in names}
    assert len({str(subject.identity) for subject in found.values()}) == 3
    exact = {}
    for name, subject in found.items():
        pipeline = subject.open(index)
        exact[name] = pipeline.stores[0].store.store.exact
        asyncio.run(pipeline.close())
    assert exact == {"dense": None, "dense:exact": True, "dense:approximate": False}
    assert found["dense:approximate"].stores[0]["exact"] is False
    with pytest.raises(InputError, match="Unknown pipeline 'dense:roughly'"):
        find_system("dense:roughly")


def test_answers_are_cached(collection, tmp_path):
    store = CountingStore()
    judge = Judge(collection.qrels)
    first = evaluate(counted(store), collection, judge, index=None, cache=tmp_path)
    again = evaluate(counted(store), collection, judge, index=None, cache=tmp_path)
    assert store.asked == list(QUERIES.values())
    assert (first.reused, again.reused) == (0, 5)
    assert again.quality == first.quality
    evaluate(counted(store), collection, judge, index=None, cache=tmp_path, fresh=True)
    assert len(store.asked) == 10


def test_an_edited_query_is_answered_again(collection, tmp_path):
    store = CountingStore()
    judge = Judge(collection.qrels)
    evaluate(counted(store), collection, judge, index=None, cache=tmp_path)
    file = collection.folder / "queries.jsonl"
    file.write_text(file.read_text().replace("yellow banana", "green banana"))
    evaluate(counted(store), read_collection(collection.folder), judge, index=None, cache=tmp_path)
    assert store.asked[5:] == ["green banana"]


def test_a_degraded_answer_is_measured_but_not_reused(collection, tmp_path):
    class Failing:
        name = "failing"

        async def search(self, query, *, k, where=None):
            raise OSError("down")

    store = CountingStore()
    subject = System("half", {}, needs_corpus=False, needs_vectors=False, open=lambda _: Pipeline([store, Failing()]))
    outcome = evaluate(subject, collection, Judge(collection.qrels), index=None, cache=tmp_path)
    assert set(outcome.degraded) == set(QUERIES)
    evaluate(subject, collection, Judge(collection.qrels), index=None, cache=tmp_path)
    assert len(store.asked) == 10


def test_a_half_written_line_is_dropped(tmp_path):
    work = AnswerCache(tmp_path / "w.jsonl")
    with work.open():
        work.add(Answer("q1", "x", ("a",), 1.0))
    with work.path.open("a") as file:
        file.write('{"query": "q2", "ids": ["a"')
    again = AnswerCache(work.path)
    with again.open():
        assert [query for query, _ in again.answers] == ["q1"]
        again.add(Answer("q2", "x", ("b",), 1.0))
    assert [json.loads(line)["query"] for line in work.path.read_text().splitlines()] == ["q1", "q2"]


def test_hits_dropped_only_by_k_follow_the_first_k():
    """Recall at 100 can be message of a pipeline that returns one hit, without what a gate threw out."""

    class Three:
        name = "three"

        async def search(self, query, *, k, where=None):
            return [Hit(id, id, score) for id, score in (("a", 3.0), ("b", 2.0), ("c", 1.0))]

    async def drop_b(pool):
        return pool.reorder([hit for hit in pool.hits if hit.id != "b"])

    ranking = Pipeline([Three()], gate=drop_b, k=1).rank("q")
    assert [hit.id for hit in hits_beyond_k(ranking)] == ["a", "c"]


SCRIPT = """
import sys
from pathlib import Path
from resift.evaluation.readers import read_collection
from resift.evaluation.measures import Judge
from resift.evaluation.runner import evaluate
from resift.evaluation.evaluated_systems import System
from resift.pipeline.pipeline import Pipeline
from resift.types import Hit

folder, cache, stop_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

class Store:
    name = "store"
    asked = 0
    async def search(self, query, *, k, where=None):
        Store.asked += 1
        print("asked", query, flush=True)
        if Store.asked == stop_at:
            print("stuck", flush=True)
            import asyncio
            await asyncio.Event().wait()
        return [Hit("apple", "An apple", 1.0)]

collection = read_collection(folder)
subject = System("s", {}, needs_corpus=False, needs_vectors=False, open=lambda _: Pipeline([Store()]))
outcome = evaluate(subject, collection, Judge(collection.qrels), index=None, cache=cache)
print("done", outcome.reused, len(outcome.answers), flush=True)
"""


@pytest.mark.slow
def test_a_killed_evaluation_continues_without_repeating_queries(collection, tmp_path):
    """SIGKILL while the third query is being answered: the next run asks for the third to the fifth only."""
    args = [sys.executable, "-c", SCRIPT, str(collection.folder), str(tmp_path / "cache")]
    with subprocess.Popen([*args, "3"], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as process:
        seen = []
        for line in process.stdout:
            seen.append(line.strip())
            if line.strip() == "stuck":
                process.send_signal(signal.SIGKILL)
    texts = list(QUERIES.values())
    assert seen == [f"asked {text}" for text in texts[:3]] + ["stuck"]
    done = subprocess.run([*args, "0"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"asked {text}" for text in texts[2:]] + ["done 2 5"]
