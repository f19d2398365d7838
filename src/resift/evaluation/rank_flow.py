"""How documents of one query move through a pipeline's stages, drawn from their paths."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from resift.evaluation.svg import Frame, figure
from resift.evaluation.work_file import Answer

SHOWN = 10
"""Ranks that have a line of their own; deeper ones share the lane below."""


def rank_flow(answer: Answer, judged: Mapping[str, int], *, label: str, width: int = 350) -> str:
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
    body.append(f'<text class="tick" x="{frame.left - 10}" y="{lane:.1f}" text-anchor="end">…</text>')
    return figure(frame, body, label=label, kind="flow")


def _with_final(answer: Answer, id: str) -> list[tuple[str, int]]:
    path = [(where, rank) for _, where, rank in answer.paths[id]]
    return [*path, ("final", answer.ids.index(id) + 1)] if id in answer.ids else path


def _columns(paths: list[list[tuple[str, int]]]) -> list[str]:
    """Return the stages in the order in which paths name them; "final" is always last."""
    seen = dict.fromkeys(where for path in sorted(paths, key=len, reverse=True) for where, _ in path)
    return [where for where in seen if where != "final"] + ["final"]


def _heading(frame: Frame, column: str, at: int, step: float, *, last: bool) -> str:
    anchor = "start" if at == 0 else "end" if last and at else "middle"
    x = frame.left + at * step - (8 if at == 0 else 0)
    told = column.rpartition(".")[2]
    y = 14 if at % 2 == 0 else 27  # on two lines, so that neighbours do not touch
    return f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(told)}</text>'


def _line(id: str, path: dict[str, int], columns: list[str], place: object, grade: int) -> str:
    assert callable(place)  # noqa: S101 - narrows object
    points = [(*place(column, path[column]), path[column]) for column in columns if column in path]
    kind = "relevant" if grade > 0 else "other"
    told = f"{id}: " + ", ".join(f"{column} {path[column]}" for column in columns if column in path)
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    parts = [f'<g class="{kind}"><title>{escape(told)}</title>']
    if len(points) > 1:
        parts.append(f'<polyline points="{drawn}"/>')
    for x, y, rank in points:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle">{rank if rank < 100 else "…"}</text>'
        )
    if "final" in path and path["final"] <= SHOWN:
        x, y = place("final", path["final"])
        name = id if len(id) <= 13 else id[:12] + "…"
        parts.append(f'<text class="id" x="{x + 13:.1f}" y="{y + 4:.1f}">{escape(name)}</text>')
    return "".join([*parts, "</g>"])
