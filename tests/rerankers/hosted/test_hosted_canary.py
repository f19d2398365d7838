"""Query, documents and key appear in no log, event, metric, exception, trace or repr, in any fault."""

import asyncio
import io
import logging
import pickle
import traceback

import pytest

from resift.deadline import Deadline
from resift.errors import ResiftError
from resift.events import ListSink, LogSink
from resift.rerankers.hosted import PROVIDERS, ChatClient, HostedReranker
from resift.rerankers.llm import LLMReranker
from resift.rerankers.rescore import rescore
from resift.resilience import CircuitBreaker, Tiered
from resift.telemetry import PrometheusSink
from resift.testing import OverlapScorer
from resift.types import Hit
from tests.providers import FAULTS, ProviderServer

QUERY = "canaryquery zebra"
DOCUMENT = "canarydocument giraffe"
KEY = "canarykey-okapi"
SECRETS = ("canaryquery", "zebra", "canarydocument", "giraffe", "canarykey", "okapi")
HITS = [Hit("a", DOCUMENT), Hit("b", f"{DOCUMENT} zebra"), Hit("c", "plain")]
SLOW = ("stall", "stall-midway", "drip", "gzip-bomb", "huge", "dense-json")


@pytest.fixture
def logged():
    """Everything any library logs at any level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s %(exc_text)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def told_by(error):
    chain, parts = error, []
    while chain is not None:
        parts += [str(chain), repr(chain), repr(vars(chain)), repr(chain.args)]
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return "\n".join([*parts, *traceback.format_exception(error)])


async def everything_said(scorer, name):
    """Run one call through all that talks: scorer, tiers, ranking, events, breaker."""
    sink, breaker = ListSink(), CircuitBreaker(name=name)
    parts = [repr(scorer), repr(vars(scorer)), repr(scorer.breaker_key)]
    try:
        parts.append(repr(await scorer.score(QUERY, HITS, deadline=Deadline.after(0.25))))
    except ResiftError as exc:
        parts.append(told_by(exc))
    tiers = Tiered(scorer, OverlapScorer(), breaker=breaker, sink=sink)
    ranking = await rescore(tiers, QUERY, HITS, k=3, deadline=Deadline.after(0.3), sink=sink)
    parts += [str(ranking.reason), repr(ranking.trace), repr(breaker.snapshot()), repr(tiers)]
    client = pytest.importorskip("prometheus_client")
    metrics = PrometheusSink(client.CollectorRegistry())
    for event in sink.events:
        parts += [repr(event), repr(event.fields())]
        LogSink()(event)
        metrics(event)
    parts.append(client.generate_latest(metrics.registry).decode())
    return "\n".join(parts)


def hosted(server, provider):
    return HostedReranker(provider, base_url=server.base_url(provider), api_key=KEY, allow_loopback=True)


def assert_silent(text):
    found = [secret for secret in SECRETS if secret in text.lower()]
    assert not found, (found, text[:2000])


def faults_for(provider):
    """Every fault for one provider; a different third of the quick ones for each of the others."""
    if provider == "voyage":
        return FAULTS
    return [fault for fault in FAULTS if fault not in SLOW][len(provider) % 3 :: 3]


@pytest.mark.parametrize("provider", [*PROVIDERS, "llm"])
def test_no_secret_is_leaked_by_any_fault(provider, logged):
    async def all_faults():
        said = []
        with ProviderServer() as server:
            for fault in (None, *faults_for(provider)):
                if fault:
                    server.misbehave(fault)
                scorer = (
                    LLMReranker(server.base_url("chat"), "m", api_key=KEY, allow_loopback=True)
                    if provider == "llm"
                    else hosted(server, provider)
                )
                said.append(await everything_said(scorer, provider))
                server.behave()
        return "\n".join(said)

    said = asyncio.run(all_faults())
    assert "httpcore" in logged.getvalue(), "the libraries below were listened to"
    assert_silent(said + logged.getvalue())


def test_a_provider_that_quotes_everything_back_is_not_quoted(logged, monkeypatch):
    """The error message of the server holds query, document and key; ours holds none of them."""
    from tests.providers import server as provider_server

    form = provider_server.FORMS["voyage"]
    told = f"bad request: query={QUERY} documents={DOCUMENT} key={KEY}"
    monkeypatch.setattr(type(form), "validate", lambda self, body: (400, told))

    async def refused():
        with ProviderServer() as server:
            return await everything_said(hosted(server, "voyage"), "voyage")

    said = asyncio.run(refused())
    assert_silent(said + logged.getvalue())
    assert "Its message mentions: query, documents, key." in said


def test_reprs_of_clients_and_secrets_hide_the_key():
    chat = ChatClient("https://chat.example.org/v1", "m", api_key=KEY)
    reranker = HostedReranker("voyage", api_key=KEY)
    for thing in (chat, chat._client, reranker, reranker._client, reranker._client.key):
        assert_silent(f"{thing!r} {thing!s} {getattr(thing, '__dict__', '')!r}")
    with pytest.raises(TypeError, match="key"):
        pickle.dumps(reranker._client.key)


def test_the_reason_phrase_of_a_provider_is_not_logged():
    """httpx writes it at INFO, and a provider that echoes would put key and query into the log."""
    import logging

    from resift.rerankers.hosted.transport import _drop_reason

    line, args = ('HTTP Request: %s %s "%s %d %s"', ("POST", "https://h.example", "HTTP/1.1", 400, "key-1 query"))
    record = logging.LogRecord("httpx", logging.INFO, "", 0, line, args, None)
    assert _drop_reason(record)
    assert "key-1" not in record.getMessage()
    assert "400" in record.getMessage()
