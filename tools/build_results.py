"""Write benchmarks/RESULTS.md from benchmarks/results/*.json: `python -m benchmarks --summary`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
HIDDEN = {"benchmark", "date", "machine", "versions"}


def write_page(names: Sequence[str], folder: Path = FOLDER) -> Path:
    """Write RESULTS.md with a section per benchmark and links to all other results; return its path."""
    parts = [
        "# Benchmark results",
        "",
        "Written by `python -m benchmarks` from `results/*.json`. Numbers in one table come from one run.",
        "Ratios hold on other machines, milliseconds do not.",
    ]
    files = {file.stem: file for file in sorted((folder / "results").glob("*.json"))}
    shown = [name for name in names if name in files]
    for stem in shown:
        parts += ["", *section(json.loads(files[stem].read_text(encoding="utf-8")), stem)]
    more = [f"[{stem}](results/{file.name})" for stem, file in files.items() if stem not in shown]
    if more:
        parts += ["", f"More results: {', '.join(more)}."]
    path = folder / "RESULTS.md"
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return path


def section(data: dict[str, Any], name: str) -> list[str]:
    """Return one benchmark's part of the page."""
    machine = data.get("machine", {})
    told = ", ".join(str(machine[key]) for key in ("processor", "system") if machine.get(key))
    lines = [f"## {name}", "", f"{data.get('date', '')}: {machine.get('cores', '?')} cores, {told}."]
    load = machine.get("load")
    if load and load[0] > 2 * (machine.get("cores") or 1):
        lines.append(f"The machine was busy with other work (load {load[0]}): trust ratios at most.")
    if data.get("versions"):
        lines.append("Versions: " + ", ".join(f"{key} {value}" for key, value in data["versions"].items()) + ".")
    rest = {key: value for key, value in data.items() if key not in HIDDEN}
    return [*lines, "", *tables("", rest)]


def tables(title: str, value: Any) -> list[str]:
    """Return plain values as one table, and every nested mapping or list of rows as a table of its own."""
    if isinstance(value, list):
        rows = [row for row in value if isinstance(row, dict)]
        return matrix(title, {str(at): _flattened(row) for at, row in enumerate(rows, start=1)}) if rows else []
    plain = {key: each for key, each in value.items() if not isinstance(each, (dict, list))}
    flat = {key: each for key, each in value.items() if _is_flat(each)}
    deep = {key: each for key, each in value.items() if key not in plain and key not in flat and each}
    lines = []
    if plain:
        rows = [f"| {key} | {_shown(each)} |" for key, each in plain.items()]
        lines += [*_titled(title), "| what | value |", "|---|---|", *rows, ""]
    for alike in _alike(flat):
        if len(alike) > 1:
            lines += matrix(title, alike)
        else:
            (key,) = alike
            lines += tables(f"{title} · {key}" if title else str(key), alike[key])
    for key, each in deep.items():
        lines += tables(f"{title} · {key}" if title else str(key), each)
    return lines


def matrix(title: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return rows with the same kind of columns as one table."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [*_titled(title), "| | " + " | ".join(map(str, columns)) + " |", "|---|" + "---|" * len(columns)]
    for name, row in rows.items():
        lines.append(
            f"| {str(name).replace('_', ' ')} | " + " | ".join(_shown(row.get(column)) for column in columns) + " |"
        )
    return [*lines, ""]


def _is_flat(value: Any) -> bool:
    return (
        isinstance(value, dict) and bool(value) and not any(isinstance(each, (dict, list)) for each in value.values())
    )


def _alike(rows: dict[str, dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Group mappings with the same keys: they make one table."""
    groups: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for name, row in rows.items():
        groups.setdefault(tuple(sorted(row)), {})[name] = row
    return list(groups.values())


def _flattened(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        flat |= value if isinstance(value, dict) else {key: value}
    return flat


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
