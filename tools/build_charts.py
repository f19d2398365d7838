"""`python -m tools.build_charts`: draws the charts in docs/pictures from benchmarks/results, as SVG.

`python -m tools.build_charts --check` only reports charts that no longer fit the results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from resift.explain.svg import Anchor, html, svg_circle, svg_element, svg_line, svg_rect, svg_text

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "pictures"
WIDTH, LEFT, RIGHT, ROW = 760, 190, 70, 26
STYLE = """
.chart { color-scheme: light dark; font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
.chart .back { fill: #fbfaf8; } .chart text { fill: #22262b; } .chart .dim { fill: #667079; font-size: 12px; } .chart .title { font-size: 16px; font-weight: 650; }
.chart .grid { stroke: #e4e1db; } .chart .link { stroke: #c9c4bb; stroke-width: 2; }
.chart .own { fill: #12805c; } .chart .peer { fill: #b7bdc4; } .chart .second { fill: #3c6e9f; } .chart .third { fill: #94641a; } .chart .strong { font-weight: 650; }
@media (prefers-color-scheme: dark) { .chart .back { fill: #14171b; } .chart text { fill: #e8ebee; } .chart .dim { fill: #a1abb5; }
  .chart .grid { stroke: #2e353d; } .chart .link { stroke: #4a535d; } .chart .own { fill: #46c394; } .chart .peer { fill: #5d6771; }
  .chart .second { fill: #7db4ea; } .chart .third { fill: #e3b566; } }
"""  # noqa: E501 - a style sheet


def read(name: str) -> Any:
    """Return the results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def frame(title: str, note: str, height: float, body: Sequence[Markup]) -> str:
    """Return a chart with its title above and a note below."""
    parts = [
        svg_rect(0, 0, WIDTH, height, css="back"),
        svg_text(16, 28, title, css="title"),
        *body,
        svg_text(16, height - 12, note, css="dim"),
    ]
    drawn = str(svg_element(WIDTH, height, parts, css="chart", label=title))
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        ">", f">{html('<title>{}</title><desc>{}</desc>', title, note)}<style>{STYLE}</style>", 1
    ) + "\n"  # fmt: skip


def bars(title: str, note: str, rows: Mapping[str, float], unit: str, *, own: str = "resift") -> str:
    """Draw one bar per row; the bar of Resift has another color."""
    largest = max(rows.values())
    body = []
    for i, (name, value) in enumerate(rows.items()):
        y = 48 + i * ROW
        length = max(2.0, value / largest * (WIDTH - LEFT - RIGHT - 40))
        kind = "own" if name.lower().startswith(own) else "peer"
        body += [
            svg_text(LEFT - 10, y + 14, name, css="strong" if kind == "own" else "", anchor="end"),
            svg_rect(LEFT, y + 2, length, ROW - 9, css=kind),
            svg_text(LEFT + length + 8, y + 14, f"{value:.3g} {unit}".strip(), css="dim"),
        ]
    return frame(title, note, 48 + len(rows) * ROW + 38, body)


def dots(
    title: str,
    note: str,
    rows: Mapping[str, Mapping[str, float]],
    series: Mapping[str, str],
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> str:
    """Draw one line per row with a dot per series; `series` maps names to their style."""
    span = WIDTH - LEFT - RIGHT

    def x(value: float) -> float:
        return LEFT + (value - low) / (high - low) * span

    body: list[Markup] = []
    at = LEFT
    for name, css in series.items():
        body += [svg_circle(at, 50, 5, css=css), svg_text(at + 10, 54, name, css="dim")]
        at += 36 + 7 * len(name)
    top, bottom = 72, 72 + len(rows) * ROW
    for i in range(6):
        value = low + (high - low) * i / 5
        body += [svg_line(x(value), top, x(value), bottom, css="grid")]
        body += [svg_text(x(value), bottom + 18, f"{value:.1f}", css="dim", anchor="middle")]
    for i, (name, values) in enumerate(rows.items()):
        y = top + (i + 0.5) * ROW
        drawn = [values[each] for each in series]
        anchor: Anchor = "end"
        body += [svg_text(LEFT - 10, y + 4, name, css="", anchor=anchor)]
        body += [svg_line(x(min(drawn)), y, x(max(drawn)), y, css="link")]
        body += [
            svg_circle(x(values[each]), y, 6 if css == "own" else 5, css=css, title=f"{each} {values[each]:.3f}")
            for each, css in reversed(series.items())
        ]
    return frame(title, note, bottom + 62, body)


def quality(name: str, title: str) -> str:
    """Draw the quality of the default order, its parts and RRF per collection."""
    table = read(name)["collections"]
    rows = {collection: row["nDCG@10"] for collection, row in sorted(table.items())}
    series = {"default": "own", "cross-encoder": "second", "rrf": "third", "bm25": "peer"}
    return dots(title, f"nDCG@10, higher is better. benchmarks/results/{name}.json", rows, series)


def mean_quality(name: str, title: str) -> str:
    """Draw the mean quality per ranking method."""
    table = read(name)["collections"].values()
    methods = ("bm25", "dense", "rrf", "linear", "cross-encoder", "default")
    rows = {method: sum(row["nDCG@10"][method] for row in table) / len(table) for method in methods}
    note = f"Mean nDCG@10 over {len(table)} collections, higher is better. benchmarks/results/{name}.json"
    return bars(title, note, rows, "", own="default")


def speed(shape: str, title: str) -> str:
    """Draw the processor time per pair of one shape."""
    values = read("cross_encoder")["speed"][shape]["cpu_ms_per_pair"]
    names = ("resift", "resift, avx2", "onnxruntime", "onnxruntime, no AVX-512", "flashrank", "rerankers",
             "sentence-transformers")  # fmt: skip
    rows = {name: values[name] for name in names if name in values}
    note = "Processor time per query-document pair, lower is better. benchmarks/results/cross_encoder.json"
    return bars(title, note, rows, "ms")


def growth() -> dict[str, str]:
    """Draw search time and memory against the number of passages."""
    rows = read("scale")["growth"]
    size = next(key for key in ("passages", "documents", "rows", "size") if key in rows[0])
    charts = {
        "chart-growth-latency": ("hybrid_p50_ms", "Hybrid search by index size", "Median time of a search", "ms"),
        "chart-growth-memory": ("rss_mb", "Memory by index size", "Resident memory", "MB"),
    }
    return {
        name: bars(
            title,
            f"{what}, without reranking. benchmarks/results/scale.json",
            {f"{row[size]:,} passages": row[key] for row in rows},
            unit,
            own="",
        )
        for name, (key, title, what, unit) in charts.items()
        if all(key in row for row in rows)
    }


def charts() -> dict[str, str]:
    """Return file name -> SVG of every chart."""
    first = read("cross_encoder")["cold_start"]
    order = sorted(first, key=lambda name: first[name]["seconds"])
    installed = read("cold_start")["installation"]
    sizes = {
        "Resift": installed["resift"]["all_mb"],
        "Resift with local models": installed["resift[local]"]["all_mb"],
        "sentence-transformers": installed["peers of cross_encoder_peers"]["all_mb"],
    }
    note = "benchmarks/results/cross_encoder.json"
    return {
        "chart-quality-blind": quality("default_table_blind", "Quality on collections never used for tuning"),
        "chart-quality": quality("default_table", "Quality on the collections used during development"),
        "chart-quality-mean": mean_quality(
            "default_table_blind", "Mean quality, collections never used for tuning"
        ),
        "chart-speed-paragraph": speed("100 tokens, n=100", "Reranking 100 paragraphs of 100 tokens"),
        "chart-speed-page": speed("256 tokens, n=100", "Reranking 100 half pages of 256 tokens"),
        "chart-first-result": bars(
            "Time to the first reranked result",
            f"Seconds from start to result, lower is better. {note}",
            {name: first[name]["seconds"] for name in order},
            "s",
        ),
        "chart-memory": bars(
            "Memory of a process that reranks",
            f"Resident memory, lower is better. {note}",
            {name: first[name]["rss_mb"] for name in order},
            "MB",
        ),
        "chart-install-size": bars(
            "Size of an installation",
            "Megabytes with all requirements, lower is better. benchmarks/results/cold_start.json",
            sizes,
            "MB",
        ),
        **growth(),
    }  # fmt: skip


def outdated() -> list[str]:
    """Return the names of charts that differ from their files."""
    files = {name: PICTURES / f"{name}.svg" for name in charts()}
    made = charts()
    return [name for name, file in files.items() if not file.exists() or file.read_text(encoding="utf-8") != made[name]]


def main() -> int:
    """Write the charts, or check them."""
    if "--check" in sys.argv[1:]:
        names = outdated()
        sys.stderr.write(f"out of date: {', '.join(names)}\n" if names else "all charts fit the results\n")
        return bool(names)
    for name, picture in charts().items():
        (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")
    sys.stderr.write(f"wrote {len(charts())} charts\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
