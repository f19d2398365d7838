"""benchmarks/RESULTS.md from benchmarks/results/*.json: tables of what was measured, on which machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, RESULTS

HIDDEN = {"benchmark", "date", "machine", "versions"}


def write_summary() -> Path:
    """Write RESULTS.md and return its path."""
    parts = [
        "# Benchmark results",
        "",
        "Written by `python -m benchmarks` from `results/*.json`; figures of one table are from one run.",
        "Ratios hold on other machines, milliseconds do not.",
    ]
    for file in sorted(RESULTS.glob("*.json")):
        parts += ["", *section(json.loads(file.read_text(encoding="utf-8")), file.stem)]
    path = HERE / "RESULTS.md"
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return path


def section(data: dict[str, Any], name: str) -> list[str]:
    """Return one benchmark's part of the page."""
    machine = data.get("machine", {})
    told = ", ".join(str(machine[key]) for key in ("processor", "system") if machine.get(key))
    lines = [f"## {name}", "", f"{data.get('date', '')}: {machine.get('cores', '?')} cores, {told}."]
    if data.get("versions"):
        lines.append(
            "Versions: " + ", ".join(f"{key} {value}" for key, value in data["versions"].items()) + "."
        )
    rest = {key: value for key, value in data.items() if key not in HIDDEN}
    return [*lines, "", *tables("", rest)]


def tables(title: str, value: Any) -> list[str]:
    """Return plain values as one table, and every nested mapping or list of rows as a table of its own."""
    if isinstance(value, list):
        rows = [row for row in value if isinstance(row, dict)]
        return matrix(title, {str(at): row for at, row in enumerate(rows, start=1)}) if rows else []
    plain = {key: each for key, each in value.items() if not isinstance(each, (dict, list))}
    nested = {key: each for key, each in value.items() if isinstance(each, (dict, list)) and each}
    if nested and not plain and all(_is_flat(each) for each in nested.values()) and len(nested) > 1:
        return matrix(title, nested)
    lines = []
    if plain:
        rows = [f"| {key} | {_shown(each)} |" for key, each in plain.items()]
        lines += [*_titled(title), "| what | value |", "|---|---|", *rows, ""]
    for key, each in nested.items():
        lines += tables(f"{title} · {key}" if title else str(key), each)
    return lines


def matrix(title: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return rows with the same kind of columns as one table."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [*_titled(title), "| | " + " | ".join(map(str, columns)) + " |", "|---|" + "---|" * len(columns)]
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(_shown(row.get(column)) for column in columns) + " |")
    return [*lines, ""]


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and not any(isinstance(each, (dict, list)) for each in value.values())


def _titled(title: str) -> list[str]:
    return [f"**{title.replace('_', ' ')}**", ""] if title else []


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value if not isinstance(value, (dict, list)) else json.dumps(value))
