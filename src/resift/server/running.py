"""Run the app with uvicorn: one process or several on one port, and an orderly end.

On SIGTERM: `/readyz` says 503 while everything is still answered, then the port is closed, work in flight is
finished, what is left after that hears 503, and the process ends with 0. Ctrl+C does the same at once:
somebody sits in front of it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from resift.server.app import serve_app
from resift.server.http_protocol import timed_protocol
from resift.server.options import ServerOptions
from resift.server.serving import Serving
from resift.types import JsonMapping

BACKLOG = 2048
# Longer than the minute that common proxies keep one, so that a proxy never sends into a closed connection.
KEEP_ALIVE_S = 75
HURRIED_S = 0.5
FAILED = 1

ARRIVAL_S, QUIET_S = 3.0, 0.05
"""How long a request may take to arrive on a connection that was accepted last, and how often to look."""

log = logging.getLogger("resift.server")

MakeApp = Callable[[ServerOptions], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where and how a server listens, and how it ends. `tls` has uvicorn's ssl options."""

    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1
    drain_delay_s: float = 2.0
    drain_s: float = 20.0
    tls: JsonMapping = field(default_factory=dict)


def bound_socket(listening: Listening) -> socket.socket:
    """Return a listening socket: a taken port is told at once, and early clients wait instead of failing."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    # A restart must not wait for connections of the last run to time out.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((listening.host, listening.port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    made.set_inheritable(True)
    return made


def run_worker(
    options: ServerOptions,
    listening: Listening,
    listener: socket.socket,
    *,
    make_app: MakeApp = serve_app,
) -> int:
    """Serve until a signal ends it; return the exit code."""
    _log_to_stderr()
    app = make_app(options)
    serving: Serving = app.state.serving
    config = uvicorn.Config(
        app,
        http=timed_protocol(options.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(listening.drain_s)),
        **listening.tls,
    )
    server = _DrainingServer(config, serving, delay_s=listening.drain_delay_s)
    serving.on_failure = server.stop_now
    serving.accept_when_ready = listening.workers > 1
    server.run(sockets=[listener])
    return FAILED if serving.failure else 0


class _DrainingServer(uvicorn.Server):
    """uvicorn closes its port as soon as a signal comes; this one first says that it is about to."""

    def __init__(self, config: uvicorn.Config, serving: Serving, *, delay_s: float) -> None:
        super().__init__(config)
        self._serving = serving
        self._delay_s = delay_s
        self._hurried = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Not uvicorn's way: it raises the signal again at the end, and the exit code would not be 0.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda got, frame: loop.call_soon_threadsafe(self._signalled, got))
        try:
            yield
        finally:
            # A second SIGTERM during the last moments must not turn an orderly end into a killed process.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def stop_now(self) -> None:
        """End without a delay, because nothing can be answered."""
        self.should_exit = True

    def _signalled(self, number: int) -> None:
        if number == signal.SIGINT:
            self._hurry()
        if self._serving.state == "draining" or self.should_exit:
            return
        log.info("draining: not ready any more, closing the port in %.1f s", self._delay_s)
        self._serving.state = "draining"
        asyncio.get_running_loop().call_later(self._delay_s, self.stop_now)

    def _hurry(self) -> None:
        # The second Ctrl-C does not wait for anything.
        self.should_exit, self.force_exit = True, self._hurried
        self._hurried, self._serving.state = True, "draining"
        self.config.timeout_graceful_shutdown = HURRIED_S  # type: ignore[assignment]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._stop_accepting(sockets or [])
        if not self._hurried:
            await self._let_requests_arrive()
        self._serving.state = "closed"
        await super().shutdown(sockets)

    async def _stop_accepting(self, sockets: list[socket.socket]) -> None:
        """Close the port without a reset for clients that the kernel has already shaken hands with.

        asyncio closes its side at once, also of connections that it has accepted and not yet set up.
        """
        loop = asyncio.get_running_loop()
        for listener in sockets:
            with suppress(NotImplementedError):  # not every event loop watches sockets this way
                loop.remove_reader(listener.fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        # Nothing may come between the last accept and the close: who connects there is reset by the kernel.
        accepted = [client for listener in sockets for client in _waiting_clients(listener)]
        for server in self.servers:
            server.close()
        for client in accepted:
            await loop.connect_accepted_socket(self._protocol, client, ssl=self.config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        made: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = made(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def _let_requests_arrive(self) -> None:
        """Wait a moment for requests on connections that were just accepted; closing now would lose them."""
        await asyncio.sleep(QUIET_S)
        for _ in range(round(ARRIVAL_S / QUIET_S)):
            open_now: set[Any] = set(self.server_state.connections)
            if all(one.cycle is not None for one in open_now):
                return
            await asyncio.sleep(QUIET_S)


def _waiting_clients(listener: socket.socket) -> list[socket.socket]:
    found = []
    with suppress(BlockingIOError, InterruptedError):
        while True:
            client, _ = listener.accept()
            client.setblocking(False)
            found.append(client)
    return found


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("resift.server", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("resift.server").setLevel(logging.INFO)
    # uvicorn tells of its life at INFO; its warnings are about clients that speak no HTTP.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
