"""nDCG@10 of the default order and of each single stage on recordings.

    python -m benchmarks.order_table RECORDINGS [--earlier VALUES] [--unused fn-clap …] [--values FILE]

RECORDINGS has one recording per collection, as `benchmarks.order_recordings` makes them. --values writes the values
per query, and --earlier compares with those of another version. Intervals are 95 %, by a paired bootstrap over
queries. Results: benchmarks/results/order_table.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import option_parser, report
from benchmarks.train_order import compare, stage_values
from resift.evaluation.measures import bootstrap_interval
from resift.evaluation.recording import read_recording
from resift.ranking.order_model import default_model

SEED = 20261118
ROUNDS = 4000


def summarize(rows: Mapping[str, Mapping[str, Any]], gains: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return means over collections, each counted once, and the gain over the earlier order with its interval."""
    if not rows:
        return {}
    names = [name for name, value in next(iter(rows.values())).items() if isinstance(value, float)]
    means = {name: round(float(np.mean([row[name] for row in rows.values() if name in row])), 4) for name in names}
    behind = [round(row["default"] - row[row["best stage"]], 4) for row in rows.values()]
    summary: dict[str, Any] = {
        "collections": len(rows),
        **means,
        "more than .010 behind the best stage": sum(gap < -0.010 for gap in behind),
        "more than .003 behind the best stage": sum(gap < -0.003 for gap in behind),
    }
    if gains:
        random = np.random.default_rng(SEED)
        samples = [np.asarray(gains[name]) for name in rows]
        means_of_rounds = [
            np.mean([values[random.integers(0, len(values), len(values))].mean() for values in samples])
            for _ in range(ROUNDS)
        ]
        low, high = np.percentile(means_of_rounds, [2.5, 97.5])
        summary["against earlier"] = [round(float(low), 4), round(float(high), 4)]
    return summary


def main(argv: list[str] | None = None) -> int:
    parser = option_parser("order_table", __doc__)
    parser.add_argument("recordings", type=Path, help="folder of recordings")
    parser.add_argument("--earlier", type=Path, help="values of an earlier version, for comparison")
    parser.add_argument("--unused", nargs="*", default=[], help="collections that nothing was chosen on")
    parser.add_argument("--values", type=Path, help="only write the values per query of this version")
    args = parser.parse_args(argv)
    paths = sorted(args.recordings.glob("*.jsonl"))[: 1 if args.quick else None]
    known = {path.stem: read_recording(path) for path in paths}
    if args.values:
        values = {name: stage_values(recording, default_model())["default"] for name, recording in known.items()}
        args.values.write_text(json.dumps(values), encoding="utf-8")
        return 0
    earlier = json.loads(args.earlier.read_text(encoding="utf-8")) if args.earlier else {}
    rows: dict[str, dict[str, Any]] = {}
    gains: dict[str, list[float]] = {}
    for name, recording in known.items():
        rows[name] = row = compare(recording, default_model(), None)
        if name in earlier:
            now = stage_values(recording, default_model())["default"]
            gains[name] = [a - b for a, b in zip(now, earlier[name], strict=True)]
            low, high = bootstrap_interval(gains[name])
            row["earlier"] = round(float(np.mean(earlier[name])), 4)
            row["against earlier"] = [round(low, 4), round(high, 4)]
        print(name, json.dumps(row), flush=True)
    groups = {
        "used for choosing": {name: row for name, row in rows.items() if name not in args.unused},
        "unused": {name: row for name, row in rows.items() if name in args.unused},
    }
    summaries = {group: summarize(members, gains) for group, members in groups.items()}
    report(args, {"collections": groups, "means": summaries})
    return 0


if __name__ == "__main__":
    sys.exit(main())
