"""Requests carry exactly the documented fields; answers count only when every document has one score."""

import asyncio
import gzip
import json
import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import (
    ProviderAuthError,
    ProviderBadAnswer,
    ProviderRateLimited,
    ProviderRejected,
    ProviderServerError,
)
from resift.rerankers.hosted.providers import PROVIDERS, read_scores, retry_after_s, status_error
from resift.rerankers.hosted.scorer import split_batches, worst_failure
from resift.rerankers.hosted.transport import UnusableBody, dump_body, parse_body, read_body

# Written from the providers' documentation, not from the code.
REQUESTS = {
    "voyage": {
        "query": "q",
        "documents": ["a", "b"],
        "model": "m",
        "top_k": 2,
        "truncation": True,
        "return_documents": False,
    },
    "cohere": {"query": "q", "documents": ["a", "b"], "model": "m", "top_n": 2},
    "cohere-v1": {"query": "q", "documents": ["a", "b"], "model": "m", "top_n": 2, "return_documents": False},
    "jina": {"query": "q", "documents": ["a", "b"], "model": "m", "top_n": 2, "return_documents": False},
    "mixedbread": {"query": "q", "input": ["a", "b"], "model": "m", "top_k": 2, "return_input": False},
    "tei": {"query": "q", "texts": ["a", "b"], "truncate": True, "raw_scores": False, "return_text": False},
    "vllm": {"query": "q", "documents": ["a", "b"], "model": "m", "top_n": 2},
    "infinity": {
        "query": "q",
        "documents": ["a", "b"],
        "model": "m",
        "top_n": 2,
        "return_documents": False,
        "raw_scores": False,
    },
}
ANSWERS = {
    "voyage": {"object": "list", "data": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]},
    "cohere": {
        "id": "x",
        "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}],
        "meta": {},
    },
    "cohere-v1": {
        "results": [
            {"document": {"text": "b"}, "index": 1, "relevance_score": 0.9},
            {"index": 0, "relevance_score": 0.1},
        ]
    },
    "jina": {
        "model": "m",
        "results": [{"index": 1, "relevance_score": 0.9, "document": "b"}, {"index": 0, "relevance_score": 0.1}],
    },
    "mixedbread": {"data": [{"index": 1, "score": 0.9, "object": "x"}, {"index": 0, "score": 0.1}], "object": "list"},
    "tei": [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}],
    "vllm": {
        "id": "r",
        "results": [
            {"index": 1, "document": {"text": "b"}, "relevance_score": 0.9},
            {"index": 0, "relevance_score": 0.1},
        ],
    },
    "infinity": {
        "object": "rerank",
        "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}],
    },
}


@pytest.mark.parametrize("provider", REQUESTS)
def test_a_request_has_exactly_the_documented_fields(provider):
    assert PROVIDERS[provider].request("q", ["a", "b"], model="m") == REQUESTS[provider]


@pytest.mark.parametrize("provider", ANSWERS)
def test_an_answer_becomes_scores_by_document_number(provider):
    assert read_scores(ANSWERS[provider], PROVIDERS[provider], count=2) == [0.1, 0.9]


def test_every_provider_is_covered_here():
    assert set(REQUESTS) == set(ANSWERS) == set(PROVIDERS)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "index": st.one_of(
                    st.integers(-2, 5), st.booleans(), st.sampled_from(["", "0", "1"]), st.none(), st.floats()
                ),
                "score": st.one_of(
                    st.floats(), st.integers(), st.booleans(), st.sampled_from(["", "0", "1"]), st.none()
                ),
            },
        ),
        max_size=5,
    ),
    st.integers(0, 4),
)
def test_a_partly_wrong_answer_is_refused(rows, count):
    """Whatever the rows, the result is one finite score per document or a ProviderBadAnswer."""
    try:
        scores = read_scores(rows, PROVIDERS["tei"], count=count)
    except ProviderBadAnswer:
        return
    assert len(scores) == count
    assert all(type(score) is float and math.isfinite(score) for score in scores)
    assert sorted(row["index"] for row in rows) == list(range(count))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<html>",
        b'{"a":',
        b'[{"score": NaN}]',
        b"[1e",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" * 15_000,
        b"[Infinity]",
        b"9" * 5000,
    ],
)
def test_a_body_that_is_not_json_is_refused_without_quoting_it(body):
    with pytest.raises(UnusableBody) as caught:
        parse_body(body)
    assert caught.value.__cause__ is None
    assert len(str(caught.value)) < 50


def test_a_body_with_too_many_values_is_not_parsed():
    assert len(parse_body(b"[" + b"1," * 99 + b"1]", max_values=100)) == 100
    with pytest.raises(UnusableBody, match="more values"):
        parse_body(b"[" + b"1," * 100 + b"1]", max_values=100)


async def _chunks(*parts):
    for part in parts:
        yield part


def _read(*parts, encoding="", limit=100):
    return asyncio.run(read_body(_chunks(*parts), encoding, limit=limit))


