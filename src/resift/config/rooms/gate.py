"""The section `gate`: which hits go on to the reranker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from resift.config.rooms.stores import names_of
from resift.config.schema import Key, Section, Settings
from resift.errors import InputError, did_you_mean
from resift.gate import profile_named
from resift.retrieval.gating import Gate

OWN_SCORE = "score"

SECTION = Section(
    name="gate",
    about="Which hits go on to the reranker: floors per section, relaxed or tightened by grade.",
    keys=(
        Key(
            name="profile",
            kind="text",
            default="neutral",
            about="Shipped floors to start from.",
            choices=("memosa", "neutral"),
        ),
        Key(
            name="signal",
            kind="text",
            default=OWN_SCORE,
            about="Whose scores the floors mean: a store's, such as docs.vectors, or `score`, the fused.",
        ),
        Key(name="floor", kind="number", about="Floor where a section has none of its own."),
        Key(name="floors", kind="weights", about="Floor per section; these replace the profile's."),
        Key(name="section", kind="text", about="The section where a search names none."),
        Key(
            name="source_type",
            kind="text",
            about="Metadata key whose values must not vanish through tightening.",
        ),
        Key(
            name="rerank_top_n", kind="int", least=1, about="Hits that tightening never cuts; k unless given."
        ),
        Key(name="top_k", kind="int", least=1, about="Most hits that go on."),
    ),
)


def build(
    settings: Settings, stores: Sequence[str], *, breaker_closed: Callable[[], bool] | None = None
) -> Gate:
    """Return the gating stage for stores of these names."""
    signal = settings["signal"]
    if signal != OWN_SCORE and signal not in stores:
        # Known before, but it turned out to be asked by words and by vectors: then which of the two?
        raise InputError(f"gate.signal is {signal!r}, which gives no scores. {did_you_mean(signal, stores)}")
    profile = profile_named(settings["profile"])
    changes = {**settings.given("signal", "source_type")}
    if settings["floor"] is not None:
        changes["default"] = settings["floor"]
    if settings["floors"]:
        changes["floors"] = {**profile.floors, **settings["floors"]}
    return Gate(
        replace(profile, **changes),
        breaker_closed=breaker_closed,
        **settings.given("section", "rerank_top_n", "top_k"),
    )


def check(settings: Settings, whole: Settings, add: Callable[[int | None, str], None]) -> None:
    """Note a signal that no store gives."""
    known = [OWN_SCORE, *(name for store in whole["stores"] or () for name in names_of(store))]
    signal = settings["signal"]
    if signal is not None and signal not in known:
        add(
            settings.line_of("signal"),
            f"gate.signal names the store {signal!r}. {did_you_mean(signal, known)}",
        )
