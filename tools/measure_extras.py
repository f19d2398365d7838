"""Measure what each extra installs: `python -m tools.measure_extras` in an environment with `resift[all]`.

Writes benchmarks/results/extras.json and the table of docs/install.md. The size of an extra is that of all
its packages with their requirements, without what `resift` needs itself.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "extras.json"
PAGE = ROOT / "docs" / "install.md"
BEGIN, END = "<!-- table: extras -->\n", "<!-- end -->"
PURPOSE = {
    "local": "local models: cross-encoder, ColBERT, embedder, with their files",
    "files": "Markdown, HTML, PDF, Word, PowerPoint, Excel (part of `local`)",
    "pdf": "PDF only",
    "onnx": "models that only ONNX Runtime can run",
    "hosted": "Voyage, Cohere, Jina, Mixedbread, TEI, vLLM, infinity, LLMs",
    "server": "`resift serve`",
    "mcp": "`resift mcp`",
    "postgres": "PostgreSQL with pgvector",
    "sqlalchemy": "tables of any database that SQLAlchemy supports",
    "duckdb": "DuckDB, Parquet and CSV tables",
    "qdrant": "Qdrant",
    "lancedb": "LanceDB",
    "chroma": "Chroma",
    "elasticsearch": "Elasticsearch",
    "graph": "Ladybug graphs and knowledge packs",
    "langchain": "LangChain adapter",
    "llama-index": "LlamaIndex adapter",
    "haystack": "Haystack adapter",
    "eval": "`resift eval`, `compare`, `tune`",
    "batch": "`resift batch`, Parquet files",
    "ray": "`resift batch --engine ray`, Ray Serve",
    "telemetry": "Prometheus and OpenTelemetry",
    "all": "everything above",
}


def requirements(package: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> set[str]:
    """Return the packages that a package with extras needs, itself included."""
    names = {canonicalize_name(package)}
    for extra in ("", *sorted(extras)):
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        for line in metadata.requires(package) or ():
            needed = Requirement(line)
            if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
                continue
            if (not extra) != (needed.marker is None or "extra" not in str(needed.marker)):
                continue
            names |= requirements(canonicalize_name(needed.name), frozenset(needed.extras), seen)
    return names


def megabytes(packages: set[str]) -> float:
    """Return the size of the files of installed packages."""
    total = 0
    for name in packages:
        for file in metadata.distribution(name).files or ():
            path = Path(str(file.locate()))
            total += path.stat().st_size if path.is_file() and path.suffix != ".pyc" else 0
    return total / 1e6


def table(extras: dict[str, dict[str, float]]) -> str:
    """Return the table of the page."""
    rows = [f"| `{name}` | {PURPOSE[name]} | {round(extras[name]['mb'])} MB |" for name in PURPOSE]
    return "\n".join(["| extra | for | adds |", "|---|---|---|", *rows]) + "\n"


def filled(text: str, extras: dict[str, dict[str, float]]) -> str:
    """Return a page with its table."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start] + table(extras) + text[end:]


def main() -> int:
    """Measure, write the results and the page."""
    base = requirements("resift", frozenset(), set()) - {"resift"}
    extras = {}
    for name in PURPOSE:
        packages = requirements("resift", frozenset({name}), set()) - base - {"resift"}
        extras[name] = {"mb": round(megabytes(packages), 1), "packages": len(packages)}
    data = {
        "benchmark": "extras",
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "resift requirements": {"mb": round(megabytes(base), 1), "packages": len(base)},
        "extras": extras,
    }
    RESULTS.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if PAGE.exists():
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), extras), encoding="utf-8")
    sys.stdout.write(table(extras))
    return 0


if __name__ == "__main__":
    sys.exit(main())
