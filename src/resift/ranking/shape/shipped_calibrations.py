"""Calibrations that ship with the package, as data: the digest of a model's file -> its calibrator.

`shipped_calibrations.json` beside this module is written by `python -m benchmarks.calibration --write`.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from resift.ranking.shape.calibration import Isotonic, Platt, Temperature, calibrator_from
from resift.types import JsonObject

FILE = Path(__file__).with_suffix(".json")


def shipped_calibrator(digest: str) -> Platt | Temperature | Isotonic | None:
    """Return the calibrator of the model whose file has this sha256, if one ships."""
    entry = _entries().get(digest)
    return None if entry is None else calibrator_from(entry["calibrator"])


@functools.cache
def _entries() -> JsonObject:
    entries: JsonObject = json.loads(FILE.read_text(encoding="utf-8"))
    return entries
