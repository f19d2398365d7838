"""Deadlines, events, errors and the sync edge."""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import re
import signal
import threading
from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest

from resift import errors
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError
from resift.events import Event, Fused, ListSink, LogSink, emit
from resift.testing import FakeClock


def test_a_deadline_counts_down_on_its_clock():
    """One clock for everything, moved by hand."""
    clock = FakeClock()
    deadline = Deadline.after(2.0, clock=clock)
    clock.advance(1.5)
    assert (deadline.remaining_s(), deadline.expired, deadline.timeout_s) == (0.5, False, 0.5)
    clock.advance(1.0)
    assert (deadline.remaining_s(), deadline.expired, deadline.timeout_s) == (0.0, True, 0.0)


def test_no_deadline_never_passes():
    """None means never."""
    for deadline in (Deadline.never(), Deadline.after(None)):
        assert (deadline.remaining_s(), deadline.expired, deadline.timeout_s) == (math.inf, False, None)


def test_deadlines_combine():
    """The sooner one holds; a reserve leaves time for what comes after."""
    clock = FakeClock()
    deadline = Deadline.after(10.0, clock=clock)
    assert deadline.sooner(3.0).remaining_s() == 3.0
    assert deadline.sooner(30.0).remaining_s() == 10.0
    assert deadline.sooner(None) is deadline
    assert deadline.reserve(4.0).remaining_s() == 6.0


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_a_deadline_in_the_past_is_a_mistake(seconds):
    """One clear error."""
    with pytest.raises(InputError, match="deadline_s is"):
        Deadline.after(seconds)


def test_a_fake_clock_never_goes_back():
    """Monotonic clocks do not jump."""
    with pytest.raises(ValueError, match="never goes back"):
        FakeClock().advance(-1)


EVENT = Fused(method="rrf", lists=2, candidates=5, duplicates=0, kept=3)


def test_events_go_to_lists_and_logs(caplog):
    """Sinks take frozen values; the log line has name and fields."""
    sink = ListSink()
    emit(sink, EVENT)
    emit(None, EVENT)
    assert sink.named("fused") == [EVENT]
    assert sink.named("other") == []
    with caplog.at_level(logging.INFO, logger="resift"):
        emit(LogSink(), EVENT)
    assert "fused method='rrf' lists=2" in caplog.text


def test_a_failing_sink_never_stops_the_work(caplog):
    """Never fatal, never silent: the sink's error is logged."""

    def broken(event: Event) -> None:
        raise RuntimeError("disk full")

    emit(broken, EVENT)
    assert "event sink failed on fused" in caplog.text


def test_own_events_are_dataclasses():
    """Rooms define their own events by inheriting."""

    class Sifted(Event, name="sifted"):
        count: int

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Written(Event):
        name: ClassVar[str] = "written out"
        count: int

    assert (Sifted.name, Written.name) == ("sifted", "written out")
    assert Sifted(count=3).fields() == Written(count=3).fields() == {"count": 3}
    assert Sifted(count=3) == Sifted(count=3) != Sifted(count=4)
    with pytest.raises(FrozenInstanceError):
        Sifted(count=3).count = 4


def test_every_error_is_in_the_drawn_tree():
    """STYLE: the whole exception tree stands in one docstring."""
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    drawn = set(re.findall(r"[A-Z]\w+", errors.__doc__))
    assert classes - drawn == set()


def test_messages_carry_place_and_data():
    """Errors name file and line, and keep their data."""
    error = errors.DataFormatError("bad", file="a.run", line=3)
    assert (str(error), error.file, error.line) == ("a.run:3: bad", "a.run", 3)
    assert str(errors.ConfigError("bad", file="p.yaml")) == "p.yaml: bad"
    assert str(errors.ConfigError("bad")) == "bad"
    failed = errors.RetrievalError({"pg": "down", "lance": "late"})
    assert str(failed) == "All 2 stores failed. pg: down; lance: late"
    assert failed.transient
    assert "net.voyage" in str(errors.CapabilityError(["net.voyage"]))
    assert str(errors.ResiftError()) == ""
    assert errors.did_you_mean("zzz", []) == "Known: none."


async def _double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "pip install 'resift[local]'"),
        ('{"url": "https://example.org/resift.whl"}', "pip install 'resift[local]'"),
        ('{"url": "file:///gone", "dir_info": {}}', "pip install 'resift[local]'"),
        ('{"url": "file://HERE", "dir_info": {}}', "pip install '.[local]'"),
        ('{"url": "file://HERE/my%20src", "dir_info": {"editable": true}}', "pip install -e 'HERE/my src[local]'"),
    ],
)
def test_the_install_line_fits_where_resift_came_from(origin, line, tmp_path, monkeypatch):
    """From a checkout `pip install resift[…]` would ask an index that may not have it."""
    for folder in (tmp_path, tmp_path / "my src"):
        folder.mkdir(exist_ok=True)
        (folder / "pyproject.toml").touch()
    info = tmp_path / "resift-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: resift\nVersion: 9\n")
    if origin:
        (info / "direct_url.json").write_text(origin.replace("HERE", str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert errors.install_command("local") == line.replace("HERE", str(tmp_path))


def test_sync_waits_for_the_cleanup_of_interrupted_work():
    """Ctrl-C in the waiting thread cancels the work; what it opened is closed before the caller goes on."""
    closed = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.05)  # the caller is waiting by now
            os.kill(os.getpid(), signal.SIGINT)  # `raise_signal` would reach this thread, not the waiting one
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_sync(work())
    assert closed == [True]


def test_sync_works_everywhere():
    """From a script, from inside a running loop, and from many threads."""
    assert run_sync(_double(2)) == 4

    async def inside() -> int:
        return run_sync(_double(3))

    assert asyncio.run(inside()) == 6
    results: list[int] = []
    threads = [threading.Thread(target=lambda n=n: results.append(run_sync(_double(n)))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_sync_passes_errors_on():
    """An exception inside is the caller's exception."""

    async def fail() -> None:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        run_sync(fail())


def _child(queue) -> None:
    queue.put(run_sync(_double(21)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_sync_works_after_a_fork():
    """A forked worker makes its own loop thread."""
    run_sync(_double(1))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_child, args=(queue,))
    process.start()
    assert queue.get(timeout=20) == 42
    process.join(20)
