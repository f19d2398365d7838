"""Several worker processes on one port: started, watched, started again when they die, ended together."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from resift.models.registry import ModelFiles, allowed_folders, restore_allowed
from resift.server.app import serve_app
from resift.server.metrics import MULTIPROCESS
from resift.server.options import ServerOptions
from resift.server.running import Listening, MakeApp, bound_socket, run_worker

LOOK_EVERY_S = 0.2
RESTART_AFTER_S = 1.0
"""A worker that lived for less is not started again at once: it would only fail again."""


log = logging.getLogger("resift.server")


def serve(
    options: ServerOptions,
    listening: Listening,
    *,
    listener: socket.socket | None = None,
    make_app: MakeApp = serve_app,
) -> int:
    """Serve with as many processes as asked for; return the exit code. Each makes its own app."""
    taken = listener or bound_socket(listening)
    if listening.workers == 1:
        return run_worker(options, listening, taken, make_app=make_app)
    # Set before any worker imports the Prometheus client, which looks for it then.
    shared = tempfile.mkdtemp(prefix="resift-metrics-")
    os.environ[MULTIPROCESS] = shared
    try:
        return _Supervisor(
            (options, listening, taken, make_app, allowed_folders()), count=listening.workers
        ).run()
    finally:
        shutil.rmtree(shared, ignore_errors=True)


class _Supervisor:
    def __init__(
        self,
        work: tuple[ServerOptions, Listening, socket.socket, MakeApp, tuple[ModelFiles, ...]],
        *,
        count: int,
    ) -> None:
        self._work = work
        self._count = count
        # Not fork: threads and models of the parent would be copied in an unknown state.
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: list[Any] = []
        self._born_s: dict[int, float] = {}
        self._ending = False
        self._code = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        self._workers = [self._started() for _ in range(self._count)]
        while any(worker.is_alive() for worker in self._workers) or not self._ending:
            self._workers[0].join(LOOK_EVERY_S)
            if not self._ending:
                self._replace_dead()
        # A worker that was told to end before it could listen to signals dies of SIGTERM, which is fine.
        codes = [abs(worker.exitcode or 0) for worker in self._workers if worker.exitcode != -signal.SIGTERM]
        return self._code or max(codes, default=0)

    def _started(self) -> Any:
        worker = self._spawn.Process(target=_worker_main, args=self._work, daemon=False)
        worker.start()
        self._born_s[worker.pid or 0] = time.monotonic()
        return worker

    def _replace_dead(self) -> None:
        for at, worker in enumerate(self._workers):
            if worker.is_alive():
                continue
            young = time.monotonic() - self._born_s[worker.pid or 0] < RESTART_AFTER_S
            # One that was killed by a signal did not fail by itself, however young it was.
            if worker.exitcode == 1 or (young and (worker.exitcode or 0) >= 0):
                # It could not start: neither could another one.
                self._code = 1
                self._end_all()
                return
            log.warning("worker %d died with %s; starting another", worker.pid, worker.exitcode)
            self._workers[at] = self._started()

    def _signalled(self, number: int, frame: object) -> None:
        self._end_all()

    def _end_all(self) -> None:
        self._ending = True
        # The workers close their own copies when they have drained; ours would keep clients waiting in vain.
        self._work[2].close()
        for worker in self._workers:
            if worker.is_alive():
                worker.terminate()


def _worker_main(
    options: ServerOptions,
    listening: Listening,
    listener: socket.socket,
    make_app: MakeApp,
    models: tuple[ModelFiles, ...],
) -> None:
    restore_allowed(models)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl+C too, and passes on SIGTERM
    sys.exit(run_worker(options, listening, listener, make_app=make_app))
