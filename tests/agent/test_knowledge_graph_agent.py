"""The agent's contract: flags, states, pool sizes, degradation, answers."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import ladybug
import pytest

from resift.agent import KnowledgeGraphAgent, build_pack
from resift.errors import InputError, ModelLoadError, StoreError, install_command
from resift.rerankers.cross_encoder import CrossEncoderReranker
from tests.agent.small import WordEmbedder


class Spy(KnowledgeGraphAgent):
    """Records how many hits were requested from the first stage."""

    def semantic_search(self, query, k):
        self.__dict__.setdefault("asked", []).append(k)
        return super().semantic_search(query, k)


def broken(pack_file, tmp_path, caplog):
    """An agent whose cross-encoder did not load."""
    agent = Spy(pack_file, embedder=WordEmbedder(), max_results=2)
    with caplog.at_level(logging.CRITICAL, logger="resift.rerankers.cross_encoder"):
        agent.cross_encoder = CrossEncoderReranker(folder=tmp_path)
    assert agent.cross_encoder._model is None
    return agent


def test_the_cross_encoder_is_off_by_default(agent):
    """None unless it is enabled."""
    assert agent.cross_encoder is None


def test_use_enhancements_false_overrides_every_flag(pack_file):
    """Nothing but vectors, whatever else is switched on."""
    with KnowledgeGraphAgent(
        pack_file,
        use_enhancements=False,
        enable_cross_encoder=True,
        enable_reranker=True,
        enable_multidoc=True,
        embedder=WordEmbedder(),
    ) as agent:
        assert agent.cross_encoder is None
        assert agent.graph_reranker is None
        assert agent.enable_multidoc is False
        ranking = agent.retrieve("bees and honey")
        assert {record.kind for record in ranking.trace} == {"retrieve"}


def test_from_connection_never_has_a_cross_encoder(pack_file):
    """Whatever the flags, and the connection stays open."""
    database = ladybug.Database(str(pack_file), read_only=True)
    connection = ladybug.Connection(database)
    agent = KnowledgeGraphAgent.from_connection(connection, enable_cross_encoder=True, embedder=WordEmbedder())
    assert agent.cross_encoder is None
    assert agent.query("Who makes honey?")["sources"]
    agent.close()
    assert connection.execute("RETURN 1").get_next() == [1]
    connection.close()
    database.close()


@pytest.mark.parametrize(("on", "pool"), [(True, 10), (False, 5)])
def test_the_cross_encoder_chooses_from_twice_as_many_hits(pack_file, tmp_path, caplog, on, pool):
    """10 for 5 with the cross-encoder, exactly 5 for 5 without."""
    agent = Spy(pack_file, embedder=WordEmbedder(), max_results=5)
    if on:
        agent.cross_encoder = broken(pack_file, tmp_path, caplog).cross_encoder
    ranking = asyncio.run(agent._vector_primary_retrieve("Which fruit is sweet?"))
    assert agent.asked == [pool]
    assert len(ranking) == 5
    agent.close()


def test_a_model_that_failed_to_load_keeps_the_order_and_is_reported(pack_file, tmp_path, caplog):
    """Passthrough order, cut to max_results, degraded with the reason."""
    agent = broken(pack_file, tmp_path, caplog)
    agent.graph_reranker = None
    plain = [hit.id for hit in agent.semantic_search("Who makes honey?", 2)]
    answer = agent.query("Who makes honey?")
    assert [source["id"] for source in answer["sources"]] == plain
    assert answer["degraded"]
    assert "cross-encoder failed" in answer["reason"]
    agent.close()


def test_failing_inference_is_not_fatal(pack_file, tmp_path, caplog):
    """The agent answers, degraded, instead of raising."""
    agent = broken(pack_file, tmp_path, caplog)

    class Exploding:
        async def score(self, *_args, **_options):
            raise RuntimeError("cuda went away: secret document")

    agent.cross_encoder._model = Exploding()
    answer = agent.query("Who makes honey?")
    assert answer["found"]
    assert answer["degraded"]
    assert "RuntimeError" in answer["reason"]
    assert "secret" not in answer["reason"]
    agent.close()


def test_a_pack_without_links_is_searched_by_vectors_only(tmp_path):
    """Without a graph, the vector order is kept, and the ranking is degraded with a reason."""
    (tmp_path / "a.jsonl").write_text('{"title": "Bee", "text": "A bee makes honey."}')
    asyncio.run(build_pack(tmp_path / "a.jsonl", tmp_path / "p.lbug", embedder=WordEmbedder()))
    database = ladybug.Database(str(tmp_path / "p.lbug"))
    connection = ladybug.Connection(database)
    connection.execute("DROP TABLE LINKS")
    connection.close()
    database.close()
    with KnowledgeGraphAgent(tmp_path / "p.lbug", embedder=WordEmbedder()) as agent:
        answer = agent.query("Who makes honey?")
    assert answer["found"]
    assert answer["degraded"]
    assert "no links" in answer["reason"]


def test_without_the_graph_library_vector_search_remains(agent, monkeypatch):
    """rustworkx missing: vector order, degraded, with the line that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "rustworkx", None)
    ranking = agent.retrieve("bee honey hive wax apple tree")
    assert ranking.degraded
    assert install_command("graph") in ranking.reason
    assert ranking.hits


