"""The growth of benchmarks.scale as a picture: time, memory and recall per size, ours and others'.

python -m research.scale_picture        # docs/pictures/scale.svg from results/scale.json
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from benchmarks.harness import HERE, RESULTS

COLOURS = {
    "Resift": "#2b6cb0",
    "usearch": "#dd6b20",
    "faiss": "#38a169",
    "faiss-ivf": "#319795",
    "lancedb": "#9f7aea",
    "sqlite-vec": "#d53f8c",
}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 250, 58, 34, 52
PANELS = (
    ("ms a question, median", "p50_ms", True),
    ("memory of the process, MB", "rss_mb", True),
    ("recall of the first 100", "recall_100", False),
)

Line = list[tuple[int, float]]


def lines(data: dict[str, Any], key: str) -> dict[str, Line]:
    """Return name -> (size, value) of what was measured."""
    found: dict[str, Line] = {"Resift": []}
    for row in data["growth"]:
        ours = row.get("vector_p50_ms" if key == "p50_ms" else key)
        found["Resift"].append((row["size"], ours))
        for peer, one in row.get("peers", {}).items():
            if key in one:
                found.setdefault(peer, []).append((row["size"], one[key]))
    return found


def panel(data: dict[str, Any], title: str, key: str, left: int, *, log: bool) -> Iterable[str]:
    """Draw one measure against size."""
    drawn = lines(data, key)
    sizes = sorted({size for line in drawn.values() for size, _ in line})
    values = [value for line in drawn.values() for _, value in line]
    low, high = (
        (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))) if log else (0.8, 1.0)
    )

    def x(size: int) -> float:
        span = math.log10(sizes[-1] / sizes[0]) or 1
        return left + LEFT + math.log10(size / sizes[0]) / span * (WIDTH - LEFT - 24)

    def y(value: float) -> float:
        at = math.log10(value) if log else max(value, low)
        return TOP + (1 - (at - low) / (high - low)) * (HEIGHT - TOP - BOTTOM)

    yield f'<text x="{left + LEFT}" y="20" class="title">{title}</text>'
    marks = [10.0**power for power in range(int(low), int(high) + 1)] if log else [0.8, 0.85, 0.9, 0.95, 1.0]
    for mark in marks:
        yield f'<path class="grid" d="M{left + LEFT} {y(mark):.1f}H{left + WIDTH - 24}"/>'
        yield f'<text x="{left + LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>'
    for size in sizes:
        place = f'x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}"'
        yield f'<text {place} text-anchor="middle">{size:,}</text>'
    for name, line in drawn.items():
        points = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in line)
        colour = COLOURS[name]
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for point in points.split():
            at_x, at_y = point.split(",")
            yield f'<circle cx="{at_x}" cy="{at_y}" r="3.5" fill="{colour}"/>'


def picture(data: dict[str, Any]) -> str:
    """Return the three panels with their legend."""
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1f2933}.title{font-weight:600}"
        ".grid{stroke:#cbd2d9;stroke-width:1}.page{fill:#fff}"
        "@media (prefers-color-scheme: dark){text{fill:#e4e7eb}.grid{stroke:#3e4c59}.page{fill:#111820}}"
    )
    body = [
        line
        for at, (title, key, log) in enumerate(PANELS)
        for line in panel(data, title, key, at * WIDTH, log=log)
    ]
    names = list(lines(data, "p50_ms"))
    for at, name in enumerate(names):
        left = LEFT + at * 120
        body.append(f'<circle cx="{left}" cy="{HEIGHT - 10}" r="5" fill="{COLOURS[name]}"/>')
        body.append(f'<text x="{left + 10}" y="{HEIGHT - 6}">{name}</text>')
    size = f'viewBox="0 0 {WIDTH * 3} {HEIGHT}" width="{WIDTH * 3}" height="{HEIGHT}"'
    title = "Growth of vector search from 10,000 to 1,000,000 passages"
    said = "Time a question, memory and recall of the first 100 for Resift and other vector indexes."
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
    about = f'<title id="t">{title}</title><desc id="d">{said}</desc><style>{style}</style>'
    page = '<rect class="page" width="100%" height="100%"/>'
    return "\n".join([head, about, page, *body, "</svg>", ""])


def main() -> None:
    data = json.loads((RESULTS / "scale.json").read_text())
    path = HERE.parent / "docs" / "pictures" / "scale.svg"
    path.write_text(picture(data))
    print("written:", path.name)


if __name__ == "__main__":
    main()
