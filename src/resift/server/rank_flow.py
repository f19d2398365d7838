"""The rank flow for the playground: two pictures without style, and the steps of each hit as data."""

from __future__ import annotations

from resift.explain.flow import flow_of
from resift.explain.layout import layout_of
from resift.explain.svg_picture import NARROW, WIDE, picture
from resift.types import JsonObject, Ranking

TOP = 10


def rank_flow(ranking: Ranking, query: str) -> JsonObject:
    """Return the pictures for a wide and a narrow screen; their style is a file of the playground."""
    flow = flow_of(ranking, query=query)
    layout = layout_of(flow, top=TOP)
    if not layout.lines:
        return {}
    return {
        "wide": picture(flow, layout, frame=WIDE, kind="wide", links=True),
        "narrow": picture(flow, layout, frame=NARROW, kind="narrow", links=True),
    }
