"""The sections `guard` and `shape`: who comes out, after the reranker and before the cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resift.config.schema import Key, Section, Settings
from resift.retrieval.shaping import Shape
from resift.shape import Blend, Guard, Precedence, Quota, Recovery, ShapePolicy

GUARD = Section(
    name="guard",
    about="Keeps one reranker's opinion from doing harm. With `rerank` it is on unless switched off.",
    keys=(
        Key(
            name="blend",
            kind="flag",
            default=True,
            about="Blend the reranker's scores with the first stage's.",
        ),
        Key(
            name="weight",
            kind="number",
            least=0,
            most=1,
            about="How much the reranker counts: 1 is the reranker alone, 0 the first stage alone (0.75).",
        ),
        Key(
            name="method",
            kind="text",
            about="How scores are blended (promote).",
            choices=("promote", "rank", "z-score"),
        ),
        Key(
            name="temperature",
            kind="number",
            above=0,
            about="How evenly `promote` shares its lift: low lifts the surest alone (1).",
        ),
        Key(
            name="neighbours",
            kind="number",
            least=0,
            most=1,
            about="How far a hit rises to the mean of the three most like it, if higher (0.5); 0 asks none.",
        ),
        Key(
            name="do_no_harm",
            kind="flag",
            default=True,
            about="A strong first-stage hit cannot fall out of the answer.",
        ),
        Key(name="firsts", kind="int", least=1, about="Strong: first in this many lists (2)."),
        Key(
            name="margin",
            kind="number",
            least=0,
            about="Strong: leads the fused list by this share of its range (0.5).",
        ),
        Key(
            name="opinions",
            kind="int",
            least=1,
            about="More rerankers than this that agree are followed (1).",
        ),
    ),
)

_BLEND = ("weight", "method", "temperature", "neighbours")

PRECEDENCE = Section(
    name="shape.precedence",
    about="Near-equal scores follow an order of source types.",
    keys=(
        Key(
            name="order",
            kind="texts",
            about="Source types, the most trusted first (USER, EXCEL, COSTAR, PDF).",
        ),
        Key(
            name="margin", kind="number", least=0, about="From this gap on, scores are never flipped (0.01)."
        ),
        Key(name="key", kind="text", about="Metadata key of the source type (source_type)."),
        Key(
            name="scales", kind="weights", least=0, about="Smaller margin per provider (semantic-bm25: 0.5)."
        ),
    ),
)

QUOTA = Section(
    name="shape.quotas",
    about="How many of the k places one value of a metadata key may and must have.",
    keys=(
        Key(
            name="key", kind="text", required=True, about="The metadata key, such as document or source_type."
        ),
        Key(name="at_most", kind="int", least=1, about="Most places of one value."),
        Key(name="share", kind="number", above=0, most=1, about="Most places of one value, as a part of k."),
        Key(name="at_least", kind="int", least=0, about="Fewest places of each value in the pool."),
        Key(
            name="absent",
            kind="text",
            about="What a hit without the key counts under.",
            choices=("source", "id", "exempt"),
        ),
    ),
)

RECOVERY = Section(
    name="shape.recovery",
    about="Protected hits that the cut would remove come back.",
    keys=(
        Key(name="limit", kind="int", least=0, about="Most hits that come back (8)."),
        Key(name="key", kind="text", about="Metadata key that marks protected hits (stage)."),
        Key(name="values", kind="texts", about="Its values that protect (B)."),
        Key(name="source_type", kind="text", about="Metadata key of the source type (source_type)."),
        Key(
            name="survivors",
            kind="options",
            about="Per section, how many hits of a source type it needs: {financial_analysis: {EXCEL: 2}}.",
        ),
    ),
)

SECTION = Section(
    name="shape",
    about="Who comes out: precedence, folding, diversity, recovery and quotas, before the cut to k.",
    keys=(
        Key(name="precedence", kind="section", section=PRECEDENCE, about=PRECEDENCE.about),
        Key(
            name="fold",
            kind="number",
            above=0,
            most=1,
            about="Texts this similar share one place; 1 means equal.",
        ),
        Key(
            name="mmr",
            kind="number",
            least=0,
            most=1,
            about="Relevance against novelty: 1 is relevance alone.",
        ),
        Key(name="quotas", kind="sections", section=QUOTA, about=QUOTA.about),
        Key(name="recovery", kind="section", section=RECOVERY, about=RECOVERY.about),
        Key(name="section", kind="text", about="The section where a search names none."),
    ),
)


def check(settings: Settings, add: Callable[[int | None, str], None]) -> None:
    """Note survivors that are no counts per section and source type."""
    recovery = settings["recovery"]
    survivors = {} if recovery is None else recovery["survivors"] or {}
    for section, wanted in survivors.items():
        counts = wanted.values() if isinstance(wanted, dict) else [wanted]
        if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
            add(
                recovery.line_of("survivors"),
                f"shape.recovery.survivors.{section} must name whole numbers per source type: {{EXCEL: 2}}.",
            )


def build(guard: Settings | None, shape: Settings | None, *, reranks: bool) -> Shape | None:
    """Return the one stage of guard and shape, or None where neither is wanted."""
    if guard is None and shape is None and not reranks:
        return None
    rules: dict[str, Any] = {**_guard(guard, reranks=reranks), **({} if shape is None else _shape(shape))}
    section = None if shape is None else shape["section"]
    return Shape(ShapePolicy(**rules), section=section, name="guard" if shape is None else "shape")


def _guard(settings: Settings | None, *, reranks: bool) -> dict[str, Any]:
    if settings is None:
        # Nothing to guard against where nothing is reranked.
        return {} if reranks else {"blend": None, "guard": None}
    return {
        "blend": Blend(**settings.given(*_BLEND)) if settings["blend"] else None,
        "guard": Guard(**settings.given("firsts", "margin", "opinions")) if settings["do_no_harm"] else None,
    }


def _shape(settings: Settings) -> dict[str, Any]:
    precedence, recovery = settings["precedence"], settings["recovery"]
    rules: dict[str, Any] = settings.given("fold", "mmr")
    rules["quotas"] = tuple(Quota(**quota.plain()) for quota in settings["quotas"] or ())
    if precedence is not None:
        rules["precedence"] = Precedence(**_tuples(precedence.plain()))
    if recovery is not None:
        rules["recovery"] = Recovery(**_tuples(recovery.plain()))
    return rules


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
