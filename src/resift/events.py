"""Events, which are frozen dataclasses, and the sinks that receive them.

An event never contains query text, document text or an API key. Packages define their own events:

    class Sifted(Event, name="sifted"):
        candidates: int
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, dataclass_transform

log = logging.getLogger("resift")


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True)
class Event:
    """Base class of all events. A subclass with a name becomes a frozen dataclass."""

    name: ClassVar[str] = "event"

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        super().__init_subclass__()
        if name is not None:
            cls.name = name
            dataclass(frozen=True, kw_only=True)(cls)

    def fields(self) -> dict[str, Any]:
        """Return the payload as a plain dict, without the name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


Sink = Callable[[Event], None]  # a callable that takes an event: a function, the `append` of a list, a `LogSink`


_ambient: ContextVar[Sink | None] = ContextVar("resift_sink", default=None)


@contextmanager
def ambient_sink(sink: Sink | None) -> Iterator[None]:
    """Send every event of the code in the block to a sink, even from parts that were built without one."""
    if sink is None:
        yield
        return
    token = _ambient.set(sink)
    try:
        yield
    finally:
        _ambient.reset(token)


def is_observed(sink: Sink | None) -> bool:
    """Whether `emit` with this sink reaches any sink; if not, there is no need to create the event."""
    return sink is not None or _ambient.get() is not None


def emit(sink: Sink | None, event: Event) -> None:
    """Send an event to a sink, and to the ambient sink if that is another one; log exceptions of sinks."""
    ambient = _ambient.get()
    for target in (sink, None if ambient is sink else ambient):
        if target is None:
            continue
        try:
            target(event)
        except Exception:
            log.exception("event sink failed on %s", event.name)


@dataclass(frozen=True, slots=True)
class LogSink:
    """Write each event as one log line: `name key=value …`."""

    logger: logging.Logger = log
    level: int = logging.INFO

    def __call__(self, event: Event) -> None:
        """Log the event."""
        payload = " ".join(f"{key}={value!r}" for key, value in event.fields().items())
        self.logger.log(self.level, "%s %s", event.name, payload)


@dataclass(frozen=True, slots=True)
class JsonlSink:
    """Append each event to a file as one line of JSON with its time in UTC; `resift report` reads the file."""

    path: str | os.PathLike[str]
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False, compare=False)

    def __call__(self, event: Event) -> None:
        """Write the event. Each line is a single write, so several processes can share the file."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": stamp, "event": event.name, **event.fields()}, default=str)
        with self._lock, open(self.path, "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())


@dataclass(frozen=True, slots=True)
class ListSink:
    """Keep every event in a list: for tests, notebooks and reports."""

    events: list[Event] = dataclasses.field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Append the event."""
        self.events.append(event)

    def named(self, name: str) -> list[Event]:
        """Return the events with this name, in order."""
        return [event for event in self.events if event.name == name]


class Fused(Event, name="fused"):
    """Several ranked lists were fused into one."""

    method: str
    lists: int
    candidates: int
    duplicates: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class Scored(Event):
    """Base class of events about one scorer and one pool."""

    provider: str
    candidates: int
    latency_ms: float


class Reranked(Scored, name="reranked"):
    """A scorer scored a pool."""

    unscored: int
    kept: int
    degraded: bool
    reason: str | None = None
