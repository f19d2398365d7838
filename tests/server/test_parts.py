"""The server's parts on their own: admission, keys, schemas, spans, interleaving, judgements."""

import asyncio
import json
from collections import Counter
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from resift.errors import ConfigError
from resift.server.admission import Admission, count_pairs
from resift.server.judge_routes import running_score, team_draft
from resift.server.keys import Keys, key_from_header
from resift.server.ratings import LOG_FILE, RatingSession, RatingsLog
from resift.server.schema import Flag, Positive, RequestFailed, RequestReader, is_true, parse_json
from resift.server.server_options import Limits, ServerOptions
from resift.text.tokenization import sentence_spans


def test_pairs_count_windows():
    """A long document counts for more, and for no more than its windows are read."""
    assert count_pairs(["short", "x" * 5000, "x" * 10_000_000]) == 1 + 3 + 32
    assert count_pairs(["short", "x" * 5000], "x" * 5000) == 8 * (1 + 3)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_who_is_let_in_has_no_more_than_the_limit_ahead(sizes):
    """Of each other request at most as many pairs as one has oneself; all of them leave again."""

    async def run():
        admission = Admission(Limits(max_pairs=10, max_wait_s=0.5))
        inside = []

        async def one(pairs):
            async with admission.admit(pairs):
                counted = min(pairs, 5)
                assert not inside or sum(min(counted, size) for size in inside) + counted <= 10
                inside.append(pairs)
                await asyncio.sleep(0)
                inside.remove(pairs)

        outcomes = await asyncio.gather(*map(one, sizes), return_exceptions=True)
        refused = [one for one in outcomes if one is not None]
        assert all(isinstance(one, RequestFailed) and one.kind == "overloaded" for one in refused)
        assert all(one.retry_after_s >= 1 for one in refused)
        assert (admission.in_flight, admission.waiting) == (0, 0)

    asyncio.run(run())


def test_small_requests_get_in_beside_large_ones_and_before_those_that_wait():
    """Two large ones fill half each; the third waits, and ten documents do not wait behind it."""

    async def run():
        admission = Admission(Limits(max_pairs=2_048))
        gate = asyncio.Event()

        async def one(pairs):
            async with admission.admit(pairs):
                await gate.wait()

        large = [asyncio.create_task(one(size)) for size in (1_024, 9_000, 2_000)]
        await asyncio.sleep(0)
        assert (admission.in_flight, admission.waiting) == (10_024, 2_000)
        small = [asyncio.create_task(one(10)) for _ in range(50)]
        await asyncio.sleep(0)
        assert (admission.in_flight, admission.waiting) == (10_524, 2_000)
        gate.set()
        await asyncio.gather(*large, *small)
        assert (admission.in_flight, admission.waiting) == (0, 0)

    asyncio.run(run())


def test_who_waits_is_let_in_when_there_is_room_and_cancelling_leaves_no_trace():
    """First come, first served; a caller that goes away gives up its place, also when it was just let in."""

    async def run():
        admission = Admission(Limits(max_pairs=4))
        gate = asyncio.Event()
        order = []

        async def one(name, pairs):
            async with admission.admit(pairs):
                order.append(name)
                await gate.wait()

        first = [asyncio.create_task(one("first", 2)) for _ in range(2)]
        await asyncio.sleep(0)
        second, third = asyncio.create_task(one("second", 2)), asyncio.create_task(one("third", 2))
        await asyncio.sleep(0)
        assert admission.waiting == 4
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*first, second, third, return_exceptions=True)
        assert order == ["first", "first", "third"]
        assert (admission.in_flight, admission.waiting) == (0, 0)

    asyncio.run(run())


