"""Rankings as data: hits, cards for people, reasons and the rank flow."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from resift.explain.flow import Flow, find_move, hit_body, hit_location, hit_title, make_layout, read_flow
from resift.explain.svg import NARROW, WIDE, picture
from resift.server.schema import Fraction
from resift.text.snippets import Snippet, snippet
from resift.types import JsonObject, Ranking

FLOW_HITS = 10
SNIPPET_CHARS = 260


class RankedHit(Struct, kw_only=True):
    """A hit of an answer; with `explain` it has every field of `Hit.to_dict`."""

    id: str
    text: str
    score: float | None
    source: str
    metadata: JsonObject
    relevance: Fraction | UnsetType = UNSET


class StagePosition(Struct):
    """Rank and score of a hit after one stage."""

    stage: str
    rank: int
    score: float | None


class HitCard(Struct):
    """A hit as people see it: title, location, best part of the text, and what moved it.

    The snippet is in parts: text, and whether it is a match.
    """

    title: str
    location: str
    snippet: list[tuple[str, bool]]
    move: str
    kind: str
    reason: str
    stages: list[StagePosition]


class RankingAnswer(Struct, kw_only=True, omit_defaults=True):
    """A ranking as plain data.

    `cards`, `why`, `flow`, `cut` and `trace` come with `explain`; `report` is an HTML page.
    """

    hits: list[RankedHit]
    degraded: bool
    reason: str | None
    tier: str | None
    unscored: list[str]
    failures: dict[str, str]
    timings: dict[str, float]
    query: str = ""
    warnings: list[str] = []
    cards: list[HitCard] = []
    why: dict[str, str] = {}
    flow: dict[str, str] = {}
    report: str = ""
    cut: list[RankedHit] = []
    trace: list[JsonObject] = []
    passages: list[JsonObject] = []
    context: JsonObject = {}


_SHOWN_FIELDS = ("id", "text", "score", "source", "metadata")


def ranking_data(ranking: Ranking, *, query: str, explain: bool) -> JsonObject:
    """Return a ranking as plain data; with `explain`, the trace, the reasons and the rank flow too."""
    data = ranking.to_dict(timings=True)
    if explain:
        flow = read_flow(ranking, query=query)
        return {**data, "cards": hit_cards(flow), "why": ranking.why_all(), "flow": draw_rank_flow(flow)}
    data["hits"] = [{name: hit[name] for name in _SHOWN_FIELDS} for hit in data["hits"]]
    hidden = ("cut", "trace", "query")
    return {name: value for name, value in data.items() if name not in hidden}


def hit_cards(flow: Flow) -> list[HitCard]:
    """Return the hits as people see them, in order."""
    cards = []
    for path in flow.kept:
        part, move = snippet(hit_body(path.hit), flow.query, length=SNIPPET_CHARS), find_move(path, flow)
        stages = [
            StagePosition(" · ".join(filter(None, (column.label, column.by))), place.rank, place.score)
            for column in flow.columns
            if (place := path.places.get(column.key)) is not None
        ]
        cards.append(
            HitCard(
                title=hit_title(path.hit),
                location=hit_location(path.hit),
                snippet=_snippet_parts(part),
                move=move.sign,
                kind=move.kind,
                reason=move.reason,
                stages=stages,
            )
        )
    return cards


def _snippet_parts(part: Snippet) -> list[tuple[str, bool]]:
    parts, done = [], 0
    for start, end in part.matches:
        parts += [(part.text[done:start], False), (part.text[start:end], True)]
        done = end
    return [piece for piece in (*parts, (part.text[done:], False)) if piece[0]]


def draw_rank_flow(flow: Flow) -> dict[str, str]:
    """Return the rank flow as SVG for a wide and a narrow screen; the playground has its style sheet."""
    layout = make_layout(flow, top=FLOW_HITS)
    if not layout.lines:
        return {}
    return {
        "wide": picture(flow, layout, frame=WIDE, kind="wide", links=True),
        "narrow": picture(flow, layout, frame=NARROW, kind="narrow", links=True),
    }
