"""Shards done by Ray: Ray Data over the list of shards, stateful actors that load models once.

Rows never travel through Ray: an actor reads its own range and writes its own shard, as local workers do.
Ray restarts actors that die and runs their shards again; a shard that is there is skipped, so each row is
done once. The output folder must be one that every machine of the cluster sees.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resift.batch.inputs import Shard, check_shared
from resift.batch.shards import OnRows, ShardReport, failure_of, run_shard
from resift.batch.work import BatchWork
from resift.errors import ResiftError, require
from resift.models.engine import usable_cores, use_workers
from resift.models.registry import ModelFiles, allowed_folders, restore_allowed
from resift.types import JsonObject, JsonValue

STARTS = 3
"""How often a cluster is started here: on a busy machine Ray's own half a minute may be too short."""


class RayEngine:
    """Runs shards on a Ray cluster: the one at `address`, the one this process is in, or one started here."""

    name = "ray"

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        self._ray = require("ray", extra="ray")
        self._address = address or os.environ.get("RAY_ADDRESS")
        self.workers = workers or usable_cores()
        self._asked = workers
        self._mine = False

    def run(
        self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows
    ) -> Iterator[ShardReport]:
        """Yield a report per shard as each is done; a shard that fails otherwise than by its rows raises."""
        check_shared(shards)
        if not shards:
            return
        self._start()
        try:
            yield from self._reports(work, shards, folder.absolute())
        finally:
            if self._mine:
                self._ray.shutdown()

    def _start(self) -> None:
        if self._ray.is_initialized():
            return
        self._mine = True
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.ERROR)
        for left in reversed(range(STARTS)):
            try:
                with _silent_stderr():
                    self._init()
                return
            except Exception as exc:  # Ray's own, of several kinds
                self._ray.shutdown()
                if not left or self._address:
                    raise ResiftError(f"Ray did not start: {str(exc).partition('. ')[0]}.") from exc

    def _init(self) -> None:
        self._ray.init(
            # Not None: that would join a cluster that somebody else started on this machine.
            address=self._address or "local",
            num_cpus=None if self._address else self.workers,
            include_dashboard=None if self._address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )

    def _reports(self, work: BatchWork, shards: Sequence[Shard], folder: Path) -> Iterator[ShardReport]:
        data = require("ray.data", extra="ray")
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.enable_operator_progress_bars = False
        context.max_errored_blocks = 0
        # Rows never pass through Ray, so it has no memory of theirs to watch: looking takes milliseconds.
        context.memory_usage_poll_interval_s = None
        context.issue_detectors_config.detectors = []
        for name in ("ray", "ray.data"):  # set anew by ray.init
            logging.getLogger(name).setLevel(logging.ERROR)
        self.workers = self._asked or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        listed = data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        done = listed.map_batches(
            _ShardActor,
            batch_size=1,
            concurrency=min(self.workers, len(shards)),
            num_cpus=1,
            fn_constructor_kwargs={"work": work, "folder": str(folder), "models": allowed_folders()},
        )
        for row in done.iter_rows():
            if row["error"]:
                raise ResiftError(str(row["error"]))
            yield row["report"]


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep what C++ code writes to the terminal out of it: it does not ask Python's logging."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


class _ShardActor:
    """One process of the cluster: does the shards it is given, with one core."""

    def __init__(self, work: BatchWork, folder: str, models: tuple[ModelFiles, ...]) -> None:
        use_workers(1)
        restore_allowed(models)
        self._work = work
        self._folder = Path(folder)

    def __call__(self, batch: JsonObject) -> dict[str, list[JsonValue]]:
        reports: list[ShardReport | None] = []
        errors: list[str] = []
        for shard in batch["shard"]:
            try:
                reports.append(run_shard(self._work, shard, self._folder))
                errors.append("")
            except Exception as exc:
                reports.append(None)
                errors.append(failure_of(shard, exc))
        return {"report": reports, "error": errors}
