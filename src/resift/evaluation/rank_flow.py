"""How documents of one query move through a pipeline's stages, drawn from their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from markupsafe import Markup

from resift.evaluation.svg import Frame, figure
from resift.evaluation.work_file import Answer
from resift.markup import html, joined

Place = Callable[[str, int], tuple[float, float]]
"""Where the rank in a column is drawn."""

SHOWN = 10
"""Ranks that have a line of their own; deeper ones share the lane below."""


def rank_flow(answer: Answer, judged: Mapping[str, int], *, label: str, width: int = 350) -> Markup:
    """Draw a line per document from its first list to its final place; relevant ones stand out."""
    paths = {id: _with_final(answer, id) for id in answer.paths}
    columns = _columns(list(paths.values()))
    frame = Frame(width, 30 + 19 * (SHOWN + 2), left=24, right=102, top=34, bottom=8)
    step = frame.inner_width / max(1, len(columns) - 1)

    def place(column: str, rank: int) -> tuple[float, float]:
        return frame.left + columns.index(column) * step, frame.top + 19 * (min(rank, SHOWN + 1) - 0.5)

    body = [
        _heading(frame, column, at, step, last=at + 1 == len(columns)) for at, column in enumerate(columns)
    ]
    relevant_last = sorted(paths, key=lambda id: (judged.get(id, 0) > 0, id))
    body += [_line(id, dict(paths[id]), columns, place, judged.get(id, 0)) for id in relevant_last]
    lane = place(columns[0], SHOWN + 1)[1] + 4
    body.append(
        html('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">…</text>', frame.left - 10, lane)
    )
    return figure(frame, body, label=label, kind="flow")


def _with_final(answer: Answer, id: str) -> list[tuple[str, int]]:
    path = [(where, rank) for _, where, rank in answer.paths[id]]
    return [*path, ("final", answer.ids.index(id) + 1)] if id in answer.ids else path


def _columns(paths: list[list[tuple[str, int]]]) -> list[str]:
    """Return the stages in the order in which paths name them; "final" is always last."""
    seen = dict.fromkeys(where for path in sorted(paths, key=len, reverse=True) for where, _ in path)
    return [where for where in seen if where != "final"] + ["final"]


def _heading(frame: Frame, column: str, at: int, step: float, *, last: bool) -> Markup:
    anchor = "start" if at == 0 else "end" if last and at else "middle"
    x = frame.left + at * step - (8 if at == 0 else 0)
    label = column.rpartition(".")[2]
    y = 14 if at % 2 == 0 else 27  # on two lines, so that neighbours do not touch
    return html('<text class="tick" x="{:.1f}" y="{}" text-anchor="{}">{}</text>', x, y, anchor, label)


def _line(id: str, path: dict[str, int], columns: list[str], place: Place, grade: int) -> Markup:
    points = [(*place(column, path[column]), path[column]) for column in columns if column in path]
    label = f"{id}: " + ", ".join(f"{column} {path[column]}" for column in columns if column in path)
    parts = [html("<title>{}</title>", label)]
    if len(points) > 1:
        parts.append(html('<polyline points="{}"/>', " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)))
    for x, y, rank in points:
        shown = rank if rank < 100 else "…"
        parts.append(html('<circle cx="{:.1f}" cy="{:.1f}" r="8"/>', x, y))
        parts.append(html('<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>', x, y + 3.5, shown))
    if "final" in path and path["final"] <= SHOWN:
        x, y = place("final", path["final"])
        name = id if len(id) <= 13 else id[:12] + "…"
        parts.append(html('<text class="id" x="{:.1f}" y="{:.1f}">{}</text>', x + 13, y + 4, name))
    return html('<g class="{}">{}</g>', "relevant" if grade > 0 else "other", joined(parts))
