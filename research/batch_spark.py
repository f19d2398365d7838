"""Run the Spark recipe of docs/guides/run/bulk.md on a real Spark (pip, Java 17) and compare it with `resift batch`.

python -m research.batch_spark            # installs pyspark into benchmarks/.envs
python -m research.batch_spark --quick    # the same, nothing written
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.batch_data import write_passages
from benchmarks.harness import HERE, peer_env, write_results
from resift.batch import EmbedWork, run_batch

ROWS = 400


def run(python: Path) -> dict[str, Any]:
    """Embed the same rows with Spark and with Resift alone; every vector must be the same."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_passages(folder / "in.parquet", rows=ROWS, words=20)
        run_batch(EmbedWork(), source, folder / "resift", workers=1)
        env = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        words = [str(python), str(HERE / "peer_spark.py"), str(source), str(folder / "spark")]
        started = time.perf_counter()
        ended = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr[-3000:])
        seconds = time.perf_counter() - started
        mine, theirs = (
            {row["id"]: row["vector"] for row in rows(folder / part)} for part in ("resift", "spark")
        )
    ask = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    return {"rows": len(theirs), "same": mine == theirs, "seconds": round(seconds, 1), "pyspark": version}


def rows(folder: Path) -> list[dict[str, Any]]:
    parts = [path for path in folder.glob("part-*") if path.suffix == ".parquet"]
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.batch_spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="nothing is written")
    parser.add_argument("--python", type=Path, help="an environment that has pyspark and resift")
    args = parser.parse_args(argv)
    if shutil.which("java") is None:
        print("no Java here: Spark cannot run", file=sys.stderr)
        return 0
    python = args.python or peer_env("spark", ["pyspark>=4", "pandas>=2", f"{HERE.parent}[local,batch]"])
    found = run(python)
    print(json.dumps(found, indent=2))
    if not args.quick:
        write_results("batch_spark", found)
    return 0 if found["same"] and found["rows"] == ROWS else 1


if __name__ == "__main__":
    sys.exit(main())
