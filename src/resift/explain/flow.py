"""The path of each hit through the stages as data for pictures: positions, moves and rows.

`read_flow` converts the trace of a ranking to columns and positions. `find_move` describes the move of a hit.
`make_layout` selects the hits of a picture and assigns their rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from resift.explain.reasons import deciding_parts, format_score, ordinal, why_all
from resift.text.snippets import snippet
from resift.types import Hit, Ranking, StageKind, StageRecord, Trace


@dataclass(frozen=True, slots=True)
class FlowColumn:
    """One stage or first-stage list. `weighs` marks a stage that combines all earlier scores, such as the blend."""

    key: str
    label: str
    by: str = ""
    first_stage: bool = False
    weighs: bool = False


@dataclass(frozen=True, slots=True)
class FlowPosition:
    """Rank and score of a hit in one column, with the parts of the score."""

    rank: int
    score: float | None
    parts: tuple[tuple[str, float], ...] = ()
    note: str = ""


Stop = tuple[FlowColumn, FlowPosition]


@dataclass(frozen=True, slots=True)
class HitPath:
    """One hit: its position per column key, its final rank (None if it was dropped), and the reason.

    `decided` describes the part of the blended score that moved the hit.
    """

    hit: Hit
    places: Mapping[str, FlowPosition]
    final: int | None
    why: str
    cut: str = ""
    decided: str = ""

    @property
    def id(self) -> str:
        """The hit's id."""
        return self.hit.id


@dataclass(frozen=True, slots=True)
class Flow:
    """All paths of one ranking: the returned hits in their final order, then the dropped hits."""

    columns: tuple[FlowColumn, ...]
    kept: tuple[HitPath, ...]
    cut: tuple[HitPath, ...]
    query: str = ""
    degraded: bool = False
    reason: str = ""
    failures: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def pooled(self) -> tuple[FlowColumn, ...]:
        """The columns after the first-stage lists."""
        return tuple(column for column in self.columns if not column.first_stage)


def read_flow(ranking: Ranking, *, query: str = "") -> Flow:
    """Convert the trace of a ranking to a flow."""
    trace = ranking.trace
    columns, positions = _read_columns(trace, [hit.id for hit in (*ranking.hits, *ranking.cut)])
    # If several stages dropped a hit, the last one gives the reason.
    cut_reasons = {
        id: record.notes.get(id, record.note if record.kind is StageKind.CUT else "") or record.name
        for record in trace
        for id in record.dropped
    }
    sentences = why_all(ranking)
    decided = deciding_parts(trace, ranking.ids)
    kept = [
        HitPath(hit, positions[hit.id], rank, sentences[hit.id], decided=decided.get(hit.id, ""))
        for rank, hit in enumerate(ranking.hits, start=1)
    ]
    cut = [HitPath(hit, positions[hit.id], None, "", cut_reasons.get(hit.id, "")) for hit in ranking.cut]
    last = columns[-1].key if columns else ""
    if any(last not in path.places or path.places[last].rank != path.final for path in kept) or not columns:
        columns.append(FlowColumn("final", "final"))
        last_places = {path.id: FlowPosition(path.final or 0, path.hit.score) for path in kept}
        kept = [replace(path, places={**path.places, "final": last_places[path.id]}) for path in kept]
    reason, failures, timings = ranking.reason or "", dict(ranking.failures), dict(ranking.timings)
    return Flow(tuple(columns), tuple(kept), tuple(cut), query, ranking.degraded, reason, failures, timings)


def _read_columns(trace: Trace, ids: Sequence[str]) -> tuple[list[FlowColumn], dict[str, dict[str, FlowPosition]]]:
    """Return one column per record with an effect, and a mapping id -> column key -> position."""
    columns: list[FlowColumn] = []
    positions: dict[str, dict[str, FlowPosition]] = {id: {} for id in ids}
    merged = {other: id for record in trace for other, id in record.merged.items()}
    lists = [record.source for record in trace.by_kind(StageKind.RETRIEVE)]
    stages = [record for record in trace if record.kind is not StageKind.CUT]
    # First-stage lists come first, even if one was searched later.
    stages.sort(key=lambda record: record.kind is not StageKind.RETRIEVE)
    before: StageRecord | None = None
    for number, record in enumerate(stages):
        first = record.kind is StageKind.RETRIEVE
        silent = not (record.source or record.parts or record.note or record.notes)
        if before is not None and silent and record.kept is None and record.ids == before.order:
            # This stage changed nothing, so it shares the column of the previous stage.
            columns[-1] = replace(columns[-1], label=f"{columns[-1].label}, {record.name}")
            continue
        before = None if first else record
        key = f"{number}"
        label = _short_name(record.source, lists) if first else record.name
        weighs = record.kind is StageKind.GUARD and bool(record.parts)
        columns.append(FlowColumn(key, label or "list", record.source, first, weighs))
        for id, i in record.positions().items():
            step = record.step(i)
            hit_positions = positions.get(merged.get(id, id) if first else id)
            if hit_positions is not None and not step.cut:
                hit_positions[key] = FlowPosition(step.rank, step.score, step.parts, step.note)
    return columns, positions


