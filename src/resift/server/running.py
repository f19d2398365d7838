"""Run the app with uvicorn, in one or more processes on one port, and shut it down gracefully.

After SIGTERM, `/readyz` returns 503 while all other routes still work. Then the port is closed and requests in
flight are finished. Requests that take too long get 503, and the process exits with 0. Ctrl+C skips the
delays, because a user is waiting.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import uvicorn

from resift.models.registry import ModelFiles, allowed_folders, restore_allowed
from resift.server.connections import LimitedConnection
from resift.server.server_options import ListenOptions, ServerOptions
from resift.server.state import MULTIPROCESS_VARIABLE, ServerState

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

BACKLOG, FAILED = 2048, 1
KEEP_ALIVE_S = 75  # longer than the one minute of common proxies, so a proxy never sends to a closed connection
HURRIED_S = 0.5  # time for work in flight after Ctrl+C
ARRIVAL_S, POLL_INTERVAL_S = 3.0, 0.05  # draining waits this long for requests on the last accepted connections
RESTART_AFTER_S = 1.0  # a worker that fails earlier is not replaced, because the next one would fail as well

log = logging.getLogger("resift.server")

MakeApp = Callable[[ServerOptions], Any]
Work = tuple[ServerOptions, ListenOptions, socket.socket, MakeApp, tuple[ModelFiles, ...]]


def bind_socket(listen: ListenOptions) -> socket.socket:
    """Return a listening socket. A port in use is reported at once, and early clients wait for the app."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # After a restart, the port is available although old connections have not timed out.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((listen.host, listen.port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def serve(options: ServerOptions, listen: ListenOptions, listener: socket.socket, *, make_app: MakeApp) -> int:
    """Serve with one or more processes, each with its own app. Return the exit code."""
    if listen.workers == 1:
        return run_worker(options, listen, listener, make_app=make_app)
    # The Prometheus client reads this variable on import, so set it before the workers start.
    folder = tempfile.mkdtemp(prefix="resift-metrics-")
    os.environ[MULTIPROCESS_VARIABLE] = folder
    try:
        return _Supervisor((options, listen, listener, make_app, allowed_folders()), listen.workers).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_worker(options: ServerOptions, listen: ListenOptions, listener: socket.socket, *, make_app: MakeApp) -> int:
    """Serve in this process until a signal stops it. Return the exit code."""
    _log_to_stderr()
    # Threads that compute in Python yield to the event loop after 1 ms instead of 5.
    sys.setswitchinterval(0.001)
    app = make_app(options)
    state: ServerState = app.state.server
    connections = LimitedConnection.with_limits(options.limits)
    off: dict[str, Any] = dict.fromkeys(("access_log", "server_header", "proxy_headers"), False)
    config = uvicorn.Config(
        app,
        http=connections,
        ws="none",
        lifespan="on",
        log_config=None,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(listen.drain_s)),
        **off,
        **listen.tls,
    )
    worker = _Worker(config, connections, listener, listen.drain_delay_s)
    state.on_failure = worker.stop
    state.accept_when_ready = listen.workers > 1
    # Install the handler before uvicorn does, so that an early signal drains as well.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, worker.handle_exit)
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(worker.serve_and_drain())
    finally:
        # A second SIGTERM during shutdown must not kill the process.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return FAILED if state.failure else 0