def test_a_standing_queue_is_overload():
    """After a quarter of a second of waiting nobody waits any more, until half of the room is free again."""

    async def run():
        now = 0.0
        admission = Admission(Limits(max_pairs=2), clock=lambda: now)
        release = asyncio.Event()

        async def hold():
            async with admission.admit(1):
                await release.wait()

        async def refused():
            with pytest.raises(RequestFailed):
                async with admission.admit(1):
                    pass

        holding = [asyncio.create_task(hold()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting = asyncio.create_task(refused())
        await asyncio.sleep(0)
        now = 0.3
        await refused()
        await waiting
        assert admission.overloaded
        with pytest.raises(RequestFailed):
            admission.check(None)
        release.set()
        await asyncio.gather(*holding)
        assert not admission.overloaded
        admission.check(None)

    asyncio.run(run())


def test_a_model_on_this_machine_gets_little_work_ahead():
    """A request may wait for as much work as it brings itself: answers are at most about twice as late."""

    async def run():
        now = 0.0
        admission = Admission(Limits(), clock=lambda: now, cpu_bound=True)
        async with admission.admit(100):
            now = 1.0
        assert admission.pairs_per_s == 100

        async def is_admitted(pairs):
            try:
                async with admission.admit(pairs):
                    return True
            except RequestFailed:
                return False

        async with admission.admit(50):
            assert await is_admitted(50)
            assert await is_admitted(3)
            async with admission.admit(50):
                assert not await is_admitted(50)
                assert await is_admitted(3)

    asyncio.run(run())


def test_requests_and_bytes_that_arrive_are_bounded():
    """Over the limit a request is refused before it is read."""
    admission = Admission(Limits(max_requests=2, max_bytes_held=100))
    admission.hold_bytes(60)
    with pytest.raises(RequestFailed):
        admission.hold_bytes(50)
    admission.requests = 2
    with pytest.raises(RequestFailed):
        admission.check(None)
    admission.requests = 1
    admission.check(None)


def test_a_small_body_is_not_refused_unread_for_the_large_ones_before_it():
    """How many pairs an unread body has is guessed by its length."""

    async def run():
        now = 0.0
        admission = Admission(Limits(max_pairs=200), clock=lambda: now)
        for _ in range(200):
            async with admission.admit(100, body_bytes=100_000):
                pass
        async with admission.admit(100), admission.admit(100):
            admission.overloaded = True
            with pytest.raises(RequestFailed):
                admission.check(100_000)
            admission.check(2_000)

    asyncio.run(run())


def test_key_files(tmp_path):
    """Comments and commas; an empty or missing file is told at the start; a lost file keeps the last keys."""
    file = tmp_path / "keys"
    with pytest.raises(ConfigError, match="cannot read"):
        Keys(file=file)
    file.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no key"):
        Keys(file=file)
    file.write_text("a, b\n# c\n", encoding="utf-8")
    now = 0.0
    keys = Keys(file=file, keys=["d"], clock=lambda: now)
    assert [keys.allow(key) for key in "abcd"] == [True, True, False, True]
    file.unlink()
    now = 5.0
    assert keys.allow("a")
    assert not Keys().needed
    assert "secret" not in repr(ServerOptions(keys=("secret",)))


def test_a_variable_without_a_key_does_not_open_the_server(monkeypatch):
    """Unset, the usual one means that no keys are wanted; one that was named or set must hold some."""
    monkeypatch.delenv("RESIFT_API_KEYS", raising=False)
    assert not Keys(env="RESIFT_API_KEYS").needed
    with pytest.raises(ConfigError, match="TEAM_KEYS contains no key"):
        Keys(env="TEAM_KEYS")
    monkeypatch.setenv("RESIFT_API_KEYS", " , ")
    with pytest.raises(ConfigError, match="RESIFT_API_KEYS contains no key"):
        Keys(env="RESIFT_API_KEYS")
    monkeypatch.setenv("TEAM_KEYS", "a,b")
    assert Keys(env="TEAM_KEYS").allow("b")


@pytest.mark.parametrize(
    ("header", "key"), [("Bearer x", "x"), ("bearer  x ", "x"), ("Bearer", ""), ("", ""), ("x", ""), ("Basic eDp5", "")]
)
def test_key_in_a_header(header, key):
    """Only what follows Bearer is a key, unless a bare one is allowed."""
    assert key_from_header(header) == key
    assert key_from_header("token", allow_bare=True) == "token"


class Body(Struct, kw_only=True):
    n: Positive | None = None
    yes: Flag | None = None
    texts: list[str] | None = None


def test_bodies_are_read_leniently_within_limits():
    """Null is absent, strings can be booleans, 3.0 is whole; True is not a number; limits hold everywhere."""
    reader = RequestReader(Body, Limits(max_documents=2, max_text_chars=3))
    body = reader.read(b'{"n": 3.0, "yes": "False", "more": 1, "texts": ["abc"]}')
    assert (body.n, is_true(body.yes), body.texts) == (3, False, ["abc"])
    assert reader.read(b'{"n": null, "yes": null}') == reader.type()
    for wrong in ({"n": True}, {"n": 0}, {"yes": "perhaps"}, [], "x", {"texts": ["abcd"]}, {"texts": [""] * 3}):
        with pytest.raises(RequestFailed):
            reader.read(json.dumps(wrong).encode())
    strict = RequestReader(Body, Limits(), strict=True)
    for wrong in (b'{"more": 1}', b'{"n": 1, "n": 2}'):
        with pytest.raises(RequestFailed):
            strict.read(wrong)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_what_json_says_comes_through(value):
    """Every JSON value parses to itself, and what is no JSON is refused."""
    written = json.dumps(value).encode()
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(RequestFailed):
            parse_json(written)
        return
    assert parse_json(written) == value


@given(st.text(max_size=300))
def test_sentences_lie_in_the_text_and_do_not_overlap(text):
    """Spans are in order, not empty, and have no white space at their ends."""
    before = 0
    for start, end in sentence_spans(text):
        assert before <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        before = end


IDS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(IDS, IDS, st.integers(1, 10), st.text(max_size=5))
def test_team_draft_is_fair(first, second, k, seed):
    """No id twice, each from the team's own list in its order, and no team is more than one pick ahead."""
    shown = team_draft(first, second, k=k, seed=seed)
    assert shown == team_draft(first, second, k=k, seed=seed)
    ids = [id for id, _ in shown]
    assert len(set(ids)) == len(ids) == min(k, len({*first, *second}))
    for team, ranked in (("a", first), ("b", second)):
        own = [id for id, picker in shown if picker == team]
        assert own == [id for id in ranked if id in own]
    if set(first) == set(second):
        teams = Counter(team for _, team in shown)
        assert abs(teams["a"] - teams["b"]) <= 1


def session(number: int, query: str) -> RatingSession:
    return RatingSession(
        id=f"s{number}",
        query=query,
        settings={"a": {}, "b": {"reranker": "none"}},
        lists={"a": ["x", "y"], "b": ["y", "x"]},
        shown=[("x", "a"), ("y", "b")],
        documents={"x": "text x", "y": "text y"},
        blind=True,
    )


def test_ratings_survive_a_crash_and_a_second_writer(tmp_path):
    """Half a line left by a crash is overwritten, and two open folders see each other's ratings."""
    one, other = RatingsLog(tmp_path / "judged"), RatingsLog(tmp_path / "judged")
    one.add_session(session(1, "first"))
    one.add_rating("s1", "x", 3)
    with (tmp_path / "judged" / LOG_FILE).open("ab") as log:
        log.write(b'{"kind":"rating","session":"s1","id":"y","gra')
    other.add_session(session(2, "second"))
    other.add_rating("s2", "y", 2)
    one.add_rating("s1", "x", 1)
    fresh = RatingsLog(tmp_path / "judged").read()
    assert fresh.grades == {"first": {"x": 1}, "second": {"y": 2}} == one.read().grades
    assert fresh.count == 3
    assert (tmp_path / "judged" / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines() == [
        "query-id\tcorpus-id\tscore",
        "q1\tx\t1",
        "q2\ty\t2",
    ]
    with pytest.raises(RequestFailed):
        one.add_rating("s9", "x", 1)
    with pytest.raises(RequestFailed):
        one.add_rating("s1", "unseen", 1)


def test_the_running_score(tmp_path):
    """nDCG@10 of both settings over the rated queries, an interval from two queries upward, blind wins."""
    log = RatingsLog(tmp_path)
    assert running_score(log.read()).questions == 0
    log.add_session(session(1, "first"))
    log.add_rating("s1", "x", 3)
    score = running_score(log.read())
    assert (score.a.mean, score.a.interval) == (1.0, None)
    assert score.b.mean == pytest.approx(0.6309, abs=1e-4)
    assert score.blind == {"a": 1, "b": 0, "tie": 0}
    log.add_session(session(2, "second"))
    log.add_rating("s2", "y", 3)
    score = running_score(log.read())
    assert score.difference.mean == pytest.approx(0.0)
    low, high = score.difference.interval
    assert low < 0 < high


class FakeTransport:
    """Remembers whether the server closed the connection."""

    closed = False

    def is_closing(self):
        return self.closed

    def write(self, data):
        pass

    def close(self):
        self.closed = True

    abort = close


@pytest.mark.parametrize(("body", "closed"), [(b"abcd", False), (b"ab", True)])
def test_the_connection_of_a_refused_request_stays_open_once_its_body_is_there(monkeypatch, body, closed):
    """A body that comes after the refusal is skipped; one that stops coming ends the connection."""
    from resift.server import connections

    monkeypatch.setattr(connections, "AutoHTTPProtocol", MagicMock())

    async def run():
        limits = Limits(stall_timeout_s=0.05, body_timeout_s=0.1)
        connection, transport = connections.LimitedConnection.with_limits(limits)(), FakeTransport()
        connection.connection_made(transport)
        connection.data_received(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n")
        connection.request_started(has_body=True, body_bytes=4)
        connection.response_sent()
        connection.data_received(body)
        await asyncio.sleep(0.2)
        return transport.closed

    assert asyncio.run(run()) is closed
