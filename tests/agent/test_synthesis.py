"""Writers: an endpoint that answers well, lies, hangs or talks nonsense; sentences and citations."""

from __future__ import annotations

import re
import time

import pytest

from resift.agent import ChatWriter, KnowledgeGraphAgent
from resift.agent.multi_doc import Passage, Sentence, is_unsupported, parse_citations
from resift.rerankers.hosted import ChatClient
from resift.resilience import CircuitBreaker
from resift.types import Hit
from tests.agent.small import WordEmbedder
from tests.providers import ProviderServer

QUESTION = "Who makes honey from blossoms?"


def ask(pack_file, server, *, timeout_s=5.0, breaker=None, deadline_s=None, question=QUESTION):
    client = ChatClient(server.url + "/chat", "m", allow_loopback=True, timeout_s=timeout_s)
    writer = ChatWriter(client, breaker=breaker or CircuitBreaker(name="chat"))
    with KnowledgeGraphAgent(pack_file, embedder=WordEmbedder(), writer=writer) as agent:
        return agent.query(question, deadline_s=deadline_s)


def numbered(messages, text):
    """Put the number of the passage about bees, or honey, where the text says BEE or HONEY."""
    told = messages[1]["content"]
    for title in ("Bee", "Honey"):
        text = text.replace(title.upper(), re.search(rf"\[(\d+)\] {title}", told)[1])
    return text


def ask_with_answer(pack_file, text):
    with ProviderServer(chat=lambda messages: numbered(messages, text)) as server:
        return ask(pack_file, server), server.requests


def test_a_good_answer_is_used(pack_file):
    """Its sentences, its citations, and not marked as extractive or degraded."""
    answer, requests = ask_with_answer(
        pack_file, "A bee makes honey [BEE]. It never spoils, the honey of the bee. [BEE][HONEY]"
    )
    assert not answer["extractive"]
    assert not answer["degraded"]
    assert answer["writer"] == "chat"
    titles = {source["number"]: source["title"] for source in answer["sources"]}
    cited = [[titles[number] for number in one["sources"]] for one in answer["sentences"]]
    assert cited == [["Bee"], ["Bee", "Honey"]]
    assert answer["answer"].startswith("A bee makes honey. [")
    told = requests[0].body["messages"][1]["content"]
    assert "[1] " in told
    assert QUESTION in told


LIES = {
    "unknown citation": "A bee makes honey [9].",
    "zero": "A bee makes honey [0].",
    "one good, one unknown": "A bee makes honey [BEE]. And wax [77].",
    "a span of unknown ones": "A bee makes honey [1-99].",
    "no citation": "A bee makes honey, and that is all.",
    "garbage": "%%%% \x00 {{{ <html> ]]]]",
    "other words": "Quarterly revenue exceeded guidance substantially [1].",
    "numbers of its own": "A bee makes honey since 1742 [BEE].",
    "only citations": "[1] [2] [3]",
    "half a mark": "A bee makes honey [1",
}


@pytest.mark.parametrize("text", LIES.values(), ids=LIES.keys())
def test_an_unsupported_answer_is_replaced_by_an_extractive_one(pack_file, text):
    """What cannot be traced to a passage is not shown: extractive, degraded, with a reason."""
    answer, _ = ask_with_answer(pack_file, text)
    assert answer["found"]
    assert answer["extractive"]
    assert answer["degraded"]
    assert "chat failed" in answer["reason"]
    assert {n for one in answer["sentences"] for n in one["sources"]} <= {s["number"] for s in answer["sources"]}


@pytest.mark.parametrize("fault", ["html", "empty", "half-json", "wrong-shape", "500", "429", "401", "404", "reset"])
def test_a_failing_endpoint_is_replaced_by_the_extractive_writer(pack_file, fault):
    """Errors and broken bodies: extractive, degraded, with a reason."""
    with ProviderServer() as server:
        server.misbehave(fault)
        answer = ask(pack_file, server)
    assert answer["found"]
    assert answer["extractive"]
    assert answer["degraded"]
    assert answer["reason"]


@pytest.mark.slow
def test_a_hanging_endpoint_is_abandoned_in_time(pack_file):
    """The deadline holds, and the extractive answer still comes."""
    with ProviderServer() as server:
        server.misbehave("stall")
        started = time.perf_counter()
        answer = ask(pack_file, server, deadline_s=1.5)
        assert time.perf_counter() - started < 15  # 2 s, and a busy machine
    assert answer["extractive"]
    assert answer["degraded"]


def test_the_breaker_opens_after_three_unsupported_answers(pack_file):
    """The fourth question does not reach the endpoint."""
    breaker = CircuitBreaker(name="chat")
    with ProviderServer(chat=lambda _messages: "Nonsense [42].") as server:
        for _ in range(4):
            answer = ask(pack_file, server, breaker=breaker)
        assert len(server.requests) == 3
    assert answer["degraded"]
    assert "open" in answer["reason"]


def test_without_time_the_endpoint_is_not_called(pack_file):
    """The budget keeps the time of the fallback."""
    with ProviderServer() as server:
        answer = ask(pack_file, server, deadline_s=0.4)
        assert server.requests == []
    assert answer["extractive"]
    assert answer["degraded"]


def test_a_writer_may_report_that_there_is_no_answer(pack_file):
    """NOT_FOUND is an answer: no sources, not degraded."""
    answer, _ = ask_with_answer(pack_file, "NOT_FOUND")
    assert (answer["found"], answer["sources"], answer["degraded"]) == (False, [], False)


def test_unsupported_sentences_are_dropped_and_counted(pack_file):
    """The sentence without a citation goes, the others stay."""
    answer, _ = ask_with_answer(
        pack_file, "A bee makes honey [BEE]. Everybody loves it. Honey is made by the bee [HONEY]."
    )
    assert len(answer["sentences"]) == 2
    assert any("1 unsupported sentence" in note for note in answer["notes"])


def test_citations_are_parsed():
    """Before or after the full stop, in lists and spans."""
    assert parse_citations("One thing [1]. Two things. [2, 3] Three things [1-3].") == [
        Sentence("One thing.", (1,)),
        Sentence("Two things.", (2, 3)),
        Sentence("Three things.", (1, 2, 3)),
    ]


def test_a_sentence_needs_words_and_numbers_of_its_passages():
    """A number that neither passage nor question has, or no word in common."""
    passage = Passage(1, Hit("x", "Bee\nA hive holds 40,000 bees.", metadata={"heading": "Bee", "title": "Bee"}))
    assert not is_unsupported(Sentence("A hive has 40000 bees.", (1,)), [passage], "")
    assert is_unsupported(Sentence("A hive has 50,000 bees.", (1,)), [passage], "")
    assert is_unsupported(Sentence("Lorem ipsum dolor.", (1,)), [passage], "")


def test_reference_marks_of_sources_do_not_look_like_citations():
    """Reference marks in a passage are shown in round brackets, in quotations and in the prompt."""
    passage = Passage(1, Hit("x", "Bee [3]\nBees dance [12]. They sing [4, 5].", metadata={"heading": "Bee [3]"}))
    assert passage.text == "Bees dance (12). They sing (4, 5)."
    assert passage.heading == "Bee (3)"
