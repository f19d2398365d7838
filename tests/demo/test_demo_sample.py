"""The shipped sample and the numbers the demo shows."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter

import pytest

from resift.demo import EXAMPLE_QUESTION, missing_models, ndcg, passages, questions, reciprocal_rank, run_demo
from resift.pipeline.pipeline import Pipeline
from resift.types import StageKind


def test_sample_is_large_enough_and_consistent():
    """150+ passages from several sources, 40+ judged questions of several kinds, every judgment real."""
    documents, asked = passages(), questions()
    ids = {document["id"] for document in documents}
    assert len(ids) == len(documents) >= 150
    assert len({document["text"] for document in documents}) == len(documents)
    sources = Counter(document["metadata"]["source_type"] for document in documents)
    assert len(sources) == 4
    assert min(sources.values()) >= 30
    assert len(asked) == len({question.text for question in asked}) >= 40
    for question in asked:
        assert set(question.grades) <= ids
        assert max(question.grades.values()) == 2
    assert {"negation", "near-duplicate", "keyword", "number", "wrong source", "paraphrase"} <= {
        question.trap for question in asked
    }
    assert EXAMPLE_QUESTION in {question.text for question in asked}


def test_measures_agree_with_ir_measures():
    """nDCG@10 and RR are trec_eval's."""
    library = pytest.importorskip("ir_measures")
    grades = {"a": 2, "b": 1, "c": 1}
    for ids in (["a", "b", "c"], ["x", "c", "a"], ["x", "y"], ["b", "a", "x", "c"]):
        run = {"q": {id: float(-rank) for rank, id in enumerate(ids)}}
        theirs = library.calc_aggregate([library.nDCG @ 10, library.RR], {"q": grades}, run)
        assert ndcg(ids, grades) == pytest.approx(theirs[library.nDCG @ 10])
        assert reciprocal_rank(ids, grades) == pytest.approx(theirs[library.RR])


def test_without_models_the_demo_uses_keyword_search(monkeypatch):
    """Without the extra the demo runs on words alone and says what to install."""
    from resift import demo as running
    from resift.errors import MissingExtraError, install_command

    def refuse(module: str, *, extra: str) -> None:
        raise MissingExtraError(module, extra)

    monkeypatch.setattr(running, "require", refuse)
    shown = asyncio.run(run_demo())
    assert install_command("local") in shown.missing
    assert [row.name for row in shown.rows] == ["BM25 (words)"]
    assert len(shown.ranking) == 10


@pytest.mark.real_model
def test_demo_reranks_and_improves():
    """With models the default pipeline beats each list and their fusion on the shipped sample."""
    if missing_models():
        pytest.skip(missing_models())
    steps: list[str] = []
    shown = asyncio.run(run_demo(limit=8, progress=lambda label, done, total: steps.append(label)))
    rows = {row.name: row for row in shown.rows}
    assert list(rows) == [
        "BM25 (words)",
        "dense (vectors)",
        "both, fused by RRF",
        "fused, cross-encoder only",
        "default pipeline",
    ]
    assert rows["default pipeline"].ndcg > rows["both, fused by RRF"].ndcg > rows["BM25 (words)"].ndcg
    assert all(row.ndcg == pytest.approx(statistics.fmean(row.per_question)) for row in shown.rows)
    assert shown.ranking.ids[0] in {id for id, grade in shown.grades.items() if grade == 2}
    assert not shown.ranking.degraded
    _check_first_picture(shown)
    assert {"indexing", "searching"} == set(steps)


def _check_first_picture(shown):
    """The answer is first after reranking only, and no unrelated passage makes a large jump."""
    answers = {id for id, grade in shown.grades.items() if grade == 2}
    trace = shown.ranking.trace
    for record in (*trace.by_kind(StageKind.RETRIEVE), *trace.by_kind(StageKind.FUSE)):
        assert record.ids[0] not in answers
    before = {id: rank for rank, id in enumerate(trace.by_kind(StageKind.FUSE)[-1].ids, start=1)}
    rises = [before[id] - rank for rank, id in enumerate(shown.ranking.ids, start=1) if id not in answers]
    assert max(rises) <= 5


@pytest.mark.real_model
def test_the_order_of_the_reranker_alone_is_in_the_trace(tmp_path):
    """The row "cross-encoder only", read from the trace, is what a run of its own gives."""
    if missing_models():
        pytest.skip(missing_models())
    from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
    from resift.stores.sqlite import SQLiteStore

    async def both() -> None:
        store = SQLiteStore(tmp_path / "s.db", embedder=Embedder(DEFAULT_EMBEDDER), create=True)
        await store.add(passages()[:60])
        alone = Pipeline.default(store, guard=None)
        for question in questions()[:3]:
            whole = await Pipeline.default(store).search(question.text, k=10)
            read = whole.trace.by_kind(StageKind.RERANK)[-1].order
            assert list(read[:10]) == (await alone.search(question.text, k=10)).ids
        await store.close()

    asyncio.run(both())