def test_without_the_embedder_keywords_are_searched(pack_file):
    """The pack's embedder is not at hand: lexical search, degraded, said."""
    with KnowledgeGraphAgent(pack_file) as agent:
        answer = agent.query("Who makes honey?")
    assert answer["sources"][0]["title"] in {"Bee", "Honey"}
    assert answer["degraded"]
    assert "keyword search only" in answer["reason"]


def test_another_embedder_is_refused(pack_file):
    """Vectors of two models are never compared."""
    other = WordEmbedder()
    other.model_name = "test/other"
    with pytest.raises(StoreError, match="built with test/words"):
        KnowledgeGraphAgent(pack_file, embedder=other)


def test_an_answer_cites_only_retrieved_passages(agent):
    """Each sentence is a quotation of the passage that it cites."""
    answer = agent.query("Who makes honey from blossoms?", explain=True)
    assert answer["found"]
    assert answer["extractive"]
    retrieved = set(agent.retrieve("Who makes honey from blossoms?").ids)
    texts = {source["number"]: source["text"] for source in answer["sources"]}
    assert {source["id"] for source in answer["sources"]} <= retrieved
    for sentence in answer["sentences"]:
        assert all(sentence["text"] in texts[number] for number in sentence["sources"])
        assert f"{sentence['text']} [{sentence['sources'][0]}]" in answer["answer"]
    assert len(answer["explanation"]) == len(answer["sources"])
    assert not {"score", "ce_score"} & set(answer["sources"][0])


@pytest.mark.parametrize("question", ["", "   ", "\x00\x07", "xylophone quartz zeppelin"])
def test_empty_and_unknown_subjects_are_not_found(agent, question):
    """An honest answer without sources."""
    answer = agent.query(question)
    assert answer["answer"].startswith("Not found")
    assert (answer["found"], answer["sources"], answer["confidence"]) == (False, [], 0.0)


def test_without_multidoc_one_article_is_used(pack_file):
    """enable_multidoc=False answers from the first article alone."""
    with KnowledgeGraphAgent(pack_file, enable_multidoc=False, embedder=WordEmbedder()) as agent:
        answer = agent.query("bees honey apple tree blossoms")
    cited = {source["article"] for source in answer["sources"] if source["cited"]}
    assert cited == {answer["sources"][0]["article"]}


def test_the_ranking_accounts_for_every_candidate(agent):
    """It replays, nothing appears twice, and what was cut says why."""
    ranking = agent.retrieve("bees honey apple tree blossoms")
    assert ranking.replay() == ranking.ids
    ids = [hit.id for hit in (*ranking.hits, *ranking.cut)]
    assert len(ids) == len(set(ids))
    assert all(ranking.path(hit.id)[-1].cut for hit in ranking.cut)
    assert len(ranking) == 5


def test_threads_share_an_agent(agent):
    """Sixteen questions at once get the answers that they get one by one."""
    asked = ["Who makes honey?", "What burns for hours?", "When does the apple tree blossom?", "zeppelin"] * 4
    alone = [agent.query(question)["answer"] for question in asked]
    with ThreadPoolExecutor(8) as workers:
        assert list(workers.map(lambda question: agent.query(question)["answer"], asked)) == alone


def test_invalid_arguments_are_refused(pack_file, agent):
    """Wrong types and bounds say what is allowed."""
    for options in ({"max_results": 0}, {"max_results": True}, {"hops": 4}, {"max_nodes": 101}):
        with pytest.raises(InputError):
            KnowledgeGraphAgent(pack_file, embedder=WordEmbedder(), **options)
    with pytest.raises(InputError, match="pass a string"):
        agent.query(7)
    closed = KnowledgeGraphAgent(pack_file, embedder=WordEmbedder())
    closed.close()
    with pytest.raises(StoreError, match="closed"):
        closed.query("Who makes honey?")


def test_an_expired_deadline_gives_no_answer_and_no_error(agent):
    """A deadline that has passed gives a degraded, honest answer."""
    answer = agent.query("Who makes honey?", deadline_s=0.0)
    assert answer["degraded"]
    assert "deadline" in answer["reason"]
    assert answer["sources"] == []


def test_score_raises_without_a_model(tmp_path, caplog):
    """Only the agent swallows it: the scorer itself raises, as pipelines expect."""
    with caplog.at_level(logging.CRITICAL):
        reranker = CrossEncoderReranker(folder=tmp_path)
    from resift.deadline import Deadline

    with pytest.raises(ModelLoadError):
        asyncio.run(reranker.score("q", [], deadline=Deadline.never()))
