"""Where the scores fall off: the one cliff past the must-have core that a floor may be raised to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resift.errors import InputError

_NOISE = 1e-12  # 0.30 − 0.25 is a hair under 0.05 in binary; the rule means the decimal numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """What counts as a cliff: the next score under `ratio` of this one, and at least `min_drop` lower."""

    # Both must hold: a ratio alone finds cliffs among scores near 0, a drop alone among large ones.
    ratio: float = 0.85
    min_drop: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1 or self.min_drop < 0:
            raise InputError(
                f"Cliff(ratio={self.ratio}, min_drop={self.min_drop}); use 0 < ratio ≤ 1 and min_drop ≥ 0."
            )

    def between(self, current: float, following: float) -> bool:
        """Whether the step from one score to the next is a cliff."""
        steep = following < self.ratio * current - _NOISE
        return steep and current - following >= self.min_drop - _NOISE


@dataclass(frozen=True, slots=True)
class Hint:
    """What the scores suggest: raise the floor to `floor` and keep `position` hits, or why not.

    `floor` is the lowest score above the cliff and `position` the number of scores above it.
    """

    floor: float | None = None
    position: int | None = None
    skip_reason: str | None = None


def find_cliff(
    scores: Sequence[float] | None,
    *,
    floor: float | None,
    rerank_top_n: int | None,
    policy: Cliff | None = None,
) -> Hint:
    """Return the first cliff past the core of `rerank_top_n` scores, or the reason why there is none.

    The first cliff decides: when its bottom is already under the static floor, no other is looked for,
    because everything further down is under the floor as well.
    """
    rules = policy or Cliff()
    if scores is None or floor is None or rerank_top_n is None:
        return Hint(skip_reason="missing_inputs")
    # Nothing lies past the core, so nothing could be dropped.
    if len(scores) <= rerank_top_n:
        return Hint(skip_reason="no_room_above_core")
    falling = sorted(scores, reverse=True)
    # The core may end right at the cliff, so the first pair looked at is (last of core, first after it).
    for at in range(max(rerank_top_n, 1) - 1, len(falling) - 1):
        if rules.between(falling[at], falling[at + 1]):
            if falling[at + 1] < floor:
                return Hint(position=at + 1, skip_reason="not_above_static_floor")
            return Hint(floor=falling[at], position=at + 1)
    return Hint(skip_reason="no_cliff")
