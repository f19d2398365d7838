"""Results of attacks: the outcome of one, the result files, the table in docs/guides/run/hardening.md."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
PAGE = ROOT / "docs" / "guides" / "run" / "hardening.md"
BEGIN, END = "<!-- made by python -m tests.hardening -->", "<!-- end -->"


@dataclass
class Outcome:
    """Result of one attack. `failures` counts violations, `examples` holds the first ten."""

    what: str
    tried: int = 0
    failures: int = 0
    examples: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    absent: str = ""  # why it could not be run here

    def fail(self, example: str) -> None:
        """Count one violation."""
        self.failures += 1
        if len(self.examples) < 10:
            self.examples.append(example[:400])

    def check(self, holds: bool, example: str) -> None:
        """Count a violation unless the condition holds."""
        if not holds:
            self.fail(example)


def machine() -> dict[str, Any]:
    """Describe this machine: processor, usable cores, system, Python and load."""
    affinity = getattr(os, "sched_getaffinity", None)
    processor = platform.processor()
    if Path("/proc/cpuinfo").exists():
        match = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
        processor = match[1] if match else processor
        if "avx512" in Path("/proc/cpuinfo").read_text():
            processor += " with AVX-512"
    return {
        "processor": processor,
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def describe_machine(facts: Mapping[str, Any]) -> str:
    """Return the machine of a result in words."""
    return f"{facts['cores']} cores ({facts['processor']}), {facts['system']}, Python {facts['python']}"


def write_results(name: str, data: Mapping[str, Any]) -> Path:
    """Write tests/hardening/results/NAME.json with the date and the machine, and return its path."""
    path = RESULTS / f"{name}.json"
    result = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), **data}
    path.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path


def current_commit() -> str:
    """Return the short id of the checked-out commit."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def headline(result: Mapping[str, Any]) -> str:
    """Return the summary line: calls under load, faults, bad inputs, failures."""
    rows = result["attacks"]

    def tried(*names: str) -> int:
        return sum(rows[name]["tried"] for name in names if name in rows)

    failures = sum(row["failures"] for row in rows.values())
    faults = tried("faults", "kills", "cuts", "full disks", "byte flips", "forks", "fan-out", "interrupts")
    inputs = tried("inputs", "server", "cypher", "models")
    end = "nothing lost" if not failures else f"{failures} did not hold"
    return (
        f"**{tried('soak', 'overload', 'breaker'):,} calls under load held · {faults:,} faults survived · "
        f"{inputs:,} bad inputs tried · {end}**"
    )


def table(result: Mapping[str, Any]) -> str:
    """Return a Markdown table with one row per attack."""
    rows = ["| attack | tried | did not hold | figures |", "|---|---:|---:|---|"]
    for name, row in result["attacks"].items():
        note = row["absent"] or "; ".join(
            f"{key.replace('_', ' ')} {round(value, 2) if isinstance(value, float) else value}"
            for key, value in row["figures"].items()
            if not isinstance(value, dict)
        )
        if "commit" in row:
            when = f", {row['date']}" if "date" in row else ""
            note = f"{note}; commit {row['commit']}{when}{', quiet machine' if row.get('quiet') else ''}".lstrip("; ")
        rows.append(f"| {name}: {row['what']} | {row['tried']:,} | {row['failures']} | {note} |")
    return "\n".join(rows)


def generated_part(result: Mapping[str, Any]) -> str:
    """Return the part of docs/guides/run/hardening.md that a full run writes."""
    where = describe_machine(result["machine"])
    about = f"Seed {result['seed']}, commit {result['commit']}, {result['date']}, on {where}."
    later = sorted({(row["date"], row["machine"]) for row in result["attacks"].values() if "machine" in row})
    about += "".join(f"\nRows of {date}: {machine}." for date, machine in later)
    return "\n\n".join([BEGIN, headline(result), about, table(result), END])


def write_page() -> None:
    """Write the results of the last full run into docs/guides/run/hardening.md."""
    result = json.loads((RESULTS / "hardening.json").read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: generated_part(result), text), encoding="utf-8")