def _short_name(name: str, lists: Sequence[str]) -> str:
    """Return the name of a list. If all lists belong to one store, the name of the store is omitted."""
    one_store = len(lists) > 1 and len({other.rpartition(".")[0] for other in lists}) == 1
    short = name.rpartition(".")[2] if one_store else name
    return short if [other.rpartition(".")[2] for other in lists].count(short) <= 1 else name


@dataclass(frozen=True, slots=True)
class Move:
    """The first and the last rank of a hit, and the stage that moved it most."""

    start: int
    end: int | None
    reason: str

    @property
    def up(self) -> int:
        """Number of ranks gained: negative for ranks lost, 0 for a dropped hit."""
        return 0 if self.end is None else self.start - self.end

    @property
    def kind(self) -> str:
        """One of "rose", "fell", "stayed" and "cut"."""
        if self.end is None:
            return "cut"
        return "rose" if self.up > 0 else "fell" if self.up < 0 else "stayed"

    @property
    def sign(self) -> str:
        """An arrow with the number of ranks, "=" for no move, or "✕" for a dropped hit."""
        return {"rose": f"▲{self.up}", "fell": f"▼{-self.up}", "stayed": "=", "cut": "✕"}[self.kind]


def find_move(path: HitPath, flow: Flow) -> Move:
    """Return the move from the fused list to the final ranking, or from the best list if there is no other stage."""
    stops = [(column, path.places[column.key]) for column in flow.pooled if column.key in path.places]
    lists = [column for column in flow.columns if column.first_stage and column.key in path.places]
    if len(flow.pooled) <= 1 and lists:
        best = min(lists, key=lambda column: path.places[column.key].rank)
        stops = [(best, path.places[best.key]), *stops]
    start = stops[0][1].rank if stops else (path.final or 0)
    if path.final is None:
        return Move(start, None, f"left out: {path.cut}" if path.cut else "left out")
    return Move(start, path.final, _move_reason(path, flow, stops))


def _ranks_gained(before: Stop, after: Stop) -> int:
    return before[1].rank - after[1].rank


def _move_reason(path: HitPath, flow: Flow, stops: list[Stop]) -> str:
    # Stages before the last weighing stage only contributed scores to it; they did not move the hit.
    last = max((i for i, (column, _) in enumerate(stops) if column.weighs), default=0)
    stops = [stops[0], *stops[last:]] if last else stops
    up = stops[0][1].rank - (path.final or 0) if stops else 0
    # Only moves in the direction of the total move explain the final rank.
    turns = [turn for turn in pairwise(stops) if _ranks_gained(*turn) * up > 0]
    if not turns:
        lists = [column for column in flow.columns if column.first_stage]
        labels = [column.label for column in lists if column.key in path.places]
        if len(lists) < 2 or not labels:
            return "kept its rank"
        in_lists = "in all lists" if len(labels) == len(lists) else f"only in {' and '.join(labels)}"
        return f"kept its rank; {in_lists}"
    # Report the largest move, or the earlier of two equal moves.
    (_, before), (column, after) = max(turns, key=lambda turn: abs(_ranks_gained(*turn)))
    # A column may be shared by several stages. Only the first one moved the hit.
    stage = column.label.partition(", ")[0]
    ranks = f"{ordinal(before.rank)} to {ordinal(after.rank)}"
    if column.weighs and path.decided:
        # The deciding part comes first, because narrow lines are clipped at the end.
        return f"{path.decided} ({stage}: {ranks})"
    moved = f"moved {'up' if after.rank < before.rank else 'down'} from {ranks} by {stage}"
    if column.weighs:
        return moved
    cause = f"{column.by} {format_score(after.score)}" if column.by else ""
    if after.parts:
        largest_first = sorted(after.parts, key=lambda part: -abs(part[1]))
        cause = " + ".join(f"{name} {format_score(value)}" for name, value in largest_first)
    cause = "; ".join(filter(None, (cause, after.note)))
    return f"{moved}: {cause}" if cause else moved


_DIGEST = re.compile(r"[0-9a-f]{12,}")
TITLE_WORDS = 9


def hit_title(hit: Hit) -> str:
    """Return title › heading, the file name, the id unless it is a digest, or the first words of the text."""
    title, heading = (str(hit.metadata.get(key) or "").strip() for key in ("title", "heading"))
    if title and (heading == title or heading.startswith(f"{title} › ")):
        title = ""  # the heading already starts with the title
    path = str(hit.metadata.get("path") or "")
    name = " › ".join(part for part in (title, heading) if part) or path.rpartition("/")[2]
    if name or not _DIGEST.fullmatch(hit.id):
        return name or hit.id
    words = hit.text[:1000].split()
    return " ".join(words[:TITLE_WORDS]) + (" …" if len(words) > TITLE_WORDS else "") or hit.id


