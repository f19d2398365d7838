"""The context of a ranking: neighbors, merging, budget, provenance, pruning."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resift import Ranking, rerank
from resift._internal.sync import run_sync
from resift.config import pipeline_from_config
from resift.deadline import Deadline
from resift.errors import ConfigError, InputError
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.stages import Context, Prune, Rerank, Shape
from resift.ranking.context import (
    ContextOptions,
    PassageReader,
    estimate_tokens,
    expand,
    find_place,
    make_passage,
    render,
)
from resift.ranking.prune import PruneOptions, prune
from resift.stores.memory import MemoryStore
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, ScorerInfo, Scores

TOPICS = ("keys", "locks", "doors", "windows", "roofs", "walls")


def chunk(document, position, text=None, **metadata):
    text = text or f"House {document}\n\nPart {position} is about {TOPICS[position % 6]}. It has no sequel."
    place = {"document": document, "position": position, **metadata}
    return Hit(f"{document}{position}", text, 1.0, metadata=place)


DOCUMENTS = [chunk(document, position) for document in "ab" for position in range(6)]


def around(hit, reach=1):
    position = find_place(hit.metadata).position
    return [
        each for each in DOCUMENTS if each.id[0] == hit.id[0] and abs(each.metadata["position"] - position) <= reach
    ]


class WordScorer:
    """Scores a text by the share of the query's words in it."""

    name = "words"
    info = ScorerInfo(name="words", score_scale="probability")

    async def score(self, query, hits, *, deadline):
        wanted = query.lower().split()
        return Scores([sum(word in hit.text.lower() for word in wanted) / len(wanted) for hit in hits], "words")


@pytest.fixture(scope="module")
def store():
    store = MemoryStore(name="docs")
    run_sync(store.add(DOCUMENTS))
    return store


def test_neighbors_are_merged_in_document_order_without_repeated_headings(store):
    context = Pipeline(store, k=1).rank("doors").context(500)
    assert context.text == (
        "[1] a\nHouse a\n\nPart 1 is about locks. It has no sequel. Part 2 is about doors. It has no sequel. "
        "Part 3 is about windows. It has no sequel."
    )
    [source] = context.sources
    assert (source.id, source.ids, source.document) == ("a2", ("a2",), "a")
    assert [piece.id for piece in source.pieces] == ["a1", "a2", "a3"]
    assert context.text[source.start : source.end].startswith("House a")
    assert str(context) == context.text
    assert not context.degraded


def test_pieces_name_the_part_of_each_chunk(store):
    ranking = Pipeline(store, k=4).rank("doors locks")
    texts = {hit.id: hit.text for hit in DOCUMENTS}
    for source in ranking.context(900).sources:
        for piece in source.pieces:
            assert texts[piece.id][piece.start : piece.end] == piece.text


def test_overlapping_chunks_are_not_repeated():
    first = chunk("a", 0, "The key is old. It hangs on the wall near the door.")
    second = chunk("a", 1, "It hangs on the wall near the door. Nobody uses it.")
    [passage] = expand([first, second], {}, max_tokens=100)
    assert passage.text == "The key is old. It hangs on the wall near the door. Nobody uses it."


def test_a_short_or_partial_word_overlap_is_kept():
    [passage] = expand([chunk("a", 0, "He sees the"), chunk("a", 1, "the cat")], {}, max_tokens=100)
    assert passage.text == "He sees the\nthe cat"
    one, two = chunk("a", 0, "disagreement of many"), chunk("a", 1, "agreement of many people")
    [passage] = expand([one, two], {}, max_tokens=100)
    assert passage.text == "disagreement of many\nagreement of many people"


def test_chunks_that_do_not_touch_are_separate_sources():
    passages = expand([chunk("a", 4), chunk("a", 0)], {}, max_tokens=500)
    assert [passage.ids for passage in passages] == [("a4",), ("a0",)]


def test_good_hits_come_before_neighbors_and_neighbors_before_bad_hits():
    hits = [chunk("a", 1), *(chunk(name, 0) for name in "bcdefg")]
    one = estimate_tokens(f"[1] a\n{hits[0].text}\n\n")
    passages = expand(hits, {"a1": around(hits[0])}, max_tokens=round(6.5 * one))
    assert [passage.ids[0] for passage in passages] == ["a1", "b0", "c0", "d0", "e0"]
    assert [piece.id for piece in passages[0].pieces] == ["a0", "a1", "a2"]
    assert [piece.id for piece in expand(hits, {"a1": around(hits[0])}, max_tokens=round(4.2 * one))[0].pieces] == [
        "a1"
    ]


