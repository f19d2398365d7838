"""The whole file: every section, and the keys that stand beside them."""

from __future__ import annotations

from resift.config.rooms import fusion, gate, rerank, shape, stores
from resift.config.schema import Key, Section
from resift.retrieval.pipeline import FETCH as FETCH_DEPTH
from resift.retrieval.pipeline import TIMEOUT_S

FETCH = Section(
    name="fetch",
    about="How many hits each store is asked for: factor × k, at least `minimum`, at most `cap`.",
    keys=(
        Key(name="factor", kind="int", least=1, default=FETCH_DEPTH.factor, about="Times k."),
        Key(name="minimum", kind="int", least=0, default=FETCH_DEPTH.minimum, about="At least this many."),
        Key(name="cap", kind="int", least=1, default=FETCH_DEPTH.cap, about="At most this many."),
    ),
)

ROOT = Section(
    name="",
    about="A pipeline: stores, fusion, gate, rerank, guard, shape. Only `stores` is needed.",
    keys=(
        Key(
            name="stores", kind="sections", section=stores.SECTION, required=True, about=stores.SECTION.about
        ),
        Key(name="k", kind="int", least=1, most=10_000, default=10, about="How many hits a search returns."),
        Key(
            name="deadline_s", kind="number", above=0, about="Seconds for a whole search; none unless given."
        ),
        Key(
            name="timeout_s",
            kind="number",
            above=0,
            default=TIMEOUT_S,
            about="Longest wait for a store that has no `timeout_s` of its own, in seconds.",
        ),
        Key(
            name="capabilities",
            kind="texts",
            about="What is granted, such as db.docs:read or net.voyage; all unless given.",
        ),
        Key(name="fetch", kind="section", section=FETCH, about=FETCH.about),
        Key(name="fusion", kind="section", section=fusion.SECTION, about=fusion.SECTION.about),
        Key(name="gate", kind="section", section=gate.SECTION, about=gate.SECTION.about),
        Key(name="rerank", kind="section", section=rerank.SECTION, about=rerank.SECTION.about),
        Key(name="guard", kind="section", section=shape.GUARD, about=shape.GUARD.about),
        Key(name="shape", kind="section", section=shape.SECTION, about=shape.SECTION.about),
    ),
)
