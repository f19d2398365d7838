"""What a job is, and what it made: written first to refuse mixing, and last to say that all is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from resift import __version__
from resift._internal.atomic_files import atomic_write
from resift.batch.inputs import InputFile
from resift.batch.shards import ShardReport
from resift.batch.work import BatchWork
from resift.errors import InputError
from resift.types import JsonObject, to_json

PLAN, MANIFEST = "job.json", "manifest.json"


def plan_of(work: BatchWork, files: Sequence[InputFile], *, shard_rows: int) -> JsonObject:
    """Return what decides the output: the kind of work, its options and models, the inputs' content."""
    return {
        "version": 1,
        "kind": work.kind,
        "options": work.describe(),
        "shard_rows": shard_rows,
        "resift": __version__,
        "inputs": [{"name": one.name, "sha256": one.digest, "rows": one.rows} for one in files],
    }


def check_plan(folder: Path, plan: JsonObject) -> None:
    """Write the plan into a new folder; refuse a folder that holds another job's shards."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PLAN
    if not path.exists():
        # Shards of an unknown job would be taken for finished ones of this.
        if any(folder.glob("part-*.parquet")):
            raise InputError(f"{folder} has shards but no {PLAN}; name an empty folder.")
        atomic_write(path, to_json(plan, indent=2) + "\n")
        return
    try:
        before = json.loads(path.read_text())
    except ValueError:
        raise InputError(f"{path} is damaged; name an empty folder.") from None
    # Compared as JSON gives it back: tuples are lists there.
    different = [key for key in plan if before.get(key) != json.loads(to_json(plan[key]))]
    if different:
        raise InputError(
            f"{folder} belongs to another job: other {', '.join(different)}. Name an empty folder, or run "
            "the same job to go on with it."
        )


def write_manifest(folder: Path, plan: JsonObject, reports: Sequence[ShardReport]) -> Path:
    """Write counts and digests of every shard; after this the job is complete."""
    shards: list[JsonObject] = [
        {
            "name": f"{one.name}.parquet",
            "rows": one.rows,
            "written": one.written,
            "failed": one.failed,
            "sha256": hashlib.sha256((folder / f"{one.name}.parquet").read_bytes()).hexdigest(),
        }
        for one in sorted(reports, key=lambda one: one.name)
    ]
    totals = {key: sum(one[key] for one in shards) for key in ("rows", "written", "failed")}
    return Path(
        atomic_write(folder / MANIFEST, to_json({**plan, **totals, "shards": shards}, indent=2) + "\n")
    )