def test_a_hit_that_does_not_fit_makes_room_for_shorter_ones():
    long = chunk("b", 0, "A long sentence about many things. " * 20)
    hits = [chunk("a", 0), long, chunk("c", 0)]
    passages = expand(hits, {}, max_tokens=100)
    assert [passage.ids for passage in passages] == [("a0",), ("b0",), ("c0",)]
    assert [piece.end == len(hit.text) for hit, p in zip(hits, passages, strict=True) for piece in p.pieces] == [
        True,
        False,  # the rest of the budget has its first sentences
        True,
    ]
    one_sentence = chunk("b", 0, "word " * 500)
    assert [p.ids for p in expand([one_sentence, hits[0]], {}, max_tokens=100)] == [("a0",)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(DOCUMENTS), max_size=8, unique=True), st.integers(1, 300), st.integers(0, 2), st.booleans()
)
def test_the_budget_holds_and_nothing_is_invented_or_repeated(hits, max_tokens, reach, words):
    count = (lambda text: len(text.split())) if words else estimate_tokens
    chunks = {hit.id: around(hit, reach) for hit in hits}
    passages = expand(hits, chunks, max_tokens=max_tokens, count=count)
    context = render(passages, max_tokens=max_tokens, count=count, hits=[hit.id for hit in hits])
    assert context.tokens == (count(context.text) if context.text else 0) <= max_tokens
    assert context == render(
        expand(hits, chunks, max_tokens=max_tokens, count=count),
        max_tokens=max_tokens,
        count=count,
        hits=[hit.id for hit in hits],
    )
    pieces = [piece.id for source in context.sources for piece in source.pieces]
    assert len(pieces) == len(set(pieces))
    used = {id for source in context.sources for id in source.ids}
    assert used | set(context.dropped) == {hit.id for hit in hits}
    ranks = {hit.id: rank for rank, hit in enumerate(hits)}
    best = [min(ranks[id] for id in source.ids) for source in context.sources]
    assert best == sorted(best)


def test_a_hit_that_is_too_long_keeps_its_first_sentences():
    text = "First sentence here. Second sentence here. Third sentence here."
    [passage] = expand([chunk("a", 0, text)], {}, max_tokens=18)
    assert passage.text == "First sentence here. Second sentence here."
    assert (passage.pieces[0].start, passage.pieces[0].end) == (0, 42)


def test_no_room_at_all_is_reported(store):
    context = Pipeline(store, k=2).rank("doors").context(1)
    assert (context.text, context.sources, context.tokens) == ("", (), 0)
    assert context.degraded
    assert "1 tokens" in context.reason
    assert len(context.dropped) == 2


def test_an_empty_ranking_has_an_empty_context():
    context = Ranking().context(100)
    assert (str(context), context.sources, context.degraded) == ("", (), False)


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"max_tokens": "9"}, {"neighbors": -1}, {"count_tokens": 3}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Ranking().context(**wrong)


def test_parents_replace_their_parts():
    store = MemoryStore(name="docs")
    parent = {"id": "whole", "text": "The whole text about red apples and green pears."}
    parts = [
        {"id": f"p{i}", "text": text, "metadata": {"parent_id": "whole"}} for i, text in enumerate(("apples", "pears"))
    ]
    run_sync(store.add([parent, *parts]))
    ranking = Pipeline(store, k=3).rank("apples")
    parts_only = Ranking(tuple(hit for hit in ranking if hit.id != "whole"), reader=ranking.reader)
    [source] = parts_only.context(100).sources
    assert source.pieces[0].id == "whole"
    assert source.ids == ("p0",)
    assert parts_only.context(100, parents=False).sources[0].pieces[0].id == "p0"


def test_missing_neighbors_are_reported():
    ranking = Ranking((chunk("a", 1),))
    context = ranking.context(100)
    assert context.degraded
    assert "no store" in context.reason
    assert not ranking.context(100, neighbors=0).degraded
    assert not Ranking((Hit("x", "plain text"),)).context(100).degraded
    old = Ranking((Hit("x", "text", metadata={"path": "a.md", "chunk": 2}),))
    assert "index its files again" in old.context(100).reason


def test_a_store_that_fails_leaves_the_hits():
    class Broken:
        async def get_chunks(self, hit, *, before, after):
            raise OSError("gone")

    context = Ranking((chunk("a", 1),), reader=PassageReader([Broken()])).context(100)
    assert context.degraded
    assert [source.id for source in context.sources] == ["a1"]


