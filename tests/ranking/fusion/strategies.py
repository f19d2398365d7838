"""Generators of ranked lists that make ties on purpose: few ids, few scores, repeated lists."""

from __future__ import annotations

from hypothesis import strategies as st

from resift import Hit

IDS = [f"d{number}" for number in range(8)]
SCORES = [0.0, 0.25, 0.25, 0.5, 1.0, 3.0]


@st.composite
def ranked_list(draw, source: str, *, unique: bool = True, scores=SCORES) -> list[Hit]:
    ids = draw(st.lists(st.sampled_from(IDS), unique=unique, max_size=8))
    return [
        Hit(
            id,
            text=draw(st.sampled_from(["", f"text of {id}"])),
            score=draw(st.sampled_from(scores)),
            source=source,
            metadata={"from": source, "n": draw(st.integers(0, 2))},
        )
        for id in ids
    ]


@st.composite
def rankings(draw, *, unique: bool = True, scores=SCORES, named: bool = False) -> list[list[Hit]]:
    """Two to six lists; unless `named`, several may share a source or have none."""
    count = draw(st.integers(1, 6))
    sources = (
        [f"s{n}" for n in range(count)]
        if named
        else draw(st.lists(st.sampled_from(["a", "b", ""]), min_size=count, max_size=count))
    )
    return [draw(ranked_list(source, unique=unique, scores=scores)) for source in sources]
