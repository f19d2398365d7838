"""Kinds of work for tests. Worker processes import this module, so it imports little."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resift.batch.shards import map_rows, to_batch
from resift.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthWork:
    """Counts characters; dies on the word `die`, fails on `fail`, and kills itself once if configured."""

    kill_once: str = ""
    kind = "length"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("text",)

    def describe(self) -> dict[str, Any]:
        return {"of": "text"}

    def __call__(self, batch: Any) -> Any:
        return to_batch(map_rows(batch.to_pylist(), self._length), {"id": "text", "reason": "text"})

    def _length(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        text = row["text"]
        if text == "fail":
            raise InputError("this row fails")
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kill_once and not Path(self.kill_once).exists():
            Path(self.kill_once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [{"id": row.get("id"), "reason": str(len(text))}]


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedIndexWork:
    """What an index job makes, with vectors that follow from the text alone."""

    kind = "index"
    columns = ("text",)

    def describe(self) -> dict[str, Any]:
        from resift.models.embedder import DEFAULT_EMBEDDER

        return {"model": DEFAULT_EMBEDDER}

    def __call__(self, batch: Any) -> Any:
        from resift.batch.work_kinds import INDEX_COLUMNS

        return to_batch(map_rows(batch.to_pylist(), self._row), INDEX_COLUMNS)

    def _row(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        metadata = json.dumps({"page": row["page"]})
        return [{"id": row["id"], "text": row["text"], "metadata": metadata, "vector": vector(row["text"])}]


def vector(text: str) -> Any:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    made = np.random.default_rng(seed).standard_normal(16).astype(np.float32)
    return made / np.linalg.norm(made)
