"""The part of docs/reliability.md that the last full run writes: one line and one table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.harness import HERE, RESULTS

PAGE = HERE.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- made by python -m benchmarks.hardening -->", "<!-- end -->"


def line(result: Mapping[str, Any]) -> str:
    """Return the one line: load held, faults survived, bad inputs tried, nothing lost."""
    rows = result["attacks"]

    def tried(*names: str) -> int:
        return sum(rows[name]["tried"] for name in names if name in rows)

    lost = sum(row["failures"] for row in rows.values())
    faults = tried("faults", "kills", "cuts", "full disks", "byte flips", "forks", "fan-out", "interrupts")
    inputs = tried("inputs", "server", "cypher", "models")
    nothing = "nothing lost" if not lost else f"{lost} did not hold"
    return (
        f"**{tried('soak', 'overload', 'breaker'):,} calls under load held · {faults:,} faults survived · "
        f"{inputs:,} bad inputs tried · {nothing}**"
    )


def table(result: Mapping[str, Any]) -> str:
    """Return a row per attack."""
    rows = ["| attack | tried | did not hold | figures |", "|---|---:|---:|---|"]
    for name, row in result["attacks"].items():
        note = row["absent"] or "; ".join(
            f"{key} {_shown(value)}" for key, value in row["figures"].items() if not isinstance(value, dict)
        )
        if "commit" in row:
            note = f"{note}; commit {row['commit']}, {row['processor']}"
        rows.append(f"| {name}: {row['what']} | {row['tried']:,} | {row['failures']} | {note} |")
    return "\n".join(rows)


def _shown(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def made(result: Mapping[str, Any]) -> str:
    """Return the whole generated part."""
    machine = result["machine"]
    where = (
        f"{machine['cores']} cores ({machine['processor']}), {machine['system']}, Python {machine['python']}"
    )
    about = f"Seed {result['seed']}, commit {result['commit']}, {result['date']}, on {where}."
    return "\n\n".join([BEGIN, line(result), about, table(result), END])


def write_page() -> None:
    """Put the results of the last full run into the page."""
    result = json.loads((RESULTS / "hardening.json").read_text())
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: made(result), text), encoding="utf-8")
