"""Who rose, who fell, and which stage did it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from resift.explain.flow import Column, Flow, Path, Place
from resift.explain.reasons import format_score, ordinal


@dataclass(frozen=True, slots=True)
class Move:
    """How far a hit came from where it started, and the stage that moved it most."""

    start: int
    end: int | None
    reason: str

    @property
    def up(self) -> int:
        """Places gained; negative for places lost, 0 for a hit that was left out."""
        return 0 if self.end is None else self.start - self.end

    @property
    def kind(self) -> str:
        """One of rose, fell, stayed, cut."""
        if self.end is None:
            return "cut"
        return "rose" if self.up > 0 else "fell" if self.up < 0 else "stayed"

    @property
    def sign(self) -> str:
        """An arrow and the number of places."""
        return {"rose": f"▲{self.up}", "fell": f"▼{-self.up}", "stayed": "=", "cut": "✕"}[self.kind]


def move_of(path: Path, flow: Flow) -> Move:
    """Return a hit's move: from the fused list to the end, or from its best list where nothing came after."""
    stops = _stops(path, flow)
    start = stops[0][1].rank if stops else (path.final or 0)
    if path.final is None:
        return Move(start, None, f"left out: {path.cut}" if path.cut else "left out")
    return Move(start, path.final, _reason(path, flow, stops))


def _stops(path: Path, flow: Flow) -> list[tuple[Column, Place]]:
    pooled = [(column, path.places[column.key]) for column in flow.pooled if column.key in path.places]
    if len(flow.pooled) > 1:
        return pooled
    lists = [
        (path.places[column.key].rank, column)
        for column in flow.columns
        if column.first_stage and column.key in path.places
    ]
    if not lists:
        return pooled
    best = min(lists, key=lambda one: one[0])[1]
    return [(best, path.places[best.key]), *pooled]


def _reason(path: Path, flow: Flow, stops: list[tuple[Column, Place]]) -> str:
    stops = _deciding(stops)
    turns = [
        (abs(before.rank - after.rank), -at, before, column, after)
        for at, ((_, before), (column, after)) in enumerate(pairwise(stops))
    ]
    up = stops[0][1].rank - (path.final or 0) if stops else 0
    # A stage that moved it against its whole way does not explain where it ended.
    turns = [turn for turn in turns if (turn[2].rank - turn[4].rank) * up > 0]
    if not turns:
        return _found(path, flow)
    # Of equal moves the earlier one, which is why places are negative.
    _, _, before, column, after = max(turns, key=lambda turn: turn[:2])
    # A stage that changed nothing shares the column of the one before it; the first one moved the hit.
    stage = column.label.partition(", ")[0]
    way = f"{ordinal(before.rank)} to {ordinal(after.rank)}"
    if column.weighs and path.decided:
        # The deciding part first: a narrow line is cut at its end.
        return f"{path.decided} ({stage}: {way})"
    cause = "" if column.weighs else "; ".join(filter(None, (_because(column, after), after.note)))
    moved = f"moved {'up' if after.rank < before.rank else 'down'} from {way} by {stage}"
    return f"{moved}: {cause}" if cause else moved


def _deciding(stops: list[tuple[Column, Place]]) -> list[tuple[Column, Place]]:
    """Return the start and the stages from the last that weighs: what came between was evidence."""
    last = max((at for at, (column, _) in enumerate(stops) if column.weighs), default=0)
    return [stops[0], *stops[last:]] if last else stops


def _because(column: Column, place: Place) -> str:
    if place.parts:
        largest_first = sorted(place.parts, key=lambda part: -abs(part[1]))
        return " + ".join(f"{name} {format_score(value)}" for name, value in largest_first)
    return f"{column.by} {format_score(place.score)}" if column.by else ""


def _found(path: Path, flow: Flow) -> str:
    lists = [column for column in flow.columns if column.first_stage]
    by = [column.label for column in lists if column.key in path.places]
    if len(lists) < 2 or not by:
        return "stayed"
    where = "all lists" if len(by) == len(lists) else f"{' and '.join(by)} only"
    return f"stayed; found by {where}"
