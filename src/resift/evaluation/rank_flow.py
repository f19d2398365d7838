"""How documents of one query move through a pipeline's stages: their paths, drawn as `explain` draws them."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from resift.evaluation.work_file import Answer
from resift.explain.flow import Column, Flow, Path, Place
from resift.explain.layout import layout_of
from resift.explain.svg_picture import Frame, picture
from resift.types import Hit, StageKind

SHOWN = 10
"""How many of the first documents are drawn; relevant ones that fell behind come on top."""

FRAME = Frame(width=440, label=150, row=24, radius=10, top=46, left=18, name_chars=16)


def rank_flow(answer: Answer, judged: Mapping[str, int]) -> Markup:
    """Draw a line per document from its first list to its final place; relevant ones stand out."""
    flow = _flow(answer)
    relevant = {id for id, grade in judged.items() if grade > 0}
    return picture(flow, layout_of(flow, top=SHOWN), frame=FRAME, kind="report", marked=relevant)


def _flow(answer: Answer) -> Flow:
    columns = _columns(answer)
    finals = {id: place for place, id in enumerate(answer.ids, start=1)}
    paths = []
    for id, stops in answer.paths.items():
        places = {f"{stop.kind}:{stop.where}": Place(stop.rank, None) for stop in stops}
        if id in finals:
            places["final"] = Place(finals[id], None)
        paths.append(Path(Hit(id), places, finals.get(id), ""))
    kept = sorted((path for path in paths if path.final), key=lambda path: path.final or 0)
    return Flow(columns, tuple(kept), tuple(path for path in paths if not path.final))


def _columns(answer: Answer) -> tuple[Column, ...]:
    """Return lists and stages in the order in which paths meet them, then the final places."""
    stops = {
        (stop.kind, stop.where): None
        for path in sorted(answer.paths.values(), key=len, reverse=True)
        for stop in path
    }
    lists = [name for kind, name in stops if kind == StageKind.RETRIEVE]
    found = [Column(f"{StageKind.RETRIEVE}:{name}", name.rpartition(".")[2], name, True) for name in lists]
    found += [Column(f"{kind}:{name}", name) for kind, name in stops if kind != StageKind.RETRIEVE]
    return (*found, Column("final", "final"))