class _Worker(uvicorn.Server):
    """A uvicorn server that reports not ready before it closes the port."""

    def __init__(
        self, config: uvicorn.Config, connections: type[LimitedConnection], listener: socket.socket, delay_s: float
    ) -> None:
        super().__init__(config)
        self._state: ServerState = config.app.state.server  # type: ignore[union-attr]  # our app
        self._connections = connections
        self._listener = listener
        self._delay_s = delay_s
        self._hurried = asyncio.Event()
        self._signals: list[int] = []
        self._wake_up: Callable[[], object] = lambda: None

    def handle_exit(self, sig: int, frame: object) -> None:
        """Pass a signal to `serve_and_drain`. uvicorn would exit at once."""
        self._signals.append(sig)
        self._wake_up()

    def stop(self) -> None:
        """Stop without a delay, because the server cannot handle requests."""
        self.should_exit = True
        self._wake_up()

    async def serve_and_drain(self) -> None:
        """Serve until a signal arrives, then drain."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._wake_up = lambda: loop.call_soon_threadsafe(event.set)
        serving = asyncio.create_task(self.serve(sockets=[self._listener]))
        if self._signals:
            event.set()
        drain_task: asyncio.Task[None] | None = None
        while not serving.done():
            waiter = asyncio.create_task(event.wait())
            await asyncio.wait((serving, waiter), return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            event.clear()
            signals, self._signals = self._signals, []
            if signal.SIGINT in signals:
                # A second Ctrl+C exits immediately.
                self.force_exit = self._hurried.is_set()
                self._hurried.set()
                self.config.timeout_graceful_shutdown = HURRIED_S  # type: ignore[assignment]  # typed int
            if (signals or self.should_exit) and drain_task is None:
                drain_task = asyncio.create_task(self._drain())
        self._wake_up = lambda: None  # a signal while the loop closes has nothing to wake up
        await serving

    async def _drain(self) -> None:
        self._state.phase = "draining"
        while not self.started:  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(0.01)
        if not self._hurried.is_set() and not self.should_exit:
            log.info("draining: no longer ready, closing the port in %.1f s", self._delay_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), self._delay_s)
        await self._stop_accepting()
        # A request may be about to arrive on a new connection. Closing it now would lose the request.
        end_s = time.monotonic() + ARRIVAL_S
        await asyncio.sleep(0 if self._hurried.is_set() else POLL_INTERVAL_S)
        while not self._hurried.is_set() and time.monotonic() < end_s:
            if not any(connection.waits_for_first_request for connection in self._connections.open):
                break
            await asyncio.sleep(POLL_INTERVAL_S)
        self._state.phase = "closed"
        self.should_exit = True

    async def _stop_accepting(self) -> None:
        """Close the port without resetting connections that the kernel has already accepted."""
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError):  # not every event loop supports this
            loop.remove_reader(self._listener.fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        # Do not await between the last accept and the close. The kernel would reset connections made in between.
        clients: list[socket.socket] = []
        with suppress(BlockingIOError, InterruptedError):
            while True:
                client, _ = self._listener.accept()
                client.setblocking(False)
                clients.append(client)
        for server in self.servers:
            server.close()
        for client in clients:
            if self._connections.make_another is None:
                client.close()
            else:
                await loop.connect_accepted_socket(self._connections.make_another, client, ssl=self.config.ssl)


class _Supervisor:
    """Starts the workers, replaces those that die, and stops them together."""

    def __init__(self, work: Work, count: int) -> None:
        self._work = work
        self._count = count
        # With fork, threads and models of the parent would be copied in an undefined state.
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: list[BaseProcess] = []
        self._started_at: dict[int, float] = {}
        self._ending = False
        self._exit_code = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, frame: self._end_all())
        self._workers = [self._start() for _ in range(self._count)]
        while any(worker.is_alive() for worker in self._workers) or not self._ending:
            # Returns as soon as a worker dies.
            wait([worker.sentinel for worker in self._workers if worker.is_alive()], timeout=0.2)
            self._replace_dead()
        # SIGTERM kills a worker that has not installed its handlers yet. This is not a failure.
        codes = [abs(worker.exitcode or 0) for worker in self._workers if worker.exitcode != -signal.SIGTERM]
        return self._exit_code or max(codes, default=0)

    def _start(self) -> BaseProcess:
        worker = self._spawn.Process(target=_run_worker_process, args=self._work, daemon=False)
        worker.start()
        self._started_at[worker.pid or 0] = time.monotonic()
        return worker

    def _replace_dead(self) -> None:
        for i, worker in enumerate(self._workers):
            if self._ending or worker.is_alive():
                continue
            lived_s = time.monotonic() - self._started_at[worker.pid or 0]
            # A worker that was killed by a signal did not fail on its own, even if it was killed early.
            if worker.exitcode == FAILED or (lived_s < RESTART_AFTER_S and (worker.exitcode or 0) >= 0):
                self._exit_code = FAILED
                self._end_all()
                continue
            log.warning("worker %d exited with code %s; starting another", worker.pid, worker.exitcode)
            self._workers[i] = self._start()

    def _end_all(self) -> None:
        self._ending = True
        # The workers close their copies after draining. If ours stayed open, new clients would wait in vain.
        self._work[2].close()
        for worker in self._workers:
            if worker.is_alive():
                worker.terminate()


def _run_worker_process(*work: *Work) -> None:
    options, listen, listener, make_app, models = work
    restore_allowed(models)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives Ctrl+C as well and sends SIGTERM
    sys.exit(run_worker(options, listen, listener, make_app=make_app))


def _end_with_parent() -> None:
    """Stop this worker if the supervisor was killed. It would keep the port open and never be replaced."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(os.environ.get(MULTIPROCESS_VARIABLE, ""), ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("resift.server", "uvicorn.error", "mcp"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    # The log has one line per request, but the MCP SDK would log each request on several lines.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    logging.getLogger("resift.server").setLevel(logging.INFO)
    # uvicorn logs its lifecycle at INFO. Its warnings concern clients that send invalid HTTP.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