def test_a_pickled_or_stored_ranking_keeps_its_passages(store):
    ranking = Pipeline(store, k=2, shape=[Shape(), Context()]).rank("doors")
    assert ranking.passages
    for copy in (Ranking.from_json(ranking.to_json()), pickle.loads(pickle.dumps(ranking))):
        assert copy == ranking
        assert copy.context(300).text == ranking.context(300).text


def test_the_stage_is_in_trace_and_why_and_keeps_the_order(store):
    plain = Pipeline(store, k=3).rank("doors windows")
    ranking = Pipeline(store, k=3, shape=[Shape(), Context(ContextOptions(max_tokens=200))]).rank("doors windows")
    assert ranking.ids == plain.ids == ranking.replay()
    assert ranking.trace[-1].name == "context"
    assert "neighboring chunk" in ranking.why(ranking.ids[0])


def test_prune_keeps_the_sentences_that_answer_with_offsets():
    text = "Cats sleep a lot. The red key opens the shed. Dogs bark. The shed has a red roof."
    passage = make_passage([Hit("x", text)], ("x",))
    [kept], reason = run_sync(prune("red key", [passage], WordScorer(), options=PruneOptions(threshold=0.4)))
    assert kept.text == "The red key opens the shed. … The shed has a red roof."
    assert [text[piece.start : piece.end] for piece in kept.pieces] == [piece.text for piece in kept.pieces]
    assert reason is None
    [best], _ = run_sync(prune("red key", [passage], WordScorer(), options=PruneOptions(max_tokens=12)))
    assert best.text == "The red key opens the shed."


def test_prune_failures_leave_the_passages():
    class Failing(WordScorer):
        async def score(self, query, hits, *, deadline):
            raise RuntimeError("no")

    passage = make_passage([Hit("x", "One thing. Another thing.")], ("x",))
    passages, reason = run_sync(prune("thing", [passage], Failing(), deadline=Deadline.never()))
    assert passages == [passage]
    assert "words failed" in reason


def test_prune_as_a_stage_and_in_a_context(store):
    ranking = Pipeline(store, k=2, rerank=Rerank(WordScorer()), shape=[Context(), Prune()]).rank("about doors")
    assert "Part 2 is about doors." in ranking.passages[0].text
    assert "sequel" not in ranking.passages[0].text
    assert "sentences kept" in ranking.why(ranking.ids[0])
    plain = Pipeline(store, k=2, rerank=Rerank(WordScorer())).rank("about doors")
    assert "sequel" not in plain.context(200, prune=True).text
    assert "no reranker" in Pipeline(store, k=2).rank("doors").context(200, prune=True).reason
    assert "no reranker" in Pipeline(store, k=2, shape=Prune()).rank("doors").reason


def test_a_reranked_list_is_pruned_by_the_reranker_that_ran():
    ranking = rerank("about doors", ["Part 2 is about doors. It has no sequel."], scorer=WordScorer())
    context = ranking.context(200, prune=True)
    assert not context.degraded
    assert "about doors" in context.text
    assert "sequel" not in context.text


def test_sqlite_and_memory_return_the_same_chunks(tmp_path, store):
    file = SQLiteStore(tmp_path / "x.db", create=True)
    run_sync(file.add(DOCUMENTS))
    for hit in (DOCUMENTS[0], DOCUMENTS[3], DOCUMENTS[11]):
        for before, after in ((1, 1), (0, 2), (9, 0)):
            ids = [[each.id for each in run_sync(s.get_chunks(hit, before=before, after=after))] for s in (store, file)]
            assert ids[0] == ids[1]
            assert hit.id in ids[0]
    assert run_sync(file.get_chunks(Hit("q", "no place"), before=1, after=1)) == []
    file.release()


def test_yaml(tmp_path):
    SQLiteStore(tmp_path / "x.db", create=True).release()
    stores = [{"name": "docs", "kind": "sqlite", "path": str(tmp_path / "x.db"), "embedder": "none"}]
    pipeline = pipeline_from_config({"stores": stores, "context": {"max_tokens": 300, "neighbors": 2}})
    assert pipeline.stages[-1].options == ContextOptions(max_tokens=300, neighbors=2)
    run_sync(pipeline.close())
    with pytest.raises(ConfigError, match="max_tokens"):
        pipeline_from_config({"stores": stores, "context": {"max_tokens": 0}})
    with pytest.raises(ConfigError, match="rerank"):
        pipeline_from_config({"stores": stores, "prune": {}})