def hit_location(hit: Hit) -> str:
    """Return the path, page and line of a hit, or "" if its title shows the same."""
    parts, title = [str(hit.metadata.get("path") or "")], hit_title(hit)
    for key, label in (("page", "p. "), ("slide", "slide "), ("sheet", "sheet "), ("line", "line ")):
        if hit.metadata.get(key) is not None:
            parts.append(f"{label}{hit.metadata[key]}")
    if not parts[0] and title != hit.id and not _DIGEST.fullmatch(hit.id):
        parts.append(hit.id)
    text = " · ".join(filter(None, parts))
    return "" if text == title else text


def hit_body(hit: Hit) -> str:
    """Return the text of a hit without the heading that indexing prepends."""
    for key in ("heading", "title"):
        head = str(hit.metadata.get(key) or "")
        if head and hit.text.startswith(head) and hit.text[len(head) :].strip():
            return hit.text[len(head) :].lstrip()
    return hit.text


def snippet_parts(text: str, query: str, *, length: int) -> list[tuple[str, bool]]:
    """Return the best snippet of a text for a query as (text, is a match) pieces."""
    best = snippet(text, query, length=length)
    parts, position = [], 0
    for start, end in best.matches:
        parts += [(best.text[position:start], False), (best.text[start:end], True)]
        position = end
    return [part for part in (*parts, (best.text[position:], False)) if part[0]]


MAX_FALLEN = 3  # displayed hits that ranked high in some column but are not among the top hits


class Node(NamedTuple):
    """A hit in one column or list. Rows start at 0. A hit that is missing from the column has no rank."""

    column: int
    row: int
    rank: int | None


class HitLine(NamedTuple):
    """The line of one hit through the picture: from the lists that contain it, then from stage to stage."""

    number: int
    path: HitPath
    move: Move
    nodes: tuple[Node, ...]
    list_nodes: tuple[Node, ...] = ()

    def rank_in(self, list: int) -> int | None:
        """Return the rank of the hit in this list, or None."""
        return next((node.rank for node in self.list_nodes if node.column == list), None)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns, lines and rows of a picture.

    Lists that were searched concurrently are drawn next to each other; their lines join at the first column.
    """

    columns: tuple[FlowColumn, ...]
    lines: tuple[HitLine, ...]
    rows: int
    lists: tuple[FlowColumn, ...] = ()

    def list_size(self, list: int) -> int:
        """Return the number of displayed hits in one of the lists."""
        return sum(line.rank_in(list) is not None for line in self.lines)


def make_layout(flow: Flow, *, top: int = 10, fallen: int = MAX_FALLEN) -> Layout:
    """Select the first `top` hits and a few that fell, and assign a row per column to each. Rows have no gaps."""
    pool = [path for path in (*flow.kept[top:], *flow.cut) if path.places]
    best_ranks = [(min(place.rank for place in path.places.values()), path.id, path) for path in pool]
    best_ranks.sort(key=lambda entry: entry[:2])
    paths = [*flow.kept[:top], *[path for best, _, path in best_ranks if best <= top][:fallen]]
    lists = tuple(column for column in flow.columns if column.first_stage)
    forked = len(lists) > 1 and len(lists) < len(flow.columns)
    columns = flow.pooled if forked else flow.columns
    nodes: dict[str, list[Node]] = {path.id: [] for path in paths}
    for i, column in enumerate(columns):
        ranked = _sort_by_rank(column, paths)
        # Hits that first appear in a later column follow. Hits that were dropped earlier do not.
        later = {after.key for after in columns[i:]}
        absent = [path for path in paths if column.key not in path.places and later & set(path.places)]
        for row, path in enumerate([*ranked, *absent]):
            position = path.places.get(column.key)
            nodes[path.id].append(Node(i, row, position.rank if position else None))
    list_nodes: dict[str, list[Node]] = {path.id: [] for path in paths}
    for i, column in enumerate(lists if forked else ()):
        for row, path in enumerate(_sort_by_rank(column, paths)):
            list_nodes[path.id].append(Node(i, row, path.places[column.key].rank))
    lines = tuple(
        HitLine(number, path, find_move(path, flow), tuple(nodes[path.id]), tuple(list_nodes[path.id]))
        for number, path in enumerate(paths, start=1)
    )
    return Layout(columns, lines, len(paths), lists if forked else ())


def _sort_by_rank(column: FlowColumn, paths: Sequence[HitPath]) -> list[HitPath]:
    present = [path for path in paths if column.key in path.places]
    return sorted(present, key=lambda path: (path.places[column.key].rank, path.id))