def test_the_size_limit_is_exact_and_applies_after_decompression():
    packed = gzip.compress(b"x" * 100)
    assert _read(packed[:7], packed[7:], encoding="gzip") == b"x" * 100
    assert _read(b"x" * 100) == b"x" * 100
    for parts, encoding in (((gzip.compress(b"x" * 101),), "gzip"), ((b"x" * 60, b"x" * 41), "")):
        with pytest.raises(UnusableBody, match="longer"):
            _read(*parts, encoding=encoding)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (gzip.compress(b"x", mtime=0)[:-3], "gzip"),
        (gzip.compress(b"x", mtime=0) + b"more", "gzip"),
        (b"plain", "gzip"),
        (b"x", "br"),
    ],
)
def test_broken_and_unrequested_compression_is_refused(data, encoding):
    with pytest.raises(UnusableBody):
        _read(data, encoding=encoding)


def test_lone_surrogates_do_not_break_a_request():
    assert json.loads(dump_body({"query": "a\ud800b"})) == {"query": "a?b"}


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (401, {}, ProviderAuthError),
        (403, {}, ProviderAuthError),
        (402, {}, ProviderAuthError),
        (429, {}, ProviderRateLimited),
        (429, {"retry-after": "soon"}, ProviderRateLimited),
        (503, {"retry-after": "3"}, ProviderRateLimited),
        (503, {}, ProviderServerError),
        (500, {}, ProviderServerError),
        (502, {}, ProviderServerError),
        (529, {}, ProviderServerError),
        (408, {}, ProviderServerError),
        (424, {}, ProviderServerError),
        (400, {}, ProviderRejected),
        (404, {}, ProviderRejected),
        (413, {}, ProviderRejected),
        (422, {}, ProviderRejected),
        (301, {}, ProviderRejected),
        (307, {}, ProviderRejected),
        (204, {}, ProviderBadAnswer),
        (206, {}, ProviderBadAnswer),
    ],
)
def test_each_status_becomes_the_matching_error(status, headers, kind):
    error = status_error("voyage", status, headers)
    assert type(error) is kind
    assert (error.provider, error.status) == ("voyage", status)


def test_retry_after_is_seconds_or_a_date_by_the_servers_own_clock():
    assert retry_after_s({"retry-after": "120"}) == 120
    assert retry_after_s({"retry-after": "1.5"}) == 1.5
    assert retry_after_s({"retry-after": "-4"}) == 0
    for nonsense in ("", "nan", "inf", "tomorrow", "Sun, 99 Foo"):
        assert retry_after_s({"retry-after": nonsense}) is None
    sent = datetime(2001, 1, 1, 12, 0, 0, tzinfo=UTC)
    later = sent.replace(minute=2)
    headers = {"retry-after": format_datetime(later, usegmt=True), "date": format_datetime(sent, usegmt=True)}
    assert retry_after_s(headers) == 120
    assert retry_after_s({"retry-after": format_datetime(later, usegmt=True)}) == 0


def test_only_harmless_words_of_an_error_message_are_repeated():
    told = str(status_error("voyage", 400, {}, message="Unknown model 'x' for query 'secret plans of Q3'"))
    assert told.endswith("Its message mentions: unknown, model, query.")
    assert "secret" not in told


@given(
    st.lists(st.integers(0, 400), max_size=250),
    st.integers(0, 100),
    st.integers(1, 80),
    st.integers(1, 100),
    st.integers(1, 1000),
)
def test_batches_are_disjoint_ordered_complete_and_within_the_limits(sizes, over, size, documents, most):
    batches = split_batches(sizes, batch_over=over, batch_size=size, max_documents=documents, max_bytes=most)
    assert [at for batch in batches for at in batch] == list(range(len(sizes)))
    for batch in batches:
        assert 0 < len(batch) <= min(documents, max(size, over))
        assert len(batch) == 1 or sum(sizes[at] for at in batch) <= most


def test_more_than_80_documents_are_sent_in_batches_of_60():
    def lengths(count, most=1000):
        batches = split_batches([1] * count, batch_over=80, batch_size=60, max_documents=most, max_bytes=10**6)
        return [len(batch) for batch in batches]

    assert lengths(80) == [80]
    assert lengths(81) == [60, 21]
    assert lengths(200) == [60, 60, 60, 20]
    assert lengths(70, most=32) == [32, 32, 6]
    assert lengths(0) == []


def test_the_failure_that_opens_the_breaker_longest_is_reported():
    server, auth = ProviderServerError("s"), ProviderAuthError("a")
    short, long = ProviderRateLimited("r", retry_after_s=1), ProviderRateLimited("r", retry_after_s=9)
    rejected = ProviderRejected("no")
    assert worst_failure([rejected, server]) is server
    assert worst_failure([server, short, long]) is long
    assert worst_failure([long, auth, server]) is auth
    assert worst_failure([rejected]) is rejected
