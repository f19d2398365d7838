"""An engine in this process, for tests whose subject is not the processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from resift.batch.inputs import Shard
from resift.batch.shards import OnRows, ShardReport, run_shard


class InlineEngine:
    """Does one shard after another, here."""

    name = "inline"
    workers = 1

    def run(self, work: Any, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows) -> Iterator[ShardReport]:
        for shard in shards:
            yield run_shard(work, shard, folder, on_rows=lambda rows, name=shard.name: on_rows(name, rows))
